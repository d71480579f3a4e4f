"""Steps of IQN's learner in torch, in place and as a function, against arithmetic by hand and each other."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from iqn_torch_cases import Config, arrays, batch_of, config, made, of, sizes, transitions

from crossfade.algos.iqn import learner_torch as learner
from crossfade.algos.iqn.architecture import draw_parameters
from crossfade.algos.iqn.losses_torch import loss, model_loss
from crossfade.algos.iqn.optimizer import names, optimizer_records
from crossfade.algos.iqn.pure_update_torch import pure_update
from crossfade.algos.iqn.targets_torch import copy_targets, follow
from crossfade.bridge.optimizers.state_torch import read_torch
from crossfade.optim import functional_torch
from crossfade.random import random_numpy as random

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
    code = "import test_iqn_step_torch; test_iqn_step_torch.share_one_program()"
    ran = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
