"""IQN in JAX: network, loss and step against arithmetic written out; all ways to run the axis of agents agree."""

from dataclasses import dataclass, replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.algos.iqn import learner_jax, stacked_jax
from crossfade.algos.iqn.acting_jax import greedy, values
from crossfade.algos.iqn.architecture import architecture, draw_parameters
from crossfade.algos.iqn.batch import Batch, Transitions
from crossfade.algos.iqn.config import IQNConfig
from crossfade.algos.iqn.losses_jax import loss, model_loss, quantile_huber
from crossfade.algos.iqn.networks_jax import make_policy
from crossfade.algos.iqn.optimizer import names
from crossfade.errors import UsageError
from crossfade.nn.layers_jax import name
from crossfade.nn.noisy_jax import IndependentNoisyLinear
from crossfade.optim import masking_jax as masking, sharing_jax as sharing
from crossfade.random import random_numpy

OBSERVATION, ACTIONS = 3, 3


@dataclass(frozen=True)
class Config(IQNConfig):
    players: int = 3

    @property
    def agents(self):
        return self.players


def small(**changes):
    settings = {"dtype": "float64", "frames": 2, "hidden": 5, "cosines": 4, "quantiles": 3, "batch_size": 4}
    return Config(**{**settings, "lr": (0.01,), "tau": 0.25, "sigma": 0.3, "gamma": (0.9,), **changes})


def sizes_of(config):
    return architecture(config, OBSERVATION, ACTIONS)


def parameters(config):
    """Random ones; target networks differ from the local ones, as they do after a step."""
    rng = np.random.default_rng(1)
    start = draw_parameters(config, sizes_of(config), random_numpy.key(3))
    return {key: array + 0.3 * rng.normal(size=array.shape) for key, array in start.items()}


def transitions(config, seed=0):
    rng, sizes = np.random.default_rng(seed), sizes_of(config)
    agents, batch, n = config.agents, config.batch_size, config.quantiles
    state, next_state = rng.normal(size=(2, agents, batch, sizes.inputs))
    return Transitions(
        state,
        rng.integers(0, ACTIONS, (agents, batch), dtype=np.int32),
        3 * rng.normal(size=(agents, batch)),
        next_state,
        np.broadcast_to([0.0, 0.9, 0.9, 0.81], (agents, batch)),
        np.broadcast_to([1.0, 1.0, 0.0, 1.0], (agents, batch)),
        rng.random((agents, 3, batch, n)),
        rng.normal(size=(agents, 3, sizes.noise_dim)),
    )


def batch_of(config, seed=0, ready=True, copy=False):
    return jax.tree.map(jnp.asarray, Batch(transitions(config, seed), np.array(ready), np.array(copy), {}))


def of_agent(data, agent):
    return jax.tree.map(lambda column: column[agent], data)


def named(tree):
    return {name(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


# --- arithmetic written out ---


def relu(x):
    return np.maximum(x, 0)


def forward(p, x, fractions, noise):
    """One state and one fraction at a time; `p` has the network's arrays by their names in it."""
    p, start = dict(p), 0
    for key in ("ff_1.weight", "ff_1.bias", "advantage.weight", "advantage.bias", "value.weight", "value.bias"):
        sigma = p.get(key.replace(".", ".sigma_"))
        if noise is not None and sigma is not None:
            p[key] = p[key] + sigma * noise[start : start + sigma.size].reshape(sigma.shape)
            start += sigma.size
    assert noise is None or start == len(noise)
    out = []
    for state, own in zip(x, fractions, strict=True):
        h = relu(p["head1.weight"] @ state + p["head1.bias"])
        for tau in own:
            cosines = np.array([np.cos(np.pi * (k + 1) * tau) for k in range(p["cos_embedding.weight"].shape[1])])
            c = relu(p["cos_embedding.weight"] @ cosines + p["cos_embedding.bias"])
            z = relu(p["ff_1.weight"] @ (h * c) + p["ff_1.bias"])
            advantage = p["advantage.weight"] @ z + p["advantage.bias"]
            if "value.weight" in p:
                advantage = advantage - advantage.sum() / len(advantage) + p["value.weight"] @ z + p["value.bias"]
            out.append(advantage)
    return np.array(out).reshape(*fractions.shape, -1)


def loss_by_loops(local, target, t, config, y=None):
    """The loss and its targets, in loops."""
    there = forward(target, t.next_state, t.fractions[1], t.noise[1])
    judged = forward(local, t.next_state, t.fractions[0], t.noise[0]) if config.double else there
    here = forward(local, t.state, t.fractions[2], t.noise[2])
    batch, n = t.fractions[2].shape
    if y is None:
        y = np.zeros((batch, n))
        for b in range(batch):
            best = int(np.argmax(judged[b].mean(0)))
            y[b] = t.reward[b] + t.discount[b] * there[b, :, best]
    total = 0.0
    for b in range(batch):
        for i in range(n):
            for j in range(n):
                u = y[b, j] - here[b, i, t.action[b]]
                weight = 1 - t.fractions[2][b, i] if u < 0 else t.fractions[2][b, i]
                huber = u * u / 2 if abs(u) <= config.kappa else config.kappa * (abs(u) - config.kappa / 2)
                total += t.valid[b] * weight * huber / config.kappa
    return total / (batch * n * n), y


def network_of(arrays, model, which):
    prefix = f"models.{model}.{which}."
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def policy_of(config):
    return make_policy(config, sizes_of(config), parameters(config))


# --- network ---


@pytest.mark.parametrize("dueling", (True, False))
@pytest.mark.parametrize("noisy", (True, False))
def test_a_network_computes_what_the_architecture_says(dueling, noisy, x64):
    config = small(dueling=dueling, noisy=noisy)
    policy, t = policy_of(config), of_agent(transitions(config), 0)
    network, arrays = policy.models[1].target, network_of(parameters(config), 1, "target")
    assert t.noise.shape == (3, (5 * 5 + 5 + 3 * 5 + 3 + (5 + 1) * dueling) * noisy)
    found = network(jnp.asarray(t.state), jnp.asarray(t.fractions[0]), jnp.asarray(t.noise[0]))
    np.testing.assert_allclose(found, forward(arrays, t.state, t.fractions[0], t.noise[0]), rtol=1e-12, atol=1e-12)
    quiet = network(jnp.asarray(t.state), jnp.asarray(t.fractions[0]), None)
    np.testing.assert_allclose(quiet, forward(arrays, t.state, t.fractions[0], None), rtol=1e-12, atol=1e-12)
    assert (np.abs(found - quiet).max() > 0.01) == noisy
    mean = values(network, jnp.asarray(t.state), jnp.asarray(t.fractions[0]))
    np.testing.assert_allclose(mean, np.asarray(quiet).mean(1), rtol=1e-12)
    chosen = greedy(network, jnp.asarray(t.state), jnp.asarray(t.fractions[0]))
    assert chosen.tolist() == np.asarray(quiet).mean(1).argmax(-1).tolist()


def test_a_network_of_one_unit_by_hand(x64):
    config = small(frames=1, hidden=1, cosines=2, players=1)
    sizes = architecture(config, 1, 2)
    by_hand = {
        "head1.weight": [[2.0]],
        "head1.bias": [1.0],
        "cos_embedding.weight": [[5.0, -3.0]],
        "cos_embedding.bias": [0.0],
        "ff_1.weight": [[0.1]],
        "ff_1.sigma_weight": [[0.5]],
        "ff_1.bias": [0.0],
        "ff_1.sigma_bias": [2.0],
        "advantage.weight": [[1.0], [3.0]],
        "advantage.sigma_weight": [[0.0], [0.0]],
        "advantage.bias": [0.0, 0.0],
        "advantage.sigma_bias": [1.0, 0.0],
        "value.weight": [[10.0]],
        "value.sigma_weight": [[0.0]],
        "value.bias": [0.5],
        "value.sigma_bias": [0.25],
    }
    both = {f"models.0.{which}.{key}": np.array(v) for which in ("local", "target") for key, v in by_hand.items()}
    network = make_policy(config, sizes, both).models[0].local
    x, tau = jnp.array([[3.0]]), jnp.array([[0.5]])
    # h = 7; cosines 0, -1, so c = 3; z = 0.1 * 21 = 2.1; advantages 2.1 and 6.3, mean 4.2; value 21.5
    np.testing.assert_allclose(network(x, tau, None), [[[19.4, 23.6]]], rtol=1e-12)
    # weight 0.1 + 0.5 * 0.4, bias 2 * 0.1: z = 0.3 * 21 + 0.2 = 6.5; advantages 6.5 + 1, 19.5; value 65.5 + 0.25 * 2
    noise = jnp.array([0.4, 0.1, 9.0, 9.0, 1.0, 9.0, 9.0, 2.0])
    np.testing.assert_allclose(network(x, tau, noise), [[[60.0, 72.0]]], rtol=1e-12)


def test_equal_values_are_decided_for_the_first_action(x64):
    config = small(dueling=False)
    flat = {key: np.zeros_like(array) for key, array in parameters(config).items()}
    network = make_policy(config, sizes_of(config), flat).models[0].local
    chosen = greedy(network, jnp.ones((2, 6)), jnp.full((2, 3), 0.5))
    assert chosen.dtype == jnp.int32 and chosen.tolist() == [0, 0]


def test_a_noisy_layer_starts_by_its_law():
    layer = IndependentNoisyLinear(12, 500, key=jax.random.key(0))
    assert layer.weight.shape == layer.sigma_weight.shape == (500, 12)
    assert 0.49 < np.abs(layer.weight).max() <= 0.5 and 0.49 < np.abs(layer.bias).max() <= 0.5
    np.testing.assert_array_equal(layer.sigma_weight, np.full((500, 12), 0.017, np.float32))
    np.testing.assert_array_equal(layer.sigma_bias, np.full(500, 0.017, np.float32))


def test_parameters_have_torchs_names_and_must_fit(x64):
    config = small(parameters="groups", groups=(0, 1, 0))
    given = parameters(config)
    found = named(policy_of(config))
    assert list(found) == list(given) and "models.1.target.ff_1.sigma_weight" in found
    assert all(np.array_equal(found[key], given[key]) for key in given)
    del given["models.0.local.head1.bias"]
    with pytest.raises(UsageError, match="models.0.local.head1.bias"):
        make_policy(config, sizes_of(config), given)


# --- loss ---

gradient_of = jax.jit(jax.grad(loss, has_aux=True), static_argnums=2)


@pytest.mark.parametrize(
    "kappa, tau, u, expected",
    (
        (1.0, 0.25, 0.5, 0.25 * 0.125),
        (1.0, 0.25, -2.0, 0.75 * 1.5),
        (2.0, 0.25, -2.0, 0.75 * 2.0 / 2),
        (2.0, 0.25, 3.0, 0.25 * 2 * (3 - 1) / 2),
        (1.0, 0.9, 0.0, 0.0),
    ),
)
def test_one_quantile_by_hand(kappa, tau, u, expected, x64):
    found = quantile_huber(jnp.array([[[u]]]), jnp.array([[tau]]), kappa)
    np.testing.assert_allclose(found, [expected], rtol=1e-14)


def test_quantile_huber_is_the_mean_over_both_fractions(x64):
    # u = (1, -3) at tau 0.2 and (0, 2) at tau 0.6: 0.2 / 2, 0.8 * 2.5, 0, 0.6 * 1.5
    u = jnp.array([[[1.0, -3.0], [0.0, 2.0]]])
    found = quantile_huber(u, jnp.array([[0.2, 0.6]]), 1.0)
    np.testing.assert_allclose(found, [(0.1 + 2.0 + 0 + 0.9) / 4], rtol=1e-14)


@pytest.mark.parametrize("changes", ({}, {"double": False}, {"kappa": 0.3}, {"legacy": True}))
def test_the_loss_equals_its_definition(changes, x64):
    config = small(**changes)
    policy, arrays, t = policy_of(config), parameters(config), transitions(config)
    value, info = loss(policy.models[1], jax.tree.map(jnp.asarray, of_agent(t, 1)), config)
    local, target = network_of(arrays, 1, "local"), network_of(arrays, 1, "target")
    expected, y = loss_by_loops(local, target, of_agent(t, 1), config)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    one = of_agent(t, 1)
    theta = forward(local, one.state, one.fractions[2], one.noise[2])[np.arange(4), :, one.action]
    np.testing.assert_allclose(info["q"], theta.mean(), rtol=1e-12)
    np.testing.assert_allclose(info["error"], np.abs(y[:, None] - theta[:, :, None]).mean(), rtol=1e-12)
    assert info["loss"] == value and y[0].tolist() == [one.reward[0]] * 3


def test_double_matters(x64):
    """Otherwise the test of it above would show nothing."""
    on, off = small(), small(double=False)
    t = jax.tree.map(jnp.asarray, of_agent(transitions(on), 1))
    model = policy_of(on).models[1]
    assert abs(loss(model, t, on)[0] - loss(model, t, off)[0]) > 1e-3


@pytest.mark.parametrize("attached", (False, True))
def test_gradients_are_slopes_and_reach_the_target_network_only_if_attached(attached, x64):
    config = small(quirks=("attached_target",) if attached else ())
    t, arrays = of_agent(transitions(config), 2), parameters(config)
    local, target = network_of(arrays, 2, "local"), network_of(arrays, 2, "target")
    gradient, _ = gradient_of(policy_of(config).models[2], jax.tree.map(jnp.asarray, t), config)
    _, y = loss_by_loops(local, target, t, config)

    def slope(changed, key, at, fixed):
        ends = []
        for by in (1e-6, -1e-6):
            moved = {**changed, key: changed[key].copy()}
            moved[key][at] += by
            networks = (moved, target) if changed is local else (local, moved)
            ends.append(loss_by_loops(*networks, t, config, fixed)[0])
        return (ends[0] - ends[1]) / 2e-6

    for key, found in named(gradient.local).items():
        at = np.unravel_index(np.abs(found).argmax(), found.shape)
        np.testing.assert_allclose(found[at], slope(local, key, at, y), rtol=1e-6, atol=1e-9, err_msg=key)
    assert min(np.abs(array).max() for array in named(gradient.local).values()) > 1e-4
    for key, found in named(gradient.target).items():
        at = np.unravel_index(np.abs(found).argmax(), found.shape)
        if attached:
            np.testing.assert_allclose(found[at], slope(target, key, at, None), rtol=1e-6, atol=1e-9, err_msg=key)
            assert found.any(), key
        else:
            assert not found.any(), key


# --- step ---


@cache
def program(config):
    """`update_stacked`, compiled, on as many devices as the config says."""
    step = partial(stacked_jax.update_stacked, config=config)
    places = sharing.EVERYWHERE, sharing.EVERYWHERE
    return jax.jit(sharing.spread(step, config.devices, places, places))


def started(config):
    policy = policy_of(config)
    optimizers = learner_jax.make_optimizers(config, policy)
    return policy, optimizers, {own: tx.init(policy) for own, tx in optimizers.items()}


def trained(config, steps=3, ready=True, copies=()):
    """Parameters by name, the states of the optimisers and the infos of a few steps."""
    policy, _, opt_states = started(config)
    stacked, infos = stacked_jax.stack(policy, opt_states, config), []
    for step in range(steps):
        batch = batch_of(config, step, ready, step in copies)
        stacked, info = program(config)(stacked, batch)
        infos.append({key: float(value) for key, value in info.items()})
    policy, opt_states = stacked_jax.unstack(stacked, policy, opt_states)
    return named(policy), opt_states, infos


def trained_by_hand(config, steps=3, copies=()):
    """The same, with clipping, Adam and targets written out; gradients by `loss`, which is proven above."""
    now, norms, infos = parameters(config), [], []
    first, second = ({key: np.zeros_like(array) for key, array in now.items()} for _ in range(2))
    for step in range(steps):
        if step in copies:
            now |= {key: now[key.replace(".target.", ".local.")].copy() for key in now if ".target." in key}
        models, t, after = make_policy(config, sizes_of(config), now).models, transitions(config, step), dict(now)
        values = []
        for number in range(config.n_models):
            members = [agent for agent in range(config.agents) if config.model_of[agent] == number]
            found = [gradient_of(models[number], jax.tree.map(jnp.asarray, of_agent(t, a)), small()) for a in members]
            values.append(np.mean([info["loss"] for _, info in found]))
            each = [named(gradient.local) for gradient, _ in found]
            mean = {key: sum(one[key] for one in each) / len(each) for key in each[0]}
            norm = np.sqrt(sum((array**2).sum() for array in mean.values()))
            norms.append(norm)
            rate = config.lr[members[0]] if len(config.lr) > 1 else config.lr[0]
            for key, g in mean.items():
                own = f"models.{number}.local.{key}"
                if config.clip_norm is not None:
                    g = g * min(1, config.clip_norm / (norm + 1e-6))
                first[own] = 0.9 * first[own] + 0.1 * g
                second[own] = 0.999 * second[own] + 0.001 * g**2
                m, v = first[own] / (1 - 0.9 ** (step + 1)), second[own] / (1 - 0.999 ** (step + 1))
                after[own] = now[own] - rate * m / (np.sqrt(v) + 1e-8)
                if config.target == "soft":
                    aim = own.replace(".local.", ".target.")
                    after[aim] = config.tau * after[own] + (1 - config.tau) * now[aim]
        now = after
        infos.append(np.mean(values))
    return now, norms, infos


CASES = {
    "separate": {"lr": (0.01, 0.02, 0.05), "clip_norm": 0.2},
    "groups": {"parameters": "groups", "groups": (1, 0, 1), "clip_norm": None, "target": "hard"},
    "shared": {"parameters": "shared", "clip_norm": 0.2},
}
AXES = {
    "vmap": {"agent_axis": "vmap"},
    "unroll": {"agent_axis": "unroll"},
    "shard 2": {"agent_axis": "shard", "devices": 2},
    "shard 4": {"devices": 4},
}
PAIRS = [("separate", axis) for axis in ("vmap", "unroll", "shard 2")] + [("groups", a) for a in ("vmap", "shard 4")]


@pytest.mark.parametrize("case", CASES)
def test_a_step_equals_arithmetic_by_hand(case, x64):
    config = small(**CASES[case])
    copies = (1,) if config.target == "hard" else ()
    found, _, infos = trained(config, copies=copies)
    expected, norms, losses = trained_by_hand(config, copies=copies)
    assert max(norms) > 1 if config.clip_norm is None else max(norms) > config.clip_norm
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-10, atol=1e-12, err_msg=key)
    np.testing.assert_allclose([info["loss"] for info in infos], losses, rtol=1e-11)
    assert all(info["learned"] == 1 for info in infos)


@pytest.mark.parametrize("case, axis", PAIRS)
def test_the_axis_of_agents_runs_in_any_way_alike(case, axis, x64):
    config = small(**CASES[case])
    found, states, infos = trained(replace(config, **AXES[axis]))
    expected, expected_states, expected_infos = trained(config)
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-12, atol=1e-12, err_msg=key)
    same = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    jax.tree.map(same, states, expected_states)
    jax.tree.map(same, infos, expected_infos)


def test_the_named_optimizers_take_the_same_step_one_by_one(x64):
    config = small(**CASES["groups"])
    policy, optimizers, opt_states = started(config)

    @jax.jit
    def one_by_one(policy, opt_states, batch):
        states, losses = {}, []
        for number, own in enumerate(names(config)):
            objective = lambda policy, batch, number=number: model_loss(policy, number, batch, config)
            step = masking.update(policy, optimizers[own], opt_states[own], objective, batch.transitions)
            policy, states[own], info = step
            losses.append(info["loss"])
        return policy, states, sum(losses) / len(losses)

    batch = batch_of(config)
    together = jax.jit(lambda *given: learner_jax.update(given[0], optimizers, *given[1:], config))
    *found, info = together(policy, opt_states, batch)
    *expected, value = one_by_one(policy, opt_states, batch)
    same = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    jax.tree.map(same, (*found, info["loss"]), (*expected, value))


def test_a_batch_that_is_not_ready_changes_nothing_but_copies(x64):
    config = small(**CASES["groups"])
    before = parameters(config)
    found, states, infos = trained(config, steps=1, ready=False)
    assert all(np.array_equal(found[key], array) for key, array in before.items())
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(states))
    assert infos == [{"loss": 0.0, "q": 0.0, "error": 0.0, "learned": 0.0}]
    found, _, _ = trained(config, steps=1, ready=False, copies=(0,))
    assert all(np.array_equal(found[key], before[key.replace(".target.", ".local.")]) for key in before)


def test_both_targets_follow_and_are_copied(x64):
    """A copy gives the targets of the step, which then leave it by the share tau of that step."""
    config = small(target="hard", quirks=("both_targets",))
    before = parameters(config)
    found, _, _ = trained(config, steps=1, copies=(0,))
    for key in (key for key in before if ".local." in key):
        expected = 0.75 * before[key] + 0.25 * found[key]
        np.testing.assert_allclose(found[key.replace(".local.", ".target.")], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("clip_norm", (1.0, None))
@pytest.mark.parametrize("players", (1, 12))
def test_stacking_and_back_is_exact(players, clip_norm):
    """Also behind jit, which sorts the optimisers by name: model_10 before model_2."""
    config = small(players=players, dtype="float32", clip_norm=clip_norm)
    policy, _, opt_states = started(config)
    leaves, structure = jax.tree.flatten(opt_states)
    rng = np.random.default_rng(0)
    drawn = [jnp.asarray(rng.integers(1, 9, leaf.shape), leaf.dtype) for leaf in leaves]
    opt_states = jax.tree.unflatten(structure, drawn)
    assert set(opt_states) == ({"policy"} if players == 1 else {f"model_{k}" for k in range(12)})

    @jax.jit
    def there(policy, opt_states):
        return stacked_jax.stack(policy, opt_states, config)

    @jax.jit
    def back(stacked, policy, opt_states):
        return stacked_jax.unstack(stacked, policy, opt_states)

    stacked = there(policy, opt_states)
    plain = jax.tree.structure(stacked_jax.clipped_adam(config, 0.1).init(policy.models[0].local))
    assert jax.tree.structure(stacked.opt_state) == plain
    found = back(stacked, policy, opt_states)
    assert jax.tree.structure(found) == jax.tree.structure((policy, opt_states))
    jax.tree.map(np.testing.assert_array_equal, found, (policy, opt_states))


def test_an_optimizer_owns_the_local_network_of_its_model(x64):
    config = small(parameters="groups", groups=(0, 1, 0))
    policy, optimizers, opt_states = started(config)
    assert list(optimizers) == list(names(config)) == ["model_0", "model_1"]
    assert names(small(parameters="shared")) == ("policy",)
    moments = named(opt_states["model_1"])
    local = set(named(policy.models[1].local))
    owned = {key.partition("models.1.local.")[2] for key in moments if "models." in key}
    assert owned == local and not any("target" in key or "models.0" in key for key in moments)


def test_the_axis_of_agents_goes_with_the_devices():
    with pytest.raises(UsageError, match="agent_axis: expected shard with several devices only"):
        small(agent_axis="shard")
    for axis in ("vmap", "map", "unroll"):
        assert small(agent_axis=axis).axis == axis
        assert small(agent_axis=axis, devices=2).axis == "shard"
    assert small(agent_axis="shard", devices=2).axis == "shard"
    assert "agent_axis" in Config.bookkeeping
