"""Planted bugs in the JAX half of the robots' world, those of the published port among them (D1, D2, ...)."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from mutants_iqn import patched

from crossfade.envs.robot import observation_jax, robot_jax
from crossfade.parity import Twin
from crossfade.systems.robot.twin import robot

WORLD = dict.fromkeys(
    (
        "D1 torques by the base's pose instead of the joints'",
        "D2 inert action",
        "D6 gravity that does not turn",
        "D6 phase that stands still",
        "D13 limit forgotten",
        "D14 limit taken for a fall",
        "base's quaternion in the order x, y, z, w",
        "torque not clipped",
        "strength of the motors forgotten",
        "action a step late",
        "centre of mass in the frame of the world",
        "last action of the step before",
    ),
    "env",
)
whole = cache(robot)


class Bugged:
    """The stepper of the JAX half with a bug in it."""

    def __init__(self, stepper: Any, bug: str | None):
        self.stepper, self.bug = stepper, bug

    def reset(self, key: Any) -> Any:
        return patched(self.stepper.reset, *self.patches())(key)

    def step(self, state: Any, action: Any) -> Any:
        if self.bug == "D2 inert action":
            action = jnp.zeros_like(action)
        if self.bug == "action a step late":
            late = jnp.minimum(state.latency + 1, state.ring.shape[-2] - 1)
            after, told = self.stepper.step(state._replace(latency=late), action)
            return after._replace(latency=state.latency), told
        if self.bug == "strength of the motors forgotten":
            after, told = self.stepper.step(state._replace(strength=jnp.ones_like(state.strength)), action)
            return after._replace(strength=state.strength), told
        after, told = patched(self.stepper.step, *self.patches())(state, action)
        outcome = told["outcome"]
        if self.bug == "D13 limit forgotten":
            outcome = outcome._replace(truncated=jnp.zeros_like(outcome.truncated))
        if self.bug == "D14 limit taken for a fall":
            outcome = outcome._replace(
                terminated=outcome.terminated | outcome.truncated, truncated=jnp.zeros_like(outcome.truncated)
            )
        return after, {**told, "outcome": outcome}

    def patches(self) -> list[tuple[Any, str, Any]]:
        """What is exchanged while the world computes."""
        motion, seen, torque, base = (
            robot_jax.motion,
            robot_jax.observation,
            robot_jax.Robot.torque,
            observation_jax.base,
        )

        def of_base(world, body, target, strength):
            first = np.arange(world.model.nu)
            swapped = body.qpos.at[..., np.asarray(world.model.joint_qpos)].set(body.qpos[..., first])
            return torque(world, body._replace(qpos=swapped), target, strength)

        def unlimited(world, body, target, strength):
            free = replace(world.model, torque_limit=(np.inf,) * world.model.nu)
            other = robot_jax.Robot(world.params)
            other.__dict__["model"] = free
            return torque(other, body, target, strength)

        def upright(model, body):
            found = motion(model, body)
            down = jnp.broadcast_to(jnp.array([0.0, 0.0, -1.0], found.gravity.dtype), found.gravity.shape)
            return found._replace(gravity=down)

        def rolled(model, qpos, qvel):
            found = base(model, qpos, qvel)
            return found._replace(quaternion=jnp.roll(found.quaternion, -1, axis=-1))

        def unturned(model, body):
            found = motion(model, body)
            where = observation_jax.frames(model, body.qpos).com - base(model, body.qpos, body.qvel).position
            return found._replace(com=where)

        found = {
            "D1 torques by the base's pose instead of the joints'": (robot_jax.Robot, "torque", of_base),
            "torque not clipped": (robot_jax.Robot, "torque", unlimited),
            "D6 gravity that does not turn": (robot_jax, "motion", upright),
            "centre of mass in the frame of the world": (robot_jax, "motion", unturned),
            "base's quaternion in the order x, y, z, w": (observation_jax, "base", rolled),
            "D6 phase that stands still": (
                robot_jax,
                "observation",
                lambda model, body, motion, action, phase, command: seen(
                    model, body, motion, action, 0 * phase, command
                ),
            ),
            "last action of the step before": (
                robot_jax,
                "observation",
                lambda model, body, motion, action, phase, command: seen(
                    model, body, motion, 0 * action, phase, command
                ),
            ),
        }
        return [found[self.bug]] if self.bug in found else []


def robot_world(bug: str | None = None) -> Twin:
    """The quadruped, whose base is free, with everything random that can be, until after its limit of 12 steps."""
    twin = whole("env.model=tuft8", "env.kp=60")
    return Twin("robot_world", env=(twin.env[0], Bugged(twin.env[1], bug)), actions=twin.actions[:14])


FAMILIES = {robot_world: WORLD}
QUICK = ("D2 inert action", "base's quaternion in the order x, y, z, w")
SLOW = {bug for bug in WORLD if bug not in QUICK}
"""What the default run has no time for."""
