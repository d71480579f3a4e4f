"""What an accelerated step notices, follows or refuses in words."""

import copy
import re

import numpy as np
import pytest
import torch
from step_nets import batches, distance, make, tensors, torch_loss, torch_steps
from torch import nn

import crossfade as cf
from crossfade.bridge.stepping.random_draws import Draw
from crossfade.errors import CrossfadeError, DifferentError, UsageError

BATCH = batches(1)[0]
TENSORS = tensors(BATCH)


def same(net, before):
    return all(torch.equal(before[n], t) for n, t in net.state_dict().items())


# What the loss reads beside tensors is compiled in

SCALE = 1.0


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.slope = nn.Linear(3, 2).double(), nn.LeakyReLU(0.2)
        self.epsilon, self.fixed = 1.0, torch.ones(2, dtype=torch.float64)

    def forward(self, x):
        return self.epsilon * self.slope(self.linear(x)) * self.fixed


def set_global(_):
    global SCALE
    SCALE = 2.0


CHANGES = {
    "a global": (set_global, "reads SCALE, which was 1.0 .* and is 2.0 now"),
    "an attribute of the user's module": (lambda net: setattr(net, "epsilon", 0.5), r"self\.epsilon, which was 1\.0"),
    "an attribute of torch's": (lambda net: setattr(net.slope, "negative_slope", 0.3), r"slope\.negative_slope"),
    "a tensor that is no buffer, replaced": (lambda net: setattr(net, "fixed", 2 * net.fixed), r"self\.fixed"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_compiled_in_is_refused_when_it_changes(name, x64, monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    change, words = CHANGES[name]
    net = Scaled()
    step = cf.accelerate(lambda net, batch: SCALE * torch_loss(net, batch), net, torch.optim.SGD(net.parameters(), 0.1))
    step(BATCH)
    step(BATCH)
    change(net)
    before = copy.deepcopy(net.state_dict())
    for _ in range(2):
        with pytest.raises(UsageError, match=words):
            step(BATCH)
    assert same(net, before)


def test_a_closure_that_is_bound_anew_is_refused(x64):
    net, optimizer, _ = make()
    target = copy.deepcopy(net)

    def loss(batch):
        return torch_loss(net, {"x": batch["x"], "y": target(batch["x"]).detach()})

    step = cf.accelerate(loss, net, optimizer, verify=False)
    step(BATCH)
    target.load_state_dict(net.state_dict())
    step(BATCH)
    target = copy.deepcopy(net)
    with pytest.raises(UsageError, match="the loss reads target"):
        step(BATCH)


def test_tensors_that_change_are_read_anew(x64):
    """A tensor of the closure, a list of tensors and a tensor held by a module that does not know it."""
    net, optimizer, _ = make()
    net.shift = torch.zeros(2, dtype=torch.float64)
    weight, parts = torch.ones((), dtype=torch.float64), [torch.zeros(2, dtype=torch.float64)]

    def loss(net, batch):
        return weight * torch_loss(net, {"x": batch["x"], "y": batch["y"] + parts[0] + net.shift})

    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    step = cf.accelerate(loss, net, optimizer)
    for i in range(3):
        for tensor in (weight, parts[0], net.shift, reference.shift):
            tensor.fill_(0.5 + i)
        step(BATCH)
        torch_steps(reference, reference_optimizer, [BATCH], loss=loss)
    assert distance(net, reference) <= 1e-12 and step.stats.compiles == 1


def test_annealing_and_schedulers_are_followed(x64):
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    step = cf.accelerate(torch_loss, net, optimizer, verify=False)
    for i, batch in enumerate(batches(4)):
        for one in (optimizer, reference_optimizer):
            one.param_groups[0]["lr"] = 0.1 / (1 + i)
        step(batch)
        torch_steps(reference, reference_optimizer, [batch])
    assert distance(net, reference) <= 1e-12 and step.stats.compiles == 1


def test_a_new_layer_is_followed_with_a_new_proof(x64):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 2)).double()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    layer = nn.Linear(2, 2).double()
    step = cf.accelerate(torch_loss, net, optimizer)
    step(BATCH)
    torch_steps(reference, reference_optimizer, [BATCH])
    for one, owner, new in ((net, optimizer, layer), (reference, reference_optimizer, copy.deepcopy(layer))):
        one.append(new)
        owner.add_param_group({"params": new.parameters()})
    for batch in batches(2):
        step(batch)
        torch_steps(reference, reference_optimizer, [batch])
    assert distance(net, reference) <= 1e-12 and step.stats.openings == 2


# Losses that cannot be compiled


def branching(net, batch):
    if net(batch["x"]).sum() > 0:
        return torch_loss(net, batch)
    return 2 * torch_loss(net, batch)


LOSSES = {
    "a branch on values": (branching, r"test_accelerate_refused\.py:\d+.*torch\.where"),
    "a number of Python's": (
        lambda net, batch: torch_loss(net, batch) * float(net(batch["x"]).sum()),
        r"test_accelerate_refused\.py:\d+.*float\(\).*info",
    ),
    "a shape that depends on values": (
        lambda net, batch: (net(batch["x"]) - batch["y"])[batch["x"][:, 0] > 0].pow(2).mean(),
        "depend on values",
    ),
    "no number": (lambda net, batch: net(batch["x"]), r"one number.*shape \(4, 2\)"),
    "nothing": (lambda net, batch: None, "one number in a tensor.*NoneType"),
    "writing into a parameter": (
        lambda net, batch: torch_loss(net, batch) + 0 * net.out.bias.data.mul_(0.5).sum(),
        r"writes into out\.bias",
    ),
    "gamma": (
        lambda net, batch: torch_loss(net, batch) * torch._standard_gamma(batch["x"].abs()).mean(),
        "draws from Gamma or one of its kin",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_cannot_be_compiled_is_refused(name, x64):
    loss, words = LOSSES[name]
    net, optimizer, _ = make()
    before, generator = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    with pytest.raises(CrossfadeError, match=words):
        cf.accelerate(loss, net, optimizer)(BATCH)
    assert same(net, before) and torch.equal(generator, torch.get_rng_state()) and not optimizer.state


def test_draws_that_are_not_torchs_are_refused(x64, monkeypatch):
    """The proof shares the numbers, so it could not tell."""
    net, optimizer, _ = make()
    loss = lambda net, batch: torch_loss(net, {**batch, "y": batch["y"] + torch.randn(4, 2)})
    monkeypatch.setattr(Draw, "__call__", lambda draw: torch.zeros(draw.shape, dtype=draw.dtype))
    with pytest.raises(UsageError, match=r"cannot be drawn ahead: it is .* with normal_"):
        cf.accelerate(loss, net, optimizer)(BATCH)


def test_what_is_no_module_or_no_loss_is_refused(x64):
    net, optimizer, mapping = make()
    with pytest.raises(UsageError, match=re.escape("takes (a, b, c)")):
        cf.accelerate(lambda a, b, c: a, net, optimizer)
    with pytest.raises(UsageError, match=r"without dots in its names; got TorchNet under 'a\.b'"):
        cf.accelerate(torch_loss, {"a.b": net}, optimizer)
    with pytest.raises(UsageError, match="mapping: expected none without jax_loss"):
        cf.accelerate(torch_loss, net, optimizer, mapping=mapping)


def test_parameters_that_share_memory_are_refused(x64):
    net, _, _ = make()
    net.out.weight = nn.Parameter(net.hidden.weight.detach().view(-1)[:10].view(2, 5))
    step = cf.accelerate(torch_loss, net, torch.optim.SGD(net.parameters(), 0.1))
    with pytest.raises(UsageError, match="share theirs"):
        step(BATCH)


def test_a_computed_tensor_of_the_closure_is_refused(x64):
    net, optimizer, _ = make()
    alpha = net.out.bias.exp()
    step = cf.accelerate(lambda batch: torch_loss(net, batch) * alpha.sum(), net, optimizer)
    with pytest.raises(UsageError, match="computed outside of it"):
        step(BATCH)


def test_a_wrong_jax_loss_is_different(x64):
    net, optimizer, _ = make()
    wrong = lambda weights, batch: (weights["out.bias"] ** 2).sum()
    with pytest.raises(DifferentError, match="DIFFERENT at loss"):
        cf.accelerate(torch_loss, net, optimizer, jax_loss=wrong)(BATCH)


# Batches


def test_batches_of_another_structure_are_refused(x64):
    net, optimizer, _ = make()
    step = cf.accelerate(torch_loss, net, optimizer, verify=False)
    step(BATCH)
    before = copy.deepcopy(net.state_dict())
    for wrong in ({"x": BATCH["x"]}, (BATCH["x"], BATCH["y"]), {**BATCH, "z": BATCH["y"]}):
        with pytest.raises(UsageError, match="structure"):
            step(wrong)
    assert same(net, before)


def test_other_shapes_are_recorded_anew(x64):
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    step = cf.accelerate(torch_loss, net, optimizer)
    for size in (4, 6, 4, 2):
        step(batches(1, size=size)[0])
        torch_steps(reference, reference_optimizer, batches(1, size=size))
    assert step.stats.compiles == 3 and distance(net, reference) <= 1e-12


def test_strided_overlapping_and_read_only_batches_are_right(x64):
    buffer = torch.arange(60, dtype=torch.float64).reshape(6, 10) / 60
    frozen = BATCH["x"].copy()
    frozen.flags.writeable = False
    cases = (
        {"x": buffer[:4, 1:7:2], "y": buffer.t()[:4, 1:3]},
        {"x": buffer[0, :3].expand(4, 3), "y": buffer[1:5, 2:4]},
        {"x": frozen, "y": BATCH["y"][::-1]},
    )
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    step = cf.accelerate(torch_loss, net, optimizer, verify=False)
    for batch in cases:
        step(batch)
        torch_steps(reference, reference_optimizer, [{k: np.array(v.tolist()) for k, v in batch.items()}])
    assert distance(net, reference) <= 1e-12


def test_nan_goes_through_as_in_torch(x64):
    """On both sides: the parameters become NaN, and nothing pretends otherwise."""
    net, optimizer, _ = make()
    bad = {**BATCH, "x": np.full_like(BATCH["x"], np.nan)}
    with pytest.raises(DifferentError, match="hollow|finite|NaN"):
        cf.accelerate(torch_loss, net, optimizer)(bad)
    step = cf.accelerate(torch_loss, net, optimizer)
    step(BATCH)
    assert torch.isnan(step(bad)) and torch.isnan(net.out.weight).all()


def test_an_error_or_ctrl_c_inside_the_step_changes_nothing(x64):
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    step = cf.accelerate(torch_loss, net, optimizer)
    step(BATCH)
    torch_steps(reference, reference_optimizer, [BATCH])
    compiled = step._live.compiled["step"]
    for error in (KeyboardInterrupt, RuntimeError):

        def broken(*arguments, error=error):
            compiled(*arguments)
            raise error

        step._live.compiled["step"] = broken
        with pytest.raises(error):
            step(BATCH)
        step._live.compiled["step"] = compiled
        assert distance(net, reference) <= 1e-12
    step(BATCH)
    torch_steps(reference, reference_optimizer, [BATCH])
    assert distance(net, reference) <= 1e-12 and int(optimizer.state[net.out.bias]["step"]) == 2
