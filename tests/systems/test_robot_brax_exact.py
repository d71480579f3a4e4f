"""`--preset brax` is Brax's PPO: the loss and its gradient against Brax's own function, in float64, by both halves."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from contract import HALF, assert_close, everything, settings

from crossfade.algos.ppo import gae_jax, gae_torch, learner_jax, learner_torch, losses_jax, losses_torch
from crossfade.algos.ppo.batch import Minibatch, Segment
from crossfade.bridge.libraries import named_leaves
from crossfade.config import apply
from crossfade.envs.world import Continuous
from crossfade.errors import UsageError
from crossfade.registry import find
from crossfade.systems.robot import RECORD
from crossfade.systems.robot.config import RobotConfig
from crossfade.trainers.making import make_trainer, precision
from default_run import few_of

pytestmark = pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained")
STEPS, ENVS, SEEN, DIM = 10, 6, 5, 3
SHAPE = ("n_envs=6", "n_steps=10", "minibatches=1", "hidden=8", "dtype=float64", "entropy_coef=0.1")
OTHER_WORDS = ("env.model", "n_envs", "n_steps", "steps", "eval_every", "checkpoint_every")
PRESET = tuple(word for word in RECORD.presets["brax"] if word.split("=")[0] not in OTHER_WORDS)
PARTS = {"policy": "actor", "value": "critic"}


def preset(*words: str) -> RobotConfig:
    return apply(apply(apply(RobotConfig(), PRESET), SHAPE), words)


@pytest.fixture(autouse=True)
def ranks_as_brax_has_them():
    with jax.numpy_rank_promotion("allow"):
        yield


def by_name(params) -> dict[str, np.ndarray]:
    """Brax's networks by our names of their parameters: kernels are transposed."""
    found = {}
    for part, name in PARTS.items():
        for layer, leaves in getattr(params, part)["params"].items():
            prefix = f"{name}.{layer.removeprefix('hidden_')}"
            found |= {f"{prefix}.weight": np.asarray(leaves["kernel"]).T, f"{prefix}.bias": np.asarray(leaves["bias"])}
    return found


def rollout() -> dict[str, np.ndarray]:
    """Time first; some episodes end and some are cut off, in the last step too."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 6, (STEPS, ENVS))
    kind[-1, :2] = 0, 1
    return {
        "observation": rng.normal(size=(STEPS, ENVS, SEEN)),
        "last": rng.normal(size=(ENVS, SEEN)),
        "action": rng.normal(size=(STEPS, ENVS, DIM)),
        "log_prob": rng.normal(-3, 0.3, (STEPS, ENVS)),
        "reward": rng.normal(size=(STEPS, ENVS)),
        "terminated": kind == 0,
        "truncated": kind == 1,
    }


def by_brax(config: RobotConfig, data: dict[str, np.ndarray]):
    """Parameters, the noise of the entropy, loss and gradient."""
    from brax.training.agents.ppo.losses import PPONetworkParams, compute_ppo_loss
    from brax.training.types import Transition

    from crossfade.systems.robot.brax_jax import network_factory

    networks, key = network_factory(config)(SEEN, DIM), jax.random.key(0)
    start = PPONetworkParams(networks.policy_network.init(key), networks.value_network.init(jax.random.key(1)))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(0, 0.4, leaf.shape)), start)
    arrays = {name: jnp.asarray(np.swapaxes(x, 0, 1), float) for name, x in data.items() if name != "last"}
    ended = arrays["terminated"] + arrays["truncated"]
    after = np.concatenate([data["observation"][1:], data["last"][None]])
    extras = {
        "state_extras": {"truncation": arrays["truncated"]},
        "policy_extras": {
            "raw_action": arrays["action"],
            "log_prob": arrays["log_prob"],
            "distribution_params": jnp.zeros((ENVS, STEPS, 2 * DIM)),
        },
    }
    given = Transition(
        observation=arrays["observation"],
        action=jnp.tanh(arrays["action"]),
        reward=arrays["reward"],
        discount=1 - ended,
        next_observation=jnp.asarray(np.swapaxes(after, 0, 1)),
        extras=extras,
    )

    def loss(params):
        return compute_ppo_loss(
            params,
            None,
            given,
            key,
            networks,
            entropy_cost=config.entropy_coef,
            discounting=config.gamma,
            gae_lambda=config.gae_lambda,
            clipping_epsilon=config.clip,
            normalize_advantage=config.normalize_advantages,
            vf_coefficient=config.value_coef,
        )[0]

    value, gradient = jax.value_and_grad(loss)(params)
    return by_name(params), jax.random.normal(key, (STEPS, ENVS, DIM)), float(value), by_name(gradient)


def minibatch(data: dict[str, np.ndarray], noise, array) -> Minibatch:
    """As our loss has it; what it must compute by itself is not a number."""
    flat = lambda x: array(np.asarray(x).reshape(STEPS * ENVS, *x.shape[2:]))
    unknown = flat(np.full((STEPS, ENVS), np.nan))
    segment = Segment(*(flat(data[name]) for name in ("reward", "terminated", "truncated")), array(data["last"]))
    columns = (flat(data[name]) for name in ("action", "log_prob"))
    return Minibatch(flat(data["observation"]), None, *columns, *[unknown] * 3, segment, flat(noise))


CASES = {
    "the preset": (),
    "other networks": ("activation=swish", "layers=3", "normalize_advantages=false", "gae_lambda=0.5"),
}


@pytest.mark.parametrize("words", few_of(CASES, "the preset"))
def test_the_loss_of_the_preset_is_that_of_brax(words):
    config = preset(*words)
    with jax.enable_x64(True):
        parameters, noise, expected, wanted = by_brax(config, data := rollout())
        actions = learner_jax.make_actions(config, Continuous(DIM))
        policy = learner_jax.make_policy(config, SEEN, actions, parameters)
        batch = minibatch(data, noise, jnp.asarray)
        given = jax.value_and_grad(losses_jax.loss, has_aux=True)
        (found, _), gradient = jax.jit(lambda policy: given(policy, batch, actions, config))(policy)
        gradients = named_leaves(gradient)
        assert float(found) == pytest.approx(expected, rel=1e-12)
        for name, of in wanted.items():
            np.testing.assert_allclose(gradients[name], of, rtol=1e-9, atol=1e-13, err_msg=name)
        noise = np.array(noise)
    actions = learner_torch.make_actions(config, Continuous(DIM))
    policy = learner_torch.make_policy(config, SEEN, actions, parameters)
    found, _ = losses_torch.loss(policy, minibatch(data, noise, torch.as_tensor), actions, config)
    found.backward()
    assert found.item() == pytest.approx(expected, rel=1e-12)
    for name, parameter in policy.named_parameters():
        np.testing.assert_allclose(parameter.grad, wanted[name], rtol=1e-9, atol=1e-13, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "word", ["advantage=gae", "deviation=exp", "activation=relu", "truncation=terminal", "clip=0.1"]
)
def test_any_other_setting_is_another_loss(word):
    with jax.enable_x64(True):
        parameters, noise, expected, _ = by_brax(preset(), data := rollout())
        config = preset(word)
        actions = learner_jax.make_actions(config, Continuous(DIM))
        policy = learner_jax.make_policy(config, SEEN, actions, parameters)
        found = losses_jax.loss(policy, minibatch(data, noise, jnp.asarray), actions, config)[0]
    assert abs(float(found) - expected) > 1e-4


def test_advantages_by_returns_are_worked_out_by_hand(x64):
    """Two steps, an end, a step: A = r + gamma v(s') - V(s), v = V + sum (gamma lambda)^k delta."""
    gamma, decay = 0.9, 0.5
    reward, value, last = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.5, -1.0]), 4.0
    delta = np.array([1 + 0.9 * 1.5 - 0.5, 2 - 1.5, 3 + 0.9 * 4 + 1])
    returns = value + np.array([delta[0] + 0.45 * delta[1], delta[1], delta[2]])
    expected = np.array([1 + 0.9 * returns[1] - 0.5, 2 - 1.5, 3 + 0.9 * last + 1])
    config = replace(preset(), gamma=gamma, gae_lambda=decay)
    columns = reward, value, np.append(value[1:], last), np.array([False, True, False]), np.zeros(3, bool)
    for estimates, array in ((gae_torch.estimates, torch.as_tensor), (gae_jax.estimates, jnp.asarray)):
        found = estimates(*(array(column[:, None]) for column in columns), config)
        np.testing.assert_allclose(np.asarray(found[0])[:, 0], expected, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(found[1])[:, 0], returns, rtol=1e-12)


REFUSED = {
    "truncation=bootstrap": "truncation=mask or truncation=terminal, got bootstrap",
    "minibatches=4": "minibatches: expected a divisor of n_envs = 6, got 4",
    "share_gradients=true": "share_gradients=none or false",
    "log_std=free": "deviation=softplus: expected log_std=state",
    "squashed=false": "entropy=squashed: expected squashed=true",
}


@pytest.mark.parametrize("word, told", REFUSED.items(), ids=REFUSED)
def test_settings_that_exclude_each_other_are_refused(word, told):
    with pytest.raises(UsageError, match=told):
        preset(word)


@cache
def trained(mode: str) -> dict[str, np.ndarray]:
    devices = 2 if mode == "devices=2" else 1
    config = apply(settings("robot", "jax_full" if devices == 2 else mode), (*PRESET, "curriculum=false"))
    config = replace(config, devices=devices)
    with precision(config):
        trainer = make_trainer(find("robot"), config)
        told = trainer.run(0, HALF)
        return {**told, **everything(trainer.snapshot())}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["torch", "torch_pure", "jax_minimal", "jax_policy", "devices=2"])
def test_every_mode_learns_the_same_as_brax_has_it(mode):
    assert_close(trained(mode), trained("jax_full"))
