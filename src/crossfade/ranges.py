"""Which numbers a setting may hold: said by its annotation, checked and printed in one place.

    @dataclass(frozen=True)
    class Settings:
        steps: Count = 100
        lr: Positive = 1e-3
        clip_norm: Positive | None = None
        decay: Annotated[float, Range(least=0, below=1)] = 0.99

        def __post_init__(self) -> None:
            check(self)

NaN and infinity are refused in every number, of a range or of none.
"""

import dataclasses
import functools
import sys
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from .config_values import format_value, is_union, type_name
from .errors import UsageError, nearest

INT32 = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Range:
    """Bounds of a number; `least` and `most` belong to it, `above` and `below` do not."""

    least: int | float | None = None
    most: int | float | None = None
    above: int | float | None = None
    below: int | float | None = None
    noun: str = ""
    """What a number in it is called, if not an integer or a finite number."""

    def holds(self, value: int | float) -> bool:
        return (
            abs(value) <= sys.float_info.max  # neither infinite nor NaN, nor an integer too large for a float
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """The bounds in words."""
        if self.least is not None and self.most is not None:
            return f"from {_show(self.least)} to {_show(self.most)}"
        words = {"above": "above", "least": "at least", "below": "below", "most": "at most"}
        given = ((words[name], getattr(self, name)) for name in words)
        return " and ".join(f"{word} {_show(bound)}" for word, bound in given if bound is not None)


Count = Annotated[int, Range(1, INT32)]
Natural = Annotated[int, Range(0, INT32)]
Seed = Annotated[int, Range(0, 2**32 - 1)]
Layers = Annotated[int, Range(1, 1000)]
Finite = Annotated[float, Range()]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Fraction = Annotated[float, Range(0, 1)]
Probability = Annotated[float, Range(0, 1, noun="a probability")]


def check(config: Any, prefix: str = "") -> None:
    """Refuses a config with a number outside its range or a word that is not among its choices."""
    for name, kind in kinds(type(config)).items():
        check_value(f"{prefix}{name}", getattr(config, name), kind)


def check_value(key: str, value: Any, kind: Any, bounds: Range | None = None) -> None:
    """Refuses a value that its annotation excludes; values of other types than numbers and words pass."""
    if get_origin(kind) is Annotated:
        check_value(key, value, get_args(kind)[0], _declared(kind) or bounds)
    elif is_union(kind):
        members = [member for member in get_args(kind) if member is not NoneType]
        if value is not None and len(members) == 1:
            check_value(key, value, members[0], bounds)
    elif get_origin(kind) is tuple:
        for item in value if isinstance(value, tuple) else ():
            check_value(key, item, get_args(kind)[0], bounds)
    elif get_origin(kind) is Literal:
        _check_literal(key, value, kind)
    elif kind in (int, float):
        _check_number(key, value, kind, bounds or Range())


def range_of(kind: Any) -> Range | None:
    """The range that an annotation declares, also inside a union or a tuple."""
    if (found := _declared(kind)) is not None:
        return found
    return next((found for member in get_args(kind) if (found := range_of(member)) is not None), None)


@functools.cache
def kinds(cls: type) -> dict[str, Any]:
    """The annotation of every field that can be set, ranges included."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}


def _declared(kind: Any) -> Range | None:
    if get_origin(kind) is not Annotated:
        return None
    return next((remark for remark in get_args(kind)[1:] if isinstance(remark, Range)), None)


def _check_number(key: str, value: Any, kind: type, bounds: Range) -> None:
    fits = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if not fits or not bounds.holds(value):
        noun = bounds.noun or ("an integer" if kind is int else "a finite number")
        words = str(bounds)
        of = " of " if words.startswith("at ") else " " if words else ""
        raise UsageError(f"{key}: expected {noun}{of}{words}, got {value!r}.")


def _check_literal(key: str, value: Any, kind: Any) -> None:
    options = get_args(kind)
    if not any(value == option and type(value) is type(option) for option in options):
        near = nearest(str(value), map(format_value, options))
        raise UsageError(f"{key}: expected one of {type_name(kind)}, got {value!r}.{near}")


def _show(bound: int | float) -> str:
    powers = {INT32: "2^31 - 1", 2**32 - 1: "2^32 - 1"}
    return powers.get(int(bound)) or f"{bound:,.10g}"
