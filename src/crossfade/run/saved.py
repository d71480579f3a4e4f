"""What a run remembers, back from a checkpoint: NumPy arrays by name, in the NamedTuples they were made of."""

from collections.abc import Mapping
from typing import Any, TypeVar

from ..errors import CheckpointError

Tree = TypeVar("Tree")


def restored(like: Tree, saved: Any, advice: str) -> Tree:
    """The saved arrays in the form of `like`; CheckpointError, with an advice, if one has another type or shape."""
    expected, found = _form(like), _form(saved)
    if wrong := sorted(name for name in expected | found if expected.get(name) != found.get(name)):
        table = "; ".join(f"{name}: expected {expected.get(name)}, got {found.get(name)}" for name in wrong)
        raise CheckpointError(f"{table}. {advice}")
    return _filled(like, saved)


def _form(tree: Any, prefix: str = "") -> dict[str, str]:
    """Type and shape of every array, by its path."""
    parts = tree._asdict() if isinstance(tree, tuple) else tree  # pyright: ignore[reportAttributeAccessIssue]
    if not isinstance(parts, Mapping):
        return {prefix: f"{parts.dtype} {parts.shape}" if hasattr(parts, "dtype") else "nothing"}
    return {k: v for name, part in parts.items() for k, v in _form(part, f"{prefix}.{name}".strip(".")).items()}


def _filled(like: Any, saved: Any) -> Any:
    if not isinstance(like, tuple):
        return saved
    parts = like._asdict()  # pyright: ignore[reportAttributeAccessIssue]
    return type(like)(**{name: _filled(part, saved[name]) for name, part in parts.items()})
