"""A step's memory: large parameters apart, moments where old ones were, batches copied whole, losses of their own."""

import copy

import numpy as np
import pytest
import torch
from step_nets import assert_same_optimizer, batches, distance, jax_loss, make, tensors, torch_loss, torch_steps
from torch import nn

from compilations import compilations
from crossfade.bridge import Step
from crossfade.bridge.stepping.layout import Layout
from crossfade.errors import TransferError, UsageError


@pytest.fixture
def apart(monkeypatch):
    """As on several cores with large parameters: the program has each apart."""
    monkeypatch.setattr("crossfade.bridge.stepping.live.LARGE", 1)
    monkeypatch.setattr("crossfade.bridge.stepping.live.cores", lambda: 2)


def two_groups(net):
    return [{"params": net.hidden.parameters(), "lr": 0.05}, {"params": net.out.parameters(), "weight_decay": 0.1}]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.NAdam, {}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.AdamW, {"groups": two_groups}),
    ],
    ids=["amsgrad", "NAdam", "nesterov", "two groups"],
)
def test_parameters_apart_train_as_in_torch(kind, options, apart, x64):
    net, optimizer, mapping = make(kind, **options)
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data = batches(16)
    torch_steps(reference, reference_optimizer, data, clip_norm=0.5)

    torch_steps(net, optimizer, data[:3], clip_norm=0.5)
    with Step(net, optimizer, jax_loss, mapping, torch_loss=torch_loss, clip_norm=0.5) as step:
        for batch in data[3:6]:
            step(batch)
        optimizer.state_dict()  # moments go to torch and come back
        step.epoch(data[6:13])
        assert all(group.apart for group in step._live.program.groups)
        assert len(step._live.trained.read()) == 4  # weights and biases that the loss uses
    torch_steps(net, optimizer, data[13:], clip_norm=0.5)
    assert distance(net, reference) <= 1e-12
    assert_same_optimizer(optimizer, reference_optimizer)


@pytest.mark.parametrize("spread", ["together", "apart"])
def test_a_step_is_compiled_once(spread, request, x64):
    """Also for moments that are results of the last call, and for those that torch has looked at meanwhile."""
    if spread == "apart":
        request.getfixturevalue("apart")
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    with compilations() as found:
        for batch in batches(3):
            step(batch)
        optimizer.state_dict()
        step(batch)
    assert sum("function" in name for name in found) == 1, found
    step.close()


def test_one_core_has_them_together(monkeypatch, x64):
    monkeypatch.setattr("crossfade.bridge.stepping.live.LARGE", 1)
    monkeypatch.setattr("crossfade.bridge.stepping.live.cores", lambda: 1)
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    step(batches(1)[0])
    assert len(step._live.trained.read()) == 1


def test_new_moments_go_where_those_of_two_steps_ago_were_and_nothing_that_is_needed_is_given_away(apart, x64):
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    step(batches(1)[0])
    live, places, given = step._live, [], []
    compiled = live.compiled["step"]

    def watched(*arguments):
        count = live.program.spares
        result = compiled(*arguments)
        given.append([array.is_deleted() for array in arguments])
        assert given[-1] == [True] * count + [False] * (len(arguments) - count)
        return result

    live.compiled["step"] = watched
    for batch in batches(6):
        step(batch)
        places.append([moment.unsafe_buffer_pointer() for moment in optimizer.state.ahead[0]])
    assert len(given) == 6 and sum(given[0]) == 12  # four parameters, two moments of each
    assert places[2] == places[4] and places[3] == places[5] and places[4] != places[5]


LIKE = {
    "contiguous": lambda t: t,
    "a transposed view": lambda t: t.T.contiguous().T,
    "every second row": lambda t: t.repeat_interleave(2, 0)[::2],
    "with a gradient": lambda t: t.clone().requires_grad_(),
    "a parameter": lambda t: nn.Parameter(t.clone()),
    "a negated view": lambda t: torch.complex(torch.zeros_like(t), -t).conj().imag,
    "NumPy": lambda t: t.numpy(),
}


@pytest.mark.parametrize("name", LIKE)
@pytest.mark.parametrize("size", [1, 4])
def test_tensors_of_any_make_are_taken_as_what_they_hold(name, size, x64):
    """After batches of plain tensors, which are copied byte by byte."""
    data = [{k: torch.from_numpy(v[:, :1].copy()) for k, v in batch.items()} for batch in batches(3, size=size)]
    loss = lambda net, batch: ((net["w"] * batch["x"] - batch["y"] + 1) ** 2).mean()
    values = []
    for change in (LIKE["contiguous"], LIKE[name]):
        net = nn.ParameterDict({"w": nn.Parameter(torch.ones(1, dtype=torch.float64))})
        step = _accelerated(loss, net)
        step(data[0])
        step(data[1])
        values.append(step({k: change(v) for k, v in data[2].items()}))
        assert step.stats.compiles == 1
    assert torch.equal(*values)


def _accelerated(loss, net):
    from crossfade import accelerate

    return accelerate(loss, net, torch.optim.SGD(net.parameters(), 0.1), verify=False)


def test_quick_ways_into_a_step_check_what_the_slow_way_does():
    net, optimizer, mapping = make(dtype=torch.float32)
    first = tensors(batches(1, np.float32)[0])
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    step(first)
    with pytest.raises(UsageError, match="structure"):
        step({"x": first["x"], "z": first["y"]})
    with pytest.raises(UsageError, match="structure"):
        step({**first, "z": first["y"]})
    for other in (torch.float64, torch.int32):
        with pytest.raises(UsageError, match="expected float32, as in the first batch"):
            step({**first, "x": first["x"].to(other)})
    step({k: v[:1] for k, v in first.items()})  # not spread over four rows
    assert step.stats.compiles == 2


def test_whole_numbers_of_a_tensor_are_checked_too():
    net = nn.Embedding(4, 2)
    step = _accelerated(lambda net, batch: (net(batch["i"]) * batch["x"]).sum(), net)
    batch = {"i": torch.tensor([0, 1, 3]), "x": torch.ones(3, 2)}
    step(batch)
    before = net.weight.detach().clone()
    step({**batch, "i": torch.tensor([2, 2, 2])})
    assert (net.weight != before).any(1).tolist() == [False, False, True, False]
    with pytest.raises(TransferError, match="fit int32"):
        step({**batch, "i": torch.tensor([0, 1, 2**40])})


def test_every_loss_is_a_tensor_of_its_own(x64):
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    batch = batches(1)[0]
    kept = [step(batch) for _ in range(150)]
    held = [loss.item() for loss in kept]
    kept[3].zero_()
    assert len(set(held)) == 150
    assert [loss.item() for loss in kept[:5]] == [*held[:3], 0.0, held[4]]
    assert kept[0].shape == () and kept[0].untyped_storage().nbytes() == 8


def test_a_part_added_to_a_layer_without_parts_is_noticed(x64):
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, torch_loss=torch_loss)
    step(batches(1)[0])
    layout = step._live.layout
    assert layout.stands()
    net.out._modules["more"] = nn.Tanh()
    assert not layout.stands()
    del net.out._modules["more"]
    assert layout.stands()
    del net.idle._parameters["bias"]
    assert not layout.stands()


def test_a_second_name_for_the_only_parameter_is_noticed():
    net = nn.Linear(2, 1, bias=False)
    layout = Layout(net, torch.optim.SGD(net.parameters(), 0.1))
    assert layout.stands()
    net.again = net.weight
    assert not layout.stands()


def test_a_step_of_nan_leaves_nothing_behind_once_torch_has_put_back_what_was(x64):
    """Between the parameters in the flat vector there are gaps: a gradient there would count in the norm."""
    net, optimizer, mapping = make()
    kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    good, bad = batches(1)[0], {k: np.full_like(v, np.nan) for k, v in batches(1)[0].items()}
    step = Step(net, optimizer, jax_loss, mapping, verify=False, clip_norm=0.1)
    step(bad)
    assert torch.isnan(net.out.weight).all()
    net.load_state_dict(kept[0])
    optimizer.load_state_dict(kept[1])
    step(good)
    torch_steps(reference, reference_optimizer, [good], clip_norm=0.1)
    assert distance(net, reference) <= 1e-12
