"""The face of a world that agents act in: all that an algorithm asks of one. Framework-free.

A world is stated by its params, a frozen dataclass, and written twice, in NumPy and in JAX (`<env>_numpy.py` |
`<env>_jax.py`): a `World` in each, with the same sizes, the same rules, and states in the same NamedTuple of arrays
(which may hold further NamedTuples). Its functions are pure and take any number of environments at once, `*batch`
below, also none. What they read comes in two parts: `data` is large and fixed, such as prices or a map; `settings` are
a few numbers that may be others in the next update. Both are arguments, so that no value of theirs is compiled in. A
world without them is given None.

All randomness is data. `begin` is given uniform numbers; a world whose steps are random keeps a key in its state.
"""

from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from ..loading import load_attribute


class Discrete(NamedTuple):
    """One of `n` actions, an integer from 0 to n - 1."""

    n: int


class Continuous(NamedTuple):
    """`dim` numbers from -1 to 1; the world scales them to what it needs, such as torques."""

    dim: int


ActionSpace = Discrete | Continuous


@runtime_checkable
class Outcome(Protocol):
    """What a step gives beside the next state, (*batch,) each: a NamedTuple, in which a world may put more.

    If it has `told`, a NamedTuple of numbers (*batch,), their means over a rollout are logged under these names.
    """

    @property
    def reward(self) -> Any: ...

    @property
    def terminated(self) -> Any:
        """The episode ended by the rules of the world: nothing can be earned after it."""
        ...

    @property
    def truncated(self) -> Any:
        """Whether the episode was cut off by a limit. Never together with `terminated`."""
        ...


def told(outcome: Outcome) -> dict[str, Any]:
    """What a world wants logged of a step, by name."""
    numbers = getattr(outcome, "told", None)
    return {} if numbers is None else numbers._asdict()


class BareOutcome(NamedTuple):
    """An outcome with nothing more in it."""

    reward: Any
    terminated: Any
    truncated: Any


@runtime_checkable
class World(Protocol):
    """Environments as pure functions of their states. Hashable: JAX compiles programs for it."""

    @property
    def observation_dim(self) -> int:
        """Numbers in an observation."""
        ...

    @property
    def action_space(self) -> ActionSpace: ...

    @property
    def start_numbers(self) -> int:
        """Uniform numbers from which `begin` draws how an episode begins."""
        ...

    def begin(self, data: Any, settings: Any, uniform: Any, /) -> Any:
        """The states in which episodes begin, from numbers in [0, 1): (*batch, start_numbers) float32."""
        ...

    def observe(self, data: Any, settings: Any, state: Any, /) -> Any:
        """What a policy sees: (*batch, observation_dim), floating-point numbers."""
        ...

    def mask(self, data: Any, settings: Any, state: Any, /) -> Any:
        """Which actions are legal, at least one: (*batch, n) bool. None where all of them always are."""
        ...

    def step(self, data: Any, settings: Any, state: Any, action: Any, /) -> tuple[Any, Outcome]:
        """The states after an action, (*batch,) or (*batch, dim), before any reset; and what came of it."""
        ...


def keeps_observations(world: World) -> bool:
    """Whether a world says, as `keeps_observations = True`, that its states hold what is seen of them, and that a step
    is dear: compiled rollouts then keep observations instead of states from which they could be made again."""
    return getattr(world, "keeps_observations", False)


@runtime_checkable
class WorldParams(Protocol):
    """What states a world, and where its two classes are, `module:Class`. Each is called with the params. Hashable."""

    numpy: ClassVar[str]
    jax: ClassVar[str]


def make_world(params: WorldParams, side: Literal["numpy", "jax"]) -> World:
    """The world of these params; no other framework is imported."""
    return load_attribute(getattr(params, side))(params)


def action_names(params: WorldParams) -> tuple[str, ...]:
    """What the actions of a world are called in logs: its params may say so as `action_names`, one word for each."""
    return tuple(getattr(params, "action_names", ()))


class BoundWorld(NamedTuple):
    """A world with the data and the settings that it reads."""

    world: World
    data: Any
    settings: Any

    def begin(self, uniform: Any) -> Any:
        return self.world.begin(self.data, self.settings, uniform)

    def observe(self, state: Any) -> Any:
        return self.world.observe(self.data, self.settings, state)

    def mask(self, state: Any) -> Any:
        return self.world.mask(self.data, self.settings, state)

    def step(self, state: Any, action: Any) -> tuple[Any, Outcome]:
        return self.world.step(self.data, self.settings, state, action)


@runtime_checkable
class Envs(Protocol):
    """Environments in NumPy, side by side, that hold their states: a world at work on the host."""

    @property
    def state(self) -> Any:
        """As `World` has it, (envs,) in front of every field."""
        ...

    def observe(self) -> Any: ...

    def mask(self) -> Any: ...

    def step(self, action: Any, /) -> Outcome:
        """Acts in every environment; one that has ended stays where it is until `restart`."""
        ...

    def restart(self, where: Any, uniform: Any, /) -> None:
        """Begins new episodes where `where`, (envs,) bool, says so, from numbers (envs, start_numbers)."""
        ...
