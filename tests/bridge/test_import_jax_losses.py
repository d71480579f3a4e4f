"""Every loss crossfade ships, taken from its JAX half: values and gradients in torch are JAX's in float64."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from test_import_jax import GRADIENT, VALUE, gap, values

from crossfade.algos.offline.config import AGENTS
from crossfade.bridge import import_jax
from crossfade.bridge.libraries import named_leaves
from crossfade.parity.arrays import jax_tree
from crossfade.parity.twin import Twin
from crossfade.systems.gflownet.twin import gflownet
from crossfade.systems.offline.twin import offline
from crossfade.systems.trading.twin import trading
from crossfade.systems.treasurehunt.twin import treasurehunt
from default_run import few_of

GFLOWNET = ("tb", "vargrad", "db", "mdb", "subtb", "fm", "fldb")

LOSSES: dict[str, tuple[Callable[..., Twin], tuple[str, ...]]] = {
    **{f"gflownet {loss}": (gflownet, (f"loss={loss}",)) for loss in GFLOWNET},
    "ppo": (trading, ()),
    "iqn": (treasurehunt, ()),
    **{f"offline {agent}": (offline, (f"agent={agent}",)) for agent in AGENTS},
}


@pytest.mark.parametrize("make, words", few_of(LOSSES, "gflownet subtb", "ppo", "iqn", "offline iql", many=True))
def test_losses_that_ship_are_the_same_in_torch(make, words, x64):
    twin = make(*words)
    wide = lambda leaf: leaf.astype(jnp.float64) if eqx.is_inexact_array(leaf) else leaf
    model, batch, loss = jax.tree.map(wide, twin.jax), jax_tree(twin.first_batch, "float64"), twin.half("loss", "jax")
    imported = import_jax(loss, model, batch)
    module = imported.module(0)
    result = module(batch)
    total = result[0] if isinstance(result, tuple) else result
    total.backward()

    def both(model, batch):
        result = loss(model, batch)
        return (result[0] if isinstance(result, tuple) else result), result

    (_, expected), grads = eqx.filter_jit(eqx.filter_value_and_grad(both, has_aux=True))(model, batch)
    assert gap(values(result), expected) <= VALUE
    named = {name: p.grad.numpy() for name, p in module.named_parameters()}
    largest = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(grads))
    assert largest > 0 and gap(named, named_leaves(grads), 1e-4 * largest) <= GRADIENT  # some are 0 but for rounding
