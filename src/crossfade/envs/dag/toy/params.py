"""The toy graph: framework-free."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int32

from ..params import Params

CHILDREN = {0: (1, 2), 1: (3,), 2: (3, 4), 3: (5,), 4: (6,), 5: (7, 8), 6: (8, 10), 7: (9,), 8: (9,), 9: (), 10: ()}
REWARD = {3: 30, 4: 14, 6: 23, 8: 10, 9: 30, 10: 5}
NODES = len(CHILDREN)


@dataclass(frozen=True)
class ToyParams(Params):
    """A fixed graph of eleven nodes, small enough for every number to be checked by hand; Z = 112.

    State: x = (node,), node in 0 .. 10; the source is node 0.
    Actions: action a goes to node a + 1, valid along the edges of CHILDREN; stop last, valid at the nodes of REWARD.
        Backward action p goes back to node p, valid along the same edges.
    Reward: R of REWARD. A node that may not stop has R = 1 (log R = 0) where a loss asks for it.
    Ends: with stop, after at most 6 transitions. Observation: one-hot. Index: the node.
    """

    @property
    def n_actions(self) -> int:
        return NODES

    @property
    def n_parents(self) -> int:
        return NODES

    @property
    def max_steps(self) -> int:
        return 6

    @property
    def observation_dim(self) -> int:
        return NODES

    @property
    def n_states(self) -> int | None:
        return NODES

    @property
    def terminating(self) -> bool:
        return False

    @property
    def source(self) -> Int32[np.ndarray, " d"]:
        return np.zeros(1, np.int32)

    @cached_property
    def edge(self) -> Bool[np.ndarray, "nodes nodes"]:
        """Whether an edge leads from the row's node to the column's."""
        edge = np.zeros((NODES, NODES), bool)
        for node, children in CHILDREN.items():
            edge[node, list(children)] = True
        return edge

    @cached_property
    def stops(self) -> Bool[np.ndarray, " nodes"]:
        """Whether a node may stop."""
        return np.isin(np.arange(NODES), list(REWARD))

    @cached_property
    def log_rewards(self) -> Float64[np.ndarray, " nodes"]:
        """Log-reward of each node."""
        return np.log([REWARD.get(node, 1) for node in range(NODES)])
