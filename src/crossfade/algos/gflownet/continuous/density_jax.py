"""Densities of the ratio of a move and draws from them, in JAX. Twin: density_torch.py.

Every dimension has a mixture of its own, given by three raw numbers for each component: the logit of its weight, a, b.

    beta:       Beta(1 + 100 sigmoid(a), 1 + 100 sigmoid(b)) on the ratio
    von_mises:  the angle 2 pi r is von Mises, at a, with concentration exp(b) + 1e-3
"""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, i0e
from jaxtyping import Array, Bool, Float, Shaped

from .batch import Kind, Noise

LARGEST_SHAPE = 100.0
"""A shape parameter of a Beta density is 1 + this times a sigmoid."""
LEAST_CONCENTRATION = 1e-3
"""Of a von Mises density; 0 would be uniform."""
TURN = 2 * math.pi


def log_prob(kind: Kind, raw: Float[Array, "*batch d c 3"], ratio: Float[Array, "*batch d"]) -> Float[Array, "*batch"]:
    """Log-density of the ratios of one move, summed over dimensions."""
    weight, a, b = jnp.moveaxis(raw, -1, 0)
    r = ratio[..., None]
    if kind == "beta":
        alpha, beta = _shape(a), _shape(b)
        component = (alpha - 1) * jnp.log(r) + (beta - 1) * jnp.log1p(-r) - _log_beta(alpha, beta)
    else:
        kappa = _concentration(b)
        # kappa cos(angle) - log I0(kappa), less kappa on both sides: neither term grows with kappa
        component = -2 * kappa * jnp.sin((TURN * r - a) / 2) ** 2 - jnp.log(i0e(kappa))
    return jax.nn.logsumexp(jax.nn.log_softmax(weight) + component, axis=-1).sum(-1)


def draw(kind: Kind, raw: Float[Array, "*batch d c 3"], noise: Noise) -> Float[Array, "*batch d"]:
    """Ratios of one move, given its noise: a component by the Gumbel trick, then a draw from it by rejection."""
    weight, a, b = jnp.moveaxis(jax.lax.stop_gradient(raw), -1, 0)
    chosen = jnp.argmax(weight + noise.component, axis=-1)
    a, b = _pick(a, chosen), _pick(b, chosen)
    if kind == "beta":
        shapes = jnp.stack([_shape(a), _shape(b)], axis=-1)
        gamma = _gamma(shapes, noise.normal, noise.accept)
        return gamma[..., 0] / gamma.sum(-1)
    angle = a + _von_mises(_concentration(b), noise.circle)
    return angle % TURN / TURN


def _shape(raw: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return 1 + LARGEST_SHAPE * jax.nn.sigmoid(raw)


def _concentration(raw: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return jnp.exp(raw) + LEAST_CONCENTRATION


def _log_beta(a: Float[Array, "*shape"], b: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """log B(a, b). JAX's own betaln is wrong by 1e-6 in float64."""
    return gammaln(a) + gammaln(b) - gammaln(a + b)


def _gamma(
    shape: Float[Array, "*batch"], normal: Float[Array, "*batch rounds"], uniform: Float[Array, "*batch rounds"]
) -> Float[Array, "*batch"]:
    """A draw from Gamma(shape, 1), shape >= 1 (Marsaglia and Tsang 2000): d v with d = shape - 1/3, v = (1 + c x)^3."""
    d = (shape - 1 / 3)[..., None]
    root = 1 + normal / jnp.sqrt(9 * d)
    possible = root > 0
    v = jnp.where(possible, root, 1) ** 3
    accepted = possible & (jnp.log(uniform) < normal**2 / 2 + d * (1 - v + jnp.log(v)))
    return _first(d * v, accepted)


def _von_mises(kappa: Float[Array, "*batch"], uniform: Float[Array, "*batch rounds 3"]) -> Float[Array, "*batch"]:
    """A von Mises angle around 0 (Best and Fisher 1979): a wrapped Cauchy one, accepted or not.

    In their terms s = r and f = cos(angle). Since s^2 - 1 = s / kappa, their kappa (s - f) is s / (s + z), and the
    half-angle formula takes the place of arccos(f): nothing cancels, at whatever concentration.
    """
    kappa = kappa[..., None]
    s = (1 + jnp.sqrt(1 + 4 * kappa**2)) / (2 * kappa)
    turn, coin, side = jnp.moveaxis(uniform, -1, 0)
    c = s / (s + jnp.cos(math.pi * turn))
    accepted = (c * (2 - c) > coin) | (jnp.log(c / coin) + 1 - c >= 0)
    angle = 2 * jnp.arctan(jnp.sqrt(s / kappa) / (s + 1) * jnp.tan(math.pi / 2 * turn))
    return _first(jnp.where(side < 0.5, -angle, angle), accepted)


def _first(proposals: Float[Array, "*batch rounds"], accepted: Bool[Array, "*batch rounds"]) -> Float[Array, "*batch"]:
    """The first proposal that is accepted; the last one where none is, which does not happen."""
    last = jnp.arange(accepted.shape[-1]) == accepted.shape[-1] - 1
    return _pick(proposals, jnp.argmax(accepted | jnp.broadcast_to(last, accepted.shape), axis=-1))


def _pick(values: Float[Array, "*batch n"], index: Shaped[Array, "*batch"]) -> Float[Array, "*batch"]:
    return jnp.take_along_axis(values, index[..., None], axis=-1)[..., 0]
