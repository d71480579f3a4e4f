"""Does a game keep the face of `game.py`, and is its JAX twin equal to it? For our games and for the user's own.

`check(game, jax_game)` answers with a list of sentences, empty when all is well. It asks for the members and sizes of
both; then for the shape and type of every answer; then it plays random episodes in every kind of turns.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .game import MOVES, Game, Moves
from .user_code import attempt, raised

GAMES, MOST_TURNS = 6, 40
"""Games that are played side by side, and turns of them that are looked at."""
SIZES = {"agents": 1, "observation_dim": 1, "n_actions": 1, "turns": 1, "start_numbers": 0, "turn_numbers": 0}
"""What a game states of itself, and the least that each may be."""


class Numbers(NamedTuple):
    """All that is given to episodes of several games, the games in front where there are any."""

    start: Any  # (*batch, start_numbers)
    turn: Any  # (turns, *batch, turn_numbers)
    action: Any  # (turns, *batch, agents)
    order: Any  # (turns, agents)
    chance: Any  # (turns, *batch, agents)


class Said(NamedTuple):
    """One answer of a game."""

    call: str  # which function
    place: str  # when and by whom it was asked
    state: Any  # the state that it was asked about
    answer: dict[str, Any]  # by name: the fields of a state, `reward`, `observation`


def check(game: Any, jax_game: Any, seed: int = 0) -> list[str]:
    """What is wrong with a game (in NumPy) and with its JAX twin, in words."""
    problems = [*_members(game, "NumPy"), *_members(jax_game, "JAX")] or [*_sizes(game, jax_game)]
    if problems:
        return problems  # what else is wrong would be told in riddles
    numbers, watched = draw(game, seed), Watched(game)
    problems = [*_forms(watched, numbers, "NumPy"), *_forms(Compiled(jax_game), numbers, "JAX")]
    if problems or watched.changed:
        return problems + watched.changed
    found, error = attempt(_episodes, watched, jax_game, numbers)
    if error is not None:
        return [f"every function answers in every turn: not so, {raised(game, error)}"]
    return found + watched.changed


def _episodes(game: "Watched", jax_game: Any, numbers: Numbers) -> list[str]:
    told: dict[Moves, list[Said]] = {moves: play(game, numbers, moves) for moves in MOVES}
    problems = []
    for side, x64 in (("JAX", False), ("JAX in 64 bits", True)):  # as runs in float64 have it
        compiled = Compiled(jax_game, x64)
        for moves, ours in told.items():
            problems += _differences(ours, play(compiled, numbers, moves), "the twins differ", "NumPy", side)
        problems += _each_agent(game, compiled, told["sequential"], side)
    for moves, ours in told.items():
        problems += _alone(game, numbers, moves, ours)
    return problems + _each_agent(game, game, told["sequential"], "NumPy") + [*_claims(game, told)]


def draw(game: Any, seed: int) -> Numbers:
    """Random numbers, actions and orders for `GAMES` games."""
    rng, turns, agents = np.random.default_rng(seed), min(game.turns, MOST_TURNS), game.agents
    uniform = lambda *shape: rng.random(shape, np.float32)
    return Numbers(
        uniform(GAMES, game.start_numbers),
        uniform(turns, GAMES, game.turn_numbers),
        rng.integers(game.n_actions, size=(turns, GAMES, agents), dtype=np.int32),
        np.stack([rng.permutation(agents) for _ in range(turns)]).astype(np.int32),
        uniform(turns, GAMES, agents),
    )


def play(game: Any, numbers: Numbers, moves: Moves) -> list[Said]:
    """Everything that a game answers in an episode."""
    state = game.begin(numbers.start)
    said = [Said("begin", f"moves={moves}", None, _fields(state))]

    def observe(agent: int, place: str) -> None:
        said.append(Said("observe", f"{place}, agent {agent}", state, {"observation": game.observe(state, agent)}))

    for t, order in enumerate(numbers.order.tolist()):
        place, action, chance = f"moves={moves}, turn {t}", numbers.action[t], numbers.chance[t]
        before, state = state, game.start_turn(state, numbers.turn[t])
        said.append(Said("start_turn", place, before, _fields(state)))
        if moves != "sequential":
            for agent in range(game.agents):
                observe(agent, place)
        if moves == "simultaneous":
            before, together = state, np.broadcast_to(numbers.order[t], action.shape).copy()
            state, reward = game.move_together(state, action, together, chance)
            said.append(Said("move_together", place, before, {**_fields(state), "reward": reward}))
            continue
        for agent in order:
            if moves == "sequential":
                observe(agent, place)
            before = state
            state, reward = game.move(state, agent, action[..., agent], chance[..., agent])
            said.append(Said("move", f"{place}, agent {agent}", before, {**_fields(state), "reward": reward}))
    return said


# The two sides


class Watched:
    """A game in NumPy; whatever it changes in what it was given is noted."""

    def __init__(self, game: Any):
        self.game, self.changed = game, []

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.game, name)
        return (lambda *given: self._call(name, member, given)) if callable(member) else member

    def _call(self, name: str, member: Callable, given: tuple) -> Any:
        arrays = [array for part in given for array in _arrays(part)]
        before = [array.copy() for array in arrays]
        answer = member(*given)
        sentence = f"{name} leaves what it is given as it is: not so, it changed an argument; work on a copy"
        same = all(np.array_equal(old, new) for old, new in zip(before, arrays, strict=True))
        if not same and sentence not in self.changed:
            self.changed.append(sentence)
        return answer


class Compiled:
    """A game in JAX, each function a compiled program, from NumPy arrays to NumPy arrays."""

    def __init__(self, game: Any, x64: bool = False):
        self.game, self.x64, self.programs = game, x64, {}

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.game, name)
        if not callable(member):
            return member
        return lambda *given: self._call(name, member, given)

    def _call(self, name: str, member: Callable, given: tuple) -> Any:
        import jax

        with jax.enable_x64(self.x64):
            if name not in self.programs:
                self.programs[name] = jax.jit(member)
            numbers = (np.int32(part) if isinstance(part, int) else part for part in given)
            return jax.tree.map(np.asarray, self.programs[name](*numbers))


# What is asked


def _members(game: Any, side: str) -> Iterator[str]:
    wanted = [name for name in vars(Game) if not name.startswith("_")]
    for name in wanted:
        value, error = attempt(getattr, game, name)
        if error is not None:
            yield f"{side}: {name} is there: not so, {type(error).__name__}: {str(error)[:200]}"
        elif (name in SIZES) == callable(value):
            yield f"{side}: {name} is a {'number' if name in SIZES else 'function'}: not so, it is {value!r}"
    _, error = attempt(hash, game)
    if error is not None:
        yield f"{side}: the game can be hashed: not so, {error}; make it a frozen dataclass of its params"


def _sizes(game: Any, jax_game: Any) -> Iterator[str]:
    for name, least in SIZES.items():
        ours, theirs = getattr(game, name), getattr(jax_game, name)
        if not isinstance(ours, int) or ours < least:
            yield f"{name} is an integer from {least} on: not so, it is {ours!r}"
        elif ours != theirs:
            yield f"both twins state the same {name}: not so, NumPy {ours!r}, JAX {theirs!r}"


def _forms(game: Any, numbers: Numbers, side: str) -> Iterator[str]:
    """Shapes and types of the answers, for one game without an axis and for several."""
    for batch in ((), (GAMES,)):
        own = numbers if batch else _of_game(numbers, 0)
        answers = [attempt(play, game, own._replace(order=own.order[:2]), moves) for moves in MOVES]
        if error := next((error for _, error in answers if error is not None), None):
            yield f"{side}: every function answers with batch axes {batch}: not so, {raised(game.game, error)}"
            return
        fields: dict[str, tuple] = {}
        for said in (said for found, _ in answers for said in found):
            for name, value in said.answer.items():
                array = np.asarray(value)
                form = {
                    "observation": ((*batch, game.observation_dim), np.dtype(np.int8)),
                    "reward": (
                        (*batch, *([game.agents] if said.call == "move_together" else [])),
                        np.dtype("float32"),
                    ),
                }.get(name) or fields.setdefault(name, ((*batch, *array.shape[len(batch) :]), array.dtype))
                if (array.shape, array.dtype) != form:
                    yield (
                        f"{side}: {said.call} gives {name} as {form[1]} {form[0]}: not so, it gave {array.dtype} "
                        f"{array.shape}"
                    )
                    return


def _differences(ours: list[Said], theirs: list[Said], claim: str, one: str, other: str) -> list[str]:
    """The first answer in which two games differ."""
    for mine, own in zip(ours, theirs, strict=True):
        if mine.answer.keys() != own.answer.keys():
            return [f"{claim}: {one} has a state of {', '.join(mine.answer)}, {other} of {', '.join(own.answer)}"]
        for name, value in mine.answer.items():
            a, b = np.asarray(value), np.asarray(own.answer[name])
            if a.dtype != b.dtype or a.shape != b.shape:
                form = lambda array: f"{array.dtype} {array.shape}"
                return [f"{claim} in {name} of {mine.call} ({mine.place}): {one} {form(a)}, {other} {form(b)}"]
            if not np.array_equal(a, b):
                at = tuple(np.argwhere(a != b)[0].tolist())
                return [f"{claim} in {name} of {mine.call} ({mine.place}) at {at}: {one} {a[at]}, {other} {b[at]}"]
    return []


def _alone(game: Any, numbers: Numbers, moves: Moves, together: list[Said]) -> list[str]:
    """Whether a game goes alone as it goes among others."""
    for k in (0, GAMES - 1):
        own = [said._replace(answer=_of_tree(said.answer, k)) for said in together]
        alone = play(game, _of_game(numbers, k), moves)
        claim = f"game {k} differs, alone and among {GAMES}:"
        if found := _differences(alone, own, claim, "alone", "among others"):
            return found
    return []


def _each_agent(game: Any, twin: Any, told: list[Said], side: str) -> list[str]:
    """Whether another agent in each game, (*batch,), is understood as one number for all is."""
    agents = np.arange(GAMES, dtype=np.int32) % game.agents
    action, chance = np.arange(GAMES, dtype=np.int32) % game.n_actions, np.full(GAMES, 0.5, np.float32)

    def ask(game: Any, state: Any, agent: Any) -> dict[str, Any]:
        after, reward = game.move(state, agent, action, chance)
        return {"observation": game.observe(state, agent), **_fields(after), "reward": reward}

    for said in [said for said in told if said.call == "observe"][:: max(1, len(told) // 20)]:
        each = [_of_tree(ask(game, said.state, int(agent)), k) for k, agent in enumerate(agents)]
        found, error = attempt(ask, twin, said.state, agents)
        if error is not None:
            return [f"{side}: observe and move take an agent for each game: not so, {raised(twin.game, error)}"]
        for name, array in found.items():
            if not np.array_equal(array, np.stack([one[name] for one in each])):
                return [f"{side}: observe and move take an agent for each game: not so, they give another {name}"]
    return []


def _claims(game: Any, told: dict[Moves, list[Said]]) -> Iterator[str]:
    """What must happen somewhere in the episodes."""
    everything = [said for found in told.values() for said in found]
    rewards = np.concatenate([np.ravel(said.answer["reward"]) for said in everything if "reward" in said.answer])
    if not np.isfinite(rewards).all():
        yield "rewards are finite: not so"
    for agent in range(game.agents):
        seen = [
            s.answer["observation"] for s in everything if s.call == "observe" and s.place.endswith(f"agent {agent}")
        ]
        if (np.concatenate(seen) == seen[0][0]).all():
            yield f"observations vary: not so for agent {agent}, it always saw {seen[0][0].tolist()[:12]}"
    moved, same = _actions(game, [said.state for said in told["sequential"] if said.call == "move"])
    if not moved:
        yield "some action changes the state: not so, none did"
    for pair in same:
        yield f"every action does something of its own: not so, actions {pair[0]} and {pair[1]} never differed"


def _actions(game: Any, states: list[Any]) -> tuple[bool, list[tuple[int, int]]]:
    """Whether any action changes a state, and the pairs of actions that have the same effect everywhere."""
    n, moved = game.n_actions, False
    same = {(a, b) for a in range(n) for b in range(a + 1, n)}
    for state in states:
        for agent in range(game.agents):
            effects = []
            for action in range(n):
                after, reward = game.move(state, agent, np.full(GAMES, action, np.int32), np.zeros(GAMES, np.float32))
                moved |= any(not np.array_equal(a, b) for a, b in zip(_arrays(after), _arrays(state), strict=True))
                effects.append([*_arrays(after), reward])
            same -= {
                (a, b)
                for a, b in same
                if any(not np.array_equal(x, y) for x, y in zip(effects[a], effects[b], strict=True))
            }
        if moved and not same:
            break
    return moved, sorted(same)


# Trees


def _fields(state: Any, prefix: str = "") -> dict[str, Any]:
    """The arrays of a state by name; NamedTuples may hold further ones."""
    if not hasattr(state, "_fields"):
        if prefix:
            return {prefix: state}
        raise TypeError(f"a state is a NamedTuple of arrays, got {type(state).__name__}")
    parts = (_fields(part, f"{prefix}.{name}" if prefix else name) for name, part in state._asdict().items())
    return {name: array for part in parts for name, array in part.items()}


def _arrays(part: Any) -> list[np.ndarray]:
    if isinstance(part, tuple):
        return [array for member in part for array in _arrays(member)]
    return [part] if isinstance(part, np.ndarray) else []


def _of_tree(answer: dict[str, Any], k: int) -> dict[str, Any]:
    return {name: np.asarray(array)[k] for name, array in answer.items()}


def _of_game(numbers: Numbers, k: int) -> Numbers:
    """What one game is given, without an axis of games."""
    return Numbers(numbers.start[k], numbers.turn[:, k], numbers.action[:, k], numbers.order, numbers.chance[:, k])
