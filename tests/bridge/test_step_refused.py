"""What a step refuses, counts and says."""

import copy
import re
from collections import defaultdict

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from step_nets import TorchNet, batches, jax_loss, make, torch_loss
from torch import nn

from crossfade.bridge import Mapping, Step
from crossfade.errors import DifferentError, MappingError, NoCounterpart, TransferError, UsageError


def opened(**options) -> tuple[TorchNet, torch.optim.Optimizer, Step]:
    net, optimizer, mapping = make(dtype=torch.float32)
    return net, optimizer, Step(net, optimizer, jax_loss, mapping, **{"verify": False, **options})


BATCH = batches(1, np.float32)[0]

WRONG = {
    "another loss": (lambda m, b: 1.001 * jax_loss(m, b), "loss in float64"),
    "detached": (lambda m, b: jax_loss(eqx.tree_at(lambda n: n.out, m, jax.lax.stop_gradient(m.out)), b), "gradient"),
    "float32 leak": (lambda m, b: jax_loss(*jax.tree.map(lambda a: a.astype(jnp.float32), (m, b))), "loss in float64"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_different_step_is_refused_and_nothing_is_changed(name):
    wrong, where = WRONG[name]
    net, optimizer, mapping = make(dtype=torch.float32)
    before = copy.deepcopy(net.state_dict())
    step = Step(net, optimizer, wrong, mapping, torch_loss=torch_loss)
    with pytest.raises(DifferentError, match=f"DIFFERENT at {where}"):
        step(BATCH)
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())
    assert not optimizer.state


def test_a_difference_names_leaf_element_and_size():
    net, optimizer, mapping = make(dtype=torch.float32)

    def wrong(model, batch):
        return jax_loss(model, batch) + 0.1 * (model.out.bias[1] - jax.lax.stop_gradient(model.out.bias[1]))

    with pytest.raises(
        DifferentError, match=r"gradient in float64 \(values\): out\.bias\[1\]: torch .*, JAX .* of the"
    ):
        Step(net, optimizer, wrong, mapping, torch_loss=torch_loss)(BATCH)


def test_a_hollow_proof_is_refused():
    net, optimizer, mapping = make(dtype=torch.float32)
    nothing = lambda loss: lambda model, batch: 0 * loss(model, batch)
    with pytest.raises(DifferentError, match="hollow"):
        Step(net, optimizer, nothing(jax_loss), mapping, torch_loss=nothing(torch_loss))(BATCH)


def test_new_shapes_compile_and_are_counted():
    _, _, step = opened()
    for size, compiles in ((4, 1), (4, 1), (6, 2), (4, 2)):
        step(batches(1, np.float32, size)[0])
        assert step.stats.compiles == compiles
    step.epoch(batches(2, np.float32))
    assert (step.stats.compiles, step.stats.calls, step.stats.updates) == (3, 5, 6)
    assert step.stats.bridge_us > 0 and step.stats.step_us > 0


def test_learning_rates_do_not_recompile_but_other_constants_do():
    _, optimizer, step = opened()
    step(BATCH)
    optimizer.param_groups[0]["lr"] = 0.1
    step(BATCH)
    assert step.stats.compiles == 1
    optimizer.param_groups[0]["betas"] = (0.5, 0.9)
    step(BATCH)
    assert step.stats.compiles == 2
    optimizer.param_groups[0]["amsgrad"] = True
    with pytest.raises(UsageError, match="adds or removes a moment"):
        step(BATCH)


def test_integers_are_held_in_32_bits_after_a_check():
    net, optimizer, mapping = make(dtype=torch.float32)
    chosen = lambda model, batch: jnp.mean(
        jnp.take_along_axis(jax.vmap(model)(batch["x"]), batch["action"][:, None], axis=1)
    )
    in_torch = lambda module, batch: module(batch["x"]).gather(1, batch["action"][:, None]).mean()
    step = Step(net, optimizer, chosen, mapping, torch_loss=in_torch)
    actions = torch.tensor([0, 1, 1, 0])
    step({"x": BATCH["x"], "action": actions})
    with pytest.raises(TransferError, match=re.escape("batch['action']: expected integers that fit int32")):
        step({"x": BATCH["x"], "action": actions + 2**40})


REFUSED_BATCHES = {
    "float64": ({"x": BATCH["x"].astype(np.float64), "y": BATCH["y"]}, TransferError, "at most 32-bit floats"),
    "text": ({"x": "text", "y": BATCH["y"]}, TransferError, "got str"),
}


@pytest.mark.parametrize("name", REFUSED_BATCHES)
def test_a_first_batch_that_cannot_cross_is_refused(name):
    batch, error, message = REFUSED_BATCHES[name]
    with pytest.raises(error, match=message):
        opened()[2](batch)


def test_later_batches_must_be_like_the_first():
    _, _, step = opened()
    step(BATCH)
    with pytest.raises(UsageError, match=re.escape("batch['x']: expected float32, as in the first batch, got float16")):
        step({**BATCH, "x": BATCH["x"].astype(np.float16)})
    with pytest.raises(UsageError, match="structure"):
        step((BATCH["x"], BATCH["y"]))


def test_an_epoch_needs_equal_minibatches():
    _, _, step = opened()
    for wrong in ([], [*batches(1, np.float32), *batches(1, np.float32, 3)], {"x": BATCH["x"], "y": BATCH["y"][:2]}):
        with pytest.raises(UsageError, match="expected"):
            step.epoch(wrong)


def test_a_closed_step_is_refused_and_closing_twice_is_fine():
    _, optimizer, step = opened()
    step(BATCH)
    step.close()
    step.close()
    with pytest.raises(UsageError, match="closed"):
        step(BATCH)
    assert type(optimizer.state) is defaultdict


HOOKS = {
    "parameter": lambda net: net.out.weight.register_hook(lambda grad: grad),
    "accumulated": lambda net: net.out.weight.register_post_accumulate_grad_hook(lambda p: None),
    "module": lambda net: net.out.register_full_backward_hook(lambda m, i, o: None),
}


@pytest.mark.parametrize("name", HOOKS)
def test_backward_hooks_are_refused(name):
    net, optimizer, mapping = make()
    HOOKS[name](net)
    with pytest.raises(UsageError, match="backward hooks.*out"):
        Step(net, optimizer, jax_loss, mapping, verify=False)


def test_the_proof_needs_a_torch_loss():
    net, optimizer, mapping = make()
    with pytest.raises(UsageError, match="torch_loss"):
        Step(net, optimizer, jax_loss, mapping)


@pytest.mark.parametrize("limits", [{"clip_norm": 0.5, "clip_value": 0.5}, {"clip_norm": -1.0}, {"clip_value": 0.0}])
def test_clipping_that_means_nothing_is_refused(limits):
    with pytest.raises(UsageError, match=next(iter(limits))):
        opened(**limits)


def test_a_limit_beside_another_is_refused_when_it_is_set():
    _, _, step = opened(clip_norm=0.5)
    step(BATCH)
    step.clip_value = 0.1
    with pytest.raises(UsageError, match="got both"):
        step(BATCH)


def test_what_does_not_fit_together_is_named():
    net, _, mapping = make(dtype=torch.float32)
    with pytest.raises(NoCounterpart, match="Rprop"):
        Step(net, torch.optim.Rprop(net.parameters()), jax_loss, mapping, verify=False)(BATCH)
    with pytest.raises(MappingError, match=r"has no hidden\.weight"):
        other = nn.Linear(3, 2)
        Step(other, torch.optim.SGD(other.parameters()), jax_loss, mapping, verify=False)(BATCH)
    mixed, optimizer, mapping = make(dtype=torch.float32)
    mixed.out.half()
    with pytest.raises(UsageError, match="all in float32 or all in float64"):
        Step(mixed, optimizer, jax_loss, mapping, verify=False)(BATCH)


class TorchNormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.out = nn.Linear(3, 2)

    def forward(self, x):
        return self.out(self.norm(x))


class JaxNorm(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    running_mean: jax.Array
    running_var: jax.Array


class JaxNormed(eqx.Module):
    norm: JaxNorm
    out: eqx.nn.Linear

    def __init__(self):
        self.norm = JaxNorm(jnp.ones(3), jnp.zeros(3), jnp.zeros(3), jnp.ones(3))
        self.out = eqx.nn.Linear(3, 2, key=jax.random.key(0))


def normed_loss(model, batch):
    """BatchNorm in train mode, as torch has it; the moved statistics come back in the model."""
    x, norm = batch["x"], model.norm
    mean, var = x.mean(0), x.var(0)
    y = (x - mean[None]) / jnp.sqrt(var + 1e-5)[None] * norm.weight[None] + norm.bias[None]
    loss = 3 * jnp.mean((jax.vmap(model.out)(y) - batch["y"]) ** 2)
    statistics = (0.9 * norm.running_mean + 0.1 * mean, 0.9 * norm.running_var + 0.1 * x.var(0, ddof=1))
    return loss, None, eqx.tree_at(lambda m: (m.norm.running_mean, m.norm.running_var), model, statistics)


def normed() -> tuple[nn.Module, torch.optim.Optimizer, Mapping]:
    torch.manual_seed(0)
    net = TorchNormed()
    plain = Mapping.by_name(_uncounted(net), JaxNormed())
    counter = {"norm.num_batches_tracked": np.array(0)}
    mapping = Mapping(plain.entries, {**plain.shapes, "norm.num_batches_tracked": ()}, plain.jax_model, {}, counter)
    return net, torch.optim.Adam(net.parameters(), 0.02), mapping


def _uncounted(net: nn.Module) -> nn.Module:
    net = copy.deepcopy(net)
    del net.norm.num_batches_tracked
    return net


def test_statistics_that_the_loss_returns_move_as_in_torch():
    net, optimizer, mapping = normed()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data = batches(4, np.float32)
    for batch in data:
        reference_optimizer.zero_grad()
        torch_loss(reference, {k: torch.from_numpy(v) for k, v in batch.items()}).backward()
        reference_optimizer.step()
    with Step(net, optimizer, normed_loss, mapping, torch_loss=torch_loss) as step:
        step(data[0])
        step.epoch(data[1:])
    for name, tensor in reference.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)
    assert int(net.norm.num_batches_tracked) == 4


def test_statistics_that_would_stand_still_are_refused():
    net, optimizer, mapping = normed()
    with pytest.raises(UsageError, match="norm: running statistics move in train mode"):
        Step(net, optimizer, lambda m, b: normed_loss(m, b)[0], mapping, verify=False)(BATCH)
