"""One gradient step on a loss, in JAX. Twin: descent_torch.py."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import optax
from jaxtyping import Array, PyTree

Loss = Callable[[Any, Any], tuple[Array, Mapping[str, Array]]]


def update(
    policy: PyTree, tx: optax.GradientTransformation, opt_state: PyTree, loss: Loss, batch: Any
) -> tuple[PyTree, PyTree, dict[str, Array]]:
    """The step of `tx` down `loss(policy, batch) -> (value, info)`: policy and state after it, `info` of before it.

    `tx` may own some parameters alone (`masking_jax.only`); clipping is part of it.
    """
    (_, info), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(policy, batch)
    changes, opt_state = tx.update(gradient, opt_state, policy)
    return eqx.apply_updates(policy, changes), opt_state, dict(info)
