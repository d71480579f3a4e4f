"""Which words of a command line belong to which option, read off the fields of the verb."""

import dataclasses
import math
import os
import re
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from tyro.conf import Positional

from ..config_values import is_union
from ..errors import UsageError, nearest

SETTING = re.compile(r"[A-Za-z][\w.-]*=")
NUMBER = re.compile(r"-[\d.]")


class Option(NamedTuple):
    """What may follow an option."""

    words: float
    """How many at most: none after a flag, any number after one that holds a tuple."""
    choices: tuple[str, ...] = ()
    """The only ones that it knows; empty if it takes any."""


def arrange(verb: type, words: Sequence[str]) -> list[str]:
    """The words of a command line as the parser wants them; UsageError for an option that the verb does not have.

    Settings may stand anywhere: `train SYSTEM --preset demo mode=torch` is `train SYSTEM mode=torch --preset demo`.
    Verbs without settings take `level=grad` for `--level=grad`, unless a file is called so.
    """
    free = list(_free(verb, words))
    if "words" in verb.__dataclass_fields__:  # pyright: ignore[reportAttributeAccessIssue]
        words = [words[i] for i in sorted(range(len(words)), key=lambda i: not free[i])]
    else:
        is_option = lambda word: SETTING.match(word) and not os.path.exists(word)
        words = [f"--{word}" if mine and is_option(word) else word for word, mine in zip(words, free, strict=True)]
    known = options(verb)
    for name in map(_option_name, words):
        if name is not None and name not in known:
            raise UsageError(f"unknown option {name!r}.{nearest(name, known)} Known: {', '.join(sorted(known))}.")
    return words


def positional(verb: type, words: Sequence[str]) -> list[str]:
    """The words that no option takes."""
    return [word for word, mine in zip(words, _free(verb, words), strict=True) if mine]


def options(verb: Any) -> dict[str, Option]:
    """The options of a verb, those of its subcommands among them."""
    found = {"-h": Option(0), "--help": Option(0)}
    hints = get_type_hints(verb, include_extras=True)
    for field in dataclasses.fields(verb):
        kind, positional = _bare(hints[field.name])
        members = [_bare(member)[0] for member in get_args(kind)] if is_union(kind) else [kind]
        nested = [member for member in members if dataclasses.is_dataclass(member)]
        for member in nested:
            found |= options(member)
        if not nested and not positional:
            name = field.name.replace("_", "-")
            found |= {f"--{name}": _option(members)} | ({f"--no-{name}": Option(0)} if kind is bool else {})
    return found


def _free(verb: type, words: Sequence[str]) -> Iterator[bool]:
    """For each word, whether it stands on its own, not as the value of an option."""
    known, waiting = options(verb), Option(0)
    for word in words:
        if (name := _option_name(word)) is not None:
            waiting = Option(0) if "=" in word else known.get(name, Option(0))
            yield False
        elif waiting.words and not (waiting.choices and SETTING.match(word)):
            waiting = waiting._replace(words=waiting.words - 1)
            yield False
        else:
            yield True


def _option_name(word: str) -> str | None:
    """The option that a word names, `--runs_dir=x` being `--runs-dir`; None for any other word."""
    is_option = word.startswith("-") and not NUMBER.match(word)
    return word.partition("=")[0].replace("_", "-") if is_option else None


def _bare(kind: Any) -> tuple[Any, bool]:
    """An annotation without its remarks to the parser, and whether they make it positional."""
    if get_origin(kind) is not Annotated:
        return kind, False
    bare, *remarks = get_args(kind)
    return bare, any(remark is Positional for remark in remarks)


def _option(members: list[Any]) -> Option:
    kind, *_ = [member for member in members if member is not NoneType]
    if kind is bool:
        return Option(0)
    if get_origin(kind) is not tuple:
        return Option(1)
    item, *more = get_args(kind)
    choices = tuple(map(str, get_args(item))) if get_origin(item) is Literal else ()
    return Option(math.inf if ... in more else 1 + len(more), choices)
