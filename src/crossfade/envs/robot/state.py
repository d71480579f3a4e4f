"""What the twins keep and give: NamedTuples of arrays, NumPy's or JAX's. `params.py` says what they mean."""

from typing import Any, NamedTuple

from .model import Body, Variation


class State(NamedTuple):
    """Robots on their way."""

    body: Body
    variation: Variation  # of the episode
    strength: Any  # (*batch,) scale of what the motors give
    latency: Any  # (*batch,) int32: control steps
    ring: Any  # (*batch, depth, nu): the last actions, the newest first
    command: Any  # (*batch, 3): forward, sideways, turning
    push_every: Any  # (*batch,) int32: control steps
    key: Any  # (*batch, 2) uint32: of all that is drawn in steps
    t: Any  # (*batch,) int32: control steps taken
    observation: Any  # (*batch, observation_dim): made once, for it needs the whole body's kinematics


class Motion(NamedTuple):
    """How a body stands and moves, seen from its base."""

    gravity: Any  # (*batch, 3) direction, in the frame of the base
    height: Any  # (*batch,) of the base above 0
    pitch: Any
    roll: Any
    com: Any  # (*batch, 3) centre of mass relative to the base, in its frame
    forward: Any  # (*batch,) velocity along the heading
    sideways: Any  # (*batch,) velocity to the left of it
    turning: Any  # (*batch,) rad/s about the vertical


class Terms(NamedTuple):
    """The reward's terms, (*batch,) each, before their weights."""

    velocity: Any
    sideways: Any
    turning: Any
    upright: Any
    height: Any
    alive: Any
    torque: Any
    action_rate: Any
    joint_velocity: Any
    joint_limits: Any


class Told(NamedTuple):
    """What is logged of a step, (*batch,) each: the terms as the reward counts them, and what they come from."""

    reward_velocity: Any
    reward_sideways: Any
    reward_turning: Any
    reward_upright: Any
    reward_height: Any
    reward_alive: Any
    reward_torque: Any
    reward_action_rate: Any
    reward_joint_velocity: Any
    reward_joint_limits: Any
    speed: Any  # forward, m/s
    speed_error: Any  # |forward - command|
    torque: Any  # mean |tau| of a joint
    broken: Any  # 1 where the physics left the finite numbers


class Outcome(NamedTuple):
    """What a step gives beside the next state."""

    reward: Any
    terminated: Any
    truncated: Any
    told: Told
