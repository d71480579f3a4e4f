"""What a GFlowNet learner is given: trajectories over nodes. Framework-free; the arrays are NumPy's, torch's or JAX's.

A *node* is a state on which the networks are evaluated, once. Which states become nodes is a matter of execution, not
of the algorithm: every visited state (dense), every state of the environment (table), or every distinct visited
state (unique). A trajectory points into the nodes, so each loss is written once and means the same under all of them.
"""

from typing import Any, NamedTuple

MASKED = -1e30
"""The logit of an invalid action; finite, so that a state without a valid action gives numbers and not NaN."""


class Batch(NamedTuple):
    """Trajectories, time first: state t is `node[t]`, there `action[t]` was taken, and `parent[t]` would undo it."""

    observation: Any  # (nodes, o)
    forward_mask: Any  # (nodes, a) valid forward actions; the last one is stop
    backward_mask: Any  # (nodes, p) valid backward actions
    log_reward: Any  # (nodes,) log R of the node's object
    node: Any  # (steps + 1, batch)
    action: Any  # (steps, batch)
    parent: Any  # (steps, batch) any index for stop, whose log P_B is 0
    valid: Any  # (steps, batch) False once the trajectory has stopped
    parent_node: Any = None  # (nodes, p) for flow matching: the node of each parent ...
    parent_action: Any = None  # (nodes, p) ... and the forward action that leads from it
    log_pb: Any = None  # (nodes, p) a backward policy that is given, not learned

    def floats_as(self, dtype: str) -> "Batch":
        """The batch with its NumPy floats in another precision."""
        names = [name for name in ("observation", "log_reward", "log_pb") if getattr(self, name) is not None]
        return self._replace(**{name: getattr(self, name).astype(dtype, copy=False) for name in names})


class Noise(NamedTuple):
    """The randomness of one batch of trajectories, as data."""

    gumbel: Any  # (steps, batch, a) added to logits before the argmax: a draw from the softmax
    explore: Any  # (steps, batch) uniform; the row acts at random where it is below epsilon


class BackNoise(NamedTuple):
    """The randomness of the trajectories that are built backwards, as data: which objects, and the ways to them."""

    data: Any  # (data_batch,) uniform
    pick: Any  # (replay_batch,) uniform
    pick_gumbel: Any  # (replay_batch, capacity)
    gumbel: Any  # (steps, data_batch + replay_batch, p)


class Trajectories(NamedTuple):
    """What a sampler returns: objects and actions, before they are told apart into nodes."""

    x: Any  # (steps + 1, batch, d)
    action: Any  # (steps, batch)
    parent: Any  # (steps, batch)
    valid: Any  # (steps, batch)
