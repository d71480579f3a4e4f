"""What defines a structure-learning problem: framework-free."""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float64, Int32

from .... import random
from ....errors import UsageError
from ....ranges import Positive, Range, Seed
from ....reading import read_text
from ..checks import is_number
from ..params import Params
from . import dags, scores

MOST_NODES = 12  # scores are tables over all sets of parents


@dataclass(frozen=True)
class BayesNetParams(Params):
    """Directed acyclic graphs over `n_nodes` variables; the target is their posterior given data.

    State: x = (adjacency, transposed closure), each n_nodes^2 bits, row-major; adjacency (i, j) is 1 where i -> j, and
        closure (i, j) where a way leads from j to i or i = j. The source has no edges.
    Actions: i n_nodes + j adds the edge i -> j, valid where neither bit (i, j) is set; stop last, always valid.
        Backward action i n_nodes + j removes that edge, valid where it is.
    Reward: log R = sum over nodes of score(node | parents) - score(node | no parents): the log-posterior up to a
        constant under a uniform prior, 0 for the empty graph. Every state may stop.
        bge               Gaussian, normal-Wishart prior; equal for graphs that imply the same independences
        linear_gaussian   weights ~ N(0, weight_variance), noise of variance obs_variance
    Data: `file` (CSV, one row per sample, n_nodes columns, a header is allowed), or drawn from `seed`: a random order
        of the nodes, edges along it with probability min(1, 2 edges_per_node / (n_nodes - 1)), weights ~ N(0, 1),
        noise of variance obs_variance, `n_samples` rows; columns are in the order of the nodes, which tells nothing.
    Ends: with stop, after at most n_nodes (n_nodes - 1) / 2 + 1 transitions.
    Observation: the adjacency bits. Index (up to 5 nodes): by the binary code of the adjacency.
    """

    n_nodes: Annotated[int, Range(2, MOST_NODES)] = 4
    """Number of variables d."""
    score: Literal["bge", "linear_gaussian"] = "bge"
    """Marginal likelihood."""
    n_samples: Annotated[int, Range(2, 10**7)] = 100
    """Rows of the drawn data."""
    edges_per_node: Positive = 1.0
    """Expected number of edges per node of the graph behind the drawn data."""
    obs_variance: Positive = 0.1
    """Variance of the noise, in the drawn data and in the linear-Gaussian score."""
    weight_variance: Positive = 1.0
    """Prior variance of the weights in the linear-Gaussian score."""
    file: str | None = None
    """The user's data, CSV; None draws them."""
    seed: Seed = 0
    """Seed of the drawn data."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.file is not None:
            _ = self.data  # a bad file is refused now, not in the middle of a run

    @property
    def n_actions(self) -> int:
        return self.n_nodes**2 + 1

    @property
    def n_parents(self) -> int:
        return self.n_nodes**2

    @property
    def max_steps(self) -> int:
        return self.n_nodes * (self.n_nodes - 1) // 2 + 1

    @property
    def observation_dim(self) -> int:
        return self.n_nodes**2

    @property
    def n_states(self) -> int | None:
        return dags.COUNT.get(self.n_nodes)

    @property
    def source(self) -> Int32[np.ndarray, " d"]:
        identity = np.eye(self.n_nodes, dtype=np.int32)
        return np.concatenate([np.zeros_like(identity), identity]).reshape(-1)

    @cached_property
    def graph(self) -> Int32[np.ndarray, "d d"]:
        """Adjacency of the graph behind the drawn data."""
        key = random.numpy.key(self.seed)
        order = random.numpy.permutation(random.numpy.fold_in(key, 0), self.n_nodes)
        p = min(1.0, 2 * self.edges_per_node / (self.n_nodes - 1))
        edge = random.numpy.bernoulli(random.numpy.fold_in(key, 1), p, (self.n_nodes, self.n_nodes))
        graph = np.zeros((self.n_nodes, self.n_nodes), np.int32)
        graph[np.ix_(order, order)] = np.triu(edge, k=1)
        return graph

    @cached_property
    def data(self) -> Float64[np.ndarray, "samples d"]:
        """The samples that the scores are of."""
        if self.file is not None:
            return _read(Path(self.file), self.n_nodes)
        key = random.numpy.key(self.seed)
        shape = (self.n_nodes, self.n_nodes)
        weight = self.graph * random.numpy.normal(random.numpy.fold_in(key, 2), shape, np.float64)
        shape = (self.n_samples, self.n_nodes)
        noise = np.sqrt(self.obs_variance) * random.numpy.normal(random.numpy.fold_in(key, 3), shape, np.float64)
        return noise @ np.linalg.inv(np.eye(self.n_nodes) - weight)  # x = x W + noise

    @cached_property
    def scores(self) -> Float64[np.ndarray, "d parent_sets"]:
        """score(node | parents) - score(node | none), a column for each set of parents (bit i for node i)."""
        if self.score == "bge":
            return scores.table(self.data, scores.bge)
        score = partial(scores.linear_gaussian, weight_variance=self.weight_variance, noise=self.obs_variance)
        return scores.table(self.data, score)

    @cached_property
    def graphs(self) -> Int32[np.ndarray, "states d"]:
        """Every state, by index."""
        adjacency = dags.every(self.n_nodes)
        return np.concatenate([adjacency, dags.closure(adjacency)], axis=-2).reshape(len(adjacency), -1)

    @cached_property
    def index_of_code(self) -> Int32[np.ndarray, " codes"]:
        """The index of a graph by its binary code (0 where the code is no acyclic graph)."""
        adjacency = self.graphs[:, : self.n_nodes**2].reshape(-1, self.n_nodes, self.n_nodes)
        index = np.zeros(2 ** (self.n_nodes * (self.n_nodes - 1)), np.int32)
        index[dags.code(adjacency)] = np.arange(len(adjacency))
        return index


def _read(path: Path, n_nodes: int) -> Float64[np.ndarray, "samples d"]:
    text = read_text(path, "a CSV file of data (or leave `file` out)")
    rows = [line.split(",") for line in text.splitlines() if line.strip()]
    if rows and not any(map(is_number, rows[0])):
        rows = rows[1:]
    for number, row in enumerate(rows, 1):
        if len(row) != n_nodes or not all(map(is_number, row)):
            raise UsageError(
                f"{path.name}, sample {number}: expected n_nodes={n_nodes} numbers separated by commas, got "
                f"{','.join(row)!r}."
            )
    data = np.array(rows, np.float64)
    if len(data) < 2 or not np.isfinite(data).all():
        raise UsageError(
            f"{path.name}: expected at least 2 samples of finite numbers, got {len(data)} with "
            f"{(~np.isfinite(data)).sum()} numbers that are not finite."
        )
    return data
