"""Clipping of gradients before a step, as torch's utilities do it."""

import optax

from ...errors import UsageError
from ...optim.clipping_jax import clip_by_global_norm


def clipping(clip_norm: float | None, clip_value: float | None) -> optax.GradientTransformation | None:
    """`clip_grad_norm_` over all gradients together, or `clip_grad_value_` of every number; None for neither."""
    check_clipping(clip_norm, clip_value)
    if clip_value is not None:
        return optax.clip(clip_value)
    return None if clip_norm is None else clip_by_global_norm(clip_norm)


def check_clipping(clip_norm: float | None, clip_value: float | None) -> None:
    """Raises unless at most one of them is given, a number above zero."""
    if clip_norm is not None and clip_value is not None:
        raise UsageError(
            f"expected clip_norm or clip_value, got both ({clip_norm} and {clip_value}), whose order makes a "
            f"difference. Leave one out."
        )
    for name, limit in (("clip_norm", clip_norm), ("clip_value", clip_value)):
        if limit is not None and not limit > 0:
            raise UsageError(f"{name}: expected a number above zero, or None for no clipping; got {limit}.")
