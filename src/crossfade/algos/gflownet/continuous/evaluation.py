"""How good a continuous policy is: the bounds of bounds.py, and a histogram where points lie in a plane."""

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from ....envs.dag.continuous_params import ContinuousParams
from ....envs.dag.cube.params import CubeParams
from ....envs.dag.registry import make
from ....envs.dag.torus.params import TorusParams
from ....random import random_numpy as random
from ....run.evaluation import Evaluation
from ..config import GFlowNetConfig
from ..evaluation.bounds import TrajectoryRatios, bounds
from ..evaluation.evaluate import CHEAP, SamplingEffort
from ..evaluation.exact_numpy import total_variation
from ..evaluation.noise_floor import total_variation_floor
from .batch import Trajectories

CELLS = 16
"""Cells along each of two dimensions of the histogram."""
NODES = 8
"""Gauss-Legendre nodes along a cell: the rewards are so smooth that its mass is then right to rounding."""

Points = Float[np.ndarray, "n d"]
Plane = Float[np.ndarray, "rows columns"]


@runtime_checkable
class Sampler(Protocol):
    """What an evaluation asks of a system, in either framework."""

    config: GFlowNetConfig

    def sample(self, policy: Any, key: Any, n: int | None = None, explore: bool = True) -> Trajectories: ...
    def sample_back(self, policy: Any, x: np.ndarray, key: Any) -> Trajectories: ...
    def terms(self, policy: Any, trajectories: Trajectories) -> Any: ...


def evaluate(system: Sampler, policy: Any, log_z: float | None, effort: SamplingEffort | None = None) -> Evaluation:
    """Bounds on log Z, the error of what training says of it, `log_z`, and the distance of a histogram.

    The draws come from the seed by a stream that training does not use, the same at every evaluation.
    """
    params, effort = system.config.env, effort or CHEAP
    seed = system.config.seed if effort.seed is None else effort.seed
    forward, target, backward = random.split(random.fold_in(random.key(seed), 2), 3)
    made = trajectory_ratios(system, policy, system.sample(policy, forward, effort.samples, explore=False))
    drawn = target_draws(params, effort.samples, target)
    metrics = bounds(made, trajectory_ratios(system, policy, system.sample_back(policy, drawn, backward)))
    metrics |= {"elbo_perfect": params.log_z, "eubo_perfect": params.log_z}
    if log_z is not None:
        metrics["log_z_error"] = abs(log_z - params.log_z)
    if params.n_dim == 2:
        cells = target_cells(params).ravel()
        metrics["histogram_tv"] = float(total_variation(cells, histogram(params, made.x).ravel()))
        metrics["histogram_tv_perfect"] = total_variation_floor(cells, effort.samples)
    return Evaluation({f"eval/{name}": value for name, value in metrics.items()}, {"objects": made.x})


def trajectory_ratios(system: Sampler, policy: Any, trajectories: Trajectories) -> TrajectoryRatios:
    """Trajectories, by what matters of them."""
    terms = system.terms(policy, trajectories)
    log_pf, log_pb, log_reward = (
        np.asarray(part, np.float64) for part in (terms.log_pf, terms.log_pb, terms.log_reward)
    )
    return TrajectoryRatios(np.asarray(trajectories.x[-1]), log_reward, (log_pf - log_pb).sum(0))


def target_draws(params: CubeParams | TorusParams, n: int, key: np.ndarray) -> Points:
    """Exact draws from R / Z by rejection. Coordinates of the cube are independent, so each is drawn alone."""
    if isinstance(params, CubeParams):
        best = np.array([(1 + min(max(params.mu, 0.0), 1.0)) / 2])
        return _reject(replace(params, n_dim=1), best, n * params.n_dim, key).reshape(n, params.n_dim)
    crest = np.array([0.0 if d % 2 else np.pi / (2 * params.alpha) for d in range(params.n_dim)])
    return _reject(params, crest, n, key)


def target_cells(params: ContinuousParams) -> Plane:
    """The target's mass in each cell of a plane, by quadrature."""
    node, weight = np.polynomial.legendre.leggauss(NODES)
    place = (np.arange(CELLS)[:, None] + (node + 1) / 2).ravel() * side(params) / CELLS
    x = np.stack(np.meshgrid(place, place, indexing="ij"), -1)
    env = make(params, "numpy")
    reward = np.exp(env.log_reward(env.ended(x))).reshape(CELLS, NODES, CELLS, NODES)
    mass = np.einsum("iajb,a,b->ij", reward, weight, weight)
    return mass / mass.sum()


def histogram(params: ContinuousParams, x: Points) -> Plane:
    """The share of the points in each cell."""
    cell = np.minimum((x * (CELLS / side(params))).astype(int), CELLS - 1)
    return np.bincount(cell @ (CELLS, 1), minlength=CELLS**2).reshape(CELLS, CELLS) / len(x)


def side(params: ContinuousParams) -> float:
    """Length of the world along each dimension, from 0."""
    return 1.0 if isinstance(params, CubeParams) else 2 * np.pi


def _reject(params: ContinuousParams, best: Float[np.ndarray, " d"], n: int, key: np.ndarray) -> Points:
    """Uniform points kept with the probability R(x) / R(best) until there are `n`."""
    env = make(params, "numpy")
    log_reward = lambda x: env.log_reward(env.ended(x))
    kept: list[np.ndarray] = []
    while sum(map(len, kept)) < n:
        u = random.uniform(random.fold_in(key, len(kept)), (n, params.n_dim + 1), "float64")
        x = side(params) * u[:, 1:]
        kept.append(x[np.log(u[:, 0]) < log_reward(x) - log_reward(best)])
    return np.concatenate(kept)[:n]
