"""The face of a game: a world in which several agents act, in turns. Framework-free.

As `world.py` has it, a game is stated by its params and written twice, in NumPy and in JAX, as pure functions of a
state, a NamedTuple of arrays equal in both; they take any number of games at once, `*batch` below, also none.

A turn begins with what happens by itself (`start_turn`), then every agent acts. Who sees what is a choice, `MOVES`:

    sequential     one agent after the other observes, decides and moves; each sees what those before it have done
    stale_obs      all observe at the start of the turn; moves are made one after the other
    simultaneous   all observe at the start of the turn; moves are made together, by the game's rule for conflicts

All randomness is data: uniform float32 numbers in [0, 1).
"""

from typing import Any, Literal, Protocol, get_args, runtime_checkable

from ..loading import load_attribute
from .world import WorldParams

Moves = Literal["sequential", "stale_obs", "simultaneous"]
MOVES: tuple[Moves, ...] = get_args(Moves)
Order = Literal["fixed", "rotated", "shuffled"]
ORDERS: tuple[Order, ...] = get_args(Order)
"""Who acts first: always agent 0; agent t mod agents in turn t; or as a permutation drawn for each turn says."""


@runtime_checkable
class Game(Protocol):
    """Games as pure functions of their states. Hashable: JAX compiles programs for it."""

    @property
    def agents(self) -> int:
        """Agents that play."""
        ...

    @property
    def observation_dim(self) -> int:
        """Small integers in the observation of an agent."""
        ...

    @property
    def n_actions(self) -> int:
        """Actions of an agent; all are legal at all times."""
        ...

    @property
    def turns(self) -> int:
        """Turns after which an episode is cut off."""
        ...

    @property
    def start_numbers(self) -> int:
        """Uniform numbers from which `begin` draws how an episode begins."""
        ...

    @property
    def turn_numbers(self) -> int:
        """Uniform numbers from which `start_turn` draws what happens by itself."""
        ...

    def begin(self, uniform: Any, /) -> Any:
        """The states in which episodes begin, from (*batch, start_numbers) float32."""
        ...

    def start_turn(self, state: Any, uniform: Any, /) -> Any:
        """What happens before the agents act, from (*batch, turn_numbers) float32."""
        ...

    def observe(self, state: Any, agent: Any, /) -> Any:
        """What an agent sees, (*batch, observation_dim) int8; `agent` is a number, or one for each game, (*batch,)."""
        ...

    def move(self, state: Any, agent: Any, action: Any, uniform: Any, /) -> tuple[Any, Any]:
        """The states after one agent has acted, and its reward, (*batch,) float32.

        `agent` as in `observe`; `action` (*batch,) int32; `uniform` (*batch,) float32, for rewards left to chance.
        """
        ...

    def move_together(self, state: Any, action: Any, order: Any, uniform: Any, /) -> tuple[Any, Any]:
        """The states after all agents have acted at once, and their rewards, (*batch, agents) float32.

        `action` (*batch, agents) int32 and `uniform` (*batch, agents) float32, by number of the agent; `order`
        (*batch, agents) int32 are the numbers of the agents in the order in which the rule for conflicts takes them.
        """
        ...


def make_game(params: WorldParams, side: Literal["numpy", "jax"]) -> Game:
    """The game of these params; no other framework is imported."""
    return load_attribute(getattr(params, side))(params)
