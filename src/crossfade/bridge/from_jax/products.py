"""Rules of matrix products and convolutions."""

from math import prod

import torch
from jax.extend.core import JaxprEqn
from torch import Tensor
from torch.nn import functional as F

from ...errors import NoCounterpart
from .dtypes import carrier, cut, name_of, shape_of
from .elementwise import Rule, Run
from .shapes import padded

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def _dot(eqn: JaxprEqn) -> Run:
    """Batch axes first, then those of the left operand, then those of the right: one batched matrix product."""
    (contract, contract_right), (batch, batch_right) = eqn.params["dimension_numbers"]
    left, right = (shape_of(v) for v in eqn.invars)
    free = [i for i in range(len(left)) if i not in (*contract, *batch)]
    free_right = [i for i in range(len(right)) if i not in (*contract_right, *batch_right)]
    order, order_right = (*batch, *free, *contract), (*batch_right, *contract_right, *free_right)
    many, inner = [left[i] for i in batch], prod(left[i] for i in contract)
    rows, columns = prod(left[i] for i in free), prod(right[i] for i in free_right)
    shape, dtype, name = shape_of(eqn.outvars[0]), carrier(eqn.outvars[0].aval), name_of(eqn.outvars[0].aval)

    def run(x: Tensor, y: Tensor) -> Tensor:
        x = x.to(dtype).permute(order).reshape(*many, rows, inner)
        y = y.to(dtype).permute(order_right).reshape(*many, inner, columns)
        return cut(torch.matmul(x, y).reshape(shape), name)

    return run


def _convolution(eqn: JaxprEqn) -> Run:
    """Brought to torch's layout: batch, features, space."""
    p = eqn.params
    lhs, rhs, out = p["dimension_numbers"]
    space = len(lhs) - 2
    if space not in CONVOLUTIONS:
        raise NoCounterpart(f"conv_general_dilated: expected 1, 2 or 3 spatial axes, got {space}.")
    convolve, dtype = CONVOLUTIONS[space], carrier(eqn.outvars[0].aval)
    groups, batches = p["feature_group_count"], p["batch_group_count"]
    around = zip(p["padding"], p["lhs_dilation"], strict=True)
    config = [(0, 0, 0), (0, 0, 0), *((low, high, between - 1) for (low, high), between in around)]
    plain = all(low == high >= 0 and between == 0 for low, high, between in config)
    padding = [low for low, _, _ in config[2:]] if plain else 0
    back = [out.index(i) for i in range(len(out))]

    def run(x: Tensor, kernel: Tensor) -> Tensor:
        x, kernel = x.to(dtype).permute(lhs), kernel.to(dtype).permute(rhs)
        if not plain:
            x = padded(x, x.new_zeros(()), config)
        if batches > 1:  # groups of the batch become groups of features
            x = x.reshape(batches, -1, *x.shape[1:]).transpose(0, 1)
            x = x.reshape(x.shape[0], -1, *x.shape[3:])
        y = convolve(x, kernel, None, p["window_strides"], padding, p["rhs_dilation"], max(groups, batches))
        return y.permute(back)

    return run


RULES: dict[str, Rule] = {"dot_general": _dot, "conv_general_dilated": _convolution}
