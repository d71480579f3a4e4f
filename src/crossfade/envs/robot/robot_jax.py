"""The robot's world in JAX, any number of robots at once. Twin: robot_numpy.py. The rules are in params.py."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32

from ..world import Continuous
from . import randomisation_jax as randomisation
from .engines import Engine, make_engine
from .model import Body, RobotModel, Variation
from .observation_jax import motion, observation
from .params import HEIGHT, RobotParams, Settings
from .reward_jax import has_fallen, terms, weighted
from .state import Motion, Outcome, State, Told


@dataclass(frozen=True)
class Robot:
    """See `RobotParams`. A world without data; its settings are the ranges of the command."""

    params: RobotParams
    keeps_observations: ClassVar[bool] = True

    @cached_property
    def model(self) -> RobotModel:
        """The robot as the physics knows it."""
        return self.params.load()

    @cached_property
    def engine(self) -> Engine:
        """What moves it."""
        return make_engine(self.model, self.params.physics, "jax")

    @property
    def observation_dim(self) -> int:
        """3 n + 11, and 3 more where the command is seen."""
        return 3 * self.model.nu + 11 + 3 * self.params.see_command

    @property
    def action_space(self) -> Continuous:
        """A number for each actuated joint."""
        return Continuous(self.model.nu)

    @property
    def start_numbers(self) -> int:
        """One for each joint, and those of the episode."""
        return self.model.nu + randomisation.NUMBERS

    def begin(self, data: None, settings: Settings, uniform: Float32[Array, "*batch numbers"]) -> State:
        """Robots near their home pose."""
        model, params, ranges, dtype = self.model, self.params, self.params.randomisation, settings.low.dtype
        rest, drawn = uniform[..., : randomisation.NUMBERS], uniform.astype(dtype)
        variation = randomisation.variation_of(model, ranges, drawn[..., 5:9])
        batch, places = uniform.shape[:-1], np.asarray(model.joint_qpos)
        qpos = jnp.broadcast_to(np.asarray(model.home, dtype), (*batch, model.nq))
        qpos = qpos.at[..., places].add(params.spread * (2 * drawn[..., randomisation.NUMBERS :] - 1))
        qpos = qpos.at[..., HEIGHT[model.base]].add(variation.terrain)
        still = jnp.zeros((*batch, model.nv), dtype)
        body = Body(qpos, still, still)
        state = State(
            body=body,
            variation=variation,
            strength=randomisation.between(*ranges.strength, drawn[..., 9]),
            latency=randomisation.counted(ranges.latency, rest[..., 10]),
            ring=jnp.zeros((*batch, ranges.latency[1] + 1, model.nu), dtype),
            command=randomisation.command_of(settings, drawn[..., 2:5]),
            push_every=randomisation.counted(ranges.push_every, rest[..., 11]),
            key=randomisation.key_of(rest[..., :2]),
            t=jnp.zeros(batch, jnp.int32),
            observation=None,
        )
        return state._replace(observation=self._seen(state, motion(model, body)))

    def observe(self, data: None, settings: Settings, state: State) -> Float[Array, "*batch o"]:
        """What was seen when the state came to be."""
        return state.observation

    def mask(self, data: None, settings: Settings, state: State) -> None:
        """None: every action is legal."""
        return None

    def step(
        self, data: None, settings: Settings, state: State, action: Float[Array, "*batch nu"]
    ) -> tuple[State, Outcome]:
        """The robots a control step later, and what came of it."""
        action = action.astype(state.ring.dtype)
        if self.params.callback:
            return self._called_back(settings, state, action)
        batch, chunk = state.t.shape, self.params.chunk
        if len(batch) != 1 or not chunk or batch[0] <= chunk or batch[0] % chunk:
            return self._step(state, action)
        cut = lambda x: x.reshape(-1, chunk, *x.shape[1:])
        found = jax.lax.map(lambda given: self._step(*given), jax.tree.map(cut, (state, action)))
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)

    def torque(
        self, body: Body, target: Float[Array, "*batch nu"], strength: Float[Array, "*batch"]
    ) -> Float[Array, "*batch nu"]:
        """clip(strength (kp (target - q) - kd q'), -limit, limit)."""
        q, speed = body.qpos[..., np.asarray(self.model.joint_qpos)], body.qvel[..., np.asarray(self.model.joint_qvel)]
        limit = jnp.broadcast_to(np.asarray(self.model.torque_limit, q.dtype), q.shape)
        wanted = self.params.kp * (target - q) - self.params.kd * speed
        return jnp.clip(strength[..., None] * wanted, -limit, limit)

    def _step(self, state: State, action: Float[Array, "*batch nu"]) -> tuple[State, Outcome]:
        model, params = self.model, self.params
        ring = jnp.concatenate([action[..., None, :], state.ring[..., :-1, :]], -2)
        applied = jnp.take_along_axis(ring, state.latency[..., None, None], -2)[..., 0, :]
        home = np.asarray(model.joint_home, ring.dtype)
        target = jnp.broadcast_to(home, action.shape) + params.scale * applied
        moved, squared, absolute = self._moved(self._pushed(state), target, state.strength, state.variation)
        finite = jnp.isfinite(moved.qpos).all(-1) & jnp.isfinite(moved.qvel).all(-1)
        body = Body(*(jnp.where(finite[..., None], new, old) for new, old in zip(moved, state.body, strict=True)))
        now = motion(model, body)
        terminated = has_fallen(model, params, body, now, state.variation.terrain) | ~finite
        squared, absolute = jnp.where(finite, squared, 0), jnp.where(finite, absolute, 0)
        worth = terms(model, body, now, state.command, squared, action, state.ring[..., 0, :], terminated)
        counted = weighted(worth, params.weights)
        after = state._replace(body=body, ring=ring, t=state.t + 1)
        after = after._replace(observation=self._seen(after, now))
        error = jnp.abs(now.forward - state.command[..., 0])
        told = Told(*counted, now.forward, error, absolute, (~finite).astype(ring.dtype))
        return after, Outcome(sum(counted), terminated, (after.t >= params.limit) & ~terminated, told)

    def _moved(
        self, body: Body, target: Float[Array, "*batch nu"], strength: Float[Array, "*batch"], variation: Variation
    ) -> tuple[Body, Float[Array, "*batch"], Float[Array, "*batch"]]:
        """The body after all substeps, and the means over them of sum tau^2 and of a joint's |tau|."""

        def substep(now: tuple[Body, Array, Array], _: None) -> tuple[tuple[Body, Array, Array], None]:
            body, squared, absolute = now
            torque = self.torque(body, target, strength)
            squared, absolute = squared + (torque * torque).sum(-1), absolute + jnp.abs(torque).mean(-1)
            return (self.engine.step(body, torque, variation), squared, absolute), None

        nothing = jnp.zeros(target.shape[:-1], target.dtype)
        found, _ = jax.lax.scan(substep, (body, nothing, nothing), None, length=self.params.substeps)
        body, squared, absolute = found
        return body, squared / self.params.substeps, absolute / self.params.substeps

    def _pushed(self, state: State) -> Body:
        """The body, its base's velocity changed where a push is due."""
        model, ranges, body = self.model, self.params.randomisation, state.body
        if not ranges.pushes:
            return body
        due: Bool[Array, "*batch"] = (state.t + 1) % state.push_every == 0
        given = randomisation.impulse(model, ranges, state.key, state.t, str(body.qvel.dtype))
        change = given / (model.mass * state.variation.mass)[..., None]
        axes = 1 if model.base == "planar" else 2
        return body._replace(qvel=body.qvel.at[..., :axes].add(jnp.where(due[..., None], change, 0)[..., :axes]))

    def _seen(self, state: State, motion: Motion) -> Float[Array, "*batch o"]:
        """What a robot sees, noise included."""
        model, params, dtype = self.model, self.params, state.ring.dtype
        phase = (2 * np.pi * params.frequency * params.substeps * model.timestep) * state.t.astype(dtype)
        command = state.command if params.see_command else None
        seen = observation(model, state.body, motion, state.ring[..., 0, :], phase, command)
        if not params.randomisation.noise:
            return seen
        return seen + randomisation.noise(params.randomisation, state.key, state.t, self.observation_dim, str(dtype))

    def _called_back(
        self, settings: Settings, state: State, action: Float[Array, "*batch nu"]
    ) -> tuple[State, Outcome]:
        """The step of the NumPy twin, on the host."""
        from .robot_numpy import Robot as HostRobot

        host, given = HostRobot(self.params), (settings, state, action)
        inputs = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), given)
        shapes = jax.eval_shape(lambda settings, state, action: self._step(state, action), *given)

        def call(given: Any) -> Any:
            found = host.step(None, *jax.tree.map(lambda x, like: np.asarray(x).view(like.dtype), given, inputs))
            return jax.tree.map(lambda x, like: np.asarray(x, like.dtype).view(_words(like.dtype)), found, shapes)

        as_words = jax.tree.map(lambda x: _wordwise(x, _words(x.dtype)), given)
        told = jax.eval_shape(lambda tree: jax.tree.map(lambda x: _wordwise(x, _words(x.dtype)), tree), shapes)
        found = jax.pure_callback(call, told, as_words)
        return jax.tree.map(lambda x, like: _wordwise(x, like.dtype), found, shapes)


def _words(dtype: Any) -> np.dtype:
    """What crosses to the host: 64 bits as two of 32, since the thread there knows nothing of x64 and would round."""
    return np.dtype(np.uint32 if np.dtype(dtype).itemsize == 8 else dtype)


def _wordwise(x: Any, dtype: Any) -> Array:
    """The bits of an array as another dtype, its last axis made longer or shorter, as NumPy's `view` does it."""
    if x.dtype == dtype:
        return x
    if np.dtype(dtype).itemsize < x.dtype.itemsize:
        return jax.lax.bitcast_convert_type(x, dtype).reshape(*x.shape[:-1], -1)
    return jax.lax.bitcast_convert_type(x.reshape(*x.shape[:-1], -1, 2), dtype)
