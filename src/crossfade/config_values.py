"""Single values of a config: read from a word or from YAML by the field's annotation, named and printed."""

from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from .errors import nearest

MOST_DIGITS = 40  # of an integer; 1e999999999 would take for ever


class Mismatch(ValueError):
    """A value that does not fit its annotation; the caller adds the key."""


def read_value(value: Any, kind: Any, *, text: bool) -> Any:
    """`value` as the annotation `kind` wants it.

    Words are text through and through (`none`, `true`, `8,8`). YAML brings types of its own and must fit exactly,
    except that lists become tuples and numbers may be strings: YAML 1.1 takes 1e-3 for one.
    """
    if kind is Any:
        return value
    if is_union(kind):
        return _read_union(value, kind, text)
    reader = _READERS.get(get_origin(kind) or kind)
    if reader is None:
        raise Mismatch(f"a field of type {kind} cannot be set; use int, float, bool, str, Path, Literal or tuple.")
    try:
        return reader(value, kind, text)
    except (ValueError, TypeError, InvalidOperation) as error:
        if isinstance(error, Mismatch):
            raise
        raise Mismatch(f"expected {type_name(kind)}, got {shown(value)}.") from error


def format_value(value: Any) -> str:
    """A value as a word has it; `read_value` reads it back."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(format_value, value)) if isinstance(value, tuple) else str(value)


def shown(value: Any) -> str:
    """A value as messages quote it, long ones cut short."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:80]} ... ({len(text)} characters)"


def type_name(kind: Any) -> str:
    """An annotation as help text and messages show it."""
    if is_union(kind):
        return " | ".join(type_name(member) for member in get_args(kind))
    if get_origin(kind) is Literal:
        return " | ".join(format_value(option) for option in get_args(kind))
    if get_origin(kind) is tuple:
        return ",".join("..." if item is ... else type_name(item) for item in get_args(kind))
    return {bool: "true | false", NoneType: "none"}.get(kind) or getattr(kind, "__name__", str(kind))


def is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _read_union(value: Any, kind: Any, text: bool) -> Any:
    """The first member that fits: of words, text and paths come last; of YAML, the value's own type comes first."""
    late = (lambda member: member in (str, Path)) if text else (lambda member: member is not type(value))
    for member in sorted(get_args(kind), key=late):
        try:
            return read_value(value, member, text=text)
        except Mismatch:
            continue
    raise Mismatch(f"expected {type_name(kind)}, got {shown(value)}.")


def _read_int(value: Any, kind: Any, text: bool) -> int:
    """`1e3` is an integer, `1.5` and `true` are not."""
    number = Decimal(_number(value))
    if not number.is_finite() or number.adjusted() > MOST_DIGITS or number != number.to_integral_value():
        raise Mismatch(f"expected int, got {shown(value)}.")
    return int(number)


def _read_float(value: Any, kind: Any, text: bool) -> float:
    return float(_number(value))


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return value


def _read_bool(value: Any, kind: Any, text: bool) -> bool:
    return value.lower() == "true" if text and value.lower() in ("true", "false") else _is(value, kind)


def _read_none(value: Any, kind: Any, text: bool) -> None:
    return None if text and value.lower() == "none" else _is(value, kind)


def _read_str(value: Any, kind: Any, text: bool) -> str:
    if "\0" in _is(value, str):
        raise Mismatch(f"expected text without NUL characters, got {shown(value)}.")
    return value


def _read_path(value: Any, kind: Any, text: bool) -> Path:
    return Path(_read_str(value, kind, text))


def _is(value: Any, kind: Any, text: bool = False) -> Any:
    """The value itself, when it is of exactly this type."""
    if type(value) is not kind:
        raise TypeError
    return value


def _read_literal(value: Any, kind: Any, text: bool) -> Any:
    for option in get_args(kind):
        if value == (format_value(option) if text else option) and (text or type(value) is type(option)):
            return option
    near = nearest(str(value), map(format_value, get_args(kind)))
    raise Mismatch(f"expected one of {type_name(kind)}, got {shown(value)}.{near}")


def _read_tuple(value: Any, kind: Any, text: bool) -> tuple:
    """`8,8`, also `(8,8)` or `[8,8]`; of any length for `tuple[int, ...]`, otherwise of just that length."""
    if text:
        value = [item.strip() for item in value.strip().strip("()[]").split(",") if item.strip()]
    if not isinstance(value, list | tuple):
        raise TypeError
    kinds = get_args(kind)
    if kinds[-1:] == (...,):
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise Mismatch(f"expected {len(kinds)} values ({type_name(kind)}), got {len(value)}: {shown(value)}.")
    return tuple(read_value(item, of, text=text) for item, of in zip(value, kinds, strict=True))


_READERS = {
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
    NoneType: _read_none,
    str: _read_str,
    Path: _read_path,
    Literal: _read_literal,
    tuple: _read_tuple,
}
