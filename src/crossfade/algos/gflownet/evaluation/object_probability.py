"""The exact probability that a policy makes one object, though there are too many states to list.

Only the states on the ways from the source to the object matter: below a cell x of a grid those are the product of all
x_d + 1, below a configuration of n spins 2^n. Dynamic programming over them leaves no Monte Carlo error.
"""

from typing import Any

import numpy as np
from jaxtyping import Float64, Int, Int32

from ....envs.dag.base_numpy import Env
from ....envs.dag.registry import make
from ....errors import UsageError
from ..batch import Trajectories
from ..sampling.parents_numpy import unfinished
from .bounds import chunk

Objects = Int32[np.ndarray, "n d"]


def log_probability(system: Any, policy: Any, x: Int32[np.ndarray, " d"], most: int = 200_000) -> float:
    """log p(x), by v(s) = sum over children s' of P_F(s' | s) v(s') from v(x) = P_F(stop | x) down to the source."""
    env = make(system.config.env, "numpy")
    states, level = _ancestors(env, x, most)
    number = {row.tobytes(): i for i, row in enumerate(states)}
    child, way = np.nonzero(env.backward_mask(unfinished(states)))
    after = unfinished(states[child])
    before, action = env.unstep(after, way).x, env.action_of(after, way)
    parent = np.array([number[row.tobytes()] for row in before], int)
    log_pf = _log_pf(  # of stop at x, then of every move
        system,
        policy,
        np.concatenate([x[None], before]),
        np.concatenate([[env.n_actions - 1], action]),
        np.concatenate([x[None], after.x]),
        np.concatenate([[0], way]),
    )
    log_v = np.full(len(states), -np.inf)
    log_v[number[x.tobytes()]] = log_pf[0]
    for step in range(level.max()):
        here = level[child] == step
        np.logaddexp.at(log_v, parent[here], log_v[child[here]] + log_pf[1:][here])
    return float(log_v[number[env.params.source.tobytes()]])


def _ancestors(env: Env, x: Int32[np.ndarray, " d"], most: int) -> tuple[Objects, Int[np.ndarray, " n"]]:
    """The states from which x can be reached, and the longest way of each to x."""
    level: dict[bytes, int] = {}
    frontier, step = x[None], 0
    while len(frontier):
        level |= dict.fromkeys((row.tobytes() for row in frontier), step)
        if len(level) > most:
            raise UsageError(f"more than {most} states lie below {x.tolist()}: too many. Estimate its probability.")
        row, way = np.nonzero(env.backward_mask(unfinished(frontier)))
        frontier, step = np.unique(env.unstep(unfinished(frontier[row]), way).x, axis=0), step + 1
    return np.array([np.frombuffer(row, np.int32) for row in level]), np.array(list(level.values()))


def _log_pf(
    system: Any, policy: Any, x: Objects, action: Int[np.ndarray, " n"], after: Objects, way: Int[np.ndarray, " n"]
) -> Float64[np.ndarray, " n"]:
    """log P_F of single transitions, asked for as trajectories of one step, in chunks of one size."""
    n, rows = len(x), chunk(system, len(x))
    padded = np.minimum(np.arange(-(-n // rows) * rows), n - 1)
    found = []
    for part in np.split(padded, len(padded) // rows):
        step = Trajectories(
            np.stack([x[part], after[part]]), action[part][None], way[part][None], np.ones((1, rows), bool)
        )
        found.append(np.asarray(system.terms(policy, step).log_pf[0], np.float64))
    return np.concatenate(found)[:n]
