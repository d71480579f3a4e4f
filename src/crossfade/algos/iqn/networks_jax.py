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
        numbers = _numbers([self.ff_1, self.advantage, self.value], noise)
        h = jax.nn.relu(_one_row(self.head1, x) if len(x) == 1 else self.head1(x))
        cosines = _cosines(fractions, self.cos_embedding.weight)
        if len(x) == 1 and noise is None and fractions.shape[1] >= _MANY:
            z = jax.nn.relu(self._of_one_row(h, cosines))
        else:
            c = jax.nn.relu(self.cos_embedding(cosines))
            z = jax.nn.relu(self.ff_1(jnp.broadcast_to(h[:, None], c.shape) * c, *numbers[0]))
        advantage = self.advantage(z, *numbers[1])
        if self.value is None:
            return advantage
        rest = self.value(z, *numbers[2]) - advantage.mean(-1, keepdims=True)
        return advantage + jnp.broadcast_to(rest, advantage.shape)

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


def _one_row(layer: RowsLinear, x: Float[Array, "1 inputs"]) -> Float[Array, "1 outputs"]:
    """W x + b of one row. On a CPU a matrix times a vector takes an eighth of the time of a row times a matrix."""
    y = (layer.weight @ x[0])[None]
    return y if layer.bias is None else y + layer.bias[None]


def _cosines(
    fractions: Float[Array, "batch n"], weight: Float[Array, "hidden cosines"]
) -> Float[Array, "batch n cosines"]:
    """cos(pi i tau) for i = 1, 2, ..."""
    tau = fractions.astype(weight.dtype)[..., None]
    i = jnp.arange(1, weight.shape[1] + 1, dtype=tau.dtype)
    shape = *fractions.shape, len(i)
    return cos_pi(jnp.broadcast_to(i, shape) * jnp.broadcast_to(tau, shape))


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
