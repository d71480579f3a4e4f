"""Densities of the ratio of a move and draws from them, in torch. Twin: density_jax.py.

Every dimension has a mixture of its own, given by three raw numbers for each component: the logit of its weight, a, b.

    beta:       Beta(1 + 100 sigmoid(a), 1 + 100 sigmoid(b)) on the ratio
    von_mises:  the angle 2 pi r is von Mises, at a, with concentration exp(b) + 1e-3
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import log_softmax

from .batch import Kind, Noise

LARGEST_SHAPE = 100.0
"""A shape parameter of a Beta density is 1 + this times a sigmoid."""
LEAST_CONCENTRATION = 1e-3
"""Of a von Mises density; 0 would be uniform."""
TURN = 2 * math.pi


def log_prob(
    kind: Kind, raw: Float[Tensor, "*batch d c 3"], ratio: Float[Tensor, "*batch d"]
) -> Float[Tensor, "*batch"]:
    """Log-density of the ratios of one move, summed over dimensions."""
    weight, a, b = raw.unbind(-1)
    log_density = _log_beta if kind == "beta" else _log_von_mises
    return (log_softmax(weight, -1) + log_density(a, b, ratio[..., None])).logsumexp(-1).sum(-1)


@torch.no_grad()
def draw(kind: Kind, raw: Float[Tensor, "*batch d c 3"], noise: Noise) -> Float[Tensor, "*batch d"]:
    """Ratios of one move, given its noise: a component by the Gumbel trick, then a draw from it by rejection."""
    component = (raw[..., 0] + noise.component).argmax(-1)
    a, b = raw.take_along_dim(component[..., None, None], -2)[..., 0, 1:].unbind(-1)
    if kind == "beta":
        gamma = _gamma(torch.stack(_shapes(a, b), -1), noise.normal, noise.accept)
        return gamma[..., 0] / gamma.sum(-1)
    return (a + _angle(_concentration(b), noise.circle)) % TURN / TURN


def _shapes(
    a: Float[Tensor, "*batch"], b: Float[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    return 1 + LARGEST_SHAPE * a.sigmoid(), 1 + LARGEST_SHAPE * b.sigmoid()


def _concentration(b: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    return b.exp() + LEAST_CONCENTRATION


def _log_beta(
    a: Float[Tensor, "*batch c"], b: Float[Tensor, "*batch c"], ratio: Float[Tensor, "*batch 1"]
) -> Float[Tensor, "*batch c"]:
    alpha, beta = _shapes(a, b)
    normaliser = alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()
    return (alpha - 1) * ratio.log() + (beta - 1) * (-ratio).log1p() - normaliser


def _log_von_mises(
    a: Float[Tensor, "*batch c"], b: Float[Tensor, "*batch c"], ratio: Float[Tensor, "*batch 1"]
) -> Float[Tensor, "*batch c"]:
    """kappa cos(angle) - log I0(kappa), less kappa on both sides: neither term grows with kappa."""
    kappa = _concentration(b)
    return -2 * kappa * ((TURN * ratio - a) / 2).sin().square() - torch.special.i0e(kappa).log()


def _gamma(
    shape: Float[Tensor, "*batch"], normal: Float[Tensor, "*batch rounds"], uniform: Float[Tensor, "*batch rounds"]
) -> Float[Tensor, "*batch"]:
    """Gamma variates of shape >= 1 by the method of Marsaglia and Tsang (2000): d (1 + c z)^3."""
    d = (shape - 1 / 3)[..., None]
    root = 1 + normal / (9 * d).sqrt()
    v = root.where(root > 0, 1.0) ** 3
    accepted = (root > 0) & (uniform.log() < normal.square() / 2 + d * (1 - v + v.log()))
    return _first(d * v, accepted)


def _angle(kappa: Float[Tensor, "*batch"], uniform: Float[Tensor, "*batch rounds 3"]) -> Float[Tensor, "*batch"]:
    """Von Mises angles around 0 by the method of Best and Fisher (1979): wrapped Cauchy ones, accepted or not.

    Their r solves r^2 - 1 = r / kappa, hence their kappa (r - f) is r / (r + z) and the half-angle formula stands for
    arccos(f): nothing cancels, however large or small kappa is.
    """
    kappa = kappa[..., None]
    r = (1 + (1 + 4 * kappa.square()).sqrt()) / (2 * kappa)
    turn, coin, side = uniform.unbind(-1)
    c = r / (r + (math.pi * turn).cos())
    accepted = (c * (2 - c) > coin) | ((c / coin).log() + 1 - c >= 0)
    angle = 2 * ((r / kappa).sqrt() / (r + 1) * (math.pi / 2 * turn).tan()).arctan()
    return _first(torch.where(side < 0.5, -angle, angle), accepted)


def _first(
    proposals: Float[Tensor, "*batch rounds"], accepted: Bool[Tensor, "*batch rounds"]
) -> Float[Tensor, "*batch"]:
    """The first proposal that is accepted; the last where none is, which does not happen."""
    last = torch.arange(accepted.shape[-1], device=accepted.device) == accepted.shape[-1] - 1
    index = (accepted | last).to(torch.uint8).argmax(-1, keepdim=True)
    return proposals.take_along_dim(index, -1)[..., 0]
