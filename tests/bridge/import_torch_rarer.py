"""Torch code of the rarer kinds: functions with a derivative of their own, `item()`, bags of embeddings, spectra."""

from typing import Any

import torch
import torch.distributions as D
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from bridge.import_torch_cases import i, made, n, v


class Sign(Function):
    """Straight through."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reversed(Function):
    """The gradient of an adversary; the result is a view of the argument."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.scale * grad, None


reverse = Reversed.apply


class DoubledExp(Function):
    """Saves its result."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class Cube(Function):
    """In the newer form."""

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad * ctx.saved_tensors[0] ** 2


class Quantised(Function):
    """The nearest code of each row: two results, one of them integers, and a write in the backward pass."""

    @staticmethod
    def forward(ctx, x, codes):
        index = ((x[:, None] - codes) ** 2).sum(-1).argmin(1)
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index, codes)
        return codes[index], index

    @staticmethod
    def backward(ctx, grad, _):
        index, codes = ctx.saved_tensors
        return grad.clone(), torch.zeros_like(codes).index_add_(0, index, grad)


class Shifted(Function):
    """A gradient that torch sums to the shape of its argument."""

    @staticmethod
    def forward(ctx, x, shift):
        return x + shift

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


class Layer(nn.Module):
    """Parameters as arguments of the function."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        return Shifted.apply(x @ self.linear.weight.t(), self.linear.bias)


def penalised(function: Any) -> Any:
    """The sum, and the size of its own gradient."""

    def total(x: Tensor) -> Tensor:
        x = x if x.requires_grad else x.clone().requires_grad_()
        y = function(x * 1.0).sum()
        return y + torch.autograd.grad(y, x, create_graph=True)[0].pow(2).sum()

    return total


def written_after(x: Tensor) -> Tensor:
    y = Sign.apply(x)
    y.mul_(2).add_(x)
    return y * x


IDS, STARTS = i(7, 10), torch.tensor([0, 3, 3, 8])


def bag(*args: Any, **settings: Any) -> Any:
    return (lambda weight, *more: F.embedding_bag(IDS, weight, STARTS, *more, **settings), *args)


RARER: dict[str, tuple[Any, ...]] = {
    "straight through": (Sign.apply, n(4)),
    "gradient reversal": (lambda x: Reversed.apply(x, 0.5) * x, n(4)),
    "a saved result": (DoubledExp.apply, n(4)),
    "setup_context": (Cube.apply, n(4)),
    "quantised": (lambda x, codes: Quantised.apply(x, codes)[0] ** 2, n(5, 3), n(4, 3)),
    "a summed gradient": (Shifted.apply, n(3, 4), n(4)),
    "a function of parameters": (Layer.forward, made(Layer), n(5, 3)),
    "written after": (written_after, n(4)),
    "second derivative": (penalised(Cube.apply), n(4)),
    "second derivative through a saved result": (penalised(DoubledExp.apply), n(4)),
    "checkpointed": (lambda x: checkpoint(torch.sin, x * 2, use_reentrant=False), n(4)),
    "under no_grad": (lambda x: torch.no_grad()(Sign.apply)(x) * x, n(4)),
    "item as a factor": (lambda x: x * x.exp().mean().item(), n(4)),
    "item of an integer": (lambda x: x.pow(2).sum() / (x > 0).sum().item(), n(4)),
    "applied by a name of its own": (lambda x: reverse(x, 2.0) ** 2, n(4)),
    "bag, sum": bag(n(7, 3)),
    "bag, mean": bag(n(7, 3), mode="mean"),
    "bag, max with ties": bag(n(7, 3).round(), mode="max"),
    "bag, padding": bag(n(7, 3), mode="mean", padding_idx=2),
    "bag, max and padding": bag(n(7, 3), mode="max", padding_idx=int(IDS[0])),
    "bag, last offset": (
        lambda weight: F.embedding_bag(IDS, weight, torch.tensor([0, 3, 8]), include_last_offset=True),
        n(7, 3),
    ),
    "bag, weights": (
        lambda weight, each: F.embedding_bag(IDS, weight, STARTS, mode="sum", per_sample_weights=each),
        n(7, 3),
        n(10),
    ),
    "bag, rows": (lambda weight: F.embedding_bag(IDS.view(5, 2), weight, mode="mean"), n(7, 3)),
    "rfft": (lambda x: torch.fft.rfft(x).abs(), n(3, 8)),
    "irfft": (lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=7, norm="ortho"), n(3, 7)),
    "fft": (lambda x: torch.view_as_real(torch.fft.fft(x, norm="forward")), n(3, 8)),
    "ifft": (lambda x: torch.fft.ifft(torch.fft.fft(x) * torch.complex(v(0.5), v(2.0))).real, n(3, 8)),
    "a complex number of Python's": (lambda x: (torch.fft.ifft(torch.fft.fft(x) * (0.5 + 2j)) * 1j).real, n(3, 8)),
    "rfft2": (lambda x: torch.fft.rfft2(x, norm="ortho").imag, n(4, 6)),
    "power spectrum": (lambda x: (torch.fft.rfft(x, dim=0) * torch.fft.rfft(x, dim=0).conj()).real, n(8, 2)),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2.5, mode="bicubic"), n(2, 3, 4, 5)),
    "bicubic, corners": (lambda x: F.interpolate(x, (3, 9), mode="bicubic", align_corners=True), n(1, 2, 5, 5)),
    "angle": (lambda x: torch.fft.rfft(x).angle(), n(8)),
}

SHAPES = torch.tensor([0.05, 0.3, 0.9, 1.0, 2.5, 7.9, 8.1, 12.0, 40.0, 300.0]).double()  # every formula of torch's


def by_hand(a: Tensor) -> Tensor:
    """Dirichlet, as it can be imported."""
    x = D.Gamma(a, torch.ones_like(a)).rsample()
    return x / x.sum(-1, keepdim=True)


GAMMAS: dict[str, tuple[Any, ...]] = {
    "gamma": (lambda a, b: D.Gamma(a, b).rsample((7,)), SHAPES, SHAPES.flip(0)),
    "chi2": (lambda a: D.Chi2(a).rsample((5,)), SHAPES),
    "student": (lambda a: D.StudentT(a, a, a).rsample((5,)), SHAPES + 2),
    "dirichlet by hand": (by_hand, SHAPES.view(5, 2)),
}
