"""Brax's trainer on the robots' world: the same episodes, judged the same way."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.config import apply
from crossfade.envs.robot.robot_jax import Robot
from crossfade.errors import UsageError
from crossfade.systems.robot.config import RobotConfig

pytestmark = pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained")
SMALL = apply(
    RobotConfig(), ("n_envs=16", "n_steps=8", "minibatches=4", "hidden=16", "eval_episodes=4", "env.limit=20")
)


@pytest.fixture(autouse=True)
def ranks_as_brax_has_them():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def brax_jax():
    from crossfade.systems.robot import brax_jax

    return brax_jax


@pytest.mark.slow
def test_an_environment_of_brax_is_our_world(brax_jax):
    """Ten steps: observations, rewards with their terms, and ends."""
    env, world = brax_jax.WorldEnv(SMALL.env, None, SMALL.settings(0)), Robot(SMALL.env)
    keys = jnp.asarray(np.arange(6, dtype=np.uint32).reshape(3, 2))
    theirs = jax.jit(env.reset)(keys)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, (world.start_numbers,)))(keys)
    settings = jax.tree.map(jnp.asarray, SMALL.settings(0))
    ours = world.begin(None, settings, uniform)
    step, own = jax.jit(env.step), jax.jit(lambda state, action: world.step(None, settings, state, action))
    for t in range(10):
        action = jnp.sin(t + jnp.arange(18.0)).reshape(3, 6)
        theirs, (ours, outcome) = step(theirs, action), own(ours, action)
        np.testing.assert_allclose(theirs.obs, ours.observation, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(theirs.reward, outcome.reward, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(theirs.done, outcome.terminated)
        np.testing.assert_allclose(theirs.metrics["told/speed"], outcome.told.speed, rtol=1e-5, atol=1e-5)


def test_minibatches_that_brax_cannot_make_are_refused(brax_jax):
    with pytest.raises(UsageError, match="minibatches: expected a divisor of n_envs = 16, got 32"):
        brax_jax.options(replace(SMALL, minibatches=32))


@pytest.mark.slow
def test_brax_learns_to_stand(brax_jax):
    """From falls within a second to episodes that earn twice as much."""
    words = ("n_envs=64", "n_steps=20", "minibatches=8", "hidden=32", "steps=150", "env.limit=200", "lr=1e-3")
    config, found = apply(SMALL, (*words, "eval_episodes=16")), []
    brax_jax.train(config, lambda step, figures: found.append((step, figures)))
    assert [step for step, _ in found] == [0, 150 * 64 * 20]
    first, last = (figures["eval/return"] for _, figures in found)
    assert last > 2 * first
