"""What to log about gradients, in JAX. Twin: statistics_torch.py."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .terms_jax import Info


def gradient_statistics(gradients: dict[str, Float[Array, "..."]], summed: bool) -> Info:
    """Largest and smallest entry and the norm of a gradient; `summed`: the sum of the norms of its arrays instead of
    the norm of all."""
    arrays = list(gradients.values())
    of = lambda f: jnp.stack([f(array) for array in arrays])
    norms = of(lambda array: jnp.sqrt(jnp.square(array).sum()))
    norm = norms.sum() if summed else jnp.sqrt(jnp.square(norms).sum())
    return {"max": of(jnp.max).max(), "min": of(jnp.min).min(), "norm": norm}
