"""The robot's world in NumPy, any number of robots at once. Twin: robot_jax.py. The rules are in params.py."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float32

from ..world import Continuous
from . import randomisation_numpy as randomisation
from .engines import Engine, make_engine
from .model import Body, RobotModel, Variation
from .observation_numpy import motion, observation
from .params import HEIGHT, RobotParams, Settings
from .reward_numpy import has_fallen, terms, weighted
from .state import Motion, Outcome, State, Told

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes


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
        return make_engine(self.model, self.params.physics, "numpy")

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
        qpos = np.broadcast_to(np.asarray(model.home, dtype), (*batch, model.nq)).copy()
        qpos[..., places] += params.spread * (2 * drawn[..., randomisation.NUMBERS :] - 1)
        qpos[..., HEIGHT[model.base]] += variation.terrain
        still = np.zeros((*batch, model.nv), dtype)
        body = Body(qpos, still, still)
        state = State(
            body=body,
            variation=variation,
            strength=randomisation.between(*ranges.strength, drawn[..., 9]),
            latency=randomisation.counted(ranges.latency, rest[..., 10]),
            ring=np.zeros((*batch, ranges.latency[1] + 1, model.nu), dtype),
            command=randomisation.command_of(settings, drawn[..., 2:5]),
            push_every=randomisation.counted(ranges.push_every, rest[..., 11]),
            key=randomisation.key_of(rest[..., :2]),
            t=np.zeros(batch, np.int32),
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
        model, params = self.model, self.params
        action = action.astype(state.ring.dtype)
        ring = np.concatenate([action[..., None, :], state.ring[..., :-1, :]], -2)
        applied = np.take_along_axis(ring, state.latency[..., None, None], -2)[..., 0, :]
        target = np.asarray(model.joint_home, ring.dtype) + params.scale * applied
        moved, squared, absolute = self._moved(self._pushed(state), target, state.strength, state.variation)
        finite = np.isfinite(moved.qpos).all(-1) & np.isfinite(moved.qvel).all(-1)
        body = Body(*(np.where(finite[..., None], new, old) for new, old in zip(moved, state.body, strict=True)))
        now = motion(model, body)
        terminated = has_fallen(model, params, body, now, state.variation.terrain) | ~finite
        squared, absolute = np.where(finite, squared, 0), np.where(finite, absolute, 0)
        worth = terms(model, body, now, state.command, squared, action, state.ring[..., 0, :], terminated)
        counted = weighted(worth, params.weights)
        after = state._replace(body=body, ring=ring, t=np.asarray(state.t + np.int32(1)))
        after = after._replace(observation=self._seen(after, now))
        error = np.abs(now.forward - state.command[..., 0])
        told = Told(*counted, now.forward, error, absolute, (~finite).astype(ring.dtype))
        return after, Outcome(sum(counted), terminated, (after.t >= params.limit) & ~terminated, told)

    def torque(
        self, body: Body, target: Float[Array, "*batch nu"], strength: Float[Array, "*batch"]
    ) -> Float[Array, "*batch nu"]:
        """clip(strength (kp (target - q) - kd q'), -limit, limit)."""
        q, speed = body.qpos[..., np.asarray(self.model.joint_qpos)], body.qvel[..., np.asarray(self.model.joint_qvel)]
        limit = np.asarray(self.model.torque_limit, q.dtype)
        wanted = self.params.kp * (target - q) - self.params.kd * speed
        return np.clip(strength[..., None] * wanted, -limit, limit)

    def _moved(
        self, body: Body, target: Float[Array, "*batch nu"], strength: Float[Array, "*batch"], variation: Variation
    ) -> tuple[Body, Float[Array, "*batch"], Float[Array, "*batch"]]:
        """The body after all substeps, and the means over them of sum tau^2 and of a joint's |tau|."""
        squared = absolute = np.zeros(target.shape[:-1], target.dtype)
        for _ in range(self.params.substeps):
            torque = self.torque(body, target, strength)
            squared, absolute = squared + (torque * torque).sum(-1), absolute + np.abs(torque).mean(-1)
            body = self.engine.step(body, torque, variation)
        return body, squared / self.params.substeps, absolute / self.params.substeps

    def _pushed(self, state: State) -> Body:
        """The body, its base's velocity changed where a push is due."""
        model, ranges, body = self.model, self.params.randomisation, state.body
        if not ranges.pushes:
            return body
        due: Bool[Array, "*batch"] = (state.t + np.int32(1)) % state.push_every == 0
        given = randomisation.impulse(model, ranges, state.key, state.t, str(body.qvel.dtype))
        change = given / (model.mass * state.variation.mass)[..., None]
        qvel, axes = body.qvel.copy(), 1 if model.base == "planar" else 2
        qvel[..., :axes] += np.where(due[..., None], change, 0)[..., :axes]
        return body._replace(qvel=qvel)

    def _seen(self, state: State, motion: Motion) -> Float[Array, "*batch o"]:
        """What a robot sees, noise included."""
        model, params, dtype = self.model, self.params, state.ring.dtype
        phase = (2 * np.pi * params.frequency * params.substeps * model.timestep) * state.t.astype(dtype)
        command = state.command if params.see_command else None
        seen = observation(model, state.body, motion, state.ring[..., 0, :], phase, command)
        if not params.randomisation.noise:
            return seen
        return seen + randomisation.noise(params.randomisation, state.key, state.t, self.observation_dim, str(dtype))
