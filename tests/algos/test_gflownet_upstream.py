"""Checkpoints of upstream's making become ours, compute the same in torch and in JAX, and turn back bit for bit."""

import copy
import json
import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from crossfade import checkpoint, config as settings
from crossfade.algos.gflownet import policy_jax, policy_torch
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.cli import main
from crossfade.envs.dag.registry import make, params_class
from crossfade.errors import CheckpointError, NoCounterpart
from crossfade.registry import find
from crossfade.systems.gflownet.published.checkpoint_torch import export_upstream, import_upstream
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.system import Snapshot

GRID = params_class("grid")(n_dim=2, length=4)
HIDDEN, Z_DIM = 6, 3


def mlp(outputs, layers):
    widths = [GRID.observation_dim, *[HIDDEN] * layers]
    pairs = zip(widths, widths[1:], strict=False)
    body = [module for a, b in pairs for module in (nn.Linear(a, b), nn.LeakyReLU())]
    return nn.Sequential(*body, nn.Linear(widths[-1], outputs))


def on_trunk(base, outputs, layout):
    """A network on the trunk of another, as upstream (nested) and its fork (flat) put them together."""
    head = nn.Linear(base[-1].in_features, outputs)
    return nn.Sequential(base[:-1], head) if layout == "nested" else nn.Sequential(*base[:-1], head)


def agent(layout="nested", backward="shared", flow=None, layers=2, updates=3, optimizer=True, log_z=True):
    """Networks and a checkpoint as upstream would have them after some updates; float64."""
    torch.manual_seed(0)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    n = GRID.n_actions
    forward = mlp(n, layers)
    nets = {
        "forward": forward,
        "backward": {"shared": lambda: on_trunk(forward, n, layout), "learned": lambda: mlp(n, layers)}.get(
            backward, lambda: None
        )(),
        "state_flow": {"shared": lambda: on_trunk(forward, 1, layout), "own": lambda: mlp(1, 1)}.get(
            flow, lambda: None
        )(),
    }
    nets = {name: net for name, net in nets.items() if net is not None}
    z = nn.Parameter(torch.full((Z_DIM,), 150 / 64)) if log_z else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adam = torch.optim.Adam([p for net in nets.values() for p in net.parameters()], 1e-2)
    if z is not None:
        adam.add_param_group({"params": z, "lr": 1.0})
    scheduler = torch.optim.lr_scheduler.StepLR(adam, 10)
    observation = torch.randn(5, GRID.observation_dim)
    for _ in range(updates):
        adam.zero_grad()
        # the last output of the backward head, undoing stop, gets no gradient under upstream's mask
        outputs = [net(observation)[:, : n - 1 if name == "backward" else None] for name, net in nets.items()]
        loss = sum(out.square().mean() for out in outputs) + (0 if z is None else z.sum() ** 2)
        loss.backward()
        adam.step()
        scheduler.step()
    torch.set_default_dtype(default)
    found = {
        "step": updates,
        **{name: nets[name].state_dict() if name in nets else None for name in ("forward", "backward", "state_flow")},
        "logZ": None if z is None else z.detach(),
        "optimizer": adam.state_dict() if optimizer else None,
        "buffer": {"train": None, "replay": None},
        "run_id": "abc",
    }
    return nets, copy.deepcopy(found)


CASES = {
    "shared, nested": {},
    "shared, flat": {"layout": "flat"},
    "learned": {"backward": "learned"},
    "no backward policy": {"backward": None, "log_z": False},
    "no hidden layer, nested": {"layers": 0},
    "no hidden layer, flat": {"layers": 0, "layout": "flat"},
    "a state flow of its own": {"flow": "own", "log_z": False},
    "a state flow on the trunk, nested": {"flow": "shared"},
    "a state flow on the trunk, flat": {"flow": "shared", "layout": "flat"},
    "before the first update": {"updates": 0},
}


def same_bits(a, b):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b)
    elif isinstance(a, dict):
        assert set(a) == set(b)
        for key in a:
            same_bits(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same_bits(x, y)
    else:
        assert a == b


@pytest.mark.parametrize("case", CASES)
def test_a_round_trip_is_bit_exact_optimiser_and_all(case):
    found = agent(**CASES[case])[1]
    ours = import_upstream(found)
    assert ours.facts.optimizer == "imported"
    assert ours.facts.double_step == (CASES[case].get("backward", "shared") == "shared" and ours.facts.layers > 0)
    back = export_upstream(
        ours.parameters,
        ours.facts.layout,
        kept=ours.kept,
        optimizer=ours.optimizer,
        step=ours.step,
        log_z=ours.facts.z_dim is not None,
        double_step=ours.facts.double_step,
    )
    same_bits(back, {key: found[key] for key in back})


def our_policies(ours):
    """Our policy with these parameters, in torch and in JAX."""
    facts = ours.facts
    sizes = GRID.observation_dim, GRID.n_actions, GRID.n_parents, facts.hidden, facts.layers, facts.backward
    options = {"flow": facts.state_flow == "shared", "z_dim": facts.z_dim or 1}
    in_torch = policy_torch.Policy(*sizes, **options).double()
    in_torch.load_state_dict({name: torch.from_numpy(a) for name, a in ours.parameters.items()})
    in_jax = policy_jax.Policy(*sizes, **options)
    for name, array in ours.parameters.items():
        in_jax = eqx.tree_at(lambda p, name=name: _leaf(p, name), in_jax, jnp.asarray(array))
    return in_torch, in_jax


def _leaf(policy, name):
    for part in name.split("."):
        policy = policy[int(part)] if part.isdecimal() else getattr(policy, part)
    return policy


@pytest.mark.parametrize("case", ["shared, nested", "shared, flat", "learned", "a state flow on the trunk, flat"])
def test_both_frameworks_compute_what_upstream_computes(case, x64):
    """On every state of the grid, in upstream's order of actions and with its observation."""
    nets, found = agent(**CASES[case])
    env = make(GRID, "numpy")
    states = env.state(np.arange(env.n_states))
    one_hot = np.eye(GRID.length)[states.x].reshape(env.n_states, -1)
    masks = env.forward_mask(states), env.backward_mask(states)
    np.testing.assert_array_equal(env.observe(states, np.float64), one_hot)
    assert GRID.increments.tolist() == [[0, 1], [1, 0]]

    with torch.no_grad():
        outputs = {name: net(torch.from_numpy(one_hot)).numpy() for name, net in nets.items()}
    hidden = lambda mask: np.where(mask, 0, -np.inf)
    stop = np.zeros((env.n_states, 1), bool)  # not possible before stop
    expected = {
        "log_pf": log_softmax(outputs["forward"] + hidden(masks[0])),
        "log_pb": log_softmax(outputs["backward"] + hidden(np.concatenate([masks[1], stop], 1)))[:, :-1],
    }
    if "state_flow" in outputs:
        expected["log_flow"] = outputs["state_flow"][:, 0]

    in_torch, in_jax = our_policies(import_upstream(found))
    with torch.no_grad():
        said = in_torch(*map(torch.from_numpy, (one_hot, *masks)))
    heard = in_jax(*map(jnp.asarray, (one_hot, *masks)))
    some_way_back = masks[1].any(-1)
    for name, right in expected.items():
        where = {"log_pf": masks[0], "log_pb": masks[1]}.get(name, some_way_back)
        for output in (getattr(said, name).numpy(), np.asarray(getattr(heard, name))):
            np.testing.assert_allclose(output[where], right[where], rtol=0, atol=1e-15)
    assert float(in_torch.log_z.detach().sum()) == float(in_jax.log_z.sum()) == float(found["logZ"].sum())


def test_the_comparison_notices_two_actions_in_the_wrong_order(x64):
    found = agent()[1]
    right = our_policies(import_upstream(found))
    found["forward"]["4.weight"][[0, 1]] = found["forward"]["4.weight"][[1, 0]]
    wrong = our_policies(import_upstream(found))
    seen = np.eye(GRID.observation_dim)
    with torch.no_grad():
        moved = right[0].forward_logits(torch.from_numpy(seen)) - wrong[0].forward_logits(torch.from_numpy(seen))
    assert moved.abs().max() > 1e-2
    assert np.abs(right[1].forward_logits(jnp.asarray(seen)) - wrong[1].forward_logits(jnp.asarray(seen))).max() > 1e-2


def log_softmax(x):
    """As torch computes it; rows without a valid entry (the source, backwards) stay NaN and are not compared."""
    return torch.log_softmax(torch.from_numpy(x), -1).numpy()


def test_the_optimiser_counts_updates_and_other_optimisers_are_not_guessed_at():
    found = agent()[1]
    moments = import_upstream(found).optimizer.moments
    first = found["optimizer"]["param_groups"][0]["params"][0]
    assert found["optimizer"]["state"][first]["step"] == 6, "upstream steps its trunk twice"
    assert moments["trunk.0.weight"]["step"] == moments["forward_head.weight"]["step"] == 3, "ours counts updates"
    assert moments["backward_head.bias"]["exp_avg"].shape == (GRID.n_parents,)
    one_fewer = copy.deepcopy(found)
    one_fewer["optimizer"]["param_groups"][0]["params"].pop()
    other_kind = copy.deepcopy(found)
    del other_kind["optimizer"]["param_groups"][0]["betas"]
    uneven = copy.deepcopy(found)
    uneven["optimizer"]["state"][first]["step"] += 2
    moving_stop = copy.deepcopy(found)
    moving_stop["optimizer"]["state"][11]["exp_avg"][-1] = 1.0
    for broken, said in (
        (one_fewer, "its list of parameters is not that of the networks"),
        (other_kind, "not an Adam with one group"),
        (moving_stop, "undoing stop has moments"),
        (uneven, "different numbers of updates"),
        (found | {"optimizer": None}, "there is none"),
    ):
        ours = import_upstream(broken)
        assert ours.optimizer is None and said in ours.facts.optimizer


def test_training_goes_on_from_it_alike_in_torch_and_in_jax():
    ours = import_upstream(agent()[1])
    assert {*ours.optimizer.trained} == {*ours.parameters}
    words = [*ours.facts.words, "env=grid", "env.length=4", "batch_size=4", "dtype=float64"]
    ends = []
    for mode in ("torch", "jax_full"):
        config = settings.apply(GFlowNetConfig(), [*words, f"mode={mode}"])
        with precision(config):
            trainer = make_trainer(
                find("gflownet"), config, Snapshot(ours.parameters, {"policy": ours.optimizer}), ours.step
            )
            losses = trainer.run(ours.step, 2)["loss"]
            ends.append({"loss": losses, **trainer.snapshot().parameters})
    for name in ends[0]:
        np.testing.assert_allclose(ends[0][name], ends[1][name], rtol=0, atol=1e-9, err_msg=name)
    assert np.abs(ends[0]["trunk.0.weight"] - ours.parameters["trunk.0.weight"]).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda f: f.pop("forward"), CheckpointError, "an entry `forward`"),
        (lambda f: f["forward"].pop("2.bias"), CheckpointError, "each with weight and bias"),
        (
            lambda f: f["forward"].update({"conv.weight": torch.ones(2)}),
            NoCounterpart,
            "expected an MLP.*'conv.weight'",
        ),
        (lambda f: f["forward"].update({"2.bias": torch.ones(9)}), CheckpointError, "layers that fit each other"),
        (lambda f: f["backward"].update({"0.0.bias": torch.zeros(HIDDEN)}), CheckpointError, "the arrays differ"),
        (lambda f: f.update(backward=nn.Linear(16, 3).state_dict()), CheckpointError, "an MLP|keys are numbers"),
        (lambda f: f.update(backward=mlp(GRID.n_actions, 1).state_dict()), NoCounterpart, "layers of the forward"),
        (lambda f: f.update(state_flow=mlp(2, 1).state_dict()), NoCounterpart, "a state flow of one number, got 2"),
    ],
)
def test_what_has_no_counterpart_is_refused_in_words(change, error, message):
    found = agent()[1]
    change(found)
    with pytest.raises((error, NoCounterpart), match=message):
        import_upstream(found)


@pytest.mark.parametrize("layout", ["nested", "flat"])
def test_convert_recognises_it_and_turns_it_back(layout, tmp_path, capsys):
    found = agent(layout)[1]
    torch.save(found, tmp_path / "final.ckpt")
    assert main(["convert", str(tmp_path / "final.ckpt"), "--to", "bundle", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["settings"] == "hidden=6 layers=2 backward=shared z_dim=3 lr=0.01 lr_z=1.0 legacy_double_step=true"
    loaded = checkpoint.load(said["written"], side="numpy")
    assert loaded.step == 3 and set(loaded.params) == set(import_upstream(found).parameters)
    back = tmp_path / "back.ckpt"
    to = {"nested": "upstream", "flat": "upstream_flat"}[layout]
    assert main(["convert", str(tmp_path / "final.bundles"), "--to", to, "--out", str(back)]) == 0
    again = torch.load(back, weights_only=True)
    same_bits(again, {key: found[key] for key in again})
    assert main(["convert", str(tmp_path / "final.ckpt"), "--to", "torch"]) == 2
    assert "becomes a bundle first" in capsys.readouterr().err


def test_a_run_of_ours_becomes_a_checkpoint_that_upstreams_networks_load(tmp_path, capsys):
    words = ["env=grid", "env.length=4", f"hidden={HIDDEN}", "batch_size=4", "steps=2", f"z_dim={Z_DIM}", "mode=torch"]
    assert main(["train", "gflownet", *words, "dtype=float64", "--runs-dir", str(tmp_path), "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert main(["convert", f"{run}/checkpoints", "--to", "upstream", "--out", str(tmp_path / "a.ckpt")]) == 0
    found = torch.load(tmp_path / "a.ckpt", weights_only=True)
    nets, fresh = agent(updates=0)
    for name, net in nets.items():
        net.load_state_dict(found[name])
    assert found["logZ"].shape == (Z_DIM,)
    parameters = [p for net in nets.values() for p in net.parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adam = torch.optim.Adam(parameters)
    adam.add_param_group({"params": nn.Parameter(found["logZ"])})
    adam.load_state_dict(found["optimizer"])
    assert adam.state[parameters[0]]["step"] == 2 and adam.param_groups[1]["lr"] == 0.1
