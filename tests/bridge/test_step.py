"""A compiled step does what the torch optimiser would do."""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from step_nets import (
    assert_same_optimizer,
    batches,
    distance,
    jax_loss,
    make,
    moments,
    torch_loss,
    torch_steps,
)
from torch import nn

from crossfade import random as cf_random
from crossfade.bridge import Mapping, Step
from crossfade.bridge.mapping import Entry
from crossfade.bridge.rules import Rule, permute
from crossfade.verdict import Verdict
from default_run import few


def two_groups(net):
    return [
        {"params": net.hidden.parameters(), "lr": 0.05},
        {"params": net.out.parameters(), "weight_decay": 0.1},
    ]


OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {}),
    "SGD momentum": (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01}),
    "SGD nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "SGD dampening": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.3}),
    "Adam": (torch.optim.Adam, {"weight_decay": 0.01}),
    "Adam amsgrad": (torch.optim.Adam, {"amsgrad": True, "eps": 1e-5}),
    "Adam maximize": (torch.optim.Adam, {"maximize": True}),
    "AdamW": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "RMSprop": (torch.optim.RMSprop, {}),
    "RMSprop centered": (torch.optim.RMSprop, {"centered": True, "momentum": 0.5, "eps": 1e-3}),
    "Adagrad": (torch.optim.Adagrad, {"lr_decay": 0.01}),
    "RAdam": (torch.optim.RAdam, {"weight_decay": 0.1}),
    "NAdam": (torch.optim.NAdam, {"weight_decay": 0.1}),
    "Adamax": (torch.optim.Adamax, {"weight_decay": 0.1}),
    "Adadelta": (torch.optim.Adadelta, {"rho": 0.8}),
    "two groups": (torch.optim.AdamW, {"groups": two_groups}),
}


QUICK = ("SGD nesterov", "NAdam", "Adam amsgrad", "RMSprop centered", "Adagrad", "two groups")


@pytest.mark.parametrize("name", few(OPTIMIZERS, *QUICK))
def test_twenty_steps_equal_torchs_and_torch_goes_on_from_there(name, x64):
    """10 in torch, 20 here, 10 in torch again: 40 in torch. Includes momenta handed over both ways."""
    kind, options = OPTIMIZERS[name]
    net, optimizer, mapping = make(kind, **options)
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data = batches(40)
    torch_steps(reference, reference_optimizer, data)

    torch_steps(net, optimizer, data[:10])
    with Step(net, optimizer, jax_loss, mapping, verify=False) as step:
        for batch in data[10:30]:
            step(batch)
    torch_steps(net, optimizer, data[30:])
    assert distance(net, reference) <= 1e-12
    assert_same_optimizer(optimizer, reference_optimizer)


def test_a_wrong_hyper_parameter_would_be_seen(x64):
    """The guard of the test above."""
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    reference_optimizer.param_groups[0]["betas"] = (0.9, 0.998)
    data = batches(20)
    torch_steps(reference, reference_optimizer, data)
    with Step(net, optimizer, jax_loss, mapping, verify=False) as step:
        for batch in data:
            step(batch)
    assert distance(net, reference) > 1e-9


def test_schedulers_and_clipping_keep_working_with_the_proof_on(x64):
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    schedule = lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    data = batches(20)
    torch_steps(reference, reference_optimizer, data, clip_norm=0.5, scheduler=schedule(reference_optimizer))

    scheduler = schedule(optimizer)
    step = Step(net, optimizer, jax_loss, mapping, torch_loss=torch_loss, clip_norm=0.5)
    for batch in data:
        step(batch)
        scheduler.step()
    step.close()
    assert step.stats.compiles == 1
    assert distance(net, reference) <= 1e-12
    assert {row.quantity for row in step.proof} == {"loss", "gradient", "parameters", "moments", "buffers"}


def test_an_epoch_equals_repeated_steps(x64):
    data = batches(6)
    nets, losses = [], []
    for way in ("calls", "list", "stacked"):
        net, optimizer, mapping = make()
        with Step(net, optimizer, jax_loss, mapping, verify=False) as step:
            if way == "calls":
                losses.append(torch.stack([step(batch) for batch in data]))
            else:
                stacked = {k: np.stack([batch[k] for batch in data]) for k in data[0]}
                losses.append(step.epoch(data if way == "list" else stacked))
            assert step.stats.updates == 6
        nets.append(net)
        assert int(moments(optimizer)[0, "step"]) == 6
    for net, loss in zip(nets[1:], losses[1:], strict=True):
        assert distance(net, nets[0]) <= 1e-14
        torch.testing.assert_close(loss, losses[0], rtol=1e-14, atol=0)


def test_the_proof_in_float32_says_rounding():
    net, optimizer, mapping = make(dtype=torch.float32)
    generator = torch.random.get_rng_state()
    step = Step(net, optimizer, jax_loss, mapping, torch_loss=torch_loss)
    step(batches(1, np.float32)[0])
    assert {row.dtype for row in step.proof} == {"float64", "float32"}
    assert max(row.verdict for row in step.proof) <= Verdict.ROUNDING
    assert torch.equal(generator, torch.random.get_rng_state())


def test_frozen_and_unused_parameters_stay_as_in_torch(x64):
    net, optimizer, mapping = make(torch.optim.AdamW, weight_decay=0.1)
    net.hidden.weight.requires_grad_(False)
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data = batches(3)
    torch_steps(reference, reference_optimizer, data)
    with Step(net, optimizer, jax_loss, mapping, torch_loss=torch_loss) as step:
        for batch in data:
            step(batch)
    assert distance(net, reference) <= 1e-12
    assert_same_optimizer(optimizer, reference_optimizer)


def test_layout_rules_are_applied_inside_the_step(x64):
    """A JAX model with transposed kernels trains the same torch parameters."""

    class Kernels(eqx.Module):
        kernel: jax.Array
        bias: jax.Array

    torch.manual_seed(0)
    net = nn.Linear(3, 2).double()
    mapping = Mapping(
        (Entry(("weight",), ("kernel",), Rule(permute(1, 0))), Entry(("bias",), ("bias",), Rule())),
        {"weight": (2, 3), "bias": (2,)},
        Kernels(jnp.zeros((3, 2)), jnp.zeros(2)),
    )
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    loss = lambda model, batch: 3 * jnp.mean((batch["x"] @ model.kernel + model.bias[None] - batch["y"]) ** 2)
    data = batches(3)
    torch_steps(reference, reference_optimizer, data)
    with Step(net, optimizer, loss, mapping, torch_loss=torch_loss) as step:
        for batch in data:
            step(batch)
    assert distance(net, reference) <= 1e-12


def test_info_comes_back_as_tensors(x64):
    net, optimizer, mapping = make()
    with_info = lambda model, batch: (jax_loss(model, batch), {"mean": jnp.mean(batch["x"])})
    step = Step(net, optimizer, with_info, mapping, verify=False)
    data = batches(3)
    loss, info = step({k: torch.from_numpy(v) for k, v in data[0].items()})
    assert loss.shape == () and loss.dtype == torch.float64
    np.testing.assert_allclose(info["mean"], data[0]["x"].mean(), rtol=1e-12)
    losses, infos = step.epoch(data)
    assert losses.shape == infos["mean"].shape == (3,)


def test_randomness_crosses_as_keys(x64):
    """The same key in the batch draws the same noise on both sides, and the proof sees it."""

    def noisy_in_torch(net, batch):
        noise = cf_random.normal(batch["key"], batch["x"].shape, dtype=batch["x"].dtype)
        return torch_loss(net, {"x": batch["x"] + noise, "y": batch["y"]})

    def noisy_in_jax(net, batch):
        noise = jax.random.normal(batch["key"], batch["x"].shape, dtype=batch["x"].dtype)
        return jax_loss(net, {"x": batch["x"] + noise, "y": batch["y"]})

    net, optimizer, mapping = make()
    step = Step(net, optimizer, noisy_in_jax, mapping, torch_loss=noisy_in_torch)
    losses = {float(step({**batches(1)[0], "key": jax.random.key(seed)})) for seed in range(3)}
    assert len(losses) == 3 and step.stats.compiles == 1


def test_overwriting_a_batch_after_the_call_changes_nothing(x64):
    nets = []
    for overwrite in (False, True):
        net, optimizer, mapping = make()
        with Step(net, optimizer, jax_loss, mapping, verify=False) as step:
            for batch in batches(5):
                step(batch)
                if overwrite:
                    for array in batch.values():
                        array[...] = 1e6
        nets.append(net)
    assert distance(*nets) == 0.0


def test_no_concatenation_and_no_padding_in_the_compiled_step(x64):
    """Fused with the gradients they run several times slower in some processes: docs/step_speed.md."""
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, verify=False, clip_norm=0.5)
    step(batches(1)[0])
    live = step._live
    arguments = live.arguments(optimizer.param_groups, batches(1)[0])
    program = live.compiled["step"].lower(*arguments).compile()
    assert "dynamic-update-slice(" in program.as_text()
    assert "concatenate(" not in program.as_text() and " pad(" not in program.as_text()
