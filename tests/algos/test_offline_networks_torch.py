"""Networks and distribution of the offline agents in torch, each against NumPy written out here."""

import math

import numpy as np
import pytest
import torch
from offline_torch_cases import Arrays, both, gelu, joined, log_prob, mlp, squashed_log_prob
from scipy.integrate import quad

from crossfade.algos.offline import encoders, layers, modules
from crossfade.algos.offline.distribution_torch import Normal
from crossfade.algos.offline.networks_torch import MLP, make_policy
from crossfade.algos.offline.parameters import laws
from crossfade.errors import UsageError
from crossfade.nn.parameters_torch import filled

RNG = np.random.default_rng(0)
S, A, G = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 2)), RNG.normal(size=(4, 3))
WIDTHS = (5, 4)


def drawn(specs: dict[str, modules.Module], seed: int = 1) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, (_, shape) in laws(specs).items()}


def made(spec: modules.Module) -> tuple[torch.nn.Module, Arrays]:
    """A module with random parameters, and these as a policy calls them."""
    found = drawn({"m": spec})
    return make_policy({"m": spec}, found, "float64")["m"], found


def close(got: torch.Tensor, expected: np.ndarray) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


def tensors(*found: np.ndarray) -> tuple[torch.Tensor, ...]:
    return tuple(map(torch.from_numpy, found))


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_mlp(members, final, layer_norm):
    spec = layers.MLP(3, (5, 4, 2), layer_norm, final, members)
    rng = np.random.default_rng(1)
    found = {name: rng.normal(size=shape) for name, (_, shape) in spec.laws.items()}
    p = {f"m.{name}": array for name, array in found.items()}
    net = filled(MLP(spec), found, "float64")
    each = [mlp(p, "m", S, final, member if members > 1 else None) for member in range(members)]
    close(net(*tensors(S)), np.stack(each) if members > 1 else each[0])
    many = np.stack([S, S + 1])
    close(net(*tensors(many))[..., 1, :, :], net(*tensors(S + 1)).detach().numpy())


def test_gelu_is_its_tanh_form_and_stands_before_the_norm():
    spec = layers.MLP(1, (2, 1), layer_norm=True)
    ones = {name: np.ones(shape) for name, (_, shape) in spec.laws.items()}
    found = ones | {"layers.0.weight": np.array([[1.0], [-2.0]]), "layers.1.weight": np.array([[1.0, 3.0]])}
    h = gelu(np.array([1.5 + 1, -3.0 + 1]))
    assert h[1] == pytest.approx(-2 * 0.5 * (1 - math.tanh(math.sqrt(2 / math.pi) * (2 + 0.044715 * 8))))
    centred = h - h.mean()
    z = centred / math.sqrt((centred**2).mean() + 1e-6) + 1
    got = filled(MLP(spec), found, "float64")(torch.tensor([[1.5]], dtype=torch.float64))
    assert got.item() == pytest.approx(z[0] + 3 * z[1] + 1, rel=1e-12)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("members", [1, 2])
def test_value(outputs, members):
    net, p = made(modules.Value(3, WIDTHS, 2, outputs, members=members))
    x = joined(S, A)
    expected = both(p, "m.value_net", x) if members > 1 else mlp(p, "m.value_net", x)
    close(net(*tensors(S, A)), expected[..., 0] if outputs == 1 else expected)


def test_value_of_a_code():
    net, p = made(modules.Value(6, WIDTHS, 2, members=2, encoder=encoders.MLPEncoder(3, (5, 6))))
    assert "m.encoder.mlp.norms.0.weight" in p and "m.encoder.mlp.norms.1.weight" not in p
    close(net(*tensors(S, A)), both(p, "m.value_net", joined(mlp(p, "m.encoder.mlp", S), A))[..., 0])


def test_value_of_goals_reads_observation_goal_action_in_this_order():
    net, p = made(modules.GCValue(3, WIDTHS, 3, 2, members=2))
    close(net(*tensors(S, G, A)), both(p, "m.value_net", joined(S, G, A))[..., 0])
    net, p = made(modules.GCValue(3, WIDTHS, outputs=3))
    close(net(*tensors(S)), mlp(p, "m.value_net", S))
    net, p = made(modules.GCValue(6, WIDTHS, 3, encoder=encoders.MLPEncoder(3, (5, 6))))
    close(net(*tensors(S, G)), mlp(p, "m.value_net", joined(mlp(p, "m.encoder.mlp", S), G))[..., 0])


@pytest.mark.parametrize("std", ["const", "free", "state"])
@pytest.mark.parametrize("goals", [0, 3])
def test_actor(std, goals):
    settings = dict(const_std=std == "const", state_dependent_std=std == "state", tanh_squash=goals > 0)
    if goals:
        net, p = made(modules.GCActor(3, WIDTHS, 2, goals, layer_norm=True, **settings))
    else:
        net, p = made(modules.Actor(3, WIDTHS, 2, **settings))
    x = joined(S, G) if goals else S
    h = mlp(p, "m.actor_net", x, final=True)
    linear = lambda name: h @ p[f"m.{name}.weight"].T + p[f"m.{name}.bias"]
    got = net(*tensors(S, G)) if goals else net(*tensors(S))
    close(got.mean, linear("mean_net"))
    log_std = {
        "const": lambda: np.zeros((4, 2)),
        "free": lambda: np.tile(p["m.log_stds"], (4, 1)),
        "state": lambda: linear("log_std_net"),
    }
    close(got.log_std, np.clip(log_std[std](), -5, 2))
    assert got.squashed == (goals > 0)


def test_an_actors_deviation_has_bounds():
    net, _ = made(modules.Actor(3, WIDTHS, 2, const_std=False))
    with torch.no_grad():
        net.log_stds.copy_(torch.tensor([-9.0, 7.0]))
    assert net(*tensors(S)).log_std[0].tolist() == [-5, 2]


@pytest.mark.parametrize("value_exp", [False, True])
@pytest.mark.parametrize("encoder", [None, encoders.MLPEncoder(3, (5, 6))])
def test_bilinear_value(value_exp, encoder):
    net, p = made(modules.GCBilinearValue(6 if encoder else 3, WIDTHS, 2, 3, value_exp=value_exp, encoder=encoder))
    coded = lambda name, x: mlp(p, f"m.{name}.mlp", x) if encoder else x
    goals = np.concatenate([G, G + 0.5])
    phi = both(p, "m.phi", joined(coded("state_encoder", S), A))
    psi = both(p, "m.psi", coded("goal_encoder", goals))
    expected = np.zeros((2, 4, 8))
    for e, i, j in np.ndindex(expected.shape):
        expected[e, i, j] = (phi[e, i] * psi[e, j]).sum() / math.sqrt(3)
    close(net(*tensors(S, goals, A)), np.exp(expected) if value_exp else expected)
    close(net.encode_states(*tensors(S, A)), phi)
    close(net.encode_goals(*tensors(goals)), psi)
    close(net.products(*tensors(phi, psi)), expected)


def test_metric_value():
    net, p = made(modules.GCMetricValue(3, WIDTHS, 3))
    s, g = both(p, "m.phi", S), both(p, "m.phi", G)
    expected = -np.sqrt(((s - g) ** 2).sum(-1))
    close(net(*tensors(S, G)), expected)
    close(net.encode(*tensors(S)), s)
    close(net.distance(*tensors(s, g)), expected)


def test_a_state_is_near_itself_and_has_no_gradient_there():
    net, _ = made(modules.GCMetricValue(3, WIDTHS, 3))
    value = net(*tensors(S, S))
    assert (value == -1e-6).all()
    gradients = torch.autograd.grad(value.sum(), list(net.parameters()))
    assert all((gradient == 0).all() for gradient in gradients)


def test_intention_encoder():
    net, p = made(modules.IntentionEncoder(3, WIDTHS, 2, 3))
    h = mlp(p, "m.trunk_net", joined(S, A), final=True)
    mean, log_std = net(*tensors(S, A))
    close(mean, h @ p["m.mean_net.weight"].T + p["m.mean_net.bias"])
    close(log_std, h @ p["m.log_std_net.weight"].T + p["m.log_std_net.bias"])


def test_vector_field_over_several_axes():
    net, p = made(modules.VectorField(3, WIDTHS, 3, 2, 3))
    t = np.linspace(0, 1, 4)
    expected = mlp(p, "m.vector_field_net", joined(G, t[:, None], S, A, G + 1))
    close(net(*tensors(G, t, S, A, G + 1)), expected)
    twice = [np.stack([x, x]) for x in (G, t, S, A, G + 1)]
    close(net(*tensors(*twice)), np.stack([expected, expected]))


def test_coder_and_param():
    net, p = made(modules.Coder(encoders.MLPEncoder(3, (5, 6))))
    close(net(*tensors(S)), mlp(p, "m.encoder.mlp", S))
    net, p = made(modules.Param((3,)))
    close(net(), p["m.array"])


def test_targets_do_not_learn():
    specs: dict[str, modules.Module] = {"critic": (critic := modules.Value(3, WIDTHS)), "target_critic": critic}
    policy = make_policy(specs, drawn(specs), "float32")
    learning = {name: p.requires_grad for name, p in policy.named_parameters()}
    assert learning == {name: name.startswith("critic.") for name in learning}
    assert all(p.dtype == torch.float32 for p in policy.parameters())


def test_parameters_that_do_not_fit_are_refused():
    specs: dict[str, modules.Module] = {"critic": modules.Value(3, WIDTHS)}
    with pytest.raises(UsageError, match="critic.value_net.layers.0.weight"):
        make_policy(specs, {n: a[..., :-1] for n, a in drawn(specs).items()}, "float32")


# The distribution


def test_log_density():
    mean, log_std = RNG.normal(size=(2, 4, 2))
    actions = RNG.uniform(-0.9, 0.9, (4, 2))
    plain, squashed = (Normal(*tensors(mean, log_std), squashed=s) for s in (False, True))
    close(plain.log_prob(*tensors(A)), log_prob(mean, A, log_std))
    change = np.log(1 - actions**2).sum(-1)
    close(squashed.log_prob(*tensors(actions)), log_prob(mean, np.arctanh(actions), log_std) - change)
    assert np.allclose(squashed_log_prob(mean, actions), log_prob(mean, np.arctanh(actions)) - change)


def test_the_density_of_squashed_actions_integrates_to_1():
    one = Normal(torch.tensor([0.4], dtype=torch.float64), torch.tensor([-0.3], dtype=torch.float64), squashed=True)
    density = lambda a: one.log_prob(torch.tensor([a], dtype=torch.float64)).exp().item()
    assert quad(density, -1 + 1e-12, 1 - 1e-12, points=(-0.9, 0.9))[0] == pytest.approx(1, abs=1e-6)


def test_modes_and_samples():
    mean, log_std, noise = RNG.normal(size=(3, 4, 2))
    plain, squashed = (Normal(*tensors(mean, log_std), squashed=s) for s in (False, True))
    u = mean + np.exp(log_std) * noise
    close(plain.mode(), mean)
    close(squashed.mode(), np.tanh(mean))
    close(plain.sample(*tensors(noise)), u)
    close(squashed.sample(*tensors(noise)), np.tanh(u))
