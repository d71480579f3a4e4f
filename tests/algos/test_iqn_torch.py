"""IQN in torch: network, loss and update, each against NumPy or arithmetic written out here."""

import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from crossfade.algos.iqn import learner_torch as learner
from crossfade.algos.iqn.acting_torch import greedy, values
from crossfade.algos.iqn.architecture import Architecture, architecture, draw_parameters
from crossfade.algos.iqn.batch import Batch, Transitions
from crossfade.algos.iqn.config import IQNConfig
from crossfade.algos.iqn.losses_torch import loss, model_loss, quantile_huber
from crossfade.algos.iqn.networks_torch import Policy, make_policy
from crossfade.algos.iqn.optimizer import names, optimizer_records
from crossfade.algos.iqn.pure_update_torch import pure_update
from crossfade.algos.iqn.targets_torch import copy_targets, follow
from crossfade.bridge.optimizers.state_torch import read_torch
from crossfade.nn.noisy_torch import IndependentNoisyLinear
from crossfade.optim import functional_torch
from crossfade.random import random_numpy as random

OBSERVATION, ACTIONS, BATCH, QUANTILES = 3, 4, 5, 6


@dataclass(frozen=True)
class Config(IQNConfig):
    n_agents: int = 1

    @property
    def agents(self) -> int:
        return self.n_agents


def config(**settings) -> Config:
    small = dict(dtype="float64", frames=2, hidden=7, cosines=5, quantiles=QUANTILES, batch_size=BATCH, sigma=0.5)
    return Config(**{**small, **settings})


def sizes(chosen: Config) -> Architecture:
    return architecture(chosen, OBSERVATION, ACTIONS)


def made(chosen: Config) -> Policy:
    """Models whose target networks are not their local ones."""
    found = draw_parameters(chosen, sizes(chosen), random.key(3))
    other = draw_parameters(chosen, sizes(chosen), random.key(4))
    return make_policy(chosen, sizes(chosen), {n: (other if ".target." in n else found)[n] for n in found})


def arrays(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


def transitions(chosen: Config, seed: int = 0) -> Transitions:
    """Of every agent; some have no next state, some do not count."""
    rng, n = np.random.default_rng(seed), chosen.agents
    dim, inputs = sizes(chosen).noise_dim, sizes(chosen).inputs
    found = Transitions(
        rng.integers(0, 2, (n, BATCH, inputs)).astype(float),
        rng.integers(0, ACTIONS, (n, BATCH), dtype=np.int32),
        rng.normal(0, 2, (n, BATCH)),
        rng.integers(0, 2, (n, BATCH, inputs)).astype(float),
        np.tile([0.9, 0.0, 0.97, 0.5, 0.99], (n, 1)),
        np.tile([1.0, 1.0, 0.0, 1.0, 1.0], (n, 1)),
        rng.random((n, 3, BATCH, QUANTILES)),
        rng.normal(size=(n, 3, dim)),
    )
    return Transitions(*map(torch.from_numpy, found))


def of(batch: Transitions, agent: int = 0) -> Transitions:
    return Transitions(*(part[agent] for part in batch))


def batch_of(chosen: Config, seed: int = 0, ready: bool = True, copy: bool = False) -> Batch:
    return Batch(transitions(chosen, seed), torch.tensor(ready), torch.tensor(copy), {})


def forward(network: dict[str, np.ndarray], x: np.ndarray, fractions: np.ndarray, noise: np.ndarray | None):
    """The network in NumPy, sample by sample and fraction by fraction."""
    given = list(() if noise is None else noise)

    def layer(name: str) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for kind in ("weight", "bias"):
            array = network[f"{name}.{kind}"]
            if given:
                eps = np.array([given.pop(0) for _ in range(array.size)]).reshape(array.shape)
                array = array + network[f"{name}.sigma_{kind}"] * eps
            found.append(array)
        return found[0], found[1]

    ff, advantage = layer("ff_1"), layer("advantage")
    value = layer("value") if "value.weight" in network else None
    assert not given
    linear = lambda w, b, v: np.array([sum(w[i, j] * v[j] for j in range(len(v))) + b[i] for i in range(len(b))])
    relu = lambda v: np.array([max(0.0, e) for e in v])
    found = np.zeros((*fractions.shape, ACTIONS))
    for b, n in np.ndindex(fractions.shape):
        h = relu(linear(network["head1.weight"], network["head1.bias"], x[b]))
        cosines = [
            math.cos(math.pi * i * fractions[b, n]) for i in range(1, network["cos_embedding.weight"].shape[1] + 1)
        ]
        c = relu(linear(network["cos_embedding.weight"], network["cos_embedding.bias"], cosines))
        z = relu(linear(*ff, h * c))
        a = linear(*advantage, z)
        found[b, n] = a if value is None else linear(*value, z) + a - a.sum() / len(a)
    return found


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


GROUPED = {
    "separate": (dict(n_agents=3), [(0,), (1,), (2,)], ("model_0", "model_1", "model_2")),
    "shared": (dict(n_agents=3, parameters="shared"), [(0, 1, 2)], ("policy",)),
    "groups": (dict(n_agents=3, parameters="groups", groups=(1, 0, 1)), [(1,), (0, 2)], ("model_0", "model_1")),
}


@pytest.mark.parametrize(("settings", "members", "named"), GROUPED.values(), ids=GROUPED)
def test_a_model_learns_the_mean_loss_of_its_agents(settings, members, named):
    chosen = config(**settings)
    policy, batch = made(chosen), transitions(chosen)
    assert names(chosen) == named
    for number, agents in enumerate(members):
        each = [loss(policy.models[number], of(batch, agent), chosen) for agent in agents]
        found, info = model_loss(policy, number, batch, chosen)
        assert found.item() == pytest.approx(sum(value.item() for value, _ in each) / len(agents), rel=1e-13)
        for name, told in info.items():
            assert told.item() == pytest.approx(sum(i[name].item() for _, i in each) / len(agents), rel=1e-13)
    infos = [model_loss(policy, number, batch, chosen)[1] for number in range(len(members))]
    found = learner.update(policy, learner.make_optimizers(chosen, policy), batch_of(chosen), chosen)
    assert found.pop("learned") == 1
    assert set(found) == {"loss", "q", "error"}
    for name, told in found.items():
        assert told.item() == pytest.approx(sum(info[name].item() for info in infos) / len(infos), rel=1e-13)


@pytest.mark.parametrize(("settings", "members", "named"), GROUPED.values(), ids=GROUPED)
def test_records_say_what_torch_has(settings, members, named):
    rates = (0.1, 0.2, 0.3) if len(members) == 3 else (0.1,)
    chosen = config(**settings, lr=rates)
    policy = made(chosen)
    optimizers = learner.make_optimizers(chosen, policy)
    records = optimizer_records(chosen, draw_parameters(chosen, sizes(chosen), random.key(0)))
    assert tuple(records) == tuple(optimizers) == named
    for number, name in enumerate(named):
        read = read_torch(optimizers[name], policy)
        assert (records[name].kind, records[name].groups) == (read.kind, read.groups)
        assert read.groups[0]["lr"] == (rates * 3)[number] and read.groups[0]["eps"] == 1e-8
        assert {n.rsplit(".", 2)[0] for n in read.groups[0]["names"]} == {f"models.{number}.local"}


@pytest.mark.parametrize("clip_norm", [None, 0.01, 1e3])
def test_an_update_is_clipping_and_adam_by_hand(clip_norm):
    chosen = config(clip_norm=clip_norm, lr=(0.01,), target="hard", sync=1000)
    policy = made(chosen)
    optimizers = learner.make_optimizers(chosen, policy)
    local = dict(policy.models[0].local.named_parameters())
    expected = {name: p.detach().numpy().copy() for name, p in local.items()}
    m, v = ({name: np.zeros_like(p) for name, p in expected.items()} for _ in range(2))
    for step in (1, 2, 3):
        value, _ = model_loss(policy, 0, transitions(chosen, step), chosen)
        grads = {n: g.numpy() for n, g in zip(local, torch.autograd.grad(value, list(local.values())), strict=True)}
        norm = math.sqrt(sum(float((g**2).sum()) for g in grads.values()))
        scale = 1.0 if clip_norm is None else min(1.0, clip_norm / (norm + 1e-6))
        assert (scale < 1) == (clip_norm == 0.01)
        for name, g in grads.items():
            m[name] = 0.9 * m[name] + 0.1 * scale * g
            v[name] = 0.999 * v[name] + 0.001 * (scale * g) ** 2
            size = np.sqrt(v[name] / (1 - 0.999**step)) + 1e-8
            expected[name] = expected[name] - 0.01 * m[name] / (1 - 0.9**step) / size
        learner.update(policy, optimizers, batch_of(chosen, step), chosen)
        for name, p in local.items():
            np.testing.assert_allclose(p.detach().numpy(), expected[name], rtol=0, atol=1e-12, err_msg=name)
            kept = optimizers["policy"].state[p]["exp_avg"].numpy()
            np.testing.assert_allclose(kept, m[name], rtol=1e-10, atol=1e-18, err_msg=name)


def test_target_networks_follow_and_are_copied():
    chosen = config(n_agents=2, tau=0.25)
    policy = made(chosen)
    before = arrays(policy)
    follow(policy, chosen)
    for name, array in arrays(policy).items():
        other = before[name.replace(".target.", ".local.")]
        np.testing.assert_allclose(array, 0.25 * other + 0.75 * before[name], rtol=0, atol=1e-15)
    copy_targets(policy)
    for name, array in arrays(policy).items():
        assert (array == before[name.replace(".target.", ".local.")]).all(), name
    policy.models[0].local.head1.weight.data += 1  # a copy, not the same memory
    assert (policy.models[0].target.head1.weight == torch.from_numpy(before["models.0.local.head1.weight"])).all()


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("target", ["soft", "hard"])
def test_targets_are_copied_before_the_step_and_follow_after_it(copy, target):
    chosen = config(n_agents=2, tau=0.25, lr=(0.1,), target=target)
    policy = made(chosen)
    before = arrays(policy)
    learner.update(policy, learner.make_optimizers(chosen, policy), batch_of(chosen, copy=copy), chosen)
    after = arrays(policy)
    for name in (name for name in before if ".target." in name):
        local = name.replace(".target.", ".local.")
        expected = before[local if copy else name]
        if target == "soft":
            expected = 0.25 * after[local] + 0.75 * expected
        np.testing.assert_allclose(after[name], expected, rtol=0, atol=1e-15)
        assert (after[local] != before[local]).any()


def pure(chosen: Config, compile=lambda update: update):
    """The policy's structure, a functional update, and the parameters and moments at the start."""
    policy = made(chosen)
    params = {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}
    optimizers = learner.make_optimizers(chosen, policy)
    moments = {name: functional_torch.init(read_torch(made, policy)) for name, made in optimizers.items()}
    return pure_update(policy, chosen, compile), params, moments


VARIANTS = {
    **{name: settings for name, (settings, *_) in GROUPED.items()},
    "rates": dict(n_agents=2, lr=(0.1, 0.003)),
    "hard": dict(n_agents=2, target="hard"),
    "plain": dict(dueling=False, noisy=False, double=False, clip_norm=None),
    "legacy": dict(n_agents=2, legacy=True),
}


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_the_update_as_a_function_is_the_update_in_place(settings):
    chosen = config(**{"lr": (0.01,), "tau": 0.1, "clip_norm": 0.05, **settings})
    policy, (update, params, moments) = made(chosen), pure(chosen)
    optimizers, start = learner.make_optimizers(chosen, policy), arrays(policy)
    for step in range(5):
        batch = batch_of(chosen, step, ready=step != 1, copy=step in (1, 3))
        expected = learner.update(policy, optimizers, batch, chosen)
        held = {name: p.clone() for name, p in params.items()}
        found, moments, info = update(given := params, moments, batch)
        assert all((given[name] == p).all() for name, p in held.items()), "what is given does not change"
        params = found
        assert info.keys() == expected.keys()
        for name, told in expected.items():
            assert info[name].item() == pytest.approx(told.item(), rel=1e-12, abs=1e-12), name
        assert list(params) == list(policy.state_dict())
        for name, tensor in policy.state_dict().items():
            np.testing.assert_allclose(params[name].numpy(), tensor.numpy(), rtol=0, atol=1e-12, err_msg=name)
    for name, optimizer in optimizers.items():
        read = read_torch(optimizer, policy)
        again = functional_torch.read(moments[name], optimizer_records(chosen, params)[name])
        assert again.groups == read.groups and again.step == read.step == 4
        for parameter, slots in read.moments.items():
            for slot, array in slots.items():
                np.testing.assert_allclose(again.moments[parameter][slot], array, rtol=0, atol=1e-12)
    assert all((arrays(policy)[name] != array).any() for name, array in start.items())


@pytest.mark.parametrize("copy", [False, True])
def test_a_batch_that_is_not_ready_teaches_nothing(copy):
    chosen = config(n_agents=2)
    policy, (update, params, moments) = made(chosen), pure(chosen)
    optimizers, before = learner.make_optimizers(chosen, policy), arrays(policy)
    batch = batch_of(chosen, ready=False, copy=copy)
    told = learner.update(policy, optimizers, batch, chosen)
    params, moments, functional = update(params, moments, batch)
    assert told == functional == dict.fromkeys(("loss", "q", "error", "learned"), 0)
    for name, array in before.items():
        expected = before[name.replace(".target.", ".local.")] if copy else array
        assert (arrays(policy)[name] == expected).all() and (params[name].numpy() == expected).all(), name
    assert not any(optimizer.state for optimizer in optimizers.values())
    assert all(held.step == 0 for held in moments.values())


def share_one_program() -> None:
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    chosen = config(n_agents=3, lr=(0.1, 0.2, 0.3))
    update, params, moments = pure(chosen, lambda step: torch.compile(step, backend=backend, fullgraph=True))
    plain, expected, held = pure(chosen)
    for step in range(3):
        batch = batch_of(chosen, step, copy=step == 1)
        params, moments, _ = update(params, moments, batch)
        expected, held, _ = plain(expected, held, batch)
    assert len(graphs) == 1
    for name, p in expected.items():
        np.testing.assert_allclose(params[name].numpy(), p.numpy(), rtol=0, atol=1e-12)


def test_all_models_share_one_compiled_program():
    """In a process of its own: torch.compile cannot trace the run-time checks of shapes that this suite runs with."""
    code = "import test_iqn_torch; test_iqn_torch.share_one_program()"
    ran = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
