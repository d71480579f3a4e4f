"""Networks and losses of IQN in JAX against arithmetic written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from iqn_learner_cases_jax import gradient_of, named, of_agent, parameters, policy_of, sizes_of, small, transitions

from crossfade.algos.iqn.acting_jax import greedy, values
from crossfade.algos.iqn.architecture import architecture
from crossfade.algos.iqn.losses_jax import loss, quantile_huber
from crossfade.algos.iqn.networks_jax import make_policy
from crossfade.errors import UsageError
from crossfade.nn.noisy_jax import IndependentNoisyLinear


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


@pytest.mark.parametrize("noisy", [True, False])
def test_one_row_of_many_fractions_leaves_out_units_that_are_zero(noisy, x64):
    """Rows of which 0 to 5 units of 5 are above zero: few are cut out, of many all are used."""
    config = small(noisy=noisy)
    network = policy_of(config).models[0].local
    own, counts = named(network), set()
    rng = np.random.default_rng(4)
    for shift in np.linspace(-6, 6, 13):
        x = 2 * rng.normal(size=(1, sizes_of(config).inputs)) + shift * np.sign(own["head1.weight"].sum(0))
        counts.add(int((own["head1.weight"] @ x[0] + own["head1.bias"] > 0).sum()))
        fractions = rng.random((1, 64))
        found = jax.jit(values)(network, jnp.asarray(x), jnp.asarray(fractions))
        np.testing.assert_allclose(found, forward(own, x, fractions, None).mean(1), rtol=1e-12, atol=1e-13)
    assert min(counts) <= 3 < max(counts)
