"""Optimisers that cannot cross the border are refused by name; ensembles cross when their members move together."""

import equinox as eqx
import jax
import pytest
import torch
from optimizer_nets import NetEquinox, make_module, same_record, train_torch
from torch import nn, optim
from torch.optim import lr_scheduler

from crossfade.bridge.mapping import Entry, Mapping
from crossfade.bridge.optimizers.exchange import read_torch, to_optax, to_torch_optimizer, write_torch
from crossfade.bridge.rules import Rule, add, stack
from crossfade.errors import MappingError, NoCounterpart, TransferError, UsageError

# Ensembles: a list of modules in torch, one stacked leaf in JAX


class Critics(nn.Module):
    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)]).double()


def critics_mapping(critics, rule=None):
    rule = rule or Rule(stack())
    model = jax.vmap(lambda key: eqx.nn.Linear(3, 1, key=key))(jax.random.split(jax.random.key(0)))
    entries = [
        Entry((f"nets.0.{leaf}", f"nets.1.{leaf}"), (leaf,), rule if leaf == "weight" else Rule(stack()))
        for leaf in ("weight", "bias")
    ]
    return Mapping(tuple(entries), {n: tuple(t.shape) for n, t in critics.state_dict().items()}, model)


def step_critics(critics, optimizer, members=(0, 1)):
    optimizer.zero_grad()
    sum(critics.nets[i](torch.ones(2, 3).double()).sum() * (i + 1) for i in members).backward()
    optimizer.step()


def test_moments_of_an_ensemble_are_stacked_and_unstacked(x64):
    critics = Critics()
    optimizer, other = optim.Adam(critics.named_parameters()), optim.Adam(critics.named_parameters())
    step_critics(critics, optimizer)
    mapping = critics_mapping(critics)
    opt_state = to_optax(optimizer, mapping).opt_state
    assert opt_state[0].mu.weight.shape == (2, 1, 3)
    to_torch_optimizer(opt_state, mapping, other)
    assert same_record(other.state_dict(), optimizer.state_dict())


def members_apart(critics):
    return optim.Adam([{"params": net.parameters()} for net in critics.nets])


def one_member_ahead(critics):
    optimizer = optim.Adam(critics.parameters())
    step_critics(critics, optimizer, members=(0,))
    return optimizer


def one_member_only(critics):
    return optim.Adam(critics.nets[0].parameters())


@pytest.mark.parametrize(
    "make, words",
    [
        (members_apart, "one parameter group together"),
        (one_member_only, "one parameter group together"),
        (one_member_ahead, "nets.0.weight: 1, nets.1.weight: 0"),
    ],
)
def test_members_that_move_apart_are_refused(make, words, x64):
    critics = Critics()
    with pytest.raises(NoCounterpart, match=words):
        to_optax(make(critics), critics_mapping(critics), named_parameters=critics)


def test_summed_parameters_are_refused_by_name(x64):
    critics = Critics()
    mapping = critics_mapping(critics, Rule(add()))
    with pytest.raises(NoCounterpart, match="nets.0.weight"):
        to_optax(optim.Adam(critics.named_parameters()), mapping)


# What has no counterpart


class Mine(optim.Adam):
    pass


def sparse(net):
    optimizer = optim.Adagrad(net.named_parameters())
    net.inner.weight.grad = torch.zeros_like(net.inner.weight).to_sparse()
    return optimizer


def amsgrad_turned_on(net):
    optimizer = optim.Adam(net.named_parameters())
    train_torch(net, optimizer, 0, 1)
    optimizer.param_groups[0]["amsgrad"] = True
    return optimizer


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda net: optim.ASGD(net.named_parameters()), NoCounterpart, "ASGD"),
        (lambda net: optim.Rprop(net.named_parameters()), NoCounterpart, "Rprop"),
        (lambda net: optim.LBFGS(net.parameters()), NoCounterpart, "LBFGS"),
        (lambda net: Mine(net.named_parameters()), NoCounterpart, "Mine"),
        (lambda net: optim.Adam(net.named_parameters(), lr=torch.tensor(1e-3)), NoCounterpart, "lr is a tensor"),
        (sparse, NoCounterpart, "inner.weight: optax has no sparse gradients"),
        (amsgrad_turned_on, NoCounterpart, "missing max_exp_avg_sq"),
        (lambda net: optim.Adam(nn.Linear(2, 2).parameters()), UsageError, "module the optimiser was built for"),
    ],
)
def test_what_has_no_counterpart_is_refused(make, error, words, x64):
    net = make_module()
    optimizer = make(net)
    with pytest.raises(error, match=words):
        to_optax(optimizer, Mapping.by_name(net, NetEquinox()), named_parameters=net)


def test_nameless_parameters_are_asked_for(x64):
    net = make_module()
    with pytest.raises(UsageError, match="named_parameters=module"):
        to_optax(optim.Adam(net.parameters()), Mapping.by_name(net, NetEquinox()))


def test_parameters_the_mapping_does_not_know_are_named(x64):
    net = make_module()
    renamed = [("inner.wieght", net.inner.weight)]
    with pytest.raises(MappingError, match=r"inner.wieght Did you mean 'inner.weight'\?"):
        to_optax(optim.Adam(renamed), Mapping.by_name(net, NetEquinox()))


def test_a_scheduler_of_another_optimiser_is_refused(x64):
    net = make_module()
    ours, theirs = optim.Adam(net.named_parameters()), optim.Adam(net.named_parameters())
    with pytest.raises(UsageError, match="drives another"):
        to_optax(ours, Mapping.by_name(net, NetEquinox()), scheduler=lr_scheduler.StepLR(theirs, 10))


def test_a_scheduler_is_never_stepped_backwards(x64):
    net = make_module()
    optimizer = optim.Adam(net.named_parameters())
    scheduler = lr_scheduler.StepLR(optimizer, 10)
    mapping = Mapping.by_name(net, NetEquinox())
    old = to_optax(optimizer, mapping, scheduler=scheduler).opt_state
    train_torch(net, optimizer, 0, 3, scheduler=scheduler)
    saved = optimizer.state_dict()
    with pytest.raises(UsageError, match="has made 3 updates; got one of 0"):
        to_torch_optimizer(old, mapping, optimizer, scheduler=scheduler)
    assert same_record(optimizer.state_dict(), saved)


def test_float64_moments_need_64_bit_jax():
    net = make_module()
    with pytest.raises(TransferError, match="enable_x64"):
        to_optax(optim.Adam(net.named_parameters()), Mapping.by_name(net, NetEquinox()))


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda net: optim.AdamW(net.named_parameters()), UsageError, "kind Adam, got AdamW"),
        (lambda net: optim.Adam(net.inner.named_parameters("inner")), UsageError, "expected parameter groups"),
        (lambda net: optim.Adam(net.float().named_parameters()), TransferError, "float32"),
    ],
)
def test_a_state_is_not_written_where_it_does_not_fit(make, error, words):
    net = make_module()
    optimizer = optim.Adam(net.named_parameters())
    train_torch(net, optimizer, 0, 1)
    state = read_torch(optimizer, net)
    other = make_module()
    with pytest.raises(error, match=words):
        write_torch(state, make(other), other)


def test_an_optax_state_of_another_optimiser_is_refused(x64):
    net = make_module()
    mapping = Mapping.by_name(net, NetEquinox())
    opt_state = to_optax(optim.SGD(net.named_parameters()), mapping).opt_state
    with pytest.raises(UsageError, match="missing exp_avg"):
        to_torch_optimizer(opt_state, mapping, optim.Adam(net.named_parameters()))
    with pytest.raises(UsageError, match="one count of updates"):
        to_torch_optimizer((), mapping, optim.Adam(net.named_parameters()))
