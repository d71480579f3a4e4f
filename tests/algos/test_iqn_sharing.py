"""Agents that act on several devices: each takes its part of the fractions, and all take the same action."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from iqn_learner_cases_jax import policy_of, sizes_of, small

from crossfade.algos.iqn.train_jax import LEAST, actor
from crossfade.optim import sharing_jax as sharing
from default_run import few_pairs


def actions(config, stacks, fractions):
    """What the second agent does in front of every stack, and how many messages the devices exchange for it."""
    networks = [model.local for model in policy_of(config).models]
    local = jax.tree.map(lambda *arrays: jnp.stack(arrays), *networks)

    def each(local, stacks, fractions):
        act = actor(local, config)
        return jax.lax.map(lambda given: act(jnp.int32(1), *given), (stacks, fractions))

    places = (sharing.EVERYWHERE,) * 3
    program = jax.jit(sharing.spread(each, config.devices, places, sharing.EVERYWHERE)).lower(local, stacks, fractions)
    return np.asarray(program.compile()(local, stacks, fractions)), program.as_text().count("all_reduce")


SIZES = [(1, 2 * LEAST, True), (LEAST, 2, True), (1, 12, False), (LEAST, 3, False)]


@pytest.mark.parametrize(("worlds", "quantiles", "shared"), few_pairs(SIZES, SIZES[0], SIZES[2]))
def test_devices_share_fractions_where_there_are_many(worlds, quantiles, shared, x64):
    rng, sizes = np.random.default_rng(0), sizes_of(small())
    stacks = jnp.asarray(10 * rng.normal(size=(40, worlds, sizes.inputs)))
    # The halves of the fractions say different things: the first are low, the others high.
    fractions = jnp.asarray(np.sort(rng.random((40, worlds, quantiles)), axis=-1))
    alone = small(worlds=worlds, acting_quantiles=quantiles)
    both = small(worlds=worlds, acting_quantiles=quantiles, devices=2)
    expected, none = actions(alone, stacks, fractions)
    found, messages = actions(both, stacks, fractions)
    assert np.array_equal(found, expected) and none == 0 and (messages > 0) == shared
    assert (actions(alone, stacks, fractions[..., : quantiles // 2])[0] != expected).any()
