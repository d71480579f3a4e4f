"""The networks of IQN (Dabney et al. 2018), in JAX; architecture.py says what they compute. Twin: networks_torch.py."""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...nn.cosine_jax import cos_pi
from ...nn.layers_jax import RowsLinear, filled, linear, linear_of_rows
from ...nn.noisy_jax import IndependentNoisyLinear
from .architecture import Architecture
from .config import IQNConfig

Linear = RowsLinear | IndependentNoisyLinear
Weights = tuple[Float[Array, "_ _"], Float[Array, " _"]]
_MANY = 64
"""Fractions of one row, from which on leaving out units is worth its while."""


class Network(eqx.Module):
    """Quantiles of the return of every action, at given fractions; architecture.py has the formulas.

    `noise` is that of a forward pass, as `Architecture.noise_shapes` orders it; without it the weights are their means.
    Parameters are drawn by `draw_parameters`: made here they mean nothing.
    """

    head1: RowsLinear
    cos_embedding: RowsLinear
    ff_1: Linear
    advantage: Linear
    value: Linear | None

    def __init__(self, sizes: Architecture):
        def layer(name: str) -> Linear:
            shape = sizes.layers[name]
            return IndependentNoisyLinear(*shape, key=jax.random.key(0)) if sizes.noisy else linear(*shape, RowsLinear)

        self.head1 = linear(*sizes.layers["head1"], RowsLinear)
        self.cos_embedding = linear(*sizes.layers["cos_embedding"], RowsLinear)
        self.ff_1, self.advantage = layer("ff_1"), layer("advantage")
        self.value = layer("value") if sizes.dueling else None

    def __call__(
        self,
        x: Float[Array, "batch inputs"],
        fractions: Float[Array, "batch n"],
        noise: Float[Array, " noise_dim"] | None,
    ) -> Float[Array, "batch n actions"]:
        hidden, *heads = _weights([self.ff_1, self.advantage, self.value], noise)
        return linear_of_rows(self._hidden(x, fractions, hidden, noise is None), *_dueling(*heads))

    def mean(
        self,
        x: Float[Array, "batch inputs"],
        fractions: Float[Array, "batch n"],
        noise: Float[Array, " noise_dim"] | None,
    ) -> Float[Array, "batch actions"]:
        """The means over the fractions."""
        hidden, *heads = _weights([self.ff_1, self.advantage, self.value], noise)
        # Without the barrier XLA would fuse all of the pass into the mean, down to the cosines, and take twice as long.
        z = jax.lax.optimization_barrier(self._hidden(x, fractions, hidden, noise is None)).mean(1)
        return (_of_row if len(x) == 1 else linear_of_rows)(z, *_dueling(*heads))

    def _hidden(
        self, x: Float[Array, "batch inputs"], fractions: Float[Array, "batch n"], hidden: Weights, quiet: bool
    ) -> Float[Array, "batch n hidden"]:
        """z, with the weights of ff_1 as they are in this pass; `quiet` if they are without noise."""
        h = jax.nn.relu((_of_row if len(x) == 1 else linear_of_rows)(x, self.head1.weight, self.head1.bias))
        cosines = _cosines(fractions, self.cos_embedding.weight)
        if len(x) == 1 and quiet and fractions.shape[1] >= _MANY:
            return jax.nn.relu(self._of_one_row(h, cosines))
        c = jax.nn.relu(self.cos_embedding(cosines))
        return jax.nn.relu(linear_of_rows(jnp.broadcast_to(h[:, None], c.shape) * c, *hidden))

    def _of_one_row(
        self, h: Float[Array, "1 hidden"], cosines: Float[Array, "1 n cosines"]
    ) -> Float[Array, "1 n hidden"]:
        """ff_1 (h * c) of one row, without noise. Where h is 0, as about half of it is, c takes no part."""
        few = h.shape[1] * 3 // 5
        strongest, units = jax.lax.top_k(h[0], few)
        embedding, offset, weight = self.cos_embedding.weight, self.cos_embedding.bias, self.ff_1.weight
        assert offset is not None

        def product(h: Array, embedding: Array, offset: Array, weight: Array) -> Float[Array, "1 n hidden"]:
            c = jax.nn.relu(linear_of_rows(cosines, embedding, offset))
            return linear_of_rows(jnp.broadcast_to(h, c.shape) * c, weight, self.ff_1.bias)

        return jax.lax.cond(
            (h > 0).sum() <= few,
            lambda: product(strongest, embedding[units], offset[units], weight[:, units]),
            lambda: product(h[0], embedding, offset, weight),
        )


class Model(eqx.Module):
    """A network that learns and the one that gives its targets."""

    local: Network
    target: Network


class Policy(eqx.Module):
    """All models of a run."""

    models: tuple[Model, ...]


def make_policy(config: IQNConfig, sizes: Architecture, parameters: Mapping[str, np.ndarray]) -> Policy:
    """The models of a config with the given parameters, by name, in `config.dtype`."""
    network = eqx.filter_eval_shape(Network, sizes)
    return filled(Policy((Model(network, network),) * config.n_models), parameters, config.dtype)


def _of_row(
    x: Float[Array, "1 inputs"], weight: Float[Array, "outputs inputs"], bias: Float[Array, " outputs"] | None
) -> Float[Array, "1 outputs"]:
    """W x + b of one row. On a CPU a matrix times a vector takes an eighth of the time of a row times a matrix."""
    y = (weight @ x[0])[None]
    return y if bias is None else y + bias[None]


def _cosines(
    fractions: Float[Array, "batch n"], weight: Float[Array, "hidden cosines"]
) -> Float[Array, "batch n cosines"]:
    """cos(pi i tau) for i = 1, 2, ..."""
    tau = fractions.astype(weight.dtype)[..., None]
    i = jnp.arange(1, weight.shape[1] + 1, dtype=tau.dtype)
    shape = *fractions.shape, len(i)
    return cos_pi(jnp.broadcast_to(i, shape) * jnp.broadcast_to(tau, shape))


def _weights(layers: list[Linear | None], noise: Float[Array, " noise_dim"] | None) -> list[Weights]:
    """Weight and bias of each layer that there is, with their noise in a pass."""
    found = []
    for layer, own in zip(layers, _numbers(layers, noise), strict=True):
        if isinstance(layer, IndependentNoisyLinear) and own:
            weight, bias = (x.astype(layer.weight.dtype) for x in own)
            found.append((layer.weight + layer.sigma_weight * weight, layer.bias + layer.sigma_bias * bias))
        elif layer is not None:
            found.append((layer.weight, layer.bias))
    return found


def _numbers(layers: list[Linear | None], noise: Float[Array, " noise_dim"] | None) -> list[tuple[Array, ...]]:
    """The noise of a pass cut up: for each layer that of its weight and its bias, or nothing."""
    found, start = [], 0
    for layer in layers:
        own = ()
        if noise is not None and isinstance(layer, IndependentNoisyLinear):
            middle = start + layer.weight.size
            end = middle + layer.bias.size
            own = noise[start:middle].reshape(layer.weight.shape), noise[middle:end]
            start = end
        found.append(own)
    return found


def _dueling(advantage: Weights, value: Weights | None = None) -> Weights:
    """value + advantage - mean_a advantage as one layer: all are linear in z, so one product gives them."""
    if value is None:
        return advantage
    spread = lambda one, of: jnp.broadcast_to(one, of.shape)
    weight, bias = (a + spread(v - a.mean(0, keepdims=True), a) for a, v in zip(advantage, value, strict=True))
    return weight, bias
