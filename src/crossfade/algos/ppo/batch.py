"""What a PPO learner is given. Framework-free; the arrays are NumPy's, torch's or JAX's."""

from typing import Any, NamedTuple


class Rollout(NamedTuple):
    """A fixed number of steps of every environment, time first. Observations are not kept: states are, and small."""

    state: Any  # of the environment before each step: (steps, envs) in every field; on the host what was seen of it
    action: Any  # (steps, envs)
    log_prob: Any  # of the action, when it was taken
    value: Any  # of the state before the step
    next_value: Any  # of the state after it, before any reset
    reward: Any
    terminated: Any  # the episode ended by its own rules
    truncated: Any  # it was cut off


class Minibatch(NamedTuple):
    """Some steps of a rollout, in any order."""

    observation: Any  # (n, o) as the network sees it
    mask: Any  # (n, a) legal actions
    action: Any  # (n,)
    log_prob: Any  # (n,) under the policy that acted
    value: Any  # (n,) by the critic that was there
    returns: Any  # (n,) what the critic learns
    advantage: Any  # (n,) what the policy's loss weighs a step by


class Noise(NamedTuple):
    """The randomness of one update, as data."""

    gumbel: Any  # (steps, envs, a) added to log-probabilities before the argmax: a draw from them
    start: Any  # (steps, envs, START_NUMBERS) uniform: how the next episode begins if one ends at this step
    order: Any  # (epochs, steps * envs) permutations: which steps make up which minibatch


class Carry(NamedTuple):
    """What goes from one update to the next beside the network: the trainers' buffer."""

    state: Any  # of the environments: (envs,) in every field
    statistics: Any  # of the observations so far
    episode_return: Any  # (envs,) of the episode that is under way
    episode_length: Any  # (envs,) int32
