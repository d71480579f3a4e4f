"""What a loss reads beside its arguments. A compiled program keeps the values it was traced with, so a change must not
pass unnoticed.

The bytecode tells: chains of names such as `beta`, `config.beta`, `config["beta"]` and `self.config.beta` that start at
a global, a captured variable, a default or a bound `self`, in the loss and in the functions it calls, libraries left
out. What is passed on whole (`helper(config)`) is compared by its attributes that carry a name the code mentions.

Of a torch loss that is imported, tensors and modules are read anew at every step; they only have to stay the same
objects. What else its modules hold, such as the slope of an activation, is compiled in and watched.
"""

import functools
import inspect
import operator
import random
import sys
import sysconfig
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from ...errors import UsageError
from ..transfer import tensor_to_numpy
from .bytecode import Link, chains, codes, item, stored

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype)
ARRAYS = (np.ndarray, jax.Array, torch.Tensor)
GONE = object()  # a name that leads nowhere any more


@dataclass
class Place:
    """One chain of names and what was found at its end."""

    name: str
    root: functools.partial
    links: tuple[Link, ...]
    value: Any = GONE
    immutable: bool = False  # the same object is the same value
    frozen: Any = None  # the value as something that compares by content
    shown: str = ""
    stream: Any = None  # of a generator of random numbers

    def __str__(self) -> str:
        return self.name

    def look(self, links: int | None = None) -> Any:
        """What the chain leads to now, or its first links."""
        try:
            value = self.root()
            for get, key in self.links[:links]:
                value = get(value, key)
        except (AttributeError, LookupError, TypeError, ValueError):
            return GONE
        return value


class Reads:
    """The places a loss reads, and whether they still hold what they held when its program was traced.

    live: the loss is a torch loss whose tensors are read anew at every step. `modules` are those it reads, by name.
    """

    def __init__(self, loss: Callable[..., Any], live: bool = False):
        walk = _Walk(loss, live)
        self._names, self._live = walk.names, live
        self._places = walk.places
        self.modules, self._package, self.names_random = walk.modules, walk.package, walk.names_random
        self._settings: list[_Settings] = []
        self.remember()

    def forget(self, attribute: Callable[[Any, Any], bool]) -> None:
        """Leaves out the places that lead through such an attribute, given the object that has it and its name."""
        through = lambda place: any(attribute(place.look(i), key) for i, (_, key) in enumerate(place.links))
        self._places = [place for place in self._places if not through(place)]

    def changed(self) -> Place | None:
        """The first place that no longer holds what it held, if there is one."""
        for place in self._places:
            value = place.look()
            same = value is place.value and place.immutable
            if not same and (self._freeze(value) != place.frozen or _stream(value) != place.stream):
                return place
        return None

    def is_library(self, kind: type) -> bool:
        """Whether a class is that of a library."""
        return _is_library(kind.__module__, self._package)

    def watch(self, module: nn.Module) -> None:
        """Watches numbers and words that a module's parts from libraries hold; of others the code is read."""
        parts = {f"{name}.": part for name, part in module.named_modules()}
        library = {name: part for name, part in parts.items() if self.is_library(type(part))}
        self._settings.append(_Settings(library))

    def remember(self) -> None:
        """Takes what the places hold now for what the program was traced with."""
        for place in self._places:
            place.value = place.look()
            same = (*PLAIN, FunctionType, jax.Array, *((torch.Tensor, nn.Module) if self._live else ()))
            place.immutable = isinstance(place.value, same)
            place.frozen, place.shown = self._freeze(place.value), _show(place.value)
            place.stream = _stream(place.value)
        for settings in self._settings:
            settings.remember()

    def _freeze(self, value: Any) -> Any:
        return _freeze(value, self._names, self._live)

    def check(self) -> None:
        """Refuses to go on when a place holds something else."""
        for place in self._places:
            value = place.look()
            if value is place.value and place.immutable:
                continue
            if self._freeze(value) != place.frozen:
                self._refuse(place.name, place.shown, _show(value))
            place.value = value
        for settings in self._settings:
            if settings.now() != settings.then:
                self._refuse(*settings.change())

    def _refuse(self, name: str, then: str, now: str) -> None:
        jax.clear_caches()  # functions JAX has traced inside the loss hold the old value too
        tensor = " keep it in a tensor that you fill_, which is read anew," if self._live else ""
        raise UsageError(
            f"{'the loss' if self._live else 'jax_loss'} reads {name}, which was {then} when the program was compiled "
            f"and is {now} now; the program would go on with the old value. Pass what changes in the batch,{tensor} or "
            f"close this step and open a new one. Nothing was changed."
        )


class _Settings:
    """Numbers and words that modules hold beside their tensors: the slope of an activation, the stride of a layer."""

    def __init__(self, parts: dict[str, nn.Module]):
        own = lambda part: [n for n, v in vars(part).items() if n != "training" and n[0] != "_" and _is_plain(v)]
        self._parts = [(prefix, vars(part), own(part)) for prefix, part in parts.items()]
        self._lookups = [(operator.itemgetter(*names), held) for _, held, names in self._parts if names]
        self.remember()

    def remember(self) -> None:
        self.then = self.now()
        self._values = [[held[name] for name in names] for _, held, names in self._parts]

    def now(self) -> Any:
        """All of them, to be compared with `then`."""
        try:
            return [get(held) for get, held in self._lookups]
        except KeyError:
            return GONE

    def change(self) -> tuple[str, str, str]:
        """Name, old and new value of the first that has changed."""
        for (prefix, held, names), values in zip(self._parts, self._values, strict=True):
            for name, then in zip(names, values, strict=True):
                if (now := held.get(name, GONE)) is not then and now != then:
                    return f"{prefix}{name}".lstrip("."), _show(then), _show(now)
        raise AssertionError("no setting has changed")


class _Walk:
    """Follows a function, and those it calls, to the places they read."""

    def __init__(self, loss: Callable[..., Any], live: bool = False):
        self.places: list[Place] = []
        self.modules: dict[str, nn.Module] = {}
        self._live = live
        self.names: set[str] = set()
        self.names_random = False  # Python's module, or a function of it
        self.package = _package(loss)
        self._seen: set[tuple[int, int]] = set()
        self._known: set[tuple] = set()
        self._descend(loss, first=True)

    def _descend(self, function: Any, first: bool = False) -> None:
        """Reads what a callable reads, whatever kind it is."""
        bound: dict[str, Any] = {}
        given: tuple[Any, ...] = ()
        while True:
            if isinstance(function, functools.partial):
                given, bound = (*function.args, *given), {**function.keywords, **bound}
                function = function.func
            elif isinstance(function, MethodType):
                given, function = (function.__self__, *given), function.__func__
            elif isinstance(function, FunctionType):
                break
            elif hasattr(function, "__wrapped__"):  # jax.jit and its kin
                function = function.__wrapped__
            elif callable(function) and isinstance(type(function).__call__, FunctionType):  # an object of a class
                given, function = (function, *given), type(function).__call__
            else:
                return
        key = id(function.__code__), id(given[0]) if given else 0
        if key in self._seen or not (first or self._is_ours(function)):
            return
        self._seen.add(key)
        code = function.__code__
        names, defaults = code.co_varnames[: code.co_argcount], function.__defaults__ or ()
        local = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)) | (function.__kwdefaults__ or {})
        self._read(function, {**local, **dict(zip(names, given, strict=False)), **bound})
        if wrapped := getattr(function, "__wrapped__", None):
            self._descend(functools.partial(wrapped, *given, **bound))

    def _read(self, function: FunctionType, local: dict[str, Any]) -> None:
        """Reads one function, some of whose arguments are known."""
        space = function.__globals__
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for code, outer in codes(function.__code__):
            self.names.update(code.co_names)
            for kind, name, links in chains(code):
                if kind == "global" and name in space:
                    static = space.get("__name__") != "__main__"
                    self._note(name, functools.partial(item, space, name), links, static)
                elif kind == "free" and name in cells:
                    self._note(name, functools.partial(getattr, cells[name], "cell_contents"), links)
                elif name in local and (kind == "free" or (kind == "local" and outer)):
                    self._note(name, functools.partial(item, local, name), links)

    def _note(self, name: str, root: functools.partial, links: tuple[Link, ...], static: bool = False) -> None:
        """Follows a chain as far as it leads to data; functions at its end are read in turn.

        static: the chain starts in an imported module, whose functions nobody replaces.
        """
        try:
            value = root()
        except (LookupError, ValueError):  # not defined yet
            return
        if value is random or isinstance(getattr(value, "__self__", None), random.Random):
            self.names_random = True
            return
        holder: Any = None
        for i, (get, key) in enumerate(links):
            if isinstance(value, ModuleType) and _is_library(value.__name__, self.package):
                return
            static = static and isinstance(value, ModuleType)
            declared = inspect.getattr_static(type(value), key, None) if get is getattr else None
            if isinstance(declared, property) and declared.fget is not None:
                self._descend(functools.partial(declared.fget, value))
                return
            try:
                found = GONE if isinstance(value, (*PLAIN, *ARRAYS)) else get(value, key)
            except (AttributeError, LookupError, TypeError):
                found = GONE
            new = get is stored and not isinstance(value, (*PLAIN, *ARRAYS))
            method = isinstance(found, BuiltinFunctionType) or _stream(value) is not None  # as in `config.get`
            if method or (found is GONE and not new):
                links = links[:i]
                break
            holder, value = value, found
            name += f"[{key!r}]" if get is item else f".{key}"
        if isinstance(value, ModuleType | type):
            return
        if self._live:
            self._enter(name, value)
            if isinstance(holder, nn.Module) and any(value is own for own in _registered(holder)):
                return  # `Layout` watches it, or it is a buffer, which is looked up every time
        if callable(value) and not _is_data(value):
            self._descend(value)
            if static or not isinstance(value, FunctionType):
                return
        key = (id(root.args[0]), root.args[1], *links)
        if key not in self._known:
            self._known.add(key)
            self.places.append(Place(name, root, links))

    def _enter(self, name: str, value: Any) -> None:
        """Reads what the modules read that a chain leads to, alone or in a container."""
        found = [leaf for leaf in _parts(value)[0] if isinstance(leaf, nn.Module)]
        for i, module in enumerate(found):
            if not any(module is known for known in self.modules.values()):
                self.modules[f"{name}[{i}]" if len(found) > 1 else name] = module
                for part in module.modules():
                    self._descend(MethodType(type(part).forward, part))

    def _is_ours(self, function: FunctionType) -> bool:
        return not _is_library(function.__module__ or "", self.package)


def _stream(value: Any) -> Any:
    """Where a generator of random numbers stands; None for all else."""
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return [np.asarray(part).tobytes() for part in value.get_state()]
    return value.getstate() if isinstance(value, random.Random) else None


def _parts(value: Any) -> tuple[list[Any], Any]:
    """The leaves of a container and its structure; also of a dict whose keys have no order, which JAX refuses."""
    try:
        return jax.tree.flatten(value)
    except ValueError:
        return tree_flatten(value)


def _is_data(value: Any) -> bool:
    """Numbers, arrays, containers of them, and models."""
    return isinstance(value, (*PLAIN, *ARRAYS, nn.Module, set, frozenset)) or not jax.tree_util.all_leaves([value])


@functools.cache
def _is_library(module: str, package: str) -> bool:
    """Whether a module is installed, or Python's own; those of the loss's own package never are."""
    top = module.partition(".")[0]
    if top in (package, "__main__"):
        return False
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    installed = not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)  # also a user's, or a base's
    own = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib"))
    return top in sys.builtin_module_names or not file or installed or file.startswith(own)


def _package(loss: Any) -> str:
    function = inspect.unwrap(loss.func if isinstance(loss, functools.partial) else loss)
    return (getattr(function, "__module__", None) or "").partition(".")[0]


class _Array:
    """A JAX array, compared by content when it is not the same object."""

    def __init__(self, array: jax.Array):
        self.array = array

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Array) or self.array is other.array:
            return isinstance(other, _Array)
        a, b = self.array, other.array
        return (a.shape, a.dtype) == (b.shape, b.dtype) and _bits(a) == _bits(b)


def _bits(array: jax.Array) -> bytes:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array).tobytes()


def _is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(map(_is_plain, value)))


def _registered(module: nn.Module) -> list[Any]:
    return [*module._parameters.values(), *module._buffers.values(), *module._modules.values()]


def _freeze(value: Any, names: set[str], live: bool = False) -> Any:
    """The value as something that compares by content; if `live`, tensors and modules by identity."""
    if live and isinstance(value, torch.Tensor | nn.Module):
        return id(value)
    if isinstance(value, PLAIN):
        return type(value), repr(value)
    if isinstance(value, jax.Array):
        return _Array(value)
    if isinstance(value, torch.Tensor):
        value = tensor_to_numpy(value, copy=False)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, nn.Module):
        return {name: _freeze(tensor, names) for name, tensor in value.state_dict().items()}
    if isinstance(value, FunctionType | MethodType):
        return value
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if isinstance(value, deque):
        return _freeze(list(value), names, live)
    if not jax.tree_util.all_leaves([value]):  # containers, and models of JAX's libraries
        leaves, structure = _parts(value)
        return structure, [_freeze(leaf, names, live) for leaf in leaves]
    kept = (*PLAIN, np.ndarray, jax.Array, tuple, *((torch.Tensor,) if live else ()))
    attributes = {n: v for n, v in getattr(value, "__dict__", {}).items() if n in names and isinstance(v, kept)}
    return type(value), {n: _freeze(v, names, live) for n, v in attributes.items()} or id(value)


def _show(value: Any) -> str:
    if value is GONE:
        return "absent"
    if isinstance(value, ARRAYS) and np.prod(value.shape) > 1:
        return f"an array of shape {tuple(value.shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
