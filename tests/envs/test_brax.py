"""Brax, both ways: our worlds under its trainer, its environments as worlds."""

import functools
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax_cases import Drift, DriftParams, PushCart, Registry

from crossfade.algos.ppo.config import ContinuousPPOConfig
from crossfade.envs.brax import BraxParams
from crossfade.envs.maze import MazeParams
from crossfade.envs.world import World, make_world
from crossfade.errors import UsageError
from crossfade.trainers.making import make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained"),
    pytest.mark.filterwarnings("ignore:.*not actively being maintained"),
    pytest.mark.filterwarnings("ignore:Accessing `ncon` directly"),
]


@pytest.fixture(autouse=True)
def ranks_as_brax_has_them():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def env_jax():
    from crossfade.envs.brax import env_jax

    return env_jax


KEYS = jnp.asarray(np.arange(10, dtype=np.uint32).reshape(5, 2))


def test_a_world_as_an_environment(env_jax):
    """Five at once, and one by itself: the world's own numbers."""
    env, world = env_jax.WorldEnv(DriftParams()), Drift(DriftParams())
    assert (env.observation_size, env.action_size) == (2, 1)
    state, action = env.reset(KEYS), jnp.linspace(-1, 1, 5)[:, None]
    start = world.begin(None, None, jax.vmap(lambda key: jax.random.uniform(key, (1,)))(KEYS))
    np.testing.assert_array_equal(state.pipeline_state.x, start.x)
    assert len(set(map(float, start.x))) == 5
    state.info["mine"] = jnp.ones(5)
    state.metrics["theirs"] = jnp.ones(5)
    after = env.step(state, action)
    right, outcome = world.step(None, None, start, action)
    np.testing.assert_array_equal(after.pipeline_state.x, right.x)
    np.testing.assert_array_equal(after.reward, outcome.reward)
    np.testing.assert_array_equal(after.metrics["terms/effort"], outcome.terms.effort)
    np.testing.assert_array_equal(after.obs, world.observe(None, None, right))
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert {leaf.dtype for leaf in (after.reward, after.done, after.obs)} == {np.dtype("float32")}
    alone = env.step(env.reset(KEYS[3]), action[3])
    np.testing.assert_allclose(alone.obs, after.obs[3], rtol=1e-6)
    assert alone.done.shape == ()


def test_episodes_end_and_are_cut_as_brax_does(env_jax):
    """Beyond 3 done and not cut; after `episode_length` cut and done; both begin again."""
    env = env_jax.wrap(env_jax.WorldEnv(DriftParams()), episode_length=6)
    state = env.reset(KEYS)
    first, step = state.obs, jax.jit(env.step)
    runs = int(first[:, 0].argmax())
    others = np.arange(5) != runs
    action, ended = jnp.zeros((5, 1)).at[runs].set(1), []
    for _ in range(6):
        state = step(state, action)
        ended.append((float(state.done[runs]), float(state.info["truncation"][runs])))
        if state.done[runs]:
            np.testing.assert_array_equal(state.obs[runs], first[runs])
    assert set(ended) == {(0.0, 0.0), (1.0, 0.0)}  # its episodes end and are never cut
    np.testing.assert_array_equal(state.done[others], 1)
    np.testing.assert_array_equal(state.info["truncation"][others], 1)
    np.testing.assert_array_equal(state.obs[others], first[others])


def test_brax_trains_our_world(env_jax):
    """Its PPO learns to come to 0."""
    from brax.training.agents.ppo.networks import make_ppo_networks

    found = []
    env_jax.train(
        env_jax.WorldEnv(DriftParams()),
        num_timesteps=8192,
        episode_length=8,
        num_envs=32,
        batch_size=32,
        num_minibatches=4,
        unroll_length=8,
        num_updates_per_batch=4,
        num_evals=2,
        num_eval_envs=16,
        learning_rate=3e-3,
        max_devices_per_host=1,
        network_factory=functools.partial(
            make_ppo_networks, policy_hidden_layer_sizes=(32,), value_hidden_layer_sizes=(32,)
        ),
        progress_fn=lambda step, metrics: found.append(metrics),
    )
    assert not hasattr(jax, "device_put_replicated")
    before, after = (float(metrics["eval/episode_reward"]) for metrics in found)
    assert before < -15 and after > -6
    parts = found[-1]["eval/episode_terms/near"] + found[-1]["eval/episode_terms/effort"]
    np.testing.assert_allclose(parts, after, rtol=1e-5)


def test_an_environment_as_a_world():
    """In JAX and from the host: what the environment itself does, alone, for each key."""
    from brax_cases import slide

    env, params = slide(), BraxParams(env="brax_cases:slide", limit=4)
    worlds = {side: make_world(params, side) for side in ("jax", "numpy")}
    uniform = np.linspace(0, 0.9, 12, dtype=np.float32).reshape(2, 3, 2)
    actions = np.linspace(-1.5, 1.5, 30, dtype=np.float32).reshape(5, 2, 3, 1)
    for world in worlds.values():
        assert isinstance(world, World)
        assert (world.observation_dim, world.action_space.dim, world.start_numbers) == (2, 1, 2)
        state = world.begin(None, None, uniform if world is worlds["numpy"] else jnp.asarray(uniform))
        alone = env.reset(jnp.asarray(np.floor(uniform[1, 2] * 2**24).astype(np.uint32)))
        for t, action in enumerate(actions):
            state, outcome = world.step(None, None, state, action if world is worlds["numpy"] else jnp.asarray(action))
            alone = env.step(alone, jnp.clip(action[1, 2], -1, 1))
            np.testing.assert_allclose(world.observe(None, None, state)[1, 2], alone.obs, rtol=1e-6)
            np.testing.assert_allclose(outcome.reward[1, 2], alone.reward, rtol=1e-6)
            assert outcome.terminated.dtype == bool and bool(outcome.terminated[1, 2]) == bool(alone.done)
            assert bool(outcome.truncated[1, 2]) == (t + 1 >= 4 and not alone.done)
    host = worlds["numpy"].begin(None, None, uniform)
    assert all(isinstance(leaf, np.ndarray) for leaf in host.leaves)


@pytest.mark.slow
def test_our_ppo_trains_an_environment_of_brax():
    """Compiled as a whole it learns to stay near 0; a host loop gives the same first updates."""
    from brax_system_jax import RECORD

    config = ContinuousPPOConfig(n_envs=32, n_steps=30, hidden=16, layers=1, lr=0.01, gamma=0.95, steps=30)
    rewards = make_trainer(RECORD, config).run(0, 30)["mean_reward"]
    assert rewards[-5:].mean() > rewards[:5].mean() / 3, rewards
    by_hand = make_trainer(RECORD, replace(config, mode="jax_policy")).run(0, 2)["mean_reward"]
    np.testing.assert_allclose(by_hand, rewards[:2], rtol=1e-3)


def test_an_environment_of_playground_as_a_world(monkeypatch):
    """By its name, of a package that stands in for MuJoCo Playground: what the environment itself does."""
    monkeypatch.setitem(sys.modules, "mujoco_playground", SimpleNamespace(registry=Registry))
    params = BraxParams(env="PushCart", backend="playground", limit=3)
    world, env, uniform = make_world(params, "jax"), PushCart(), jnp.full((4, 2), 0.3)
    assert (world.observation_dim, world.action_space.dim) == (2, 1)
    state = world.begin(None, None, uniform)
    alone = env.reset(jnp.floor(uniform[0] * 2**24).astype(jnp.uint32))
    for t in range(3):
        action = jnp.full((4, 1), 0.5 - t)
        state, outcome = world.step(None, None, state, action)
        alone = env.step(alone, jnp.clip(action[0], -1, 1))
        np.testing.assert_allclose(world.observe(None, None, state)[3], alone.obs, rtol=1e-6)
        np.testing.assert_allclose(outcome.reward[3], alone.reward, rtol=1e-6)
        assert bool(outcome.truncated[3]) == (t == 2)
    with pytest.raises(UsageError, match="one of PushCart, Unused, got 'PushCar'.*Did you mean 'PushCart'"):
        make_world(BraxParams(env="PushCar", backend="playground"), "jax")


def test_without_playground_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco_playground", None)
    with pytest.raises(UsageError, match="pip install playground"):
        make_world(BraxParams(env="CartpoleSwingup", backend="playground"), "jax")


@pytest.mark.slow
def test_our_ppo_runs_on_an_environment_of_playground():
    """The cart-pole that is to be balanced, where MuJoCo Playground is installed: rewards are from 0 to 1 and vary."""
    pytest.importorskip("mujoco_playground")
    from brax_system_jax import RECORD_BALANCE

    config = ContinuousPPOConfig(n_envs=32, n_steps=32, lr=1e-3, hidden=32, gamma=0.98, log_std_start=-0.5, steps=12)
    told = make_trainer(RECORD_BALANCE, config).run(0, 12)
    assert ((told["mean_reward"] > 0) & (told["mean_reward"] <= 1)).all() and np.isfinite(told["loss"]).all()
    assert np.ptp(told["mean_reward"]) > 0.2


@pytest.mark.slow
def test_an_environment_of_brax_steps():
    world = make_world(BraxParams(env="inverted_pendulum"), "jax")
    state = world.begin(None, None, jnp.full((3, 2), 0.3))
    after, outcome = jax.jit(world.step)(None, None, state, jnp.ones((3, 1)))
    assert outcome.reward.shape == (3,) and np.isfinite(world.observe(None, None, after)).all()


def test_what_does_not_fit_is_refused(env_jax):
    with pytest.raises(UsageError, match="env: expected MODULE:ATTR or one of ant.*'antt'.*Did you mean 'ant'"):
        make_world(BraxParams(env="antt"), "jax").begin(None, None, jnp.zeros((1, 2)))
    with pytest.raises(UsageError, match="limit: expected an integer from 1"):
        BraxParams(limit=0)
    with pytest.raises(UsageError, match="randomization_fn: expected None"):
        env_jax.wrap(env_jax.WorldEnv(DriftParams()), randomization_fn=lambda sys: sys)


def test_discrete_actions_are_refused(env_jax, monkeypatch):
    from crossfade.envs.world import Discrete

    monkeypatch.setattr(Drift, "action_space", Discrete(3))
    with pytest.raises(UsageError, match="expected a world with continuous actions, got Discrete"):
        env_jax.WorldEnv(DriftParams())


def test_without_brax_it_is_said():
    code = (
        "import sys; sys.modules['brax'] = None\n"
        "from crossfade.errors import UsageError\n"
        "try: from crossfade.envs.brax import WorldEnv\n"
        "except UsageError as error: assert 'crossfade[brax]' in str(error); print('said')"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "said\n"


def test_continuous_worlds_of_ours_fit(env_jax):
    env = env_jax.WorldEnv(MazeParams(map="umaze"))
    state = jax.jit(env.step)(env.reset(KEYS), jnp.ones((5, 2)))
    assert state.obs.shape == (5, 2) and (state.reward == -1).all()
