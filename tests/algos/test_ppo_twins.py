"""The torch half and the JAX half of PPO, written apart, are the same algorithm: on trading, from one key."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from crossfade.algos.ppo import learner_jax, learner_torch, losses_jax, losses_torch, rollout_jax, rollout_numpy
from crossfade.algos.ppo.batch import Minibatch, Rollout, Seen, named, taken
from crossfade.bridge.libraries import named_leaves
from crossfade.config import apply
from crossfade.registry import find
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.system_jax import System as JaxSystem
from crossfade.systems.trading.system_torch import System as TorchSystem
from crossfade.trainers.making import make_trainer, precision
from default_run import few_of

SMALL = ("n_envs=4", "n_steps=16", "hidden=8", "days=2", "eval_days=1", "epochs=2", "minibatches=2", "env.window=3")
SHORT = ("max_bars=7", "drawdown=300")  # episodes are cut off and accounts go bust within a rollout
SEGMENTS = ("segments=true", "advantage=lambda_return", "truncation=mask", "join_first=true", "apart=true")
CASES = {
    "plain": (),
    "phase 2, floor, masked truncation": ("env.phase=2", "floor=0.02", "truncation=mask"),
    "values clipped": ("clip_value=0.2",),
    "nothing clipped or normalised": ("clip_value=none", "clip_norm=none", "normalize_advantages=false"),
    "segments": SEGMENTS,
    "published network": ("network=seed", "normalize_observations=false", "truncation=terminal"),
}


def config(*words: str) -> TradingConfig:
    return apply(TradingConfig(), (*SMALL, *SHORT, "steps=50", "dtype=float64", *words))


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(np.asarray(found) - expected).max() / max(np.abs(expected).max(), 1e-12))


def as_arrays(steps: Minibatch) -> Minibatch:
    return jax.tree.map(lambda field: jnp.asarray(field.numpy()), steps)


def moved(*words: str) -> tuple[TorchSystem, JaxSystem, Minibatch]:
    """Both systems and a minibatch of a rollout whose policy has moved away from it since."""
    ours = TorchSystem(config(*words))
    before = ours.make_policy(ours.parameters())
    batch = ours.tensors(ours.collect(before, ours.start_buffer(), 0)[0])
    minibatch = taken(batch.steps, batch.order[0, :32])
    shift = torch.from_numpy(np.random.default_rng(0).normal(0, 0.3, 32))
    return ours, JaxSystem(ours.config), minibatch._replace(log_prob=minibatch.log_prob + shift)


def differences(ours: TorchSystem, theirs: JaxSystem, steps: Minibatch) -> dict[str, float]:
    """How far loss, gradient and one update are apart, relative to their size."""
    policy, model = ours.make_policy(ours.parameters()), theirs.make_policy(ours.parameters())
    raw = as_arrays(steps)
    arrays = raw._replace(advantage=learner_jax.normalized(raw.advantage, ours.config))
    minibatch = steps._replace(advantage=learner_torch.normalized(steps.advantage, ours.config))
    (_, info), gradient = jax.jit(jax.value_and_grad(theirs.loss, has_aux=True))(model, arrays)
    value, expected = ours.loss(policy, minibatch)
    value.backward()
    gradients, wanted = named_leaves(gradient), {n: p.grad.numpy().copy() for n, p in policy.named_parameters()}
    optimizer, tx = learner_torch.make_optimizer(ours.config, policy), learner_jax.make_optimizer(ours.config, model)
    learner_torch.update(policy, optimizer, partial(taken, steps), torch.arange(32), 3e-4, ours.actions, ours.config)
    rest = partial(taken, raw), jnp.arange(32), jnp.array(3e-4), theirs.actions, ours.config
    update = lambda model, state: learner_jax.update(model, tx, state, *rest)[0]
    after, found = named_leaves(jax.jit(update)(model, tx.init(model))), dict(policy.named_parameters())
    return {
        "loss": max(relative(info[name], expected[name].detach().numpy()) for name in expected),
        "gradient": max(relative(gradients[name], wanted[name]) for name in wanted),
        "update": max(relative(after[name], found[name].detach().numpy()) for name in found),
    }


@pytest.mark.parametrize("words", few_of(CASES, "phase 2, floor, masked truncation", "published network"))
def test_the_halves_agree_on_loss_gradient_and_update(words, x64):
    found = differences(*moved(*words))
    assert found["loss"] <= 1e-12 and found["gradient"] <= 1e-10 and found["update"] <= 1e-9, found


@pytest.mark.slow
def test_segments_are_learned_from_alike_on_the_host_and_compiled():
    """In a world that does not keep observations."""
    found = []
    for mode in ("torch", "jax_policy", "jax_full"):
        own = config(*SEGMENTS, f"mode={mode}")
        with precision(own):
            trainer = make_trainer(find("trading"), own)
            trainer.run(0, 3)
            found.append(trainer.snapshot().parameters)
    for name, parameter in found[0].items():
        for other in found[1:]:
            np.testing.assert_allclose(other[name], parameter, rtol=1e-9, atol=1e-12, err_msg=name)


def test_the_loss_is_the_sum_worked_out_by_hand(x64):
    ours, theirs, minibatch = moved("value_coef=0.3", "entropy_coef=0.2", "clip_value=none")
    flat = {name: np.zeros_like(array) for name, array in ours.parameters().items()}  # all legal actions alike, V = 0
    legal = minibatch.mask.sum(-1).numpy()
    ratio = np.exp(-np.log(legal) - minibatch.log_prob.numpy())
    scaled, returns = minibatch.advantage.numpy(), minibatch.advantage.numpy() + minibatch.value.numpy()
    surrogate = np.minimum(ratio * scaled, np.clip(ratio, 0.8, 1.2) * scaled).mean()
    expected = -surrogate + 0.3 * (returns**2).mean() / 2 - 0.2 * np.log(legal).mean()
    arrays = as_arrays(minibatch)
    kl = (ratio - 1 - np.log(ratio)).mean()
    with torch.no_grad():
        _, found = ours.loss(ours.make_policy(flat), minibatch)
    for info in (found, theirs.loss(theirs.make_policy(flat), arrays)[1]):
        assert float(info["loss"]) == pytest.approx(expected, rel=1e-12)
        assert float(info["approx_kl"]) == pytest.approx(kl, rel=1e-12)
        assert float(info["clip_fraction"]) == (abs(ratio - 1) > 0.2).mean()


@pytest.mark.parametrize(
    ("value", "returns", "expected"),
    [
        # Returns have mean 3 and variance (4 + 0 + 4) / 3; errors 1, -1, 0 have variance 2 / 3.
        ([0.0, 4.0, 5.0], [1.0, 3.0, 5.0], 1 - (2 / 3) / (8 / 3)),
        ([8.0, 10.0, 12.0], [1.0, 3.0, 5.0], 1.0),  # all but their mean, which is not asked for
        ([7.0, 7.0, 7.0], [1.0, 3.0, 5.0], 0.0),
        ([5.0, 3.0, 1.0], [1.0, 3.0, 5.0], -3.0),
        ([1.0, 2.0, 3.0], [2.0, 2.0, 2.0], 0.0),  # nothing to be explained
    ],
)
def test_the_variance_that_a_critic_explains_is_what_it_is_by_hand(value, returns, expected, x64):
    ours = losses_torch.explained_variance(torch.tensor(value, dtype=torch.float64), torch.tensor(returns).double())
    assert float(ours) == pytest.approx(expected, abs=1e-15)
    assert float(losses_jax.explained_variance(jnp.array(value), jnp.array(returns))) == pytest.approx(float(ours))


def test_the_share_of_an_action_is_that_of_the_steps_in_which_it_was_legal():
    """Two steps of three environments: the first action is legal in all, the second in three, the third nowhere."""
    mask = np.array([[[1, 1, 0], [1, 0, 0], [1, 1, 0]], [[1, 1, 0], [1, 0, 0], [1, 0, 0]]], bool)
    action = np.array([[1, 0, 0], [1, 0, 0]])
    zeros = np.zeros((2, 3))
    rollout = Rollout(Seen(zeros, mask), action, zeros, zeros, zeros, zeros, zeros, zeros)
    info = rollout_numpy._info(rollout, np.zeros(3), 3)
    assert [info[f"action_{i}"] for i in range(3)] == [4 / 6, 2 / 3, 0.0] and info["illegal"] == 0
    sums = {"legal": mask.sum(1), "taken": np.array([[2, 1, 0], [2, 1, 0]]), "illegal": np.zeros(2)}
    sums |= dict.fromkeys(("episodes", "episode_return", "episode_length"), np.zeros(2))
    compiled = rollout_jax._info(*jax.tree.map(jnp.asarray, (rollout._replace(state=None), sums)), [], 1)
    assert {name: float(value) for name, value in compiled.items()} == pytest.approx(info)
    assert set(named(info, ("hold", "buy"))) > {"action_hold", "action_buy", "action_2", "illegal"}


def test_advantages_weigh_by_their_own_mean_and_deviation(x64):
    ours, theirs, minibatch = moved()
    raw = minibatch.advantage.numpy()
    expected = (raw - raw.mean()) / (raw.std() + 1e-8)
    np.testing.assert_allclose(learner_torch.normalized(minibatch.advantage, ours.config), expected, rtol=1e-12)
    np.testing.assert_allclose(learner_jax.normalized(jnp.asarray(raw), theirs.config), expected, rtol=1e-12)


def test_a_gradient_is_as_long_as_allowed_at_most():
    ours, _, minibatch = moved("clip_norm=0.01")
    policy = ours.make_policy(ours.parameters())
    descent = torch.optim.SGD(policy.parameters(), lr=1.0)
    learner_torch.update(policy, descent, lambda _: minibatch, torch.arange(32), 1.0, ours.actions, ours.config)
    moved_by = [p.detach().numpy() - ours.parameters()[name] for name, p in policy.named_parameters()]
    assert np.sqrt(sum((change**2).sum() for change in moved_by)) == pytest.approx(0.01, rel=1e-4)


def test_the_learning_rate_falls_with_the_updates_and_reaches_its_end_with_the_last():
    rates = [config("lr=1e-3", "lr_final=1e-4").learning_rate(i) for i in (0, 25, 50, 60)]  # of 50 updates
    assert rates == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])


def test_a_value_clipped_around_the_return_is_noticed(x64, monkeypatch):
    right = losses_torch.value_loss
    monkeypatch.setattr(
        losses_torch, "value_loss", lambda v, old, returns, clip: right(v, returns - old, returns, clip)
    )
    found = differences(*moved("clip_value=0.2"))
    assert found["loss"] > 1e-6 and found["gradient"] > 1e-6, found


def trained(mode: str, updates: int, *words: str, nudge: float = 0.0) -> tuple[dict, dict, list[np.ndarray]]:
    """Metrics, accounts at the end, and every action on the way where the host can see them."""
    chosen = config(*words, f"mode={mode}")
    with precision(chosen):
        trainer, actions = make_trainer(find("trading"), chosen), []
        if nudge:
            start = trainer.snapshot()
            bias = start.parameters["actor.0.bias"] + np.array([nudge, 0, 0])
            parameters = {**start.parameters, "actor.0.bias": bias}
            trainer = make_trainer(find("trading"), chosen, start._replace(parameters=parameters, optimizers={}))
        for method in ("collect", "collect_one_by_one"):
            if collect := getattr(trainer.system, method, None):
                setattr(trainer.system, method, _listening(collect, actions))
        metrics = trainer.run(0, updates)
        return metrics, trainer.snapshot().buffer, actions


def _listening(collect, actions):
    def collected(policy, buffer, step):
        batch, carry = collect(policy, buffer, step)
        actions.append(np.asarray(batch.rollout.action))
        return batch, carry

    return collected


def same_actions(updates: int) -> None:
    ours, accounts, actions = trained("torch", updates)
    for mode in ("jax_policy", "jax_full"):
        theirs, others, seen = trained(mode, updates)
        assert all(map(np.array_equal, actions, seen)) and len(actions) == updates
        for name in accounts["state"]:
            assert np.array_equal(accounts["state"][name], others["state"][name]), name
        for name in ours:
            if name.startswith(("action_", "episodes", "illegal", "gradient_steps")):
                assert np.array_equal(ours[name], theirs[name]), name
            assert relative(theirs[name], ours[name]) <= 1e-9, name
    assert ours["episodes"].all() and not ours["illegal"].any()


@pytest.mark.slow
def test_five_updates_from_one_key_take_the_same_actions():
    """The default run has the same accounts, metrics and parameters in every mode, by the contract."""
    same_actions(5)


@pytest.mark.slow
def test_fifty_updates_from_one_key_take_the_same_actions():
    same_actions(50)


def test_a_parameter_that_was_moved_takes_other_actions():
    (_, _, right), (_, _, wrong) = trained("torch", 2), trained("torch", 2, nudge=0.5)
    assert not all(map(np.array_equal, right, wrong))


def test_both_halves_stop_an_update_once_the_policy_has_moved_too_far():
    words = "lr=0.03", "target_kl=0.002"
    ours, theirs = (trained(mode, 2, *words)[0] for mode in ("torch", "jax_policy"))
    assert np.array_equal(ours["gradient_steps"], theirs["gradient_steps"]) and (ours["gradient_steps"] < 4).any()
    assert relative(theirs["loss"], ours["loss"]) <= 1e-9
