"""How the models are best trained side by side on this machine: every way of `agent_axis`, timed in turn."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...algos.iqn.batch import Batch
from ...algos.iqn.stacked_jax import Stacked, stack, update_stacked
from ...optim import sharing_jax as sharing
from ...optim.sharing_jax import EVERYWHERE
from .config import TreasurehuntConfig
from .system_jax import System

AXES = ("map", "unroll", "vmap")


def measure(config: TreasurehuntConfig, rounds: int = 5) -> dict[str, dict[str, float]]:
    """Milliseconds of an update of all models, median, least and most over the rounds, and seconds of compiling.

    The ways take turns in every round. With `devices` above 1 these also share the batches, as `batches`, and the
    models, as `shard`.
    """
    sharing.mesh(config.devices)  # first of all: JAX makes its devices once
    ways: dict[str, Callable[[], Any]] = {}
    found: dict[str, dict[str, float]] = {}
    for axis, words in settings(config.devices).items():
        began = time.perf_counter()
        ways[axis] = _way(replace(config, mode="jax_full", **words))
        ways[axis]()
        found[axis] = {"compile_s": time.perf_counter() - began}
    times: dict[str, list[float]] = {axis: [] for axis in ways}
    for _ in range(rounds):
        for axis, way in ways.items():
            began = time.perf_counter()
            way()
            times[axis].append(1e3 * (time.perf_counter() - began))
    for axis, each in times.items():
        found[axis] |= {"ms": float(np.median(each)), "least_ms": min(each), "most_ms": max(each)}
    return found


def settings(devices: int) -> dict[str, dict[str, Any]]:
    """The settings of every way."""
    alone = {axis: {"agent_axis": axis, "devices": 1} for axis in AXES}
    shared = {"batches": "map", "shard": "shard"} if devices > 1 else {}
    return alone | {way: {"agent_axis": axis, "devices": devices} for way, axis in shared.items()}


def _way(config: TreasurehuntConfig) -> Callable[[], Any]:
    """An update of all models on some transitions."""
    system = System(config)
    policy: Any = system.make_policy(system.parameters())
    states = {name: tx.init(policy) for name, tx in system.make_optimizers(policy).items()}
    # What transitions hold changes no time: those of replay before the first episode, taken for ready.
    batch, _ = system.collect(policy, jax.tree.map(np.asarray, system.start_buffer()), 0)
    given = batch._replace(ready=jnp.asarray(True), copy=jnp.asarray(False), info={})
    stacked, given = sharing.place((stack(policy, states, config), given), config.devices)
    program = partial(_update, config=config)
    spread = jax.jit(sharing.spread(program, config.devices, (EVERYWHERE, EVERYWHERE), EVERYWHERE))
    return lambda: jax.block_until_ready(spread(stacked, given))


def _update(stacked: Stacked, batch: Batch, config: TreasurehuntConfig) -> Stacked:
    return update_stacked(stacked, batch, config)[0]
