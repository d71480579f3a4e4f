"""`accelerate` on code as strangers write it: their batches, their logs, their own gradients, what they keep."""

import copy
import random
from collections import UserDict, deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import crossfade as cf
from crossfade.errors import TransferError, UsageError
from default_run import few


def pair(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 3, generator=generator, dtype=torch.float64), torch.randint(2, (8,), generator=generator)


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
    return net, torch.optim.Adam(net.parameters(), 0.01)


def plain(loss: Any, net: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> None:
    optimizer.zero_grad()
    value = loss(net, batch)
    (value[0] if isinstance(value, tuple) else value).backward()
    optimizer.step()


def apart(loss: Any, batch: Any, updates: int = 4) -> float:
    """How far parameters and buffers are from those of plain torch."""
    nets = []
    for fast in (False, True):
        net, optimizer = make()
        step = cf.accelerate(loss, net, optimizer) if fast else None
        torch.manual_seed(1)
        for seed in range(updates):
            step(batch(seed)) if step else plain(loss, net, optimizer, batch(seed))
        nets.append(net.state_dict().values())
    return max(float((a - b).abs().max()) for a, b in zip(*nets, strict=True))


# Batches


@dataclass
class Data:
    x: Tensor
    y: Tensor
    name: None = None


@dataclass(frozen=True)
class Frozen:
    y: Tensor
    x: Tensor = field(kw_only=True)


class Dotted(dict):
    __getattr__ = dict.__getitem__


class Keyed(UserDict):
    x = property(lambda self: self["x"])
    y = property(lambda self: self["y"])


class Batch:
    """Attributes and keys, in a class that is no mapping, as Tianshou has it."""

    def __init__(self, **parts):
        self.__dict__.update(parts)

    def keys(self):
        return self.__dict__.keys()

    def __getitem__(self, key):
        return self.__dict__[key]

    def __setitem__(self, key, value):
        self.__dict__[key] = value


BOXES = {
    "keys without a mapping": lambda x, y: Batch(x=x, y=y),
    "dataclass": lambda x, y: Data(x, y),
    "frozen dataclass": lambda x, y: Frozen(y, x=x),
    "a dict of one's own": lambda x, y: Dotted(x=x, y=y) if x[0, 0] > 0 else Dotted(y=y, x=x),
    "a mapping": lambda x, y: Keyed(x=x, y=y),
    "namespace": lambda x, y: SimpleNamespace(x=x, y=y),
}


def dotted(net, batch):
    return F.cross_entropy(net(batch.x), batch.y)


@pytest.mark.parametrize("name", few(BOXES, "frozen dataclass", "a dict of one's own", "keys without a mapping"))
def test_batches_in_containers_that_jax_does_not_know(name, x64):
    assert apart(dotted, lambda seed: BOXES[name](*pair(seed))) <= 1e-12


def test_an_epoch_of_dataclasses(x64):
    nets = []
    for fast in (False, True):
        net, optimizer = make()
        batches = [Data(*pair(seed)) for seed in range(3)]
        if fast:
            cf.accelerate(dotted, net, optimizer).epoch(batches)
        else:
            for batch in batches:
                plain(dotted, net, optimizer, batch)
        nets.append(net[0].weight)
    assert (nets[0] - nets[1]).abs().max() <= 1e-12


def test_containers_of_another_structure_are_refused(x64):
    net, optimizer = make()
    step = cf.accelerate(dotted, net, optimizer, verify=False)
    step(Data(*pair(0)))
    for wrong in (Frozen(pair(0)[1], x=pair(0)[0]), Data(*pair(0), name=pair(0)[1]), dict(zip("xy", pair(0)))):  # noqa: B905
        with pytest.raises(UsageError, match="structure of the first"):
            step(wrong)


def test_an_object_is_refused(x64):
    net, optimizer = make()
    with pytest.raises(TransferError, match="got object. Leave out .* make a dict"):
        cf.accelerate(dotted, net, optimizer)({"x": object()})


def test_a_computed_tensor_in_a_batch_is_refused(x64):
    """Its gradient would go to an encoder that the same optimiser trains."""
    encoder, (net, _) = nn.Linear(3, 3).double(), make()
    optimizer = torch.optim.SGD([*net.parameters(), *encoder.parameters()], 0.1)
    step = cf.accelerate(dotted, net, optimizer)
    x, y = pair(0)
    with pytest.raises(UsageError, match="inside of the loss, or detach"):
        step(SimpleNamespace(x=encoder(x), y=y))
    step(SimpleNamespace(x=x, y=y))
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(UsageError, match="inside of the loss, or detach"):
        step(SimpleNamespace(x=encoder(x), y=y))
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    step(SimpleNamespace(x=x.requires_grad_(), y=y))


def test_arrays_that_the_loss_makes_tensors_of(x64):
    def loss(net, batch):
        x, y = torch.from_numpy(batch["x"]), torch.as_tensor(batch["y"])
        return F.cross_entropy(net(x) * torch.from_numpy(np.array([1.0, 2.0])), y)

    before = torch.from_numpy
    assert apart(loss, lambda seed: {name: tensor.numpy() for name, tensor in xy(seed).items()}) <= 1e-12
    assert torch.from_numpy is before


def test_a_loss_that_writes_into_its_batch_is_refused(x64):
    """In torch the caller's tensor, a replay memory perhaps, has changed after it."""

    def loss(net, batch):
        batch["x"].sub_(batch["x"].mean(0))
        return F.cross_entropy(net(batch["x"]), batch["y"])

    net, optimizer = make()
    with pytest.raises(UsageError, match=r"writes into its batch \(a tensor of shape \(8, 3\)\)"):
        cf.accelerate(loss, net, optimizer)(xy(0))


# Logs and numbers


def xy(seed: int) -> dict[str, Tensor]:
    return dict(zip(("x", "y"), pair(seed), strict=True))


def test_item_is_the_number_of_each_step(x64):
    """As what is logged and as a factor without gradient."""

    def loss(net, batch):
        logits = net(batch["x"])
        scale = logits.pow(2).mean().item()
        value = scale * F.cross_entropy(logits, batch["y"])
        return value, {"scale": scale, "loss": value.item()}

    assert apart(loss, xy) <= 1e-12
    net, optimizer = make()
    step = cf.accelerate(loss, net, optimizer)
    for seed in range(3):
        expected = loss(net, xy(seed))[1]
        _, info = step(xy(seed))
        assert {name: pytest.approx(value, rel=1e-12) for name, value in expected.items()} == info
    assert step.stats.compiles == 1


def printing(net, batch):
    value = F.cross_entropy(net(batch["x"]), batch["y"])
    str(f"{value:.3f}")
    return value


def showing(net, batch):
    value = F.cross_entropy(net(batch["x"]), batch["y"])
    str(value)
    return value


def as_numpy(net, batch):
    logits = net(batch["x"])
    np.asarray(logits.detach())
    return F.cross_entropy(logits, batch["y"])


def going_back(net, batch):
    value = F.cross_entropy(net(batch["x"]), batch["y"])
    value.backward()
    return value


def test_a_loss_that_does_what_the_step_does_is_refused(x64):
    net, optimizer = make()
    with pytest.raises(UsageError, match=r"test_accelerate_strangers\.py:\d+: the loss calls backward"):
        cf.accelerate(going_back, net, optimizer)(xy(0))
    assert all(parameter.grad is None for parameter in net.parameters())


def test_a_loss_without_a_gradient_is_refused(x64):
    net, optimizer = make()
    for loss in (lambda net, batch: net(batch["x"]).sum().item(), lambda net, batch: net(batch["x"]).sum().detach()):
        with pytest.raises(UsageError, match="depends on a parameter, got one without a gradient"):
            cf.accelerate(loss, net, optimizer)(xy(0))


@pytest.mark.parametrize("loss", [printing, showing, as_numpy])
def test_a_loss_that_shows_numbers_is_refused_with_its_line(loss, x64):
    net, optimizer = make()
    with pytest.raises(UsageError, match=r"test_accelerate_strangers\.py:\d+: the loss takes a number.*info"):
        cf.accelerate(loss, net, optimizer)(xy(0))


# What a loss keeps

LOG: list[Tensor] = []
COUNT = 0


class Agent:
    def __init__(self):
        self.net, self.optimizer = make()
        self.updates, self.info, self.recent = 0, {}, deque(maxlen=5)
        self.rng, self.python = np.random.default_rng(0), random.Random(0)
        self.mask = None

    def value(self, batch):
        return F.cross_entropy(self.net(batch["x"]), batch["y"])

    def lists(self, batch):
        LOG.append(self.value(batch).detach())
        return self.value(batch)

    def counts(self, batch):
        self.updates += 1
        return self.value(batch)

    def counts_globally(self, batch):
        global COUNT
        COUNT += 1
        return self.value(batch)

    def stores(self, batch):
        value = self.value(batch)
        self.last_loss = value.item()
        return value

    def fills(self, batch):
        value = self.value(batch)
        self.info["loss"] = value.item()
        return value

    def remembers(self, batch):
        value = self.value(batch)
        self.recent.append(value.item())
        return value

    def draws(self, batch):
        return self.value(batch) * self.rng.uniform()

    def draws_by_python(self, batch):
        return self.value(batch) * self.python.random()

    def draws_by_numpy(self, batch):
        return self.value(batch) * np.random.uniform()

    def draws_by_random(self, batch):
        return self.value(batch) * random.random()

    def keeps_a_mask(self, batch):
        if self.mask is None:
            self.mask = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
        return F.cross_entropy(self.net(batch["x"] * self.mask), batch["y"])


KEPT = {
    "lists": "LOG",
    "counts": r"self\.updates",
    "counts_globally": "COUNT",
    "stores": r"self\.last_loss",
    "fills": r"self\.info",
    "remembers": r"self\.recent",
    "draws": r"self\.rng",
    "draws_by_python": r"self\.python",
    "draws_by_numpy": r"np\.random",
    "draws_by_random": "draws from random",
}


@pytest.mark.parametrize("way", KEPT)
def test_what_a_loss_does_beside_computing_is_refused(way, x64):
    """Compiled, it would happen once, and the number that was drawn would be a constant."""
    agent = Agent()
    before = copy.deepcopy(agent.net.state_dict())
    with pytest.raises(UsageError, match=KEPT[way]):
        cf.accelerate(getattr(agent, way), agent.net, agent.optimizer)(xy(0))
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.net.state_dict().items())


def test_what_a_loss_makes_once_and_keeps_is_followed(x64):
    agent, reference = Agent(), Agent()
    step = cf.accelerate(agent.keeps_a_mask, agent.net, agent.optimizer)
    for seed in range(3):
        step(xy(seed))
        plain(lambda _, batch: reference.keeps_a_mask(batch), reference.net, reference.optimizer, xy(seed))
    assert (agent.net[0].weight - reference.net[0].weight).abs().max() <= 1e-12


class Moving(nn.Module):
    """A mean that moves on, in a tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.linear, self.mean = nn.Linear(3, 2), torch.zeros(3)

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.linear(x - self.mean)


def test_a_tensor_that_moves_on_and_is_no_buffer_is_refused():
    net = Moving()
    step = cf.accelerate(lambda b: net(b).pow(2).mean(), net, torch.optim.SGD(net.parameters(), 0.1))
    with pytest.raises(UsageError, match=r"changes self\.mean .* a buffer"):
        step(torch.ones(4, 3))


# Derivatives of one's own


class Through(torch.autograd.Function):
    """A layer whose parameters are its arguments, rounded straight through."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return (x @ weight.t() + bias).sign()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.t() @ x, grad.sum(0)


def binary(net, batch):
    return F.cross_entropy(net[2](Through.apply(batch["x"], net[0].weight, net[0].bias)), batch["y"])


def test_a_function_with_its_own_derivative(x64):
    assert apart(binary, xy) <= 1e-12


def test_hooks_of_the_optimisers_step_are_refused(x64):
    """An average that follows by a hook would stand still."""
    for register in ("register_step_pre_hook", "register_step_post_hook"):
        net, optimizer = make()
        handle = getattr(optimizer, register)(lambda *_: None)
        with pytest.raises(UsageError, match="optimiser without hooks"):
            cf.accelerate(dotted, net, optimizer)
        handle.remove()
        step = cf.accelerate(dotted, net, optimizer)
        getattr(optimizer, register)(lambda *_: None)
        with pytest.raises(UsageError, match="optimiser without hooks"):
            step(Data(*pair(0)))


def test_parameters_by_other_parameters(x64):
    """`parametrizations` are followed; DataParallel is its module."""
    weighed = lambda norm: nn.Sequential(norm(nn.Linear(3, 5)), nn.Linear(5, 2)).double()
    nets = weighed(nn.utils.parametrizations.weight_norm), nn.DataParallel(make()[0])
    for net in nets:
        reference = copy.deepcopy(net)
        optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (net, reference)]
        step = cf.accelerate(dotted, net, optimizers[0])
        for seed in range(2):
            step(Data(*pair(seed)))
            plain(dotted, reference, optimizers[1], Data(*pair(seed)))
        for a, b in zip(net.parameters(), reference.parameters(), strict=True):
            assert (a - b).abs().max() <= 1e-12


def test_a_dict_whose_keys_have_no_order(x64):
    table = {"weight": 2.0, 0: 0.5, None: 1.0}
    loss = lambda net, batch: sum(table.values()) * F.cross_entropy(net(batch[0]), batch[1])
    assert apart(loss, pair) <= 1e-12
    net, optimizer = make()
    step = cf.accelerate(loss, net, optimizer)
    step(pair(0))
    table[0] = 3.0
    with pytest.raises(UsageError, match="table"):
        step(pair(1))


def test_an_activation_that_is_closed_over_is_watched(x64):
    act, (net, optimizer) = nn.LeakyReLU(0.2), make()
    step = cf.accelerate(lambda net, batch: F.cross_entropy(act(net(batch[0])), batch[1]), net, optimizer)
    step(pair(0))
    act.negative_slope = 0.5
    with pytest.raises(UsageError, match="negative_slope"):
        step(pair(1))
