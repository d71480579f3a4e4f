"""One process of the robot bench: one contender. `bench.py` says what is asked."""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from ...algos.ppo.batch import Noise, in_segments
from ...algos.ppo.config import PPOConfig
from ...bench.contest_worker import Contender, serve
from ...envs.robot.params import RobotParams
from ...envs.world import BoundWorld
from ...nn.distribution import Distribution

STEPS = 40  # of every robot in a pass
HIDDEN = 64
GROUP = 128  # robots that walk all steps of a pass before the next do: what they are made of stays in a core's cache
Physics = Literal["aba", "mujoco"]


class Task:
    """What every world is given: a robot, a policy of 64 tanh units, and all noise drawn ahead."""

    def __init__(self, n: int, model: str = "sprig11", physics: Physics = "aba"):
        from ...envs.robot.robot_numpy import Robot

        self.n, self.params = n, RobotParams(model=model, physics=physics)
        self.settings, self.host = self.params.settings(), Robot(self.params)
        rng, nu = np.random.default_rng(0), self.host.model.nu
        draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
        self.first = 0.1 * draw(self.host.observation_dim, HIDDEN)
        self.second = 0.1 * draw(HIDDEN, nu)
        self.noise = 0.3 * draw(STEPS, n, nu)
        self.uniform = rng.random((STEPS, n, self.host.start_numbers), np.float32)

    def act(self, observation: Any, noise: Any, tanh: Callable[[Any], Any], clip: Callable[..., Any]) -> Any:
        return clip(tanh(observation @ self.first) @ self.second + noise, -1, 1)


class JaxWorld:
    """Robots in one compiled program, shared among devices if there are several, `GROUP` of them after the other."""

    def __init__(self, n: int, physics: Physics = "aba", devices: int = 1, model: str = "sprig11"):
        import jax
        import jax.numpy as jnp

        from ...envs.robot.chunks_jax import in_chunks
        from ...envs.robot.robot_jax import Robot
        from ...optim import sharing_jax as sharing

        if devices > 1:
            sharing.mesh(devices)  # before anything else is asked of JAX
        task = Task(n, model, physics)
        self.steps, world = n * STEPS, Robot(task.params)

        def step(state: Any, given: tuple[Any, Any]) -> tuple[Any, Any]:
            noise, uniform = given
            action = task.act(world.observe(None, task.settings, state), noise, jnp.tanh, jnp.clip)
            after, outcome = world.step(None, task.settings, state, action)
            ended, fresh = outcome.terminated | outcome.truncated, world.begin(None, settings, uniform)
            along = lambda x: jnp.broadcast_to(ended.reshape(-1, *[1] * (x.ndim - 1)), x.shape)
            return jax.tree.map(lambda new, old: jnp.where(along(old), new, old), fresh, after), outcome.reward

        settings = jax.tree.map(jnp.asarray, task.settings)
        turned = lambda part: jnp.swapaxes(part, 0, 1)  # steps first, or robots

        def walk(state: Any, noise: Any, uniform: Any) -> tuple[Any, Any]:
            after, reward = jax.lax.scan(step, state, (turned(noise), turned(uniform)))
            return after, turned(reward)

        go, lanes = (lambda *given: in_chunks(walk, *given, size=GROUP)), sharing.SHARED
        compiled = jax.jit(sharing.spread(go, devices, (lanes,) * 3, (lanes, lanes)), donate_argnums=0)
        start = jax.tree.map(jnp.array, task.host.begin(None, task.settings, task.uniform[0]))
        self.state = sharing.place(start, devices, jax.tree.map(lambda _: lanes, start))
        noise, uniform = turned(jnp.asarray(task.noise)), turned(jnp.asarray(task.uniform))
        self.go = lambda state: jax.block_until_ready(compiled(state, noise, uniform))

    def once(self) -> None:
        self.state, self.reward = self.go(self.state)


class NumpyWorld:
    """Robots as NumPy arrays, moved by our engine or by MuJoCo's threads."""

    def __init__(self, n: int, physics: Physics = "aba", model: str = "sprig11"):
        from ...envs.vector_numpy import Vectorized

        self.task, self.steps = Task(n, model, physics), n * STEPS
        world = BoundWorld(self.task.host, None, self.task.settings)
        self.robots = Vectorized(world, world.begin(self.task.uniform[0]))

    def once(self) -> None:
        for noise, uniform in zip(self.task.noise, self.task.uniform, strict=True):
            outcome = self.robots.step(self.task.act(self.robots.observe(), noise, np.tanh, np.clip))
            if (ended := outcome.terminated | outcome.truncated).any():
                self.robots.restart(ended, uniform)


class LoopWorld:
    """MuJoCo robots one after the other in Python, as the published level 1 steps them, and a compiled policy for all.

    Lean: PD torque, observation and reward of one robot in NumPy, nothing random but the noise of the policy.
    """

    def __init__(self, n: int, model: str = "sprig11"):
        import jax
        import jax.numpy as jnp

        from ...envs.robot.mjcf import compiled

        self.mujoco: Any = import_module("mujoco")
        self.task, self.steps = Task(n, model, "mujoco"), n * STEPS
        self.robot = self.task.host.model
        self.made = compiled(self.robot)
        self.robots = [self.mujoco.MjData(self.made) for _ in range(n)]
        self.last, self.t = np.zeros((n, self.robot.nu)), np.zeros(n, int)
        act = jax.jit(lambda seen, noise: self.task.act(seen, noise, jnp.tanh, jnp.clip))
        self.act = lambda seen, noise: np.asarray(act(seen, noise))
        self.places, self.speeds = np.array(self.robot.joint_qpos), np.array(self.robot.joint_qvel)
        self.home, self.limit = np.array(self.robot.joint_home), np.array(self.robot.torque_limit)
        for data in self.robots:
            self._begin(data)

    def once(self) -> None:
        for noise in self.task.noise:
            seen = np.stack([self._seen(i, data) for i, data in enumerate(self.robots)]).astype(np.float32)
            for i, (data, action) in enumerate(zip(self.robots, self.act(seen, noise), strict=True)):
                self._step(i, data, action)

    def _begin(self, data: Any) -> None:
        self.mujoco.mj_resetData(self.made, data)
        data.qpos[:] = self.robot.home
        self.mujoco.mj_forward(self.made, data)

    def _step(self, i: int, data: Any, action: Float[np.ndarray, " nu"]) -> None:
        params, effort = self.task.params, 0.0
        target = self.home + params.scale * action
        for _ in range(params.substeps):
            torque = params.kp * (target - data.qpos[self.places]) - params.kd * data.qvel[self.speeds]
            torque = np.clip(torque, -self.limit, self.limit)
            effort += torque @ torque / params.substeps
            data.qfrc_applied[self.speeds] = torque
            self.mujoco.mj_step(self.made, data)
        w, x, y, z = data.qpos[3:7]
        upright = 1 - 2 * (x * x + y * y)
        pitch, roll = np.arcsin(2 * (w * y - z * x)), np.arctan2(2 * (w * x + y * z), upright)
        rate = action - self.last[i]
        self.reward = (
            1.5 * np.exp(-8 * (data.qvel[0] - params.forward[0]) ** 2)
            + 0.3 * np.exp(-4 * (pitch * pitch + roll * roll))
            + 0.2
            - 2e-4 * effort
            - 0.01 * (rate @ rate)
        )
        self.last[i], self.t[i] = action, self.t[i] + 1
        low = data.qpos[2] < params.least_height * self.robot.home[2]
        if low or upright < params.least_upright or self.t[i] >= params.limit:
            self._begin(data)
            self.last[i], self.t[i] = 0, 0

    def _seen(self, i: int, data: Any) -> Float[np.ndarray, " o"]:
        w, x, y, z = data.qpos[3:7]
        gravity = np.array([2 * (w * y - x * z), -2 * (y * z + w * x), 2 * (x * x + y * y) - 1])
        pitch, roll = np.arcsin(2 * (w * y - z * x)), np.arctan2(2 * (w * x + y * z), -gravity[2])
        phase = 2 * np.pi * self.task.params.frequency * self.t[i] * self.task.params.substeps * self.robot.timestep
        com = data.xmat[1].reshape(3, 3).T @ (data.subtree_com[1] - data.qpos[:3])
        extras = np.array([np.sin(phase), np.cos(phase), data.qpos[2], pitch, roll])
        return np.concatenate([gravity, data.qpos[self.places], data.qvel[self.speeds], self.last[i], extras, com])


class Ppo:
    """Whole updates of PPO in one mode: collecting, advantages, epochs of minibatches."""

    def __init__(self, words: list[str], updates: int = 1):
        import torch

        from ...algos.ppo import rollout_numpy
        from ...config import apply
        from ...trainers.making import make_trainer
        from . import RECORD
        from .config import RobotConfig

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        rollout_numpy.draw = draw_natively
        config = apply(RobotConfig(steps=1_000_000), words)
        self.trainer, self.update, self.updates = make_trainer(RECORD, config), 0, updates
        self.steps = updates * config.env_steps

    def once(self) -> None:
        self.told = self.trainer.run(self.update, self.updates)
        self.update += self.updates


class BraxPpo:
    """The same amount of Brax's PPO."""

    def __init__(self, words: list[str], updates: int = 1):
        from ...config import apply
        from .brax_trainer_jax import BraxTrainer
        from .config import RobotConfig

        config = apply(RobotConfig(steps=updates * 100_000), words)
        self.trainer, self.update, self.updates = BraxTrainer(config, every=updates), 0, updates
        self.steps = updates * config.env_steps

    def once(self) -> None:
        self.told = self.trainer.run(self.update, self.updates)
        self.update += self.updates


def draw_natively(key: np.ndarray, config: PPOConfig, actions: Distribution, start_numbers: int) -> Noise:
    """An update's randomness from NumPy's own generator: equal streams must not slow the modes on the host."""
    rng, shape = np.random.default_rng(key), (config.n_steps, config.n_envs)
    normal = rng.standard_normal((*shape, actions.noise_dim), config.dtype)
    n, uniform = shape[0] * shape[1], rng.random((*shape, start_numbers), np.float32)
    permutation = lambda: in_segments(rng.permutation(shape[1]), config) if config.segments else rng.permutation(n)
    order = np.stack([permutation() for _ in range(config.epochs)])
    if not config.samples_entropy:
        return Noise(normal, uniform, order)
    return Noise(normal, uniform, order, rng.standard_normal((config.epochs, n, actions.noise_dim), config.dtype))


KINDS: dict[str, Callable[..., Contender]] = {
    "jax": JaxWorld,
    "numpy": NumpyWorld,
    "loop": LoopWorld,
    "ppo": Ppo,
    "brax": BraxPpo,
}

if __name__ == "__main__":
    serve(KINDS)
