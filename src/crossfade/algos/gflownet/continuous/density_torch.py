"""Densities of the ratios of a move, in torch: mixtures, one for each dimension. Twin: density_jax.py.

A network gives three raw numbers for each dimension and component: the logit of the component's weight, a and b.
"beta": a Beta density of r with alpha = 1 + 100 sigmoid(a), beta = 1 + 100 sigmoid(b).
"von_mises": the angle 2 pi r is von Mises with mean a and concentration exp(b) + 0.001, so that r has 2 pi times its
density.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax

from .batch import Kind, Noise

TURN = 2 * math.pi


def log_prob(kind: Kind, raw: Float[Tensor, "*b d c 3"], ratio: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
    """Log-density of the ratios, all dimensions together."""
    weight, a, b = raw.unbind(-1)
    log_density = _log_beta if kind == "beta" else _log_von_mises
    return (log_softmax(weight, -1) + log_density(a, b, ratio[..., None])).logsumexp(-1).sum(-1)


@torch.no_grad()
def draw(kind: Kind, raw: Float[Tensor, "*b d c 3"], noise: Noise) -> Float[Tensor, "*b d"]:
    """Ratios with that density, as a function of the noise of one step."""
    component = (raw[..., 0] + noise.component).argmax(-1)
    a, b = raw.take_along_dim(component[..., None, None], -2)[..., 0, 1:].unbind(-1)
    if kind == "beta":
        gamma = _gamma(torch.stack(_shapes(a, b), -1), noise.normal, noise.accept)
        return gamma[..., 0] / gamma.sum(-1)
    return (a + _angle(_concentration(b), noise.circle)) % TURN / TURN


def _shapes(a: Float[Tensor, "*b"], b: Float[Tensor, "*b"]) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b"]]:
    return 1 + 100 * a.sigmoid(), 1 + 100 * b.sigmoid()


def _concentration(b: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    return b.exp() + 1e-3


def _log_beta(
    a: Float[Tensor, "*b c"], b: Float[Tensor, "*b c"], ratio: Float[Tensor, "*b 1"]
) -> Float[Tensor, "*b c"]:
    alpha, beta = _shapes(a, b)
    normaliser = alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()
    return (alpha - 1) * ratio.log() + (beta - 1) * (-ratio).log1p() - normaliser


def _log_von_mises(
    a: Float[Tensor, "*b c"], b: Float[Tensor, "*b c"], ratio: Float[Tensor, "*b 1"]
) -> Float[Tensor, "*b c"]:
    """Of the ratio: 2 pi times the density of the angle, exp(kappa cos(angle - a)) / (2 pi I0(kappa))."""
    kappa = _concentration(b)
    return kappa * ((TURN * ratio - a).cos() - 1) - torch.special.i0e(kappa).log()  # i0e(k) = exp(-k) I0(k)


def _gamma(
    shape: Float[Tensor, "*b"], normal: Float[Tensor, "*b rounds"], uniform: Float[Tensor, "*b rounds"]
) -> Float[Tensor, "*b"]:
    """Gamma variates of shape >= 1 by the method of Marsaglia and Tsang (2000): the first proposal accepted."""
    d = (shape - 1 / 3)[..., None]
    v = (1 + normal / (9 * d).sqrt()) ** 3
    log_v = v.clamp(min=torch.finfo(v.dtype).tiny).log()
    accepted = (v > 0) & (uniform.log() < normal.square() / 2 + d - d * v + d * log_v)
    v = v.take_along_dim(_first(accepted)[..., None], -1)[..., 0]
    return d[..., 0] * v.clamp(min=torch.finfo(v.dtype).tiny)


def _angle(kappa: Float[Tensor, "*b"], uniform: Float[Tensor, "*b rounds 3"]) -> Float[Tensor, "*b"]:
    """Von Mises angles around 0 by the method of Best and Fisher (1979): the first proposal accepted.

    A proposal has the cosine f = (1 + r z) / (r + z); any r > 1 would do, this one is accepted most often.
    """
    tau = 1 + (1 + 4 * kappa.square()).sqrt()
    rho = 2 * kappa / (tau + (2 * tau).sqrt())  # the textbook's (tau - sqrt(2 tau)) / (2 kappa), without cancellation
    r = ((1 + rho.square()) / (2 * rho))[..., None]
    z = (math.pi * uniform[..., 0]).cos()
    f = (1 + r * z) / (r + z)
    c = kappa[..., None] * (r - f)
    chance = uniform[..., 1]
    accepted = (c * (2 - c) > chance) | ((c / chance).log() + 1 - c >= 0)
    first = _first(accepted)[..., None]
    angle = f.take_along_dim(first, -1)[..., 0].clamp(-1, 1).arccos()
    return torch.where(uniform[..., 2].take_along_dim(first, -1)[..., 0] < 0.5, -angle, angle)


def _first(accepted: Tensor) -> Int[Tensor, "*b"]:
    """Index of the first True along the last axis; the last index where there is none."""
    last = torch.arange(accepted.shape[-1], device=accepted.device) == accepted.shape[-1] - 1
    return (accepted | last).to(torch.uint8).argmax(-1)
