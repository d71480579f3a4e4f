"""What IQN hands from one part to the next, in NumPy, torch or JAX. Framework-free."""

from typing import Any, NamedTuple


class Replay(NamedTuple):
    """What agents remember: a ring of rows, in which all games and agents are at the same place. See replay.py."""

    observation: Any  # (worlds, agents, memory, observation) int8
    action: Any  # (worlds, agents, memory) int32
    reward: Any  # (worlds, agents, memory) float32
    turn: Any  # (memory,) int32: the turn of a row; -1 in a gap, `turns` for the observation after the last turn
    index: Any  # () int32: the row that is written next
    size: Any  # () int32: turns that were written, at most `memory`
    filled: Any  # () int32: rows that the index has passed, at most `memory`


class Episode(NamedTuple):
    """An episode of every game, as it was played."""

    observation: Any  # (turns, worlds, agents, observation) int8: what each saw when it decided
    action: Any  # (turns, worlds, agents) int32
    reward: Any  # (turns, worlds, agents) float32
    last: Any  # (worlds, agents, observation) int8: what each sees after the last turn


class Transitions(NamedTuple):
    """What one agent learns from in a gradient step; with an axis of agents in front, what all do.

    Noise is data: the three rows of `fractions` and `noise` are for the local network at the next state, which
    chooses the action there, for the target network at the next state, and for the local network at the state.
    """

    state: Any  # (batch, frames * observation)
    action: Any  # (batch,) int32
    reward: Any  # (batch,): the sum of discounted rewards up to the next state
    next_state: Any  # (batch, frames * observation)
    discount: Any  # (batch,): of the value of the next state; 0 where there is none
    valid: Any  # (batch,): 0 where the transition does not count
    fractions: Any  # (3, batch, quantiles)
    noise: Any  # (3, noise_dim)


class Noise(NamedTuple):
    """All randomness of an epoch, uniform float32 numbers unless said otherwise; noise_* draw it."""

    start: Any  # (worlds, start_numbers)
    turn: Any  # (turns, worlds, turn_numbers)
    order: Any  # (turns, agents) int32: the agents in the order in which they act
    explore: Any  # (turns, worlds, agents): an agent acts at random where this is below its epsilon
    action: Any  # (turns, worlds, agents) int32: its random action
    reward: Any  # (turns, worlds, agents): for rewards left to chance
    acting: Any  # (turns, worlds, agents, acting_quantiles): fractions to act by, before any distortion
    choice: Any  # (agents, worlds * memory): ranks of the rows of replay; see replay.py
    fractions: Any  # (agents, 3, batch, quantiles)
    noise: Any  # (agents, 3, noise_dim), standard normal float32


class Batch(NamedTuple):
    """What one update learns from."""

    transitions: Transitions  # with an axis of agents in front
    ready: Any  # () bool: whether replay held enough; otherwise no model changes
    copy: Any  # () bool: whether target networks are copied first
    info: Any  # dict of () arrays: returns of the episode, to be logged
