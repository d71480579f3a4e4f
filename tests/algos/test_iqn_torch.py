"""Networks and losses of IQN in torch against NumPy or arithmetic written out."""

import numpy as np
import pytest
import torch
from iqn_torch_cases import BATCH, QUANTILES, arrays, config, forward, made, of, sizes, transitions

from crossfade.algos.iqn.acting_torch import greedy, values
from crossfade.algos.iqn.architecture import draw_parameters
from crossfade.algos.iqn.batch import Transitions
from crossfade.algos.iqn.losses_torch import loss, quantile_huber
from crossfade.algos.iqn.networks_torch import make_policy
from crossfade.nn.noisy_torch import IndependentNoisyLinear
from crossfade.random import random_numpy as random


def test_independent_noise_is_added_entry_by_entry():
    layer = IndependentNoisyLinear(2, 1)
    assert [name for name, _ in layer.named_parameters()] == ["weight", "sigma_weight", "bias", "sigma_bias"]
    for name, value in {"weight": [[1, 2]], "sigma_weight": [[3, 4]], "bias": [5], "sigma_bias": [6]}.items():
        getattr(layer, name).data = torch.tensor(value, dtype=torch.float64)
    x = torch.tensor([[10.0, 100.0]], dtype=torch.float64)
    noise = torch.tensor([[0.5, -1.0]], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    assert layer(x).item() == 10 + 200 + 5
    assert layer(x, *noise).item() == (1 + 1.5) * 10 + (2 - 4) * 100 + 5 + 12


def test_independent_noise_starts_as_published():
    layer = IndependentNoisyLinear(300, 200)
    for name in ("weight", "bias"):
        entries = getattr(layer, name).detach().abs()
        assert 0.095 < entries.max() <= 0.1  # sqrt(3 / 300)
        assert (getattr(layer, f"sigma_{name}") == 0.017).all()


@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_the_network_is_its_formula(dueling, noisy, training):
    chosen = config(dueling=dueling, noisy=noisy)
    network, batch = made(chosen).models[0].local, of(transitions(chosen))
    noise = batch.noise[1] if training else None
    found = network(batch.state, batch.fractions[0], noise).detach().numpy()
    expected = forward(
        arrays(network), batch.state.numpy(), batch.fractions[0].numpy(), noise.numpy() if training else None
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    assert found.std() > 0.01
    if dueling and training and noisy:
        quiet = network(batch.state, batch.fractions[0], None).detach().numpy()
        assert np.abs(quiet - found).max() > 0.01


def test_a_policy_holds_copies_by_name_in_the_dtype_of_the_config():
    chosen = config(n_agents=2, dtype="float32")
    given = draw_parameters(chosen, sizes(chosen), random.key(0))
    given = {name: array.astype("float64") for name, array in given.items()}
    policy = make_policy(chosen, sizes(chosen), given)
    assert list(policy.state_dict()) == list(given)
    assert all(tensor.dtype == torch.float32 for tensor in policy.state_dict().values())
    given["models.1.target.ff_1.sigma_weight"][:] = 9
    assert (policy.models[1].target.ff_1.sigma_weight == chosen.sigma).all()


def test_only_local_networks_learn():
    local = {name for name, p in made(config(n_agents=2)).named_parameters() if p.requires_grad}
    assert local == {n for n in made(config(n_agents=2)).state_dict() if ".local." in n}
    assert all(p.requires_grad for p in made(config(quirks=("attached_target",))).parameters())


@pytest.mark.parametrize(
    ("u", "kappa", "expected"),
    [
        (0.0, 1.0, 0.0),
        (0.5, 1.0, 0.25 * 0.125),
        (-0.5, 1.0, 0.75 * 0.125),
        (1.0, 1.0, 0.25 * 0.5),
        (3.0, 1.0, 0.25 * 2.5),
        (-3.0, 1.0, 0.75 * 2.5),
        (1.0, 2.0, 0.25 * 0.5 / 2),
        (3.0, 2.0, 0.25 * 4 / 2),
    ],
)
def test_the_quantile_huber_loss_of_one_error(u, kappa, expected):
    found = quantile_huber(torch.tensor([[[u]]]), torch.tensor([[0.25]]), kappa)
    assert found.item() == expected


def huber(u: float, fraction: float, kappa: float) -> float:
    size = 0.5 * u**2 if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
    return abs(fraction - (1 if u < 0 else 0)) * size / kappa


@pytest.mark.parametrize("kappa", [0.5, 1, 2.0])
def test_the_quantile_huber_loss_is_a_mean_over_both_fractions(kappa):
    rng = np.random.default_rng(1)
    u, fractions = rng.normal(0, 2, (3, 4, 5)), rng.random((3, 4))
    expected = [
        sum(huber(u[b, i, j], fractions[b, i], kappa) for i in range(4) for j in range(5)) / 20 for b in range(3)
    ]
    found = quantile_huber(torch.from_numpy(u), torch.from_numpy(fractions), kappa)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-13)


def chosen_actions(network: dict[str, np.ndarray], batch: Transitions, row: int) -> list[int]:
    outputs = forward(network, *(part.numpy() for part in (batch.next_state, batch.fractions[row], batch.noise[row])))
    return [int(np.argmax(outputs[b].mean(0))) for b in range(BATCH)]


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("noisy", [True, False])
def test_the_loss_is_its_formula(double, noisy):
    chosen = config(double=double, noisy=noisy, kappa=0.8)
    model, batch = made(chosen).models[0], of(transitions(chosen))
    local, target, host = arrays(model.local), arrays(model.target), Transitions(*(part.numpy() for part in batch))
    theta = forward(local, host.state, host.fractions[2], host.noise[2])
    after = forward(target, host.next_state, host.fractions[1], host.noise[1])
    by_local, by_target = chosen_actions(local, batch, 0), chosen_actions(target, batch, 1)
    assert any(a != b and d for a, b, d in zip(by_local, by_target, host.discount, strict=True))
    total = q = error = 0.0
    for b, i, j in np.ndindex(BATCH, QUANTILES, QUANTILES):
        best = (by_local if double else by_target)[b]
        u = host.reward[b] + host.discount[b] * after[b, j, best] - theta[b, i, host.action[b]]
        total += huber(u, host.fractions[2][b, i], 0.8) * host.valid[b]
        q, error = q + theta[b, i, host.action[b]], error + abs(u)
    count = BATCH * QUANTILES**2
    found, info = loss(model, batch, chosen)
    assert found.item() == pytest.approx(total / count, rel=1e-12)
    assert {name: told.item() for name, told in info.items()} == pytest.approx(
        {"loss": total / count, "q": q / count, "error": error / count}, rel=1e-12
    )
    assert found.requires_grad and not any(told.requires_grad for told in info.values())


def test_without_discount_the_target_is_the_reward():
    chosen = config()
    model, batch = made(chosen).models[0], of(transitions(chosen))
    batch = batch._replace(discount=torch.zeros(BATCH, dtype=torch.float64))
    first = loss(model, batch, chosen)[0].item()
    with torch.no_grad():
        model.target.value.bias += 100
    assert loss(model, batch, chosen)[0].item() == first


def test_transitions_that_do_not_count_teach_nothing_but_are_counted():
    chosen = config()
    model, batch = made(chosen).models[0], of(transitions(chosen))
    each = []
    for row in range(BATCH):
        alone = batch._replace(valid=torch.eye(BATCH, dtype=torch.float64)[row])
        each.append(loss(model, alone, chosen)[0].item())
    assert min(each) > 0
    assert loss(model, batch, chosen)[0].item() == pytest.approx(sum(each) - each[2], rel=1e-12)
    changed = batch._replace(reward=batch.reward + 100 * (1 - batch.valid))
    assert loss(model, changed, chosen)[0].item() == loss(model, batch, chosen)[0].item()


def test_of_equal_actions_the_first_is_taken():
    chosen = config()
    model, batch = made(chosen).models[0], of(transitions(chosen))
    with torch.no_grad():
        for p in model.local.advantage.parameters():
            p.zero_()
    assert (greedy(model.local, batch.state, batch.fractions[0]) == 0).all()
    after = model.target(batch.next_state, batch.fractions[1], batch.noise[1])[:, :, 0]
    y = batch.reward[:, None] + batch.discount[:, None] * after
    theta = model.local(batch.state, batch.fractions[2], batch.noise[2])[:, :, 0]  # all actions are alike
    u = y[:, None, :] - theta[:, :, None]
    assert loss(model, batch, chosen)[1]["error"].item() == pytest.approx(u.abs().mean().item(), rel=1e-13)


@pytest.mark.parametrize("double", [True, False])
def test_an_attached_target_changes_gradients_of_the_target_network_alone(double):
    found = {}
    for quirks in ((), ("attached_target",)):
        chosen = config(quirks=quirks, double=double)
        model = made(chosen).models[0]
        value, _ = loss(model, of(transitions(chosen)), chosen)
        value.backward()
        found[quirks] = value.item(), model
    (value, plain), (attached_value, attached) = found.values()
    assert attached_value == value
    for name, p in plain.local.named_parameters():
        assert p.grad.abs().max() > 0 and (attached.local.get_parameter(name).grad == p.grad).all(), name
    assert all(p.grad is None for p in plain.target.parameters())
    assert all(p.grad.abs().max() > 0 for p in attached.target.parameters())


def test_acting_is_by_the_mean_over_fractions_without_noise():
    chosen = config()
    network, batch = made(chosen).models[0].local, of(transitions(chosen))
    stack = 9 * batch.state - 4
    expected = forward(arrays(network), stack.numpy(), batch.fractions[0].numpy(), None).mean(1)
    found = values(network, stack, batch.fractions[0])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-13)
    assert not found.requires_grad
    assert greedy(network, stack, batch.fractions[0]).tolist() == expected.argmax(1).tolist()
    assert len(set(expected.argmax(1))) > 1
