"""An accelerated torch loss trains as plain torch does."""

import copy
import functools

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from accelerate_agents import AGENTS, plain, train
from parameter_reads import READS
from step_nets import TorchNet, assert_same_optimizer, batches, distance, make, torch_loss, torch_steps
from torch import nn

import crossfade as cf
from crossfade.bridge import Step
from default_run import few

LIKE_OTHERS = ("deepcopy", "a polyak loop", "a hook", "another module that shares it", "memory lent by NumPy")


def test_one_line_in_place_of_five(x64):
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data = batches(10)
    step = cf.accelerate(torch_loss, net, optimizer, clip_norm=0.5)
    assert isinstance(step, Step)
    for batch in data[:6]:
        step(batch)
    losses = step.epoch(data[6:])
    torch_steps(reference, reference_optimizer, data, clip_norm=0.5)
    assert losses.shape == (4,) and distance(net, reference) <= 1e-12
    assert_same_optimizer(optimizer, reference_optimizer)
    assert {row.quantity for row in step.proof} == {"loss", "gradient", "parameters", "moments", "buffers"}


def test_every_number_of_a_gradient_is_clipped(x64):
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    unclipped, unclipped_optimizer = copy.deepcopy((net, optimizer))
    data = batches(8)
    step = cf.accelerate(torch_loss, net, optimizer, clip_value=0.01)
    for batch in data[:4]:
        step(batch)
    step.clip_value = 0.002
    step.epoch(data[4:])
    torch_steps(reference, reference_optimizer, data[:4], clip_value=0.01)
    torch_steps(reference, reference_optimizer, data[4:], clip_value=0.002)
    torch_steps(unclipped, unclipped_optimizer, data)
    assert distance(net, reference) <= 1e-12 < 1e-3 < distance(net, unclipped)
    assert_same_optimizer(optimizer, reference_optimizer)


def test_the_proof_in_float32_says_rounding():
    net, optimizer, _ = make(dtype=torch.float32)
    step = cf.accelerate(torch_loss, net, optimizer)
    step(batches(1, np.float32)[0])
    assert {row.dtype for row in step.proof} == {"float64", "float32"}
    assert step.stats.compiles == 1


@pytest.mark.parametrize("name", few(AGENTS, "DQN", "SAC"))
def test_agents_train_as_in_torch(name, x64):
    """Closures, targets that follow, steps that train each other's inputs, a bare tensor, noise from torch."""
    learnt, expected, less = train(name, cf.accelerate, 8), train(name, plain, 8), train(name, plain, 6)
    for a, b in zip(learnt, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    moved = [bool((a - b).abs().max() > 1e-6) for a, b in zip(learnt, less, strict=True)]
    assert sum(moved) >= len(moved) - 4  # a deterministic actor and its target do not use their spread


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_agents_train_as_in_torch_over_200_updates(name, x64):
    learnt, expected = train(name, cf.accelerate, 200), train(name, plain, 200)
    for a, b in zip(learnt, expected, strict=True):
        assert (a - b).abs().max() <= 1e-9


@pytest.mark.parametrize("name", few(READS, *LIKE_OTHERS))
def test_every_read_sees_the_last_step(name, x64):
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    read, expected = READS[name](net), READS[name](reference)
    step = cf.accelerate(torch_loss, net, optimizer, verify=False)
    for batch in batches(3):
        before = [t.clone() for t in read(net)]
        expected(reference)
        step(batch)
        torch_steps(reference, reference_optimizer, [batch])
        now, right = read(net), expected(reference)
        assert any(not torch.equal(a, b) for a, b in zip(before, now, strict=True))
        for a, b in zip(now, right, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


# Ways to write a loss

NET = TorchNet().double()


def of_a_global(batch):
    return torch_loss(NET, batch)


class Agent:
    def __init__(self, net):
        self.nets = {"net": net}

    def loss(self, batch):
        return torch_loss(self.nets["net"], batch)


def by_a_name(agent, batch):
    return torch_loss(getattr(agent, "ne" + "ts")["net"], batch)


class LossModule(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, batch):
        return torch_loss(self.net, batch)


WAYS = {
    "a module that gives the loss": lambda net: (LossModule(net), net),
    "given": lambda net: (torch_loss, net),
    "given in a list": lambda net: (lambda nets, batch: torch_loss(nets[0], batch), [net]),
    "given in a dict": lambda net: (lambda nets, batch: torch_loss(nets["net"], batch), {"net": net}),
    "in a closure": lambda net: (lambda batch: torch_loss(net, batch), net),
    "in a closure, elsewhere": lambda net: (lambda batch: torch_loss(net, batch), nn.Linear(1, 1).double()),
    "in an object": lambda net: (Agent(net).loss, net),
    "by a name made at run time": lambda net: (functools.partial(by_a_name, Agent(net)), net),
    "with info": lambda net: (lambda batch: (torch_loss(net, batch), {"mean": batch["x"].mean(), "beta": 0.5}), net),
    "of one element": lambda net: (lambda batch: torch_loss(net, batch)[None], net),
}


@pytest.mark.parametrize(
    "way", few(WAYS, "a module that gives the loss", "in a closure, elsewhere", "in an object", "with info")
)
def test_a_loss_may_get_at_its_module_in_any_way(way, x64):
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    step = cf.accelerate(*WAYS[way](net), optimizer)
    for batch in batches(3):
        result = step(batch)
        torch_steps(reference, reference_optimizer, [batch])
        if way == "with info":
            torch.testing.assert_close(result[1]["mean"], torch.tensor(batch["x"]).mean(), rtol=1e-12, atol=0)
    assert distance(net, reference) <= 1e-12


def test_a_loss_that_gives_many_results_is_replaced_by_a_step_that_does(x64):
    net, optimizer, _ = make()
    loss = lambda batch: (torch_loss(net, batch), batch["x"].mean(), net(batch["x"]).detach())
    data = batches(4)
    step = cf.accelerate(loss, net, optimizer)
    expected = loss({name: torch.from_numpy(array) for name, array in data[0].items()})
    for found, right in zip(step(data[0]), expected, strict=True):
        torch.testing.assert_close(found, right.detach(), rtol=1e-12, atol=1e-12)
    values, means, outputs = step.epoch(data[1:])
    assert values.shape == means.shape == (3,) and outputs.shape[0] == 3


def test_a_jax_loss_by_hand_reads_torchs_names(x64):
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))

    def jax_loss(weights, batch):
        hidden = jnp.tanh(batch["x"] @ weights["hidden.weight"].T + weights["hidden.bias"][None])
        return 3 * jnp.mean((hidden @ weights["out.weight"].T + weights["out.bias"][None] - batch["y"]) ** 2)

    step = cf.accelerate(torch_loss, net, optimizer, jax_loss=jax_loss)
    for batch in batches(3):
        step(batch)
        torch_steps(reference, reference_optimizer, [batch])
    assert distance(net, reference) <= 1e-12 and step.proof


def test_an_ensemble_of_bare_tensors_under_vmap(x64):
    torch.manual_seed(0)
    base = nn.Linear(3, 2).double()
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    stacked = {"weight": draw(4, 2, 3), "bias": draw(4, 2)}
    expected = {name: tensor.detach().clone().requires_grad_() for name, tensor in stacked.items()}

    def loss(stacked, batch):
        member = lambda weights, x: torch.func.functional_call(base, weights, (x,))
        return (torch.vmap(member, in_dims=(0, None))(stacked, batch["x"]) - batch["y"][None]).pow(2).mean()

    step = cf.accelerate(loss, stacked, torch.optim.Adam(stacked.values(), 0.02))
    optimizer = torch.optim.Adam(expected.values(), 0.02)
    for batch in batches(3):
        step(batch)
        torch_steps(expected, optimizer, [batch], loss=loss)
    for name in stacked:
        torch.testing.assert_close(stacked[name], expected[name], rtol=1e-12, atol=1e-14)


def test_an_ensemble_closed_over_with_a_skeleton_on_meta(x64):
    torch.manual_seed(0)
    stacked, _ = torch.func.stack_module_state([nn.Linear(3, 2).double() for _ in range(4)])
    skeleton = nn.Linear(3, 2, device="meta")
    expected = {name: tensor.detach().clone().requires_grad_() for name, tensor in stacked.items()}

    def loss_of(weights, batch):
        member = lambda weights, x: torch.func.functional_call(skeleton, weights, (x,))
        return (torch.vmap(member, in_dims=(0, None))(weights, batch["x"]) - batch["y"][None]).pow(2).mean()

    step = cf.accelerate(lambda batch: loss_of(stacked, batch), stacked, torch.optim.Adam(stacked.values(), 0.02))
    optimizer = torch.optim.Adam(expected.values(), 0.02)
    for batch in batches(3):
        step(batch)
        torch_steps(expected, optimizer, [batch], loss=loss_of)
    for name in stacked:
        torch.testing.assert_close(stacked[name], expected[name], rtol=1e-12, atol=1e-14)


def test_a_parameter_closed_over_and_given_to_grad(x64):
    torch.manual_seed(0)
    weight = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    expected = weight.detach().clone().requires_grad_()

    def penalty(weight, batch):
        return torch.func.grad(lambda w: (batch["x"] @ w).tanh().sum())(weight).square().sum()

    step = cf.accelerate(lambda batch: penalty(weight, batch), weight, torch.optim.SGD([weight], 0.02))
    optimizer = torch.optim.SGD([expected], 0.02)
    for batch in batches(3):
        step(batch)
        torch_steps(expected, optimizer, [batch], loss=penalty)
    torch.testing.assert_close(weight, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_a_module_given_to_torch_compile_is_run_as_it_is(x64):
    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    compiled = torch.compile(net, backend="eager")
    step = cf.accelerate(lambda batch: torch_loss(compiled, batch), compiled, optimizer)
    for batch in batches(3):
        step(batch)
        torch_steps(reference, reference_optimizer, [batch])
    assert distance(net, reference) <= 1e-12


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))[:, :2]


def test_tied_parameters_stay_tied(x64):
    torch.manual_seed(0)
    net = Tied().double()
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    step = cf.accelerate(torch_loss, net, optimizer)
    for batch in batches(3):
        step(batch)
        torch_steps(reference, reference_optimizer, [batch])
    assert net.second.weight is net.first.weight and distance(net, reference) <= 1e-12


class Normed(nn.Module):
    """Running statistics, a mask outside of the state_dict, a count that is replaced, and dropout."""

    def __init__(self, dropout: float):
        super().__init__()
        self.norm, self.out, self.drop = nn.BatchNorm1d(3), nn.Linear(3, 2), nn.Dropout(dropout)
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0]), persistent=False)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + x.shape[0]
        return self.out(self.drop(self.norm(x)) * self.mask)


@pytest.mark.parametrize("dropout", few((0.0, 0.5), 0.5))
def test_buffers_move_on_and_dropout_draws_torchs_masks(dropout, x64):
    torch.manual_seed(0)
    net = Normed(dropout).double()
    optimizer = torch.optim.Adam(net.parameters(), 0.02)
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data = batches(6)
    torch.manual_seed(1)
    step = cf.accelerate(torch_loss, net, optimizer)
    for batch in data[:3]:
        step(batch)
    step.epoch(data[3:])
    drawn = torch.rand(1)
    torch.manual_seed(1)
    torch_steps(reference, reference_optimizer, data)
    assert distance(net, reference) <= 1e-12 and int(net.norm.num_batches_tracked) == 6 and int(net.seen) == 24
    assert torch.equal(drawn, torch.rand(1))  # the generator is where plain torch leaves it


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_spectral_norms_before_batch_norms_and_an_average_of_the_weights(kind, x64):
    """The gradient of a bias in front of a BatchNorm is zero but for rounding. Adam divides it by its epsilon, so that
    these biases part, and with them the running means; the batch's own mean takes them out. All else is as in torch."""
    torch.manual_seed(0)
    first, second = (nn.utils.parametrizations.spectral_norm(nn.Linear(n, 8)) for n in (3, 8))
    body = (first, nn.BatchNorm1d(8), nn.ReLU(), second, nn.BatchNorm1d(8), nn.ReLU())
    net = nn.Sequential(*body, nn.Linear(8, 2)).double()
    optimizer = kind(net.parameters(), 0.01)
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    ours, theirs = (torch.optim.swa_utils.AveragedModel(model) for model in (net, reference))
    step = cf.accelerate(torch_loss, net, optimizer)
    for batch in batches(6):
        step(batch)
        torch_steps(reference, reference_optimizer, [batch])
        ours.update_parameters(net)
        theirs.update_parameters(reference)
    parts = {n: float((a - theirs.state_dict()[n]).abs().max()) for n, a in ours.state_dict().items()}
    parts |= {n: float((a - reference.state_dict()[n]).abs().max()) for n, a in net.state_dict().items()}
    idle = {n for n in parts if n.endswith(("0.bias", "3.bias", "running_mean"))} if kind is torch.optim.Adam else set()
    assert max(gap for name, gap in parts.items() if name not in idle) <= 1e-14
    x = torch.tensor(batches(1)[0]["x"])
    assert float((net(x) - reference(x)).detach().abs().max()) <= 1e-13


def test_a_gradient_that_is_rounding_alone_raises_no_alarm(x64):
    """Adam with hardly an epsilon makes whole updates of it: both optimisers are judged on the same gradients."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).double()
    optimizer = torch.optim.Adam(net.parameters(), 0.01, eps=1e-30)
    step = cf.accelerate(torch_loss, net, optimizer)
    step(batches(1)[0])
    assert {row.quantity for row in step.proof} == {"loss", "gradient", "parameters", "moments", "buffers"}


def test_train_and_eval_are_followed(x64):
    torch.manual_seed(0)
    net = Normed(0.5).double()
    optimizer = torch.optim.SGD(net.parameters(), 0.02)
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    torch.manual_seed(1)
    step = cf.accelerate(torch_loss, net, optimizer)
    data = batches(4)
    for batch, mode in zip(data, (True, False, False, True), strict=True):
        net.train(mode)
        step(batch)
    torch.manual_seed(1)
    for batch, mode in zip(data, (True, False, False, True), strict=True):
        torch_steps(reference.train(mode), reference_optimizer, [batch])
    assert distance(net, reference) <= 1e-12 and step.stats.openings == 3


RANDOM = {
    "rand": lambda x: torch.rand(4, 2, dtype=x.dtype),
    "randn_like of a transposed tensor": lambda x: torch.randn_like(x.t()).t()[:, :2],
    "randint": lambda x: torch.randint(3, (4, 2)).to(x.dtype),
    "randperm": lambda x: x[torch.randperm(4)][:, :2],
    "normal of tensors": lambda x: torch.normal(x[:, :2], x[:, :2].abs()),
    "bernoulli of tensors": lambda x: torch.bernoulli(torch.sigmoid(x[:, :2])),
    "rsample": lambda x: torch.distributions.Normal(x[:, :2], 1.0).rsample(),
    "Categorical": lambda x: torch.distributions.Categorical(logits=x).sample()[:, None].to(x.dtype).expand(4, 2),
    "exponential_": lambda x: torch.empty(4, 2, dtype=x.dtype).exponential_(2.0),
    "uniform_": lambda x: torch.empty(4, 2, dtype=x.dtype).uniform_(-1, 1),
    "gumbel_softmax": lambda x: nn.functional.gumbel_softmax(x)[:, :2],
    "a generator of its own": lambda x: torch.rand(4, 2, dtype=x.dtype, generator=GENERATOR),
}
GENERATOR = torch.Generator()


def seed():
    torch.manual_seed(3)
    GENERATOR.manual_seed(3)


@pytest.mark.parametrize("name", few(RANDOM, "rsample", "Categorical", "randint"))
def test_a_random_loss_draws_what_torch_draws(name, x64):
    def loss(net, batch):
        return torch_loss(net, {**batch, "y": batch["y"] + RANDOM[name](batch["x"])})

    net, optimizer, _ = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    data, ends = batches(4), []
    seed()
    step = cf.accelerate(loss, net, optimizer)
    for batch in data[:2]:
        step(batch)
    step.epoch(data[2:])
    ends.append(torch.rand(1))
    seed()
    torch_steps(reference, reference_optimizer, data, loss=loss)
    assert distance(net, reference) <= 1e-12 and torch.equal(ends[0], torch.rand(1))
