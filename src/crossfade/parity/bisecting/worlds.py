"""Where environments and rollouts part.

The host half is NumPy or plain Python, so both halves are run line by line and compared by the names of functions and
variables. Where that finds or explains nothing, the search runs in JAX: the first equation that, given the value of one
of the host's variables, makes the difference vanish.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...bridge.mapping import Mapping
from ..arrays import jax_tree, leaves, precision
from ..env import copy_state
from ..levels import Levels
from ..twin import Twin
from .alternatives import alternatives
from .differences import said, said_of_all
from .divergence import Divergence, Place
from .equations import Program, record, trace
from .host import Enough, HostValues
from .pairing import Index
from .points import Point, ancestors
from .relations import jax_place, relation
from .variables import Parting, equal, first_parting, is_telling

SUSPECTS, CANDIDATES = 400, 30
SMALL = 400  # equations that are searched for a cause alone
RANDOM = ("random_bits", "threefry2x32", "random_split", "random_fold_in")


def bisect_world(twin: Twin, mapping: Mapping, level: str) -> Divergence | None:
    """The first place where two environments, or two rollouts, part."""
    with precision("float64"):
        return _env(twin) if level == "env" else _rollout(twin, mapping)


def _env(twin: Twin) -> Divergence | None:
    """The reset, then step by step, each from the same state."""
    from ...random import numpy as random

    first, second = twin.half("env", "torch"), twin.half("env", "jax")
    key, jax_key = random.key(twin.seed), jax.random.key(twin.seed)
    with HostValues() as host:
        state = first.reset(key)
    jax_state = second.reset(jax_key)
    ours, theirs = leaves(state, ""), leaves(jax_state, "")
    if _apart(ours, theirs):
        return _Search(twin, "env", "reset", host, ours, theirs, second.reset, (jax_key,)).search()
    for number, action in enumerate(np.asarray(twin.actions)):
        jax_state = copy_state(leaves(state, ""), jax_state)
        given = jax_tree(action, "float64")
        with HostValues() as host:
            state, outputs = first.step(state, action)
        ours, theirs = leaves((state, outputs), ""), leaves(second.step(jax_state, given), "")
        if apart := _apart(ours, theirs):
            quantity = "state" if apart[0].startswith("0") else "outputs"
            found = _Search(twin, "env", quantity, host, ours, theirs, second.step, (jax_state, given)).search()
            return _at(found, number + 1)
    return None


def _at(found: Divergence, step: int) -> Divergence:
    return replace(found, notes=(*found.notes, f"in step {step}, the first that differs"))


def _rollout(twin: Twin, mapping: Mapping) -> Divergence | None:
    levels = Levels(twin, mapping, "float64", (1,))
    theirs = levels.jax.rollout(levels.weights)["trajectory"]
    with HostValues() as host:
        ours = levels.torch.rollout(levels.weights)["trajectory"]
    if not _apart(ours, theirs):
        return None
    model = levels.jax.model(levels.weights) if twin.jax is not None else None
    half = twin.half("rollout", "jax")
    function = lambda key: half(model, key)
    key = jax.random.key(twin.seed)
    return _Search(twin, "rollout", "trajectory", host, ours, theirs, function, (key,)).search()


def _apart(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> list[str]:
    names = (*ours, *(name for name in theirs if name not in ours))
    return [n for n in names if n not in ours or n not in theirs or not equal(ours[n], theirs[n])]


class _Search:
    def __init__(
        self,
        twin: Twin,
        level: str,
        quantity: str,
        host: HostValues,
        ours: dict[str, np.ndarray],
        theirs: dict[str, np.ndarray],
        function: Callable[..., Any],
        args: tuple[Any, ...],
    ):
        self.twin, self.level, self.quantity, self.host = twin, level, quantity, host
        self.ours, self.theirs, self.apart = ours, theirs, _apart(ours, theirs)
        self.function, self.args = function, args
        self.notes: tuple[str, ...] = ()

    def search(self) -> Divergence:
        """The first variable that differs; where that is not explained, the equation and the variable that belong
        together, and what turns one into the other."""
        parted = self._parting()
        if parted is None:
            return self._by_equations()
        ours, theirs = parted.ours, parted.theirs
        kind, cause = self._said(parted)
        compared = relation(ours.value, theirs.value, ours.value.shape)
        host, other = (Place(_word(p), p.where, "", p.lines) for p in (ours, theirs))
        if kind == "left out" and parted.maker is not None and cause.startswith(f"{parted.maker.name} is left out"):
            host = Place(parted.maker.name, *parted.maker.lines[:1], lines=parted.maker.lines)
        told = self._told(host, other, kind, cause, compared)
        if kind:
            return told
        if (found := self._outputs()) is not None:
            return replace(told, kind=found[0], cause=found[1])
        anywhere = self._by_equations(SMALL)
        if anywhere.kind and anywhere.jax is not None and anywhere.jax.where == theirs.where:
            return anywhere
        there = self._by_equations(SMALL, theirs.where)
        if there.kind:
            return there
        return anywhere if anywhere.kind and not is_telling(theirs.value) else told

    def _outputs(self) -> tuple[str, str] | None:
        """What the results tell: two of them exchanged, or one that JAX gives whatever it is given."""
        both = [name for name in self.apart if name in self.ours and name in self.theirs]
        for one, other in combinations(both[:8], 2):
            if equal(self.ours[one], self.theirs[other]) and equal(self.ours[other], self.theirs[one]):
                return "exchanged", f"{one} of JAX is what the host has as {other}, and the other way round"
        if len(both) > 1:
            return None
        try:
            program = trace(self.function, *self.args, unroll=False)
        except Exception:  # a half may run on the host in parts: the search by equations tells why it was not traced
            return None
        reads = {n: e.inputs for e in program.equations for n in e.outputs}
        for name in both:
            found, waiting = set(), [program.outputs[name]] if name in program.outputs else []
            while waiting:
                number = waiting.pop()
                found.add(number)
                waiting += [n for n in reads.get(number, ()) if n not in found]
            if found and not found & set(program.inputs.values()):
                return "left out", f"{name} is the same in JAX whatever it is given"
        return None

    def _said(self, parted: Parting) -> tuple[str, str]:
        ours, theirs, maker = parted.ours.value, parted.theirs.value, parted.maker
        if maker is not None and theirs.size > 2 and np.unique(theirs).size > 1:
            if name := next((name for name, given in maker.given.items() if equal(given, theirs)), ""):
                return "left out", f"{maker.name} is left out in JAX, which has {name} for what it returns"
        if parted.before is not None and equal(parted.before, theirs) and not equal(parted.before, ours):
            return "left out", f"{parted.name} is not changed in JAX: it is as {parted.name} was given"
        if (found := said_of_all(parted.name, *parted.every)) is not None:
            return found
        if ours.shape != theirs.shape:  # a row of one half, or other data
            others = (name for name, value in parted.known.items() if theirs.size > 2 and equal(value, theirs))
            name = next(others, "")
            return ("operand", f"JAX has {name} for {parted.name}") if name else ("", "")
        return said(parted.name, ours, theirs, parted.known)

    def _parting(self) -> Parting | None:
        """Functions and variables of the same name, with the JAX half run line by line too."""
        theirs = HostValues(stop=True)
        try:
            with jax.disable_jit(), theirs:
                self.function(*self.args)
        except Enough:  # the first difference may be among what was seen
            pass
        except Exception as error:  # without `jit` the user's code may raise anything: there is another search
            self.notes = (f"JAX could not be run line by line, so equations were searched: {_in_short(error)}",)
            return None
        return first_parting(self.host.root, theirs.root)

    def _by_equations(self, longest: int | None = None, where: str = "") -> Divergence:
        """The search in JAX's equations, unless there are more than some number; in those of one line, if it is
        given."""
        try:
            self.program = trace(self.function, *self.args)
            if longest is not None and len(self.program.equations) > longest:
                return self._told(None, None)
            self.points = record(self.program, jax.tree.leaves(self.args))
        except Exception as error:  # a half may run on the host in parts, and raise anything when it is traced
            return self._told(self._host_place(), None, notes=(f"JAX could not trace it: {_in_short(error)}",))
        self.index = Index(self.host.points.values())
        notes = self.program.notes
        found = self._guilty(where) or (self._random() if longest is None else None)
        if found is None:
            return self._told(self._host_place(), self._output_place(), notes=notes)
        point, variable = found
        kind, cause = self._cause(point, variable)
        compared = relation(variable.value, point.value, variable.value.shape)
        return self._told(
            Place(_word(variable), variable.where, "", variable.lines), jax_place(point), kind, cause, compared, notes
        )

    def _told(
        self,
        ours: Place | None,
        theirs: Place | None,
        kind: str = "",
        cause: str = "",
        compared: str = "",
        notes: tuple[str, ...] = (),
    ) -> Divergence:
        agree = tuple(name for name in self.ours if name not in self.apart)
        first = self.apart[0]
        return Divergence(
            self.twin.name,
            self.level,
            self.quantity,
            first,
            ours,
            theirs,
            kind,
            cause,
            compared,
            None,
            tuple(self.apart[:8]),
            agree[:8],
            (*self.notes, *notes),
        )

    def _host_place(self) -> Place | None:
        """The last variable that held what the host returns."""
        value = self.ours.get(self.apart[0])
        held = [p for p in self.host.points.values() if value is not None and equal(p.value, value)]
        held = held or [p for p in self.host.points.values() if p.operation.rpartition(".")[2] == _last(self.apart[0])]
        return Place(_word(held[0]), held[0].where, "", held[0].lines) if held else None

    def _output_place(self) -> Place | None:
        number = self.program.outputs.get(self.apart[0])
        return None if number is None else jax_place(self.points.get(number))

    def _random(self) -> tuple[Point, Point] | None:
        """Random numbers that the host does not draw: the first equation that draws them."""
        roots = [n for name in self.apart if (n := self.program.outputs.get(name)) is not None]
        before = {m for n in roots if n in self.points for m in ancestors(self.points, n)}
        for equation in self.program.equations:
            number = equation.outputs[0]
            if number not in before or equation.name not in RANDOM or number not in self.points:
                continue
            drawn = self.points[number]
            if drawn.value.size > 1 and not self.index.find(drawn.value) and self._draws():
                like = [
                    p
                    for p in self.host.points.values()
                    if p.value.dtype.kind == "u" and p.value.size == drawn.value.size
                ]
                return drawn, like[-1] if like else next(iter(self.host.points.values()))
        return None

    def _draws(self) -> bool:
        return any("random" in p.where for p in self.host.points.values())

    def _guilty(self, where: str = "") -> tuple[Point, Point] | None:
        """The first equation that heals; on one line the last that is explained."""
        roots = [n for name in self.apart if (n := self.program.outputs.get(name)) is not None and n in self.points]
        before = {m for n in roots for m in ancestors(self.points, n)}
        made = {n: e for e in self.program.equations for n in e.outputs}
        suspects = [n for n in sorted(before) if n in made and self.points[n].lines][-SUSPECTS:]
        if where:
            suspects = [n for n in suspects if self.points[n].where == where][::-1]
        run = _substituting(self.program, suspects, self.points)
        for number in suspects:
            for variable in self._candidates(self.points[number]):
                found = run(jax.tree.leaves(self.args), number, variable.value)
                if all(name in found and equal(self.ours[name], found[name]) for name in self.ours):
                    if not where or self._cause(self.points[number], variable)[0]:
                        return self.points[number], variable
        return None

    def _candidates(self, point: Point) -> Iterator[Point]:
        seen: list[np.ndarray] = []
        for variable in self.host.points.values():
            value = variable.value
            alike = value.shape == point.value.shape and (value.dtype.kind == "b") == (point.value.dtype.kind == "b")
            if alike and not equal(value, point.value) and not any(equal(value, other) for other in seen):
                seen.append(value)
                yield variable
            if len(seen) >= CANDIDATES:
                return

    def _cause(self, point: Point, variable: Point) -> tuple[str, str]:
        """What makes the equation give the host's value."""
        equation = next(e for e in self.program.equations if point.number in e.outputs)
        if equation.name in RANDOM:
            return "key", "JAX draws its random numbers from another key"
        for kind, text, value in alternatives(self.program, equation, self.points, self.host):
            if value is not None and equal(np.asarray(value), variable.value):
                return kind, text
        reads = [self.points[n].operation for n in ancestors(self.points, point.number) if n in self.points]
        if any(name in RANDOM for name in reads) and equation.name in (
            "select_n",
            "argmax",
            "gather",
            "convert_element_type",
        ):
            return "operand", f"JAX gives {_word(variable)} by {equation.name} of other values"
        return "", ""


def _substituting(
    program: Program, suspects: list[int], points: dict[int, Point]
) -> Callable[[list[Any], int, np.ndarray], dict[str, np.ndarray]]:
    """The outputs with one value replaced. Compiled once: every suspect asks whether it is its turn."""
    kinds = {n: (points[n].value.shape, str(points[n].value.dtype)) for n in suspects}

    def evaluate(args: list[Any], turn: Any, given: dict[str, Any]) -> list[Any]:
        values: list[Any] = [None] * program.count
        for number, constant in program.constants.items():
            values[number] = constant
        for number, arg in zip(program.inputs.values(), args, strict=True):
            values[number] = arg
        for equation in program.equations:
            found = equation.apply(*(values[i] for i in equation.inputs))
            for number, value in zip(equation.outputs, found, strict=True):
                if number in kinds:
                    value = jnp.where(turn == number, given[str(kinds[number])], value)
                values[number] = value
        return [values[n] for n in program.outputs.values()]

    compiled = jax.jit(evaluate)
    empty = {str(kind): jnp.zeros(kind[0], kind[1]) for kind in set(kinds.values())}

    def run(args: list[Any], number: int, value: np.ndarray) -> dict[str, np.ndarray]:
        given = {**empty, str(kinds[number]): jnp.asarray(value).astype(kinds[number][1])}
        outputs = compiled(args, jnp.asarray(number), given)
        return leaves(dict(zip(program.outputs, outputs, strict=True)), "")

    return run


def _in_short(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    return ": ".join((type(error).__name__, *str(error).strip().splitlines()[:1]))


def _word(point: Point) -> str:
    return point.operation


def _last(name: str) -> str:
    return name.rpartition(".")[2]
