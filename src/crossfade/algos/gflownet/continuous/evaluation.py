"""How good a continuous policy is: bounds on log Z from its own trajectories and from the target's, and a histogram.

For a trajectory that ends with x, log w = log R(x) + sum l_B - sum l_F. Its mean over the policy's own trajectories
(ELBO) is at most log Z; its mean over backward trajectories from exact draws of the target (EUBO) is at least log Z.
Both are log Z, and log w is constant, only when the policy is perfect.
"""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from ....envs.continuous_params import ContinuousParams
from ....envs.cube.params import CubeParams
from ....envs.registry import make
from ....random import random_numpy as random
from ..config import GFlowNetConfig
from ..evaluation import Evaluation
from ..exact_numpy import total_variation
from ..noise_floor import total_variation_floor
from .batch import Trajectories

SAMPLES = 2048
"""Trajectories in each direction."""
CELLS = 16
"""Cells along each of two dimensions of the histogram."""
NODES = 8
"""Gauss-Legendre nodes along a cell: the rewards are so smooth that its mass is then right to rounding."""

Points = Float[np.ndarray, "n d"]


class Sampler(Protocol):
    """What an evaluation asks of a system, in either framework."""

    config: GFlowNetConfig

    def sample(self, policy: Any, key: np.ndarray, n: int | None = None) -> Trajectories: ...
    def sample_back(self, policy: Any, x: np.ndarray, key: np.ndarray) -> Trajectories: ...
    def terms(self, policy: Any, trajectories: Trajectories) -> Any: ...


def evaluate(system: Sampler, policy: Any, log_z: float | None) -> Evaluation:
    """Distances from the target, `log_z` being what training has found; the same draws at every evaluation of a run."""
    params = system.config.env
    forward, target, backward = random.split(random.fold_in(random.key(system.config.seed), 2), 3)
    own = system.sample(policy, forward, SAMPLES)
    theirs = system.sample_back(policy, target_draws(params, SAMPLES, target), backward)
    elbo, eubo = (log_weight(system.terms(policy, found)).mean() for found in (own, theirs))
    metrics = {"elbo": elbo, "eubo": eubo, "gap": eubo - elbo}
    if log_z is not None:
        metrics["log_z_error"] = abs(log_z - params.log_z)
    if params.n_dim == 2:
        cells = target_cells(params).ravel()
        metrics["histogram_tv"] = total_variation(cells, histogram(params, np.asarray(own.x[-1])).ravel())
        metrics["histogram_tv_floor"] = total_variation_floor(cells, SAMPLES)
    return Evaluation({f"eval/{name}": float(value) for name, value in metrics.items()})


def log_weight(terms: Any) -> Float[np.ndarray, " batch"]:
    """log w of each trajectory."""
    return terms.log_reward + (terms.log_pb - terms.log_pf).sum(0)


def target_draws(params: ContinuousParams, n: int, key: np.ndarray) -> Points:
    """Exact draws from R / Z by rejection. Coordinates of the cube are independent, so each is drawn alone."""
    if isinstance(params, CubeParams):
        best = np.full((1, 1), (1 + min(max(params.mu, 0.0), 1.0)) / 2)
        return _reject(replace(params, n_dim=1), best, n * params.n_dim, key).reshape(n, params.n_dim)
    crest = [np.pi / (2 * params.alpha) if d % 2 == 0 else 0.0 for d in range(params.n_dim)]  # type: ignore[attr-defined]
    return _reject(params, np.array([crest]), n, key)


def target_cells(params: ContinuousParams) -> Float[np.ndarray, "{CELLS} {CELLS}"]:
    """The target's mass in each cell of a plane, by quadrature."""
    node, weight = np.polynomial.legendre.leggauss(NODES)
    place = (np.arange(CELLS)[:, None] + (node + 1) / 2).ravel() * side(params) / CELLS
    x = np.stack(np.meshgrid(place, place, indexing="ij"), -1)
    env = make(params, "numpy")
    reward = np.exp(env.log_reward(env.ended(x))).reshape(CELLS, NODES, CELLS, NODES)
    mass = np.einsum("iajb,a,b->ij", reward, weight, weight)
    return mass / mass.sum()


def histogram(params: ContinuousParams, x: Points) -> Float[np.ndarray, "{CELLS} {CELLS}"]:
    """The share of the points in each cell."""
    cell = np.minimum((x * (CELLS / side(params))).astype(int), CELLS - 1)
    return np.bincount(cell @ (CELLS, 1), minlength=CELLS**2).reshape(CELLS, CELLS) / len(x)


def side(params: ContinuousParams) -> float:
    """Length of the world along each dimension, from 0."""
    return 1.0 if isinstance(params, CubeParams) else 2 * np.pi


def _reject(params: ContinuousParams, best: Points, n: int, key: np.ndarray) -> Points:
    """Uniform points kept with the probability R(x) / R(best) until there are `n`."""
    env = make(params, "numpy")
    log_reward = lambda x: env.log_reward(env.ended(x))
    kept: list[np.ndarray] = []
    while sum(map(len, kept)) < n:
        u = random.uniform(random.fold_in(key, len(kept)), (n, params.n_dim + 1), "float64")
        x = side(params) * u[:, 1:]
        kept.append(x[np.log(u[:, 0]) < log_reward(x) - log_reward(best)])
    return np.concatenate(kept)[:n]
