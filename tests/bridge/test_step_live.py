"""Whatever torch code reads between steps is up to date, and whatever it writes is not lost."""

import copy
import pickle

import numpy as np
import pytest
import torch
from parameter_reads import READS, loaded, saved
from step_nets import (
    assert_same_optimizer,
    batches,
    distance,
    jax_loss,
    make,
    moments,
    tensors,
    torch_loss,
    torch_steps,
)
from torch import nn

from crossfade.bridge import Step


@pytest.mark.parametrize("name", READS)
def test_every_read_sees_the_last_step(name, x64):
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    read, expected = READS[name](net), READS[name](reference)
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    for batch in batches(3):
        before = [t.clone() for t in read(net)]
        expected(reference)
        step(batch)
        torch_steps(reference, reference_optimizer, [batch])
        now, right = read(net), expected(reference)
        assert any(not torch.equal(a, b) for a, b in zip(before, now, strict=True))
        for a, b in zip(now, right, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_parameters_that_nobody_else_sees_are_read_and_written_in_place(x64):
    """What keeps the safe way quick. After the proof too, and after another program was made."""
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, torch_loss=torch_loss)
    step(batches(1)[0])
    assert not step._live.trained.copies
    step.clip_norm = 0.5
    step(batches(1)[0])
    assert not step._live.trained.copies

    net, optimizer, mapping = make()
    held = net.out.weight.detach().numpy()
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    step(batches(1)[0])
    assert len(step._live.trained.copies) == 1 and np.array_equal(held, net.out.weight.detach().numpy())


def test_saving_a_part_saves_that_part_alone(x64):
    net, optimizer, mapping = make()
    size = len(saved(net.out.state_dict()).getvalue())
    Step(net, optimizer, jax_loss, mapping, verify=False)(batches(1)[0])
    assert len(saved(net.out.state_dict()).getvalue()) == size


def test_a_dqn_with_a_target_network_trains_as_in_torch(x64):
    """CleanRL's shape: the target is computed in torch by a second net that follows the first."""

    def train(net, step):
        target = copy.deepcopy(net)
        for batch in batches(8):
            with torch.no_grad():
                y = tensors(batch)["y"] + 0.9 * target(torch.from_numpy(batch["x"]))
            step({"x": batch["x"], "y": y.numpy()})
            for old, new in zip(target.parameters(), net.parameters(), strict=True):
                old.data.copy_(0.3 * new.data + 0.7 * old.data)
        return target

    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    target = train(net, Step(net, optimizer, jax_loss, mapping, torch_loss=torch_loss))
    expected = train(reference, lambda batch: torch_steps(reference, reference_optimizer, [batch]))
    assert distance(net, reference) <= 1e-12 and distance(target, expected) <= 1e-12


MOMENT_READS = {
    "state_dict": lambda optimizer: optimizer.state_dict()["state"][0]["exp_avg"],
    "state": lambda optimizer: optimizer.state[optimizer.param_groups[0]["params"][0]]["exp_avg"],
    "deepcopy": lambda optimizer: next(iter(copy.deepcopy(optimizer).state.values()))["exp_avg"],
    "pickle": lambda optimizer: next(iter(pickle.loads(pickle.dumps(optimizer)).state.values()))["exp_avg"],
    "torch.save": lambda optimizer: next(iter(loaded(saved(optimizer)).state.values()))["exp_avg"],
    "dict": lambda optimizer: next(iter(dict(optimizer.state).values()))["exp_avg"],
}


@pytest.mark.parametrize("name", MOMENT_READS)
def test_moments_are_up_to_date_when_torch_looks(name, x64):
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    for batch in batches(2):
        step(batch)
        torch_steps(reference, reference_optimizer, [batch])
        expected = MOMENT_READS[name](reference_optimizer)
        torch.testing.assert_close(MOMENT_READS[name](optimizer), expected, rtol=1e-12, atol=1e-15)


def test_the_torch_optimizer_may_step_in_between(x64):
    """An auxiliary loss, say, that stays in torch."""
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data = batches(6)
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    for i in range(0, 6, 2):
        step(data[i])
        torch_steps(net, optimizer, [data[i + 1]])
    torch_steps(reference, reference_optimizer, data)
    assert distance(net, reference) <= 1e-12
    assert_same_optimizer(optimizer, reference_optimizer)


def test_two_steps_train_one_module_by_one_optimizer(x64):
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    doubled = lambda loss: lambda model, batch: 2 * loss(model, batch)
    first = Step(net, optimizer, jax_loss, mapping, verify=False)
    second = Step(net, optimizer, doubled(jax_loss), mapping, verify=False)
    for batch in batches(3):
        first(batch)
        second(batch)
        torch_steps(reference, reference_optimizer, [batch])
        torch_steps(reference, reference_optimizer, [batch], loss=doubled(torch_loss))
    assert distance(net, reference) <= 1e-12
    assert_same_optimizer(optimizer, reference_optimizer)


def halve_moments(optimizer):
    for kept in optimizer.state.values():
        kept["exp_avg"].mul_(0.5)


def halve_data(net):
    for p in net.parameters():
        p.data = p.data * 0.5


EDITS = {
    "load_state_dict": lambda net, _: net.load_state_dict({n: t * 0.5 for n, t in net.state_dict().items()}),
    "in place": lambda net, _: [p.detach().mul_(0.5) for p in net.parameters()],
    "through .data": lambda net, _: [p.data.mul_(0.5) for p in net.parameters()],
    "other .data": lambda net, _: halve_data(net),
    "through NumPy": lambda net, _: [
        np.multiply(p.detach().numpy(), 0.5, out=p.detach().numpy()) for p in net.parameters()
    ],
    "vector_to_parameters": lambda net, _: nn.utils.vector_to_parameters(
        0.5 * nn.utils.parameters_to_vector(net.parameters()), net.parameters()
    ),
    "moments": lambda _, optimizer: halve_moments(optimizer),
    "moments forgotten": lambda _, optimizer: optimizer.state.clear(),
    "moments of one parameter": lambda net, optimizer: [
        optimizer.state.pop(p) for p in (net.hidden.weight, net.hidden.bias, net.out.weight, net.out.bias)
    ],
}


@pytest.mark.parametrize("name", EDITS)
def test_what_torch_writes_in_between_is_not_lost(name, x64):
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data = batches(6)
    with Step(net, optimizer, jax_loss, mapping, verify=False) as step:
        for batch in data[:3]:
            step(batch)
        EDITS[name](net, optimizer)
        for batch in data[3:]:
            step(batch)
    torch_steps(reference, reference_optimizer, data[:3])
    EDITS[name](reference, reference_optimizer)
    torch_steps(reference, reference_optimizer, data[3:])
    assert distance(net, reference) <= 1e-12
    assert_same_optimizer(optimizer, reference_optimizer)


def test_the_optimizers_state_dict_can_be_loaded(x64):
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data = batches(6)
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    for batch in data[:3]:
        step(batch)
    kept, weights = copy.deepcopy((optimizer.state_dict(), net.state_dict()))
    for batch in data[:2]:
        step(batch)
    optimizer.load_state_dict(kept)
    net.load_state_dict(weights)
    for batch in data[3:]:
        step(batch)
    step.close()
    torch_steps(reference, reference_optimizer, data)
    assert distance(net, reference) <= 1e-12
    assert_same_optimizer(optimizer, reference_optimizer)


def test_a_graph_from_before_a_step_is_refused_as_in_torch(x64):
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    loss = torch_loss(net, tensors(batches(1)[0]))
    step(batches(1)[0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_copy_is_free_of_the_step(x64):
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    data = batches(4)
    step(data[0])
    free, free_optimizer = copy.deepcopy((net, optimizer))
    torch_steps(free, free_optimizer, data[1:])
    for batch in data[1:]:
        step(batch)
    assert distance(net, free) <= 1e-12
    assert type(free_optimizer.state).__module__ == "collections"
    with torch.no_grad():
        free.hidden.weight.zero_()
    assert net.hidden.weight.any() and moments(optimizer)
