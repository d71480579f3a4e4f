"""Rules of windows that slide over an array: pooling and its derivatives."""

from collections.abc import Callable, Sequence

import torch
from jax.extend.core import JaxprEqn
from torch import Tensor

from .dtypes import carrier
from .elementwise import Rule, Run
from .shapes import padded


def _least(dtype: torch.dtype) -> float | int:
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _largest(dtype: torch.dtype) -> float | int:
    return torch.inf if dtype.is_floating_point else torch.iinfo(dtype).max


class Sliding:
    """The windows of an equation: their sizes, strides, dilations and what is padded around the array."""

    def __init__(self, eqn: JaxprEqn) -> None:
        p = eqn.params
        rank = len(p["window_dimensions"])
        self.sizes: Sequence[int] = p["window_dimensions"]
        self.strides: Sequence[int] = p["window_strides"]
        self.dilations: Sequence[int] = p.get("window_dilation", (1,) * rank)
        between = p.get("base_dilation", (1,) * rank)
        self.config = [(low, high, d - 1) for (low, high), d in zip(p["padding"], between, strict=True)]

    def padded(self, x: Tensor, value: float | int) -> Tensor:
        return padded(x, torch.as_tensor(value, dtype=x.dtype, device=x.device), self.config)

    def over(self, x: Tensor) -> Tensor:
        """The windows over a padded array: (*places, elements of a window)."""
        for axis, (size, stride, dilation) in enumerate(zip(self.sizes, self.strides, self.dilations, strict=True)):
            x = x.unfold(axis, (size - 1) * dilation + 1, stride)[..., ::dilation]
        return x.flatten(x.ndim - len(self.sizes))


def _reduce(outside: Callable[[torch.dtype], float | int], reduce: Callable[[Tensor], Tensor]) -> Rule:
    def rule(eqn: JaxprEqn) -> Run:
        windows = Sliding(eqn)
        return lambda x: reduce(windows.over(windows.padded(x, outside(x.dtype))))

    return rule


def _selected(eqn: JaxprEqn) -> Callable[[Tensor, Sliding], Tensor]:
    """The place in each window of the element that is selected: the largest for `ge`, the least for `le`."""
    if eqn.params["select_prim"].name == "ge":
        return lambda x, windows: windows.over(windows.padded(x, _least(x.dtype))).argmax(-1, keepdim=True)
    return lambda x, windows: windows.over(windows.padded(x, _largest(x.dtype))).argmin(-1, keepdim=True)


def _select_and_gather(eqn: JaxprEqn) -> Run:
    """From each window the tangent at the place of the selected element."""
    windows, selected = Sliding(eqn), _selected(eqn)

    def run(tangents: Tensor, x: Tensor) -> Tensor:
        return windows.over(windows.padded(tangents, 0)).gather(-1, selected(x, windows)).squeeze(-1)

    return run


def _select_and_scatter(eqn: JaxprEqn) -> Run:
    """Each window's number added at the place of the selected element."""
    windows, selected, dtype = Sliding(eqn), _selected(eqn), carrier(eqn.outvars[0].aval)

    def run(source: Tensor, x: Tensor) -> Tensor:
        around = windows.padded(torch.zeros_like(x, dtype=dtype), 0)
        numbered = torch.arange(around.numel(), device=x.device).reshape(around.shape)
        places = windows.over(numbered).gather(-1, selected(x, windows)).reshape(-1)
        summed = torch.zeros(around.numel(), dtype=dtype, device=x.device).index_add_(0, places, source.reshape(-1))
        inside = [(-low, -high, 0) for low, high, _ in windows.config]
        return padded(summed.reshape(around.shape), source.new_zeros(()), inside)

    return run


RULES: dict[str, Rule] = {
    "reduce_window_max": _reduce(_least, lambda windows: windows.amax(-1)),
    "reduce_window_min": _reduce(_largest, lambda windows: windows.amin(-1)),
    "reduce_window_sum": _reduce(lambda dtype: 0, lambda windows: windows.sum(-1, dtype=windows.dtype)),
    "select_and_gather_add": _select_and_gather,
    "select_and_scatter_add": _select_and_scatter,
}
