"""Marginal likelihoods of a node given its parents in closed form: BGe and linear-Gaussian. NumPy only."""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Float64

Data = Float64[np.ndarray, "samples d"]


def table(data: Data, score: Callable[[Data, int, list[int]], float]) -> Float64[np.ndarray, "d parent_sets"]:
    """The score of every node (row) given every set of parents (column, bit i for node i), less that of the empty set.

    Columns in which a node would be its own parent hold 0 and are never read.
    """
    d = data.shape[1]
    scores = np.zeros((d, 2**d))
    for node in range(d):
        alone = score(data, node, [])
        for parents in _subsets(range(d), node):
            scores[node, sum(1 << parent for parent in parents)] = score(data, node, list(parents)) - alone
    return scores


def bge(data: Data, node: int, parents: list[int], alpha_mu: float = 1.0) -> float:
    """Log marginal likelihood of a node under the BGe model, prior mean 0, alpha_w = d + 2.

    Graphs that imply the same independences get the same total (score equivalence).
    """
    n, d = data.shape
    alpha_w, p = d + 2, len(parents)
    t = alpha_mu * (alpha_w - d - 1) / (alpha_mu + 1)
    mean = data.mean(0)
    centred = data - mean
    r = t * np.eye(d) + centred.T @ centred + n * alpha_mu / (n + alpha_mu) * np.outer(mean, mean)
    constant = (
        (math.log(alpha_mu) - math.log(n + alpha_mu)) / 2
        + math.lgamma((n + alpha_w - d + p + 1) / 2)
        - math.lgamma((alpha_w - d + p + 1) / 2)
        - n / 2 * math.log(math.pi)
        + (alpha_w - d + 2 * p + 1) / 2 * math.log(t)
    )
    family = [*parents, node]
    return (
        constant
        + (n + alpha_w - d + p) / 2 * _log_det(r[np.ix_(parents, parents)])
        - (n + alpha_w - d + p + 1) / 2 * _log_det(r[np.ix_(family, family)])
    )


def linear_gaussian(
    data: Data,
    node: int,
    parents: list[int],
    weight_mean: float = 0.0,
    weight_variance: float = 1.0,
    noise: float = 0.1,
) -> float:
    """log N(x_node; weight_mean X 1, noise I + weight_variance X X'), X the parents' columns, noise a variance.

    Through the p x p matrix K = I + weight_variance / noise X'X (Woodbury), not the samples x samples one.
    """
    n = len(data)
    x = data[:, parents]
    residual = data[:, node] - weight_mean * x.sum(1)
    ratio = weight_variance / noise
    k = np.eye(len(parents)) + ratio * x.T @ x
    projected = x.T @ residual
    square = (residual @ residual - ratio * projected @ np.linalg.solve(k, projected)) / noise
    return -(n * math.log(2 * math.pi) + n * math.log(noise) + _log_det(k) + square) / 2


def _log_det(matrix: np.ndarray) -> float:
    return float(np.linalg.slogdet(matrix)[1])


def _subsets(nodes: range, without: int) -> Iterator[tuple[int, ...]]:
    others = [node for node in nodes if node != without]
    return itertools.chain.from_iterable(itertools.combinations(others, size) for size in range(1, len(others) + 1))
