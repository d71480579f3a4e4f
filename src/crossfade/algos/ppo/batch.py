"""What a PPO learner is given. Framework-free; the arrays are NumPy's, torch's or JAX's."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .config import PPOConfig

ENTROPY_KEY = 4
"""What the noise of an entropy is drawn by, from the key of its update."""


class Rollout(NamedTuple):
    """A fixed number of steps of every environment, time first."""

    state: Any  # before each step, (steps, envs) in every field; what was `Seen` of it where observations are kept
    action: Any  # (steps, envs) or (steps, envs, dim), as it was sampled
    log_prob: Any  # (steps, envs) of the action, when it was taken
    value: Any  # of the state before the step
    next_value: Any  # of the state after it, before any reset
    reward: Any
    terminated: Any  # the episode ended by the rules of the world
    truncated: Any  # it was cut off
    watched: Any = None  # by a hook: `hook.Watched`
    last: Any = None  # (envs, o) what is seen after the last step, where segments are learned from


class Seen(NamedTuple):
    """What the policy saw: the host has memory to keep it, so nothing is observed twice; some worlds keep it too."""

    observation: Any  # (steps, envs, o)
    mask: Any  # (steps, envs, a), or None


class Segment(NamedTuple):
    """What advantages are computed from: all steps of some environments, time first, and what follows the last."""

    reward: Any  # (n,)
    terminated: Any
    truncated: Any
    last: Any  # (environments, o) as the network sees it


class Minibatch(NamedTuple):
    """Some steps of a rollout, in any order; or all steps of some environments, time first."""

    observation: Any  # (n, o) as the network sees it
    mask: Any  # (n, a) legal actions, or None
    action: Any  # (n,) or (n, dim)
    log_prob: Any  # (n,) under the policy that acted
    value: Any  # (n,) by the critic that was there
    returns: Any  # (n,) what the critic learns
    advantage: Any  # (n,) what the policy's loss weighs a step by
    segment: Segment | None = None  # then advantages and returns are computed from it in the loss
    noise: Any = None  # (n, noise_dim) by which an entropy without a closed form is estimated


class Noise(NamedTuple):
    """The randomness of one update, as data."""

    action: Any  # (steps, envs, noise_dim) from which actions are sampled: Gumbel or normal numbers
    start: Any  # (steps, envs, start_numbers) uniform: how the next episode begins if one ends at this step
    order: Any  # (epochs, steps * envs) permutations: which steps make up which minibatch
    entropy: Any = None  # (epochs, steps * envs, noise_dim) for `Minibatch.noise`, one after another


class Collected(NamedTuple):
    """All that an update needs, from environments on the host."""

    rollout: Rollout  # its `state` is what was `Seen`
    order: Any  # (epochs, steps * envs)
    learning_rate: float
    info: dict[str, float]  # about the episodes and the actions
    hooked: Any = None  # what a hook learns from
    noise: Any = None  # `Noise.entropy`


class Decision(NamedTuple):
    """What a policy decides in some states."""

    action: Any  # as it was sampled
    executed: Any  # as the world is given it
    log_prob: Any  # of the action
    value: Any  # of the states


class Carry(NamedTuple):
    """What goes from one update to the next beside the network: the trainers' buffer."""

    state: Any  # of the environments: (envs,) in every field
    statistics: Any  # of the observations so far
    episode_return: Any  # (envs,) of the episode that is under way
    episode_length: Any  # (envs,) int32
    aux: Any = None  # what a hook remembers


def in_segments(environments: Any, config: PPOConfig) -> Any:
    """The numbers of all steps in minibatches of whole segments, time first, of environments in this order."""
    of_time = config.n_envs * np.arange(config.n_steps, dtype=np.int32)[None, :, None]
    return (environments.reshape(config.minibatches, 1, -1) + of_time).reshape(-1)


def ends(index: Any, envs: int, steps: int) -> Any:
    """The environments of which these are all steps, time first."""
    return index[-(len(index) // steps) :] % envs


def taken(steps: Minibatch, index: Any) -> Minibatch:
    """The steps with these numbers."""
    take = lambda column: None if column is None else column[index]
    *columns, segment, _ = steps
    if segment is not None:
        envs = len(segment.last)
        last = segment.last[ends(index, envs, len(segment.reward) // envs)]
        segment = Segment(*map(take, segment[:3]), last=last)
    return Minibatch(*map(take, columns), segment=segment)


def named(info: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """What is logged of a rollout with actions by their names: the share `action_0` becomes `action_left`, say."""
    by_number = {f"action_{i}": f"action_{name}" for i, name in enumerate(names)}
    return {by_number.get(key, key): value for key, value in info.items()}
