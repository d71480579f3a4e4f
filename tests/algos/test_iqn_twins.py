"""The halves of IQN, written apart, are one algorithm: replay, noise, risk, network, loss, step and whole episodes."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from crossfade.algos.iqn import (
    acting_jax,
    acting_torch,
    learner_jax,
    learner_torch,
    losses_jax,
    losses_torch,
    networks_jax,
    networks_torch,
    noise_jax,
    noise_numpy,
    replay_jax,
    replay_numpy,
    risk_jax,
    risk_numpy,
    rollout_jax,
    rollout_numpy,
)
from crossfade.algos.iqn.architecture import architecture, draw_parameters
from crossfade.algos.iqn.batch import Batch, Episode, Noise, Transitions
from crossfade.algos.iqn.config import IQNConfig, Quirk
from crossfade.algos.iqn.optimizer import names
from crossfade.envs.game import MOVES, ORDERS, Moves, Order
from crossfade.envs.treasurehunt import treasurehunt_jax, treasurehunt_numpy
from crossfade.envs.treasurehunt.params import TreasurehuntParams
from crossfade.nn.layers_jax import name
from crossfade.random import random_numpy as random
from default_run import few

PARAMS = TreasurehuntParams(height=4, width=5, agents=3, radius=1, turns=8, items=("gem:10:0.1", "iowa:-2:0.1:0.5:-7"))
OURS, THEIRS = treasurehunt_numpy.Treasurehunt(PARAMS), treasurehunt_jax.Treasurehunt(PARAMS)


@dataclass(frozen=True)
class Config(IQNConfig):
    @property
    def agents(self) -> int:
        return PARAMS.agents


TINY = Config(
    dtype="float64",
    worlds=2,
    frames=3,
    n_step=3,
    memory=34,
    batch_size=5,
    hidden=6,
    cosines=4,
    quantiles=3,
    acting_quantiles=4,
    gamma=(0.9, 0.95, 0.99),
    lr=(0.01,),
    tau=0.25,
    sigma=0.3,
)


def relative(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest number."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-12))


def differing(found: Any, expected: Any) -> list[str]:
    """Fields of a NamedTuple that are not equal, in value, shape and dtype."""
    pairs = [(key, np.asarray(a), np.asarray(b)) for key, a, b in zip(found._fields, found, expected, strict=True)]
    same = lambda a, b: a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    return [key for key, a, b in pairs if not same(a, b)]


# Replay

REPLAYS: dict[str, dict[str, Any]] = {
    "correct": {},
    "terminal": {"ends": "terminal"},
    "legacy": {"legacy": True},
    **{
        quirk: {"quirks": (quirk,), "ends": "terminal"}
        for quirk in (
            "unmarked_ends",
            "gap_rows",
            "gap_bootstrap",
            "lagging_size",
            "stale_history",
            "straddling_windows",
            "discount_only",
        )
    },
}
EPOCHS = 11  # of 10 or 11 rows: 3 laps of the ring, and a bit


def episodes(worlds: int) -> tuple[Episode, np.ndarray]:
    """Episodes of numbers without a pattern, and ranks for a batch after each."""
    rng, shape = np.random.default_rng(0), (EPOCHS, OURS.turns, worlds, OURS.agents)
    played = Episode(
        rng.integers(-100, 100, (*shape, OURS.observation_dim), dtype=np.int8),
        rng.integers(0, 4, shape, dtype=np.int32),
        rng.random(shape, np.float32),
        rng.integers(-100, 100, (EPOCHS, *shape[2:], OURS.observation_dim), dtype=np.int8),
    )
    return played, rng.random((EPOCHS, OURS.agents, worlds * TINY.memory), np.float32)


def remembered_jax(config: Config, played: Episode, choice: np.ndarray) -> Any:
    """All that replay is and gives after each epoch."""

    def epoch(replay, given):
        replay, history = replay_jax.open_episode(replay, config)
        replay = replay_jax.store(replay, given[0], config)
        can, ahead = (of(replay, THEIRS.turns, config) for of in (replay_jax.drawable, replay_jax.steps_ahead))
        return replay, (replay, history, can, ahead, *replay_jax.sample(replay, given[1], THEIRS.turns, config))

    run = jax.jit(lambda given: jax.lax.scan(epoch, replay_jax.start(config, THEIRS), given)[1])
    return jax.tree.map(np.asarray, run((played, choice)))


def remembered_numpy(config: Config, played: Episode, choice: np.ndarray) -> Any:
    replay, found = replay_numpy.start(config, OURS), []
    for i in range(EPOCHS):
        replay, history = replay_numpy.open_episode(replay, config)
        replay = replay_numpy.store(replay, Episode(*(part[i] for part in played)), config)
        can, ahead = (of(replay, OURS.turns, config) for of in (replay_numpy.drawable, replay_numpy.steps_ahead))
        found.append((replay, history, can, ahead, *replay_numpy.sample(replay, choice[i], OURS.turns, config)))
    return jax.tree.map(lambda *columns: np.stack(columns), *found)


def test_the_faults_of_replay_are_all_there():
    assert set(Quirk.__args__) - set(REPLAYS) == {"attached_target", "both_targets"}


@pytest.mark.parametrize("case", few(REPLAYS, "correct", "legacy"))
@pytest.mark.parametrize("worlds", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_replay(worlds: int, case: str, x64):
    config, given = replace(TINY, worlds=worlds, **REPLAYS[case]), episodes(worlds)
    replay, history, can, ahead, taken, ready = remembered_numpy(config, *given)
    found_replay, found_history, found_can, found_ahead, found, found_ready = remembered_jax(config, *given)
    assert replay.filled[-1] == config.memory and replay.index[-1] != 0
    assert differing(found_replay, replay) == []
    assert (found_history == history).all() and (found_can == can).all() and (found_ready == ready).all()
    assert (found_ahead == ahead)[can].all()  # what is said of rows that cannot be drawn does not matter
    assert ready.sum() >= EPOCHS - 2
    of_ready = lambda drawn: Transitions(*(part if part is None else part[ready] for part in drawn))
    assert differing(of_ready(found)._replace(reward=0), of_ready(taken)._replace(reward=0)) == []
    np.testing.assert_allclose(found.reward[ready], taken.reward[ready], rtol=1e-15, atol=0)
    assert found.reward.dtype == taken.reward.dtype == np.float64


# Noise and risk


def test_noise(x64):
    config, dim = replace(TINY, memory=20), 7
    whole = jax.jit(lambda key: noise_jax.draw(key, THEIRS, dim, replace(config, order="shuffled")))
    orders = jax.jit(lambda key: [noise_jax.draw(key, THEIRS, dim, replace(config, order=o)).order for o in ORDERS])
    key = random.fold_in(random.key(7), 3)
    theirs = jax.random.wrap_key_data(key)
    drawn = {order: noise_numpy.draw(key, OURS, dim, replace(config, order=order)) for order in ORDERS}
    assert differing(whole(theirs), drawn["shuffled"]) == []
    for order, found in zip(ORDERS, orders(theirs), strict=True):
        expected = drawn[order].order
        assert found.dtype == expected.dtype and (np.asarray(found) == expected).all(), order
        assert differing(drawn[order]._replace(order=0), drawn["shuffled"]._replace(order=0)) == []
    assert len({noise.order.tobytes() for noise in drawn.values()}) == 3


def test_risk(x64):
    levels = (-1e39, -3.0, -0.75, 0.0, 0.25, 1, 8.5, 1e39)
    attitudes = [("neutral", 0.0), ("cvar", 0.25), ("cvar", 1)]
    attitudes += [(risk, level) for risk in ("wang", "power") for level in levels]
    tau = np.array([0.0, 2.0**-23, *np.random.default_rng(0).random(50), 1 - 2.0**-23])
    found = jax.jit(lambda tau: [risk_jax.distort(tau, *attitude) for attitude in attitudes])(tau)
    for (risk, level), own in zip(attitudes, found, strict=True):
        expected = risk_numpy.distort(tau, risk, level)
        assert np.isfinite(own).all()
        np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-12, err_msg=f"{risk} {level}")


# Network, loss, gradient, step

LEARNERS: dict[str, dict[str, Any]] = {
    "default": {"clip_norm": 0.2, "lr": (0.01, 0.02, 0.03)},
    "no dueling": {"dueling": False},
    "no double": {"double": False},
    "not noisy": {"noisy": False},
    "attached_target": {"quirks": ("attached_target",)},
    "shared": {"parameters": "shared"},
    "groups": {"parameters": "groups", "groups": (1, 0, 1), "target": "hard"},
}
ESSENTIAL = ("default", "groups")


def parameters(config: Config, seed: int = 1) -> dict[str, np.ndarray]:
    """Random ones; target networks differ from the local ones, as they do after a step."""
    rng, sizes = np.random.default_rng(seed), sizes_of(config)
    start = draw_parameters(config, sizes, random.key(3))
    return {key: array + 0.3 * rng.normal(size=array.shape) for key, array in start.items()}


def sizes_of(config: Config) -> Any:
    return architecture(config, OURS.observation_dim, OURS.n_actions)


def batch_of(config: Config, seed: int, copy: bool) -> Batch:
    rng, sizes, each = np.random.default_rng(seed), sizes_of(config), (config.agents, config.batch_size)
    return Batch(
        Transitions(
            rng.normal(size=(*each, sizes.inputs)),
            rng.integers(0, OURS.n_actions, each, dtype=np.int32),
            3 * rng.normal(size=each),
            rng.normal(size=(*each, sizes.inputs)),
            rng.choice([0.0, 0.8, 0.9], each),
            rng.choice([0.0, 1.0], each, p=[0.2, 0.8]),
            rng.random((each[0], 3, each[1], config.quantiles)),
            rng.normal(size=(each[0], 3, sizes.noise_dim)),
        ),
        np.array(True),
        np.array(copy),
        {},
    )


def learned_torch(config: Config, batches: list[Batch]) -> list[dict[str, Any]]:
    """What two updates compute: values and losses before, gradients as the optimisers take them, parameters after."""
    policy, found = networks_torch.make_policy(config, sizes_of(config), parameters(config)), []
    optimizers = learner_torch.make_optimizers(config, policy)
    for batch in batches:
        data = Transitions(*map(torch.from_numpy, batch.transitions))
        given = data.state[0], data.fractions[0, 0], data.noise[0, 0]
        models, numbers = policy.models, range(config.n_models)
        told = {
            "values": [net(*given) for model in models for net in (model.local, model.target)],
            "without noise": [acting_torch.values(model.local, *given[:2]) for model in models],
            "losses": [losses_torch.model_loss(policy, k, data, config)[0] for k in numbers],
        }
        told = {key: [part.detach().numpy() for part in parts] for key, parts in told.items()}
        info = learner_torch.update(policy, optimizers, batch._replace(transitions=data), config)
        told["info"] = [info[key].numpy() for key in ("loss", "q", "error")]
        local = {key: p for key, p in policy.named_parameters() if ".local." in key}
        told["gradients"] = {key: p.grad.numpy().copy() for key, p in local.items()}
        told["parameters"] = {key: p.detach().numpy().copy() for key, p in policy.named_parameters()}
        found.append(told)
    return found


def learned_jax(config: Config, batches: list[Batch]) -> list[dict[str, Any]]:
    policy, found = networks_jax.make_policy(config, sizes_of(config), parameters(config)), []
    optimizers = learner_jax.make_optimizers(config, policy)
    states, before = {own: tx.init(policy) for own, tx in optimizers.items()}, {}

    @jax.jit
    def step(policy, states, batch):
        data = batch.transitions
        given = data.state[0], data.fractions[0, 0], data.noise[0, 0]
        told = {
            "values": [net(*given) for model in policy.models for net in (model.local, model.target)],
            "without noise": [acting_jax.values(model.local, *given[:2]) for model in policy.models],
            "losses": [losses_jax.model_loss(policy, k, data, config)[0] for k in range(config.n_models)],
        }
        policy, states, info = learner_jax.update(policy, optimizers, states, batch, config)
        return policy, states, told | {"info": [info[key] for key in ("loss", "q", "error")]}

    for batch in batches:
        policy, states, told = step(policy, states, batch)
        first = {k: m for own in names(config) for k, m in named(states[own]).items() if ".mu." in k}
        first = {key.partition(".mu.")[2]: moment for key, moment in first.items()}
        # Adam's first moment is 0.9 of what it was and 0.1 of the gradient.
        told["gradients"] = {key: (moment - 0.9 * before.get(key, 0)) / 0.1 for key, moment in first.items()}
        before = first
        found.append(told | {"parameters": named(policy)})
    return found


def named(tree: Any) -> dict[str, np.ndarray]:
    return {name(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def check_equal(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for own, other in zip(found, expected, strict=True):
        for key in ("values", "without noise", "losses"):
            for a, b in zip(own[key], other[key], strict=True):
                assert relative(a, b) <= 1e-12, key
        for a, b in zip(own["info"], other["info"], strict=True):
            assert relative(a, b) <= 1e-12
        for key, tolerance in (("gradients", 1e-12), ("parameters", 1e-10)):
            assert own[key].keys() == other[key].keys()
            for one, array in other[key].items():
                assert relative(own[key][one], array) <= tolerance, (key, one)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in ESSENTIAL else [pytest.mark.slow]) for case in LEARNERS]
)
def test_network_loss_gradient_and_step(case: str, x64):
    config = replace(TINY, **{"clip_norm": None, **LEARNERS[case]})
    batches = [batch_of(config, 0, copy=False), batch_of(config, 1, copy=True)]
    found, expected = learned_jax(config, batches), learned_torch(config, batches)
    assert all(np.abs(array).max() > 0 for array in expected[0]["gradients"].values())
    check_equal(found, expected)
    if case == "default":
        for other in ({"tau": 0.2501}, {"kappa": 1.01}, {"double": False}, {"clip_norm": 0.2001}):
            with pytest.raises(AssertionError):
                check_equal(found, learned_torch(replace(config, **other), batches))


# Episodes

PLAYED = replace(TINY, worlds=8, risk=("wang", "neutral", "power"), risk_level=(-0.75, 0.0, 2.0), memory=20)
EPSILON = np.full(PARAMS.agents, 0.5)


@cache
def noise_of(order: Order) -> Noise:
    return noise_numpy.draw(random.key(11), OURS, 7, replace(PLAYED, order=order))


def history() -> np.ndarray:
    shape = PLAYED.worlds, PARAMS.agents, PLAYED.frames - 1, OURS.observation_dim
    return np.random.default_rng(4).integers(0, 3, shape, dtype=np.int8)


def played_numpy(config: Config, order: Order, seed: int = 1) -> tuple[Episode, Any]:
    policy = networks_torch.make_policy(config, sizes_of(config), parameters(config, seed))

    def act(agent: int, stack: np.ndarray, fractions: np.ndarray, /) -> np.ndarray:
        chosen = acting_torch.greedy(policy.models[agent].local, torch.from_numpy(stack), torch.from_numpy(fractions))
        return chosen.numpy().astype(np.int32)

    return rollout_numpy.play(OURS, act, history(), noise_of(order), EPSILON, config)


@cache
def program(moves: Moves) -> Any:
    """`play`, compiled; who acts first is data."""
    config = replace(PLAYED, moves=moves)

    def play(policy, history, noise, epsilon):
        models = jax.tree.map(lambda *arrays: jnp.stack(arrays), *policy.models)
        network = lambda agent: jax.tree.map(lambda array: array[agent], models.local)
        act = lambda agent, stack, fractions: acting_jax.greedy(network(agent), stack, fractions)
        episode, state = rollout_jax.play(THEIRS, act, history, noise, epsilon, config)
        return episode, state, rollout_jax.returns(episode)

    return jax.jit(play)


@pytest.mark.parametrize("moves", MOVES)
def test_episodes(moves: Moves, x64):
    config, seen = replace(PLAYED, moves=moves), set()
    policy = networks_jax.make_policy(config, sizes_of(config), parameters(config))
    for order in ORDERS:
        found, state, told = program(moves)(policy, history(), noise_of(order), EPSILON)
        episode, last = played_numpy(config, order)
        assert differing(found, episode) == [] and differing(state, last) == []
        returns = rollout_numpy.returns(episode)
        assert told.keys() == returns.keys()
        for key, value in returns.items():
            np.testing.assert_allclose(told[key], value, rtol=1e-6, err_msg=key)
        explores = noise_of(order).explore < 0.5
        assert 0.3 < explores.mean() < 0.7 and (episode.action == noise_of(order).action)[explores].all()
        assert "action" in differing(found, played_numpy(config, order, seed=2)[0])
        seen.add(episode.observation.tobytes())
    assert len(seen) == 3  # who acts first matters
