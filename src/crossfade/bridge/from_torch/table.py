"""The table of rules: what each ATen operation is in JAX."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

Rule = Callable[..., Any]
"""Takes the operation's arguments, tensors as JAX arrays, and gives its result or the tuple of its results.

Dtypes need no care: the player casts results to torch's. Shapes must be torch's, which the player checks."""

FAMILIES = (
    "pointwise activations reductions ordering shapes indexing factories algebra convolution pooling normalisation "
    "recurrent losses backward spectra bags own random gamma"
).split()

_rules: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of operations: `add` for every overload, `max.dim` for one."""

    def register(function: Rule) -> Rule:
        for name in names:
            assert name not in _rules, f"{name} has two rules"
            _rules[name] = function
        return function

    return register


def rules(**functions: Rule) -> None:
    """Registers operations whose rule is a function that exists."""
    for name, function in functions.items():
        rule(name)(function)


def find(op: str) -> Rule | None:
    """The rule of `name.overload`, or of all overloads of the name."""
    _load()
    return _rules.get(op) or _rules.get(op.partition(".")[0])


def known() -> list[str]:
    """Names of all operations that have a rule."""
    _load()
    return sorted(_rules)


def _load() -> None:
    if not _rules:
        for family in FAMILIES:
            import_module(f"{__package__}.rules_{family}")
