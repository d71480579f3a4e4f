"""Robots for `crossfade parity robot`: both halves of a small system side by side.

The world is stepped in NumPy and in JAX by actions of every size, from the same states, with everything random that can
be; the rollouts compare whole stretches of PPO's collecting, from actions over resets to the statistics.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from ...algos.amp.batch import Transitions
from ...algos.ppo.batch import Minibatch
from ...algos.ppo.hook import KEY, Aux
from ...config import apply
from ...envs.robot.params import Settings
from ...envs.world import BoundWorld
from ...parity.twin import Twin
from ...random import random_numpy as random
from . import RANDOMISED, RECORD
from .config import RobotConfig

SMALL = (
    "env.see_command=true",
    "env.forward=0.2,0.6",
    "env.limit=12",
    *RANDOMISED,
    "env.randomisation.push_every=3,6",
    "hidden=16",
    "n_envs=8",
    "n_steps=16",
    "minibatches=4",
    "epochs=1",
)
ENV_STEPS = 32


class Taught(NamedTuple):
    """What both halves learn from in one step."""

    steps: Minibatch
    hooked: Transitions | None  # of a style


def robot(*words: str) -> Twin:
    """The system of a small config, `robot("env.model=sprig11", "env.physics=mujoco")` for one."""
    import jax
    import jax.numpy as jnp
    import torch

    from ...algos.ppo import learner_torch
    from ...bridge import Mapping
    from .system_jax import System as JaxSystem
    from .system_torch import System as TorchSystem

    config = apply(apply(RobotConfig(), SMALL), words)
    ours, theirs = TorchSystem(config), JaxSystem(config)
    policy, model = ours.make_policy(ours.parameters()), theirs.make_policy(ours.parameters())
    start, other = ours.start_buffer(), TorchSystem(replace(config, seed=config.seed + 1)).parameters()
    actor = ours.make_policy(other)

    @cache
    def batch(i: int) -> Taught:
        """All steps of a rollout of another policy, so that ratios are away from 1 and values from the old ones."""
        collected = ours.collect(actor, start, i)[0]
        given = ours.tensors(collected)
        noise = None if given.noise is None else given.noise[0]
        advantage = learner_torch.normalized(given.steps.advantage, config)
        steps = given.steps._replace(advantage=advantage, noise=noise)
        hooked = None if config.style is None else Transitions(*(rows[0] for rows in collected.hooked))
        return Taught(_arrays(steps), hooked)

    shape = ENV_STEPS, config.n_envs, ours.world.action_space.dim  # pyright: ignore[reportAttributeAccessIssue]
    return Twin(
        "robot",
        torch=policy,
        jax=model,
        mapping=Mapping.by_name(policy, model),
        batches=batch,
        forward=(_forward, _forward),
        loss=(partial(_loss, ours), partial(_loss, theirs)),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=config.lr, eps=config.adam_eps),
        clip_norm=config.clip_norm,
        env=(
            _Stepper(ours.world, config, np.asarray, ours.world.begin),
            _Stepper(theirs.compiled, config, jnp.asarray, jax.jit(theirs.compiled.begin)),
        ),
        actions=np.random.default_rng(0).uniform(-1, 1, shape),
        rollout=(lambda p, key: _host_rollout(config, p, key), lambda p, key: _compiled_rollout(config, p, key)),
    )


def styled() -> Twin:
    """With a style: `crossfade parity crossfade.systems.robot.twin:styled`."""
    return robot("style=amp")


def as_brax() -> Twin:
    """With PPO as Brax has it: `crossfade parity crossfade.systems.robot.twin:as_brax`."""
    given = {word.split("=")[0] for word in SMALL} | {"steps"}
    return robot(*(word for word in RECORD.presets["brax"] if word.split("=")[0] not in given))


def _arrays(tree: Any) -> Any:
    """The same in NumPy."""
    if isinstance(tree, tuple):
        return type(tree)(*map(_arrays, tree))
    return None if tree is None else np.asarray(tree)


def _forward(policy: Any, batch: Taught) -> tuple[Any, ...]:
    """What the networks say: of a style, the scores of the policy's transitions too."""
    found = policy(batch.steps.observation)
    return found if batch.hooked is None else (*found, policy.discriminator(batch.hooked.policy))


def _loss(system: Any, policy: Any, batch: Taught) -> tuple[Any, dict[str, Any]]:
    """That of PPO, and with a style that of the discriminator beside it: no parameter has both."""
    total, info = system.loss(policy, batch.steps)
    if batch.hooked is None:
        return total, info
    own, told = system.hook.loss(policy, batch.hooked)
    return total + own, {**info, **told}


class _Stepper:
    """Robots as the level `env` steps them, in the precision of the level; those that have fallen stay in."""

    def __init__(self, env: Any, config: RobotConfig, array: Callable[[np.ndarray], Any], begin: Callable[..., Any]):
        self.env, self.array, self.config, self.begin = env, array, config, begin
        self.uniform = random.uniform(random.key(1), (config.n_envs, env.start_numbers), "float32")

    def reset(self, key: Any) -> Any:
        import jax.numpy as jnp

        given = self.config.env.settings(str(jnp.result_type(float)))
        self.settings = Settings(*map(self.array, given))
        return self.begin(None, self.settings, self.array(self.uniform))

    def step(self, state: Any, action: Any) -> Any:
        after, outcome = self.env.step(None, self.settings, state, action)
        return after, {"outcome": outcome, "observation": self.env.observe(None, self.settings, after)}


def _host_rollout(config: RobotConfig, policy: Any, key: Any) -> dict[str, Any]:
    from .system_torch import System

    system = System(replace(config, dtype=str(next(policy.parameters()).dtype).removeprefix("torch.")))
    system.key = key.numpy().astype(np.uint32)
    collected, carry = system.collect(policy, system.start_buffer(), 0)
    return _trajectory(collected.rollout, carry)


def _compiled_rollout(config: RobotConfig, policy: Any, key: Any) -> dict[str, Any]:
    return _rollout_program(replace(config, mode="jax_full", dtype=str(policy.critic[0].weight.dtype)))(policy, key)


@cache
def _rollout_program(config: RobotConfig) -> Callable[[Any, Any], dict[str, Any]]:
    """Compiled once for each precision: a proof disturbs one parameter after the other."""
    import jax
    import jax.numpy as jnp

    from ...algos.ppo.acting_jax import Actor
    from ...algos.ppo.rollout_jax import collect, draw
    from .system_jax import System

    system = System(config)
    world, actions, start, hook = system.compiled, system.actions, system.start_buffer(), system.hook
    envs = BoundWorld(world, None, jax.tree.map(jnp.asarray, system.settings(0)))
    watch = None if hook is None else partial(hook.watch_compiled, envs)

    def rollout(policy: Any, key: Any) -> dict[str, Any]:
        key = jax.random.fold_in(key, 0)
        noise = draw(key, config, actions, world.start_numbers)
        found, carry, _ = collect(Actor(policy, actions), envs, start, noise, config, watch)
        if hook is not None:
            aux = Aux(policy, hook.make_optimizer(policy).init(policy), start.aux)
            given = aux, found.watched, found.reward, jax.random.fold_in(key, KEY)
            reward, aux, _ = hook(system.hook_data, *given, 1)
            found, carry = found._replace(reward=reward), carry._replace(aux=aux.memory)
        return _trajectory(found, carry)

    return jax.jit(rollout)


def _trajectory(rollout: Any, carry: Any) -> dict[str, Any]:
    """All that was done, and the robots and statistics after it; what was seen is kept in two ways."""
    done = {name: value for name, value in rollout._asdict().items() if name not in ("state", "watched", "last")}
    memory = {} if carry.aux is None else {"memory": carry.aux}
    return {**done, "robots": carry.state, "statistics": carry.statistics, **memory}
