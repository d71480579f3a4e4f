"""Both halves of an offline agent in float64, update by update, on the same batches."""

import copy
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from crossfade.algos.offline.config import AGENTS
from crossfade.algos.offline.parameters import optimizer_records
from crossfade.bridge.optimizers.exchange import read_torch
from crossfade.optim.state import OptimizerState
from crossfade.parity import Twin
from crossfade.parity.arrays import jax_tree, leaves, precision, torch_tree
from crossfade.trainers.moments_jax import read_moments

PHASE = {"pre": "pretrain=1000", "fine": "pretrain=0"}
OLD = "spec=r2025-06"
REVISED = (("fb_repr", "pre"), ("td_infonce", "pre"), ("td_infonce", "fine"), ("infom", "pre"), ("infom", "fine"))
"""Where the two revisions of the published code are not the same."""
CASES = {f"{agent}, {phase}": (f"agent={agent}", PHASE[phase]) for agent in AGENTS for phase in PHASE} | {
    f"{agent}, {phase}, old": (f"agent={agent}", PHASE[phase], OLD) for agent, phase in REVISED
}
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Programs that run a few times."""
BETA = 0.9
"""Adam's first."""

Leaves = dict[str, np.ndarray]


class Half(NamedTuple):
    """What a half computes, and its state after all updates."""

    output: Leaves
    """Of every module before the first update."""
    told: list[Leaves]
    """By every update: the loss and its terms."""
    gradient: Leaves
    """Of the first update: Adam's first moment after it is (1 - BETA) of it."""
    parameters: Leaves
    """Targets too."""
    moments: dict[str, Leaves]


def halves(twin: Twin, updates: int) -> tuple[Half, Half]:
    """torch and JAX after so many updates."""
    with precision("float64"):
        return _torch(twin, updates), _jax(twin, updates)


def _torch(twin: Twin, updates: int) -> Half:
    module, batch = copy.deepcopy(twin.torch).double(), lambda i: torch_tree(twin.batch_at(i), "float64")
    adam, told, first = twin.optimizer[0]([p for p in module.parameters() if p.requires_grad]), [], {}
    with torch.no_grad():
        output = leaves(twin.forward[0](module, batch(0)), "")
    for i in range(updates):
        told.append(leaves(twin.update[0](module, adam, batch(i)), ""))
        first = first or _slots(read_torch(adam, module))
    last = _slots(read_torch(adam, module))
    return Half(output, told, _gradient(first), leaves(dict(module.state_dict()), ""), last)


def _jax(twin: Twin, updates: int) -> Half:
    model, tx = jax.tree.map(lambda leaf: jnp.asarray(leaf, "float64"), twin.jax), twin.optimizer[1]
    record = optimizer_records({name: module.spec for name, module in model.items()}, lr=1.0)["policy"]
    both = lambda model, state, batch: (twin.forward[1](model, batch), twin.update[1](model, tx, state, batch))
    program, state, outputs, told, first = jax.jit(both, compiler_options=QUICK), tx.init(model), None, [], {}
    for i in range(updates):
        output, (model, state, info) = program(model, state, jax_tree(twin.batch_at(i), "float64"))
        outputs = output if outputs is None else outputs
        told.append(leaves(info, ""))
        first = first or _slots(read_moments(state, record))
    last = _slots(read_moments(state, record))
    return Half(leaves(outputs, ""), told, _gradient(first), leaves(model, ""), last)


def _slots(state: OptimizerState) -> dict[str, Leaves]:
    return {slot: {name: of[slot] for name, of in state.moments.items()} for slot in ("exp_avg", "exp_avg_sq", "step")}


def _gradient(first: dict[str, Leaves]) -> Leaves:
    return {name: array / (1 - BETA) for name, array in first["exp_avg"].items()}


def apart(found: Leaves, expected: Leaves) -> float:
    """The largest distance of two arrays of one name, relative to the scale of the second."""
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    assert all(found[name].shape == array.shape for name, array in expected.items())
    scale = lambda array: float(np.abs(array).max(initial=0.0)) or 1.0
    return max(float(np.abs(found[name] - array).max(initial=0.0)) / scale(array) for name, array in expected.items())
