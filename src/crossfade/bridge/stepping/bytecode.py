"""Which names a function reads and writes: chains such as `config.beta` and `self.settings["beta"]` in its bytecode."""

import dis
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

Link = tuple[Callable[[Any, Any], Any], Any]  # how to get there, and the name or the key


def chains(code: CodeType) -> Iterator[tuple[str, str, tuple[Link, ...]]]:
    """(kind, first name, links) of every chain of names in the bytecode; the kind is global, free or local."""
    root: tuple[str, str] | None = None
    links: list[Link] = []
    constant: list[Any] = []
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        if name in ("CACHE", "EXTENDED_ARG", "PUSH_NULL", "NOP") or (root and name == "COPY"):  # as in self.n += 1
            continue
        if name in ("STORE_GLOBAL", "STORE_DEREF"):
            yield "global" if name == "STORE_GLOBAL" else "free", value, ()
        if root and name in ("LOAD_ATTR", "LOAD_METHOD") and not constant:
            links.append((getattr, value))
            continue
        if root and name == "STORE_ATTR" and not constant:
            links.append((stored, value))
        if root and name.startswith(("LOAD_CONST", "LOAD_SMALL_INT")) and not constant:
            constant = [value]
            continue
        if root and constant and (name == "BINARY_SUBSCR" or (name == "BINARY_OP" and instruction.argrepr == "[]")):
            links.append((item, constant.pop()))
            continue
        if root:
            yield root[0], root[1], tuple(links)
        root, links, constant = None, [], []
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            root = "global", value
        elif name in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"):
            root = "free", value
        elif "LOAD_FAST" in name:  # newer Pythons load two at once
            *others, last = value if isinstance(value, tuple) else (value,)
            yield from (("local", other, ()) for other in others)
            root = "local", last
    if root:
        yield root[0], root[1], tuple(links)


def codes(code: CodeType, outer: bool = True) -> Iterator[tuple[CodeType, bool]]:
    """A function's code and those of the functions inside it."""
    yield code, outer
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant, False)


def item(value: Any, key: Any) -> Any:
    return value[key]


def stored(value: Any, key: Any) -> Any:
    """An attribute that the code writes; it may not be there yet."""
    return getattr(value, key)
