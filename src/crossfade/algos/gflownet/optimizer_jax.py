"""The optimiser of GFlowNets in JAX, discrete and continuous; torch's own Adam needs no file."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from ...nn.layers_jax import name
from ...optim.clipping_jax import clip_by_global_norm
from .config import GFlowNetConfig


def optimizer(config: GFlowNetConfig) -> optax.GradientTransformation:
    """Adam with a rate for the networks and one for log Z, both cut by `lr_gamma` every `lr_period` updates.

    torch's Adam in two groups with StepLR. Only the gradient of the networks is clipped.
    """

    def adam(lr: float) -> optax.GradientTransformation:
        # optax.exponential_decay(staircase=True), except that it computes in float32 whatever the precision
        return optax.adam(lambda count: lr * config.lr_gamma ** (jnp.asarray(count) // config.lr_period))

    networks = adam(config.lr)
    if config.clip_norm is not None:
        networks = optax.chain(clip_by_global_norm(config.clip_norm), networks)

    def groups(tree: PyTree) -> PyTree:
        return jax.tree_util.tree_map_with_path(lambda path, _: "log_z" if name(path) == "log_z" else "networks", tree)

    return optax.partition({"networks": networks, "log_z": adam(config.lr_z)}, groups)
