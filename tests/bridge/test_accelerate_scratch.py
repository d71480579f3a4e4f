"""`accelerate` on modules that keep what they have just computed, as policies of public libraries do."""

import copy
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import crossfade as cf
from crossfade.bridge.stepping.reads import _is_library
from crossfade.errors import UsageError


def pair(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(8, 3, generator=generator, dtype=torch.float64), torch.randint(2, (8,), generator=generator)


class Head:
    """An object that is no module, as the action distributions of Stable-Baselines3."""

    distribution: Categorical | list[Categorical]

    def of(self, logits: Tensor) -> "Head":
        self.distribution = self.made(logits)
        return self

    def made(self, logits: Tensor) -> Categorical | list[Categorical]:
        return Categorical(logits=logits)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.distribution.log_prob(action)

    def entropy(self) -> Tensor:
        return self.distribution.entropy()


class Heads(Head):
    def made(self, logits):
        return [Categorical(logits=logits), Categorical(logits=2 * logits)]

    def log_prob(self, action):
        return sum(one.log_prob(action) for one in self.distribution)

    def entropy(self):
        return sum(one.entropy() for one in self.distribution)


class Policy(nn.Module):
    def __init__(self, head: Head):
        super().__init__()
        self.net, self.head = nn.Linear(3, 2).double(), head

    def evaluate(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        head = self.head.of(self.net(x))
        return head.log_prob(action), head.entropy()


class Own(Policy):
    """Keeps it itself, as models of skrl."""

    _distribution: Categorical | None = None

    def evaluate(self, x, action):
        self._distribution = Categorical(logits=self.net(x))
        return self._distribution.log_prob(action), self.entropy()

    def entropy(self):
        assert self._distribution is not None
        return self._distribution.entropy()


class Lagging(Own):
    """Reads what the run before has left."""

    def evaluate(self, x, action):
        last = self._distribution
        self._distribution = Categorical(logits=self.net(x))
        weight = 1.0 if last is None else last.entropy().detach().mean()
        return weight * self._distribution.log_prob(action), self._distribution.entropy()


def loss(policy: Policy, batch: tuple[Tensor, Tensor]) -> Tensor:
    log_prob, entropy = policy.evaluate(*batch)
    return -log_prob.mean() - 0.01 * entropy.mean()


@pytest.mark.parametrize(("kind", "head"), [(Policy, Head), (Policy, Heads), (Own, Head)])
def test_a_policy_that_keeps_its_distribution(kind, head, x64):
    rollout = lambda policy, seed: policy.evaluate(*pair(10 + seed))
    ours, theirs = (equal_steps(lambda: kind(head()), fast, loss, rollout) for fast in (True, False))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (a - b).abs().max() <= 1e-12


def test_a_step_leaves_it_as_it_was(x64):
    policy = Policy(Head())
    optimizer = torch.optim.Adam(policy.parameters(), 0.01)
    with torch.no_grad():
        policy.evaluate(*pair(0))
    kept, own = policy.head.distribution, Own(Head())
    cf.accelerate(loss, policy, optimizer)(pair(1))
    assert policy.head.distribution is kept
    cf.accelerate(loss, own, torch.optim.Adam(own.parameters(), 0.01))(pair(1))
    assert "_distribution" not in vars(own)


def test_what_a_run_reads_of_the_run_before_is_refused(x64):
    policy = Lagging(Head())
    with pytest.raises(UsageError, match="changes .*_distribution each time"):
        cf.accelerate(loss, policy, torch.optim.Adam(policy.parameters(), 0.01))(pair(0))


def test_a_tensor_that_others_may_read_is_refused(x64):
    def noted(policy, batch):
        policy.errors = policy.evaluate(*batch)[0]
        return -policy.errors.mean()

    policy = Policy(Head())
    with pytest.raises(UsageError, match="changes Policy.errors each time"):
        cf.accelerate(lambda batch: noted(policy, batch), policy, torch.optim.Adam(policy.parameters(), 0.01))(pair(0))


class Hiding(nn.Module):
    """A loss that names its parameters in a way of its own and leaves out targets, as those of TorchRL."""

    def __init__(self):
        super().__init__()
        self.net, self._target = (nn.Linear(3, 2).double() for _ in range(2))

    def named_parameters(self, prefix="", recurse=True):
        for name, parameter in super().named_parameters(prefix=prefix, recurse=recurse):
            if not name.startswith("_target"):
                yield name, parameter

    def forward(self, batch):
        x, y = batch
        return (self.net(x) - self._target(x).detach() - y[:, None]).square().mean()


def test_a_loss_that_hides_its_targets(x64):
    def run(fast):
        torch.manual_seed(0)
        criterion = Hiding()
        optimizer = torch.optim.SGD(criterion.parameters(), 0.1)
        step = cf.accelerate(lambda criterion, batch: criterion(batch), criterion, optimizer) if fast else None
        for seed in range(4):
            if step is not None:
                step(pair(seed))
            else:
                optimizer.zero_grad()
                criterion(pair(seed)).backward()
                optimizer.step()
            with torch.no_grad():
                for target, source in zip(criterion._target.parameters(), criterion.net.parameters(), strict=True):
                    target.lerp_(source, 0.5)
        return list(nn.Module.named_parameters(criterion))

    for (name, a), (_, b) in zip(run(True), run(False), strict=True):
        assert (a - b).abs().max() <= 1e-12, name


def test_weights_that_a_hook_computes(x64):
    """`torch.nn.utils.weight_norm` keeps the weight of the last run, with its history."""

    def normed():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return nn.utils.weight_norm(nn.Linear(3, 2)).double()

    ours, theirs = (equal_steps(normed, fast) for fast in (True, False))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (a - b).abs().max() <= 1e-12


class Caching(nn.Module):
    """Keeps a detached weight from its first run on, which has the memory of the weight and so follows it."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 2, bias=False).double()
        self.cache = {}

    def target(self):
        if "weight" not in self.cache:
            self.cache["weight"] = self.net.weight.detach()
        return self.cache["weight"]

    def forward(self, x):
        return self.net(x) - 0.5 * nn.functional.linear(x, self.target()).tanh()


class Renewing(Caching):
    """Takes a part of it anew, in a way that torch does not show to a mode, as a library in another language would."""

    def target(self):
        with torch._C.DisableTorchFunction():
            return self.net.weight.detach()[:1]


def test_memory_that_is_shared_is_followed(x64):
    ours, theirs = (equal_steps(Caching, fast) for fast in (True, False))
    assert (ours.net.weight - theirs.net.weight).abs().max() <= 1e-12
    assert ours.cache["weight"].data_ptr() == ours.net.weight.data_ptr()


def test_a_view_out_of_sight_is_refused(x64):
    with pytest.raises(UsageError, match="reads a view of net.weight of shape"):
        equal_steps(Renewing, True)


def mean(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(net(batch[0]), batch[1])


def equal_steps(kind: Callable[[], Any], fast: bool, loss: Any = mean, between: Any = lambda net, seed: None) -> Any:
    """A module after four steps, by `accelerate` or by torch."""
    torch.manual_seed(0)
    net = kind()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    step = cf.accelerate(loss, net, optimizer) if fast else None
    for seed in range(4):
        with torch.no_grad():
            between(net, seed)
        if step is not None:
            step(pair(seed))
        else:
            optimizer.zero_grad()
            loss(net, pair(seed)).backward()
            optimizer.step()
    return net


@pytest.mark.parametrize("warm", [False, True])
def test_a_view_kept_in_a_closure(warm, x64):
    """Of the first run on stand-ins it would be one of them; of a run before the first step it follows the weight."""

    def keeping():
        kept = []

        def loss(net, batch):
            if not kept:
                kept.append(net.weight.detach())
            return mean(net, batch) + (net.weight - 2 * kept[0]).square().sum()

        return loss

    if not warm:
        with pytest.raises(UsageError, match="keeps a view of weight from its first run"):
            equal_steps(lambda: nn.Linear(3, 2).double(), True, keeping())
        return
    nets = []
    for fast in (True, False):
        own = keeping()
        run = lambda net, seed, own=own: own(net, pair(seed))
        nets.append(equal_steps(lambda: nn.Linear(3, 2).double(), fast, own, run))
    assert (nets[0].weight - nets[1].weight).abs().max() <= 1e-12


@dataclass
class Rows:
    """Tensors and words, as the batches of d3rlpy."""

    x: Tensor
    y: Tensor
    device: str = "cpu"
    kind: torch.dtype = torch.float64


def test_words_in_a_batch(x64):
    mean = lambda net, batch: nn.functional.cross_entropy(net(batch.x.to(batch.device, batch.kind)), batch.y)
    net = nn.Linear(3, 2).double()
    theirs = copy.deepcopy(net)
    step = cf.accelerate(mean, net, torch.optim.SGD(net.parameters(), 0.1))
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for seed in range(2):
        step(Rows(*pair(seed)))
        optimizer.zero_grad()
        mean(theirs, Rows(*pair(seed))).backward()
        optimizer.step()
    assert (net.weight - theirs.weight).abs().max() <= 1e-12
    with pytest.raises(UsageError, match=r"structure of the first; other are device \('cpu'\), device \('meta'\)"):
        step(Rows(*pair(0), device="meta"))


class Registering(nn.Module):
    """Registers a buffer when it runs."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 2).double()

    def forward(self, x):
        if getattr(self, "bias", None) is None:
            self.register_buffer("bias", torch.arange(len(x), dtype=x.dtype)[:, None].expand(-1, 2), persistent=False)
        return self.net(x) + self.bias


class Filling(Registering):
    """Fills a buffer when it runs, as ALiBi of x-transformers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("bias", None, persistent=False)


class Choosing(nn.Module):
    """Looks at values where it is not compiled, as the masks of transformers."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 2).double()

    def forward(self, x):
        if not torch.compiler.is_compiling() and (x > -100).all():
            return self.net(x)
        return torch.where(x.min() > -100, self.net(x), 0)


@pytest.mark.parametrize("kind", [Registering, Filling, Choosing])
def test_modules_of_transformers(kind, x64):
    ours, theirs = (equal_steps(kind, fast) for fast in (True, False))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (a - b).abs().max() <= 1e-12
    assert not torch.compiler.is_compiling()


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/home/ann/.local/lib/python3.11/site-packages/somewhere/__init__.py", True),
        ("/usr/lib/python3/dist-packages/somewhere/__init__.py", True),
        ("/home/ann/project/somewhere/__init__.py", False),
    ],
)
def test_installed_is_what_lies_among_packages(file, library, monkeypatch):
    module = ModuleType("somewhere")
    module.__file__ = file
    monkeypatch.setitem(sys.modules, "somewhere", module)
    _is_library.cache_clear()
    assert _is_library("somewhere.nets", "mine") is library
    _is_library.cache_clear()
