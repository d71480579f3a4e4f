"""Parameters that a loss does not use: skipped, as after `zero_grad()`, or taken along by gradients of zeros."""

import numpy as np
import pytest
import torch
from step_nets import JaxNet, TorchNet, assert_same_optimizer, distance, tensors
from torch import nn

from crossfade.bridge import Mapping, Step

OPTIMIZERS = {
    "Adam": lambda parameters: torch.optim.Adam(parameters, 0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 0.01, weight_decay=0.1),
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9),
}


def torch_phase(net, batch):
    """Two phases of training, by the structure of the batch: one trains all, the other not the last layer."""
    if "y" in batch:
        return ((net(batch["x"]) - batch["y"]) ** 2).mean() + (net.idle(batch["x"][:, :2]) ** 2).mean()
    return (torch.tanh(net.hidden(batch["x"])) ** 2).mean()


def jax_phase(net, batch):
    import jax
    import jax.numpy as jnp

    if "y" in batch:
        squares = (jax.vmap(net)(batch["x"]) - batch["y"]) ** 2
        return squares.mean() + (jax.vmap(net.idle)(batch["x"][:, :2]) ** 2).mean()
    return (jnp.tanh(jax.vmap(net.hidden)(batch["x"])) ** 2).mean()


def draw(phase, seed):
    rng = np.random.default_rng(seed)
    batch = {"x": rng.normal(size=(4, 3)), "y": rng.normal(size=(4, 2))}
    return batch if phase == 1 else {"x": batch["x"]}


def nets(make) -> tuple[nn.Module, torch.optim.Optimizer, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    ours, theirs = TorchNet().double(), TorchNet().double()
    theirs.load_state_dict(ours.state_dict())
    return ours, make(ours.parameters()), theirs, make(theirs.parameters())


def by_torch(net, optimizer, batch, set_to_none):
    optimizer.zero_grad(set_to_none=set_to_none)
    for parameter in net.parameters() if not set_to_none else ():
        parameter.grad = torch.zeros_like(parameter)  # zero_grad alone leaves None where there has been no gradient yet
    torch_phase(net, tensors(batch)).backward()
    optimizer.step()


def run(make, set_to_none, claimed):
    """Three updates of each phase in torch, and the same by two steps over one optimiser."""
    ours, optimizer, theirs, reference = nets(make)
    mapping = Mapping.by_name(ours, JaxNet())
    new = lambda: Step(ours, optimizer, jax_phase, mapping, torch_loss=torch_phase, set_to_none=claimed)
    steps = {phase: new() for phase in (1, 2)}
    for i, phase in enumerate((1, 1, 1, 2, 2, 2, 1)):
        steps[phase](draw(phase, i))
        by_torch(theirs, reference, draw(phase, i), set_to_none)
    for step in steps.values():
        step.close()
    return ours, optimizer, theirs, reference


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_zeros_move_what_a_phase_does_not_use_as_in_torch(name, x64):
    ours, optimizer, theirs, reference = run(OPTIMIZERS[name], set_to_none=False, claimed=False)
    assert distance(ours, theirs) < 1e-12
    assert_same_optimizer(optimizer, reference)


def test_zeros_and_nothing_are_not_the_same(x64):
    """Guard: the same run with the idle layer skipped ends elsewhere."""
    ours, _, theirs, _ = run(OPTIMIZERS["Adam"], set_to_none=False, claimed=False)
    skipping = nets(OPTIMIZERS["Adam"])[0]
    optimizer = OPTIMIZERS["Adam"](skipping.parameters())
    for i, phase in enumerate((1, 1, 1, 2, 2, 2, 1)):
        by_torch(skipping, optimizer, draw(phase, i), set_to_none=True)
    assert distance(skipping, theirs) > 1e-4
