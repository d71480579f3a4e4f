"""Rules of keys and random bits: `crossfade.random` gives the bits that `jax.random` gives."""

import torch
from jax.extend.core import JaxprEqn
from torch import Tensor

from ...random import random_torch, threefry_torch
from .dtypes import WORD, entered, name_of, packed, words
from .elementwise import Rule, Run, always

UNSIGNED = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}


def _seed(eqn: JaxprEqn) -> Run:
    """A key holds its seed: the high word is 0 unless the seed has 64 bits."""
    name_of(eqn.outvars[0].aval)
    wide = name_of(eqn.invars[0].aval).endswith("64")
    return lambda seed: seed if wide else seed.to(torch.int64) & WORD


def _split(eqn: JaxprEqn) -> Run:
    shape = eqn.params["shape"]
    return lambda keys: packed(random_torch.split(words(keys), shape))


def _fold_in(keys: Tensor, data: Tensor) -> Tensor:
    return packed(random_torch.fold_in(words(keys), data))


def _bits(eqn: JaxprEqn) -> Run:
    shape, width, name = eqn.params["shape"], eqn.params["bit_width"], name_of(eqn.outvars[0].aval)
    return lambda keys: entered(random_torch.bits(words(keys), shape, UNSIGNED[width]), name)


def _wrap(eqn: JaxprEqn) -> Run:
    name_of(eqn.outvars[0].aval)
    return packed


def _threefry(*operands: Tensor) -> list[Tensor]:
    key0, key1, x0, x1 = torch.broadcast_tensors(*operands)
    return list(threefry_torch.encrypt(key0, key1, x0, x1))


RULES: dict[str, Rule] = {
    "random_seed": _seed,
    "random_split": _split,
    "random_fold_in": always(_fold_in),
    "random_bits": _bits,
    "random_wrap": _wrap,
    "random_unwrap": always(words),
    "threefry2x32": always(_threefry),
}
