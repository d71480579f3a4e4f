"""Mutation testing of environments: break one thing, load the optimum of the true environment, see who notices.

`noticed(mutation)` is the set of losses that are not zero over all trajectories of the broken environment. No loss sees
everything, and some faults no loss can see; the conformance check of environments sees them all. Run with -s to print
the table. What it says of each loss:

- vargrad, mdb and fldb are blind to a constant factor of all rewards: they read only ratios, and learn no Z from them.
  That is no error of theirs, for R / Z is the same.
- mdb reads P_F(stop) in ratios and never a stop transition, so a P_B of stop that is not 1 passes it by.
- fm has no P_B, and asks of a transition only where it leads: a wrong number of a backward action passes it by, and so
  do two actions that have changed places, and a P_B of stop. It alone reads `unstep` and `action_of`.
- every loss is blind to masks of finished states and to parents of the source: none reads them. The published fault of
  the first kind hurt because that learner did read them: the test after the table.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from gflownet_small import tiny
from gflownet_tables import all_trajectories, optimum, tabular

from crossfade.algos.gflownet import learner_torch, losses_torch
from crossfade.algos.gflownet.batch_torch import to_tensors
from crossfade.algos.gflownet.sampling import nodes_numpy
from crossfade.envs.dag import conformance
from crossfade.envs.dag.hypergrid.params import HypergridParams

LOSSES = ("tb", "vargrad", "db", "mdb", "subtb", "fm", "fldb")
PARAMS = HypergridParams(2, 4)
AT, WALL = [1, 2], [3, 1]  # where something is wrong
TRUE = tabular(PARAMS, "numpy")
P_B = {"tb", "vargrad", "db", "mdb", "subtb", "fldb"}
EVERY = P_B | {"fm"}
NONE: set[str] = set()


def at(x, place=AT):
    return (x == np.array(place)).all(-1)


def flip(method, column, place=AT):
    """One bit of a mask of objects, the other way round in one state."""

    def broken(self, x):
        mask = getattr(TRUE, method)(x).copy()
        mask[..., column] ^= at(x, place)
        return mask

    return {method: broken}


def no_stop(self, x):
    return ~at(x)


def along_the_wall(self, x, action):
    return TRUE.grow(x, np.where(at(x, WALL), 1, action))


def finished(method):
    """A finished object keeps what is valid before stop: the published fault."""

    def broken(self, state):
        return getattr(TRUE, method)(state._replace(done=np.zeros_like(state.done)))

    return {method: broken}


def swap(method):
    """Two backward actions, or two forward ones, under each other's number in one state."""

    def broken(self, x, action):
        return np.where(at(x), 1 - action, action) if method in ("undo", "redo") else swapped(x, action)

    def swapped(x, action):
        return getattr(TRUE, method)(x, np.where(at(x), 1 - action, action))

    return {method: broken}


def add(amount, everywhere=False):
    return {"log_r": lambda self, x: TRUE.log_r(x) + amount * (True if everywhere else at(x))}


@dataclass(frozen=True)
class Mutation:
    """Hooks of the environment that are replaced, and the losses that notice."""

    hooks: dict
    noticed: set[str]


MUTATIONS = {
    "a valid action is forbidden": Mutation(flip("can_grow", 0), EVERY),
    "an action at the wall does what another does": Mutation(
        flip("can_grow", 0, WALL) | {"grow": along_the_wall}, EVERY
    ),
    "stop is forbidden in one state": Mutation({"can_stop": no_stop}, EVERY),
    "a valid backward action is forbidden": Mutation(flip("can_shrink", 1), EVERY),
    "a backward action over the wall is allowed": Mutation(flip("can_shrink", 0, [0, 2]), EVERY),
    "actions lead to each other's child in one state": Mutation(swap("grow"), P_B),
    "parent_of takes one backward action for the other": Mutation(swap("undo"), P_B),
    "action_of takes one action for the other": Mutation(swap("redo"), {"fm"}),
    "unstep leads to the other parent": Mutation(swap("shrink"), {"fm"}),
    "the reward of one object is shifted": Mutation(add(0.1), EVERY),
    "all rewards are scaled": Mutation(add(0.1, everywhere=True), {"tb", "db", "subtb", "fm"}),
    "the source has a parent": Mutation(flip("can_shrink", 0, [0, 0]), NONE),
    "a finished object keeps its parents": Mutation(finished("backward_mask"), NONE),
    "a finished object keeps its actions": Mutation(finished("forward_mask"), NONE),
}


def mutant(mutation):
    return type("Mutant", (type(TRUE),), mutation.hooks)(PARAMS)


def values(env, **settings):
    """Each loss of the true optimum over all trajectories of an environment."""
    batch = nodes_numpy.dense(all_trajectories(env), env, parents=True)
    batch, found = to_tensors(batch, torch.float64), {}
    for loss in LOSSES:
        config = tiny(env=PARAMS, loss=loss, layers=0, **settings)
        parameters = optimum(loss, PARAMS)
        if config.legacy_finished_mask:  # one more backward action, which undoes stop
            extra = {"backward_head.weight": np.zeros((1, TRUE.n_states)), "backward_head.bias": np.zeros(1)}
            parameters |= {name: np.concatenate([parameters[name], more]) for name, more in extra.items()}
        policy = learner_torch.make_policy(config, TRUE, parameters)
        with torch.no_grad():
            found[loss] = losses_torch.loss(policy, batch, config)[0].item()
    return found


@pytest.mark.parametrize("name", MUTATIONS)
def test_which_losses_notice(name):
    found = values(mutant(MUTATIONS[name]))
    noticed = {loss for loss in LOSSES if not found[loss] < 1e-12}
    print(f"\n{name:<52}" + " ".join(f"{loss if loss in noticed else '-':<8}" for loss in LOSSES), end="")
    assert noticed == MUTATIONS[name].noticed
    assert all(found[loss] > 1e-5 or np.isnan(found[loss]) for loss in noticed)


def test_which_losses_notice_that_undoing_stop_is_not_certain():
    """The published fault in the learner, which reads the mask of finished objects: `legacy_finished_mask`."""
    found = values(TRUE, legacy_finished_mask=True)
    assert {loss for loss in LOSSES if not found[loss] < 1e-12} == {"tb", "vargrad", "db", "subtb", "fldb"}


def test_nothing_is_noticed_where_nothing_is_wrong():
    assert max(values(TRUE).values()) < 1e-24
    assert not conformance.check(TRUE, None)


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_conformance_check_notices(name):
    """Rewards are right or wrong only beside those of the twin."""
    env, rewarded = mutant(MUTATIONS[name]), "log_r" in MUTATIONS[name].hooks
    problems = conformance.check(env, tabular(PARAMS, "jax") if rewarded else None)
    assert any("log_reward" in problem for problem in problems) if rewarded else problems
