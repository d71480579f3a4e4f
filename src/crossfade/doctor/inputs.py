"""What the command line says about a pair of models: inputs, layouts, and how the models are called."""

import re
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

from ..errors import UsageError


@dataclass(frozen=True)
class Given:
    """What the command line says about one pair: inputs, and how the models are called on them."""

    input: str | None
    jax_input: str | None
    torch_apply: Any
    jax_apply: Any

    @classmethod
    def read(cls, x: str | None, jax_x: str | None, torch_apply: str | None, jax_apply: str | None) -> "Given":
        """From the words of the command line."""
        _check_inputs(x, jax_x)
        ours = _load_apply(torch_apply, "--torch-apply", "module")
        return cls(x, jax_x, ours, _load_apply(jax_apply, "--jax-apply", "model"))


def _load_apply(text: str | None, flag: str, model: str) -> Any:
    """The function that a flag names."""
    from ..loading import load_attribute

    if text is None:
        return None
    if ":" not in text:
        raise UsageError(f"{flag}: expected MODULE:FUNCTION, got {text!r}.")
    function = load_attribute(text)
    if not callable(function):
        kind = type(function).__name__
        raise UsageError(f"{flag} {text}: expected a function ({model}, x) -> outputs, got a {kind}.")
    return function


def _check_inputs(text: str | None, jax_text: str | None) -> None:
    """Raises unless the two inputs can hold the same numbers."""
    for given in filter(None, (text, jax_text)):
        if ":" not in given and not re.fullmatch(r"\d+(x\d+)*", given):
            raise UsageError(f"expected a shape such as 4x8 or MODULE:ATTR, got {given!r}.")
    if jax_text and ":" in jax_text and not (text and ":" in text):
        raise UsageError(
            f"--jax-input {jax_text} has numbers of its own: expected --input MODULE:ATTR with the same numbers in "
            f"torch's layout, got {text!r}."
        )
    if text and jax_text and ":" not in text + jax_text:
        _orders(_shape(text), _shape(jax_text))


def example(text: str | None, module: Any) -> Any:
    """The torch input: drawn for a shape such as 4x8, loaded from MODULE:ATTR, or guessed from the first layer."""
    import torch

    if text and ":" in text:
        return _load(text)
    if text:
        shape = _shape(text)
    else:
        first = next((m for m in module.modules() if isinstance(m, torch.nn.Linear | torch.nn.Embedding)), None)
        if first is None or not isinstance(first, torch.nn.Linear) or first is not _first_layer(module):
            raise UsageError(
                "cannot tell the input from the model's first layer. Say it: --input 4x8, or --input MODULE:ATTR."
            )
        shape = (4, first.in_features)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def layouts(x: Any, jax_text: str | None) -> list[Any]:
    """The JAX input, the same numbers as `x`: None for the same layout, else every order of axes that gives the shape
    that was asked for, the likeliest first."""
    import torch

    if jax_text is None:
        return [None]
    if ":" in jax_text:
        return [_load(jax_text)]
    if not isinstance(x, torch.Tensor):
        raise UsageError(f"--jax-input {jax_text}: expected one torch input, got several. Say it as MODULE:ATTR.")
    return [x.permute(order).numpy() for order in _orders(tuple(x.shape), _shape(jax_text))]


def _orders(shape: tuple[int, ...], jax_shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The orders of the axes after the first that turn one shape into the other, those that move the fewest first."""
    orders = [(0, *rest) for rest in permutations(range(1, len(shape)))]
    found = [order for order in orders if tuple(shape[i] for i in order) == jax_shape]
    if not found:
        text, jax_text = ("x".join(map(str, numbers)) for numbers in (shape, jax_shape))
        raise UsageError(f"--jax-input {jax_text}: expected the axes of {text} in another order, the batch axis first.")
    return sorted(found, key=lambda order: sum(a > b for a, b in combinations(order, 2)))


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split("x"))


def _load(text: str) -> Any:
    from ..loading import load_attribute

    value = load_attribute(text)
    return value() if callable(value) and not hasattr(value, "shape") else value


def _first_layer(module: Any) -> Any:
    """The first module with parameters that has no modules in it."""
    layers = (m for m in module.modules() if next(m.children(), None) is None)
    return next((m for m in layers if next(m.parameters(recurse=False), None) is not None), None)
