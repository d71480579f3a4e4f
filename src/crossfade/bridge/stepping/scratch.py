"""What a loss leaves behind in attributes whenever it runs: a policy of Stable-Baselines3 or skrl keeps the
distribution that it has just computed.

Such an attribute is written before it is read, so that a run does not depend on it. A compiled step has no use for it
and leaves it as it was; runs that find out, record or prove something put it back.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

Home = dict[Any, Any]  # the attributes of an object, or a dict that one holds
GONE = object()
DEPTH = 3  # from a module: what it holds, what that holds, and so on
_OWN = frozenset(vars(nn.Module()))  # what every module has
_CLOSED = (torch.Tensor, torch.optim.Optimizer, type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)


class Homes:
    """The attributes of some objects, and of the objects and dicts that they hold, as they are now."""

    def __init__(self, roots: Iterable[Any]):
        self._homes: dict[int, tuple[Home, type]] = {}  # and the class of the object
        for root in roots:
            self._enter(root, type(root), DEPTH)
        held = lambda number, home: {(number, key): value for key, value in home.items() if key not in _OWN}
        self._held = {k: v for number, (home, _) in self._homes.items() for k, v in held(number, home).items()}

    def changes(self, earlier: "Homes") -> list["Left"]:
        """The attributes that were something else, of objects that were there: new ones are not judged."""
        return [
            Left(*self._homes[number], key, value, earlier._held.get((number, key), GONE))
            for (number, key), value in self._held.items()
            if number in earlier._homes and not _same(value, earlier._held.get((number, key), GONE))
        ]

    def before(self, left: "Left") -> Any:
        return self._held.get((id(left.home), left.name), GONE)

    def _enter(self, value: Any, owner: type, depth: int) -> None:
        home = value if type(value) is dict else getattr(value, "__dict__", None)
        if type(home) is not dict or isinstance(value, _CLOSED) or id(home) in self._homes:
            return
        self._homes[id(home)] = home, owner
        if depth:
            for key, part in list(home.items()):
                if key not in _OWN:
                    self._enter(part, owner if type(part) is dict else type(part), depth - 1)


class Left(NamedTuple):
    """An attribute that a run has written."""

    home: Home
    owner: type
    name: Any
    value: Any
    before: Any

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.name}"

    def put_back(self) -> None:
        _put(self.home, self.name, self.before)


class Scratch:
    """The attributes that every run writes anew, and what they were before the first."""

    def __init__(self, left: Iterable[Left] = ()):
        self.left = list(left)
        self._objects = {(id(one.home), one.name) for one in self.left if _is_object(one.value)}

    @classmethod
    def found(cls, before: Homes, first: Homes, second: Homes) -> "Scratch":
        """What differs between the ends of two runs."""
        return cls(one._replace(before=before.before(one)) for one in second.changes(first))

    def holds(self, holder: Any, name: Any) -> bool:
        """Whether an attribute of an object is one of them, and an object itself."""
        return (id(getattr(holder, "__dict__", None)), name) in self._objects

    def noted(self, is_library: Callable[[type], bool]) -> Left | None:
        """A tensor, number or container among them that the user's own class keeps, for others to read."""
        mine = (one for one in self.left if (id(one.home), one.name) not in self._objects)
        return next((one for one in mine if not is_library(one.owner)), None)

    def put_back(self) -> None:
        """Each is again what it was before the first run."""
        for one in self.left:
            one.put_back()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Each stays as it is, whatever a run writes."""
        now = [(one.home, one.name, one.home.get(one.name, GONE)) for one in self.left]
        try:
            yield
        finally:
            for home, name, value in now:
                _put(home, name, value)

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Without them, so that a run that reads one before it writes it fails, or gives something else."""
        with self.kept():
            for one in self.left:
                one.home.pop(one.name, None)
            yield


def _put(home: Home, name: Any, value: Any) -> None:
    if value is GONE:
        home.pop(name, None)
    else:
        home[name] = value


def _same(value: Any, other: Any) -> bool:
    """The same object; of numbers and words, the same value."""
    if value is other:
        return True
    return isinstance(value, bool | int | float | str) and type(value) is type(other) and value == other


def _is_object(value: Any) -> bool:
    """Also several in a list."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_object, value))
    return hasattr(value, "__dict__") and not isinstance(value, (*_CLOSED, nn.Module))
