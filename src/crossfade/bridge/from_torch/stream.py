"""torch's random operations drawn from a key: the numbers that an imported function draws from the same key in JAX."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ... import random
from ...errors import NoCounterpart
from ..transfer import key_to_jax, to_torch
from ..transfer_torch import tensor_to_numpy
from .capture import functional_name
from .random_ops import RANDOM
from .surroundings import plain_kernels


@contextmanager
def random_stream(key: Any) -> Iterator[None]:
    """Inside, the i-th random operation of torch (dropout, rand, normal, ...) draws from `fold_in(key, i)`.

    key: a key of `crossfade.random`, or a typed JAX key. Draws are `crossfade.random`'s, so that a torch function and
    the one that `bridge.import_torch` makes of it use the same noise:

        with bridge.random_stream(key):
            loss = torch_loss(module, batch)
        jax_loss(params, batch, key=key)  # the same number
    """
    words = key if isinstance(key, Tensor) else to_torch(key)
    with plain_kernels(), _Stream(words):
        yield


class _Stream(TorchDispatchMode):
    def __init__(self, key: Tensor):
        super().__init__()
        self.key, self.count = key, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = functional_name(func)
        if func.namespace != "aten" or name.partition(".")[0] not in RANDOM:
            return func(*args, **(kwargs or {}))
        draw = _DRAWS.get(name) or _DRAWS.get(name.partition(".")[0])
        if draw is None:
            raise NoCounterpart(f"aten.{name} cannot be drawn from a key. Draw the noise yourself and pass it on.")
        key, self.count = random.fold_in(self.key, self.count), self.count + 1
        with torch.no_grad():
            in_place = func._schema.name.endswith("_")
            like = args[0] if in_place else func(*args, **(kwargs or {}))
            drawn = draw(key, like[0] if isinstance(like, tuple) else like, *args)
            if in_place:
                return args[0].copy_(drawn)
            return drawn if isinstance(like, tuple) else drawn.to(like.dtype)


def _normal(key: Tensor, like: Tensor) -> Tensor:
    return random.normal(key, like.shape, like.dtype)


def _dropout(key: Tensor, like: Tensor, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    kept = random.bernoulli(key, 1 - p, x.shape) if train is not False else torch.ones_like(x, dtype=torch.bool)
    return torch.where(kept, x / (1 - p), 0.0), kept


def _multinomial(
    key: Tensor, like: Tensor, weights: Tensor, samples: int, replacement: bool = False, *_: Any
) -> Tensor:
    logits = weights.log()
    if replacement or samples == 1:
        return random.categorical(key, logits, shape=(like.shape[-1], *like.shape[:-1])).movedim(0, -1)
    scores = logits + random.gumbel(key, logits.shape, logits.dtype)
    return scores.argsort(-1, descending=True)[..., : like.shape[-1]]


def _gamma(key: Tensor, like: Tensor, a: Tensor, *_: Any) -> Tensor:
    """JAX's own numbers: its rejections depend on the shapes `a`."""
    with jax.enable_x64(a.dtype == torch.float64):
        return to_torch(jax.random.gamma(key_to_jax(key), tensor_to_numpy(a), dtype=np.dtype(str(a.dtype)[6:])))


_DRAWS: dict[str, Callable[..., Any]] = {
    "_standard_gamma": _gamma,
    "bernoulli.Tensor": lambda key, like, x, p, *_: random.uniform(key, like.shape, p.dtype) < p,
    "bernoulli.default": lambda key, like, p, *_: random.bernoulli(key, p),
    "bernoulli.float": lambda key, like, x, p=0.5, *_: random.bernoulli(key, p, like.shape),
    "bernoulli.p": lambda key, like, x, p=0.5, *_: random.bernoulli(key, p, like.shape),
    "exponential": lambda key, like, x, rate=1.0, *_: (
        random.exponential(key, like.shape, like.dtype).clamp_min(torch.finfo(like.dtype).tiny) / rate
    ),
    "log_normal": lambda key, like, x, mean=1.0, std=2.0, *_: (mean + std * _normal(key, like)).exp(),
    "multinomial": _multinomial,
    "native_dropout": _dropout,
    "normal": lambda key, like, mean, std=1.0, *_: mean + std * _normal(key, like),
    "normal.default": lambda key, like, x, mean=0.0, std=1.0, *_: mean + std * _normal(key, like),
    "rand": lambda key, like, *_: random.uniform(key, like.shape, like.dtype),
    "rand_like": lambda key, like, *_: random.uniform(key, like.shape, like.dtype),
    "randint.default": lambda key, like, high, *_: random.randint(key, like.shape, 0, high),
    "randint.low": lambda key, like, low, high, *_: random.randint(key, like.shape, low, high),
    "randint_like.default": lambda key, like, x, high, *_: random.randint(key, like.shape, 0, high),
    "randint_like.low_dtype": lambda key, like, x, low, high, *_: random.randint(key, like.shape, low, high),
    "randn": lambda key, like, *_: _normal(key, like),
    "randn_like": lambda key, like, *_: _normal(key, like),
    "random.from": lambda key, like, x, low, high, *_: random.randint(key, like.shape, low, high),
    "random.to": lambda key, like, x, high, *_: random.randint(key, like.shape, 0, high),
    "randperm": lambda key, like, n, *_: random.permutation(key, n),
    "uniform": lambda key, like, x, low=0.0, high=1.0, *_: random.uniform(
        key, like.shape, like.dtype, float(low), float(high)
    ),
}
