"""Package attributes that load on first use, so that importing crossfade imports neither torch nor jax."""

import importlib
from collections.abc import Callable
from typing import Any


def lazy(package: str, names: dict[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` for a package whose public `names` live in the given submodules.

    `submodule:name` is for one that has another name there.
    """

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, own = names[name].partition(":")
        return getattr(importlib.import_module(f"{package}.{module}"), own or name)

    return __getattr__, lambda: sorted(names), sorted(names)
