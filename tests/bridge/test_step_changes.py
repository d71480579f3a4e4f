"""What changes after a program was made is followed, or refused in words; never passed over."""

import copy
import functools
import types

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
    tensors,
    torch_loss,
    torch_steps,
)
from torch import nn

from crossfade.bridge import Mapping, Step
from crossfade.errors import MappingError, NoCounterpart, UsageError
from default_run import few


def follows(change, *, optimizer=torch.optim.Adam, openings=2, **options):
    """Two steps, the change, two steps: as in torch."""
    net, made, mapping = make(optimizer, **options)
    net.hidden.weight.requires_grad_(False)
    reference, reference_optimizer = copy.deepcopy((net, made))
    data = batches(4)
    step = Step(net, made, jax_loss, mapping, torch_loss=torch_loss)
    for batch in data[:2]:
        step(batch)
    change(net, made)
    for batch in data[2:]:
        step(batch)
    torch_steps(reference, reference_optimizer, data[:2])
    change(reference, reference_optimizer)
    torch_steps(reference, reference_optimizer, data[2:])
    assert distance(net, reference) <= 1e-12
    assert_same_optimizer(made, reference_optimizer)
    assert step.stats.openings == openings
    return step


def unfreeze(net, _):
    net.hidden.weight.requires_grad_(True)


def freeze(net, _):
    net.out.weight.requires_grad_(False)


@pytest.mark.parametrize("change", few((unfreeze, freeze), freeze))
def test_freezing_and_unfreezing_are_followed_with_a_new_proof(change, x64):
    """Gradual unfreezing. In a group of its own, because optax counts the updates of a group once."""
    groups = lambda net: [{"params": [p]} for p in net.parameters()]
    step = follows(change, groups=groups)
    assert step.stats.compiles == 2 and step.proof


def test_new_parameter_groups_are_followed(x64):
    only_hidden = lambda net: [{"params": [net.hidden.weight, net.hidden.bias]}]
    follows(lambda net, made: made.add_param_group({"params": net.out.parameters()}), groups=only_hidden)


def anneal(_, made):
    made.param_groups[0]["lr"] = 0.3 * made.param_groups[0]["lr"]


def test_annealing_the_learning_rate_is_followed_without_compiling(x64):
    """As CleanRL's PPO does it."""
    assert follows(anneal, openings=1).stats.compiles == 1


def test_a_learning_rate_in_a_tensor_is_followed_in_place(x64):
    lr = torch.tensor(0.02, dtype=torch.float64)
    change = lambda _, made: made.param_groups[0]["lr"].mul_(0.3)
    assert follows(change, openings=1, lr=lr, foreach=False).stats.compiles == 1


def test_a_scheduler_moves_a_learning_rate_in_a_tensor(x64):
    def change(_, made):
        schedule = torch.optim.lr_scheduler.ExponentialLR(made, 0.3)
        made._opt_called = True
        schedule.step()

    lr = torch.tensor(0.02, dtype=torch.float64)
    assert follows(change, openings=1, lr=lr, foreach=False).stats.compiles == 1


def test_a_tensor_in_another_hyper_parameter_is_refused(x64):
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    step(batches(1)[0])
    optimizer.param_groups[0]["weight_decay"] = torch.tensor(0.1)
    with pytest.raises(UsageError, match="weight_decay.*Only lr may be a tensor"):
        step(batches(1)[0])


def refused(change, error, match):
    net, optimizer, mapping = make()
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    step(batches(1)[0])
    change(net)
    before = copy.deepcopy(net.state_dict())
    for _ in range(2):  # said every time, not once
        with pytest.raises(error, match=match):
            step(batches(1)[0])
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())


def test_a_layer_that_was_added_or_replaced_is_refused(x64):
    refused(lambda net: net.add_module("extra", nn.Linear(2, 2).double()), MappingError, r"also has extra\.weight")
    refused(lambda net: setattr(net.hidden, "scale", nn.Parameter(torch.ones(1))), MappingError, r"hidden\.scale")
    refused(lambda net: net._modules.update(out=nn.Linear(5, 2).double()), UsageError, "the module the optimiser was")
    refused(lambda net: net._modules.pop("out"), (MappingError, UsageError), "expected")


def test_a_single_number_replaced_by_an_equal_one_is_noticed(x64):
    """Equal is not the same: the optimiser holds the old one."""
    net = nn.Linear(3, 1, bias=True).double()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    mapping = Mapping.by_name(net, eqx.nn.Linear(3, 1, key=jax.random.key(0)))
    loss = lambda model, batch: jnp.mean((jax.vmap(model)(batch["x"]) - batch["y"][:, :1]) ** 2)
    step = Step(net, optimizer, loss, mapping, verify=False)
    step(batches(1)[0])
    net.bias = nn.Parameter(net.bias.detach().clone())
    with pytest.raises(UsageError, match="the module the optimiser was"):
        step(batches(1)[0])


def test_a_module_that_was_cast_is_refused():
    net, optimizer, mapping = make(dtype=torch.float32)
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    step(batches(1, np.float32)[0])
    net.double()
    with pytest.raises(Exception, match="64-bit types are off"):
        step(batches(1, np.float32)[0])


def test_float64_outside_of_the_64_bit_types_is_refused():
    with jax.enable_x64(True):
        net, optimizer, mapping = make()
        step = Step(net, optimizer, jax_loss, mapping, verify=False)
        step(batches(1)[0])
    with pytest.raises(UsageError, match="64-bit types on, as when the step was opened"):
        step(batches(1)[0])


# What the loss reads beside its arguments

BETA = 1.0
CONFIG = types.SimpleNamespace(beta=1.0, seen=0)
SETTINGS = {"beta": 1.0, "seen": 0}
WEIGHTS = np.ones(2)


def helper(loss):
    return BETA * loss


class Agent:
    def __init__(self):
        self.config = types.SimpleNamespace(beta=1.0)
        self.steps = 0
        self.out = nn.Linear(1, 1)  # has the name of a part of the model, and is none of the loss's business
        self.objective = jax_loss

    @property
    def beta(self):
        return self.config.beta

    def loss(self, model, batch):
        model = eqx.tree_at(lambda m: m.out.bias, model, model.out.bias + 0)
        return self.config.beta * self.objective(model, batch)

    def by_property(self, model, batch):
        return self.beta * jax_loss(model, batch)

    def by_method(self, model, batch):
        return self.scaled(jax_loss(model, batch))

    def scaled(self, loss):
        config = self.config
        return config.beta * loss


def closure():
    beta = 1.0

    def change(value):
        nonlocal beta
        beta = value

    return (lambda model, batch: beta * jax_loss(model, batch)), change


def tensor_closure():
    beta = torch.ones(1, dtype=torch.float64)
    return (lambda model, batch: jnp.asarray(beta.numpy())[0] * jax_loss(model, batch)), beta.fill_


def module_closure():
    target = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(target.weight)
    loss = lambda model, batch: jnp.asarray(target.weight.detach().numpy())[0, 0] * jax_loss(model, batch)
    return loss, lambda value: target.weight.data.fill_(value)


def array_closure():
    beta = np.ones(3)
    return (lambda model, batch: beta[0] * jax_loss(model, batch)), lambda value: beta.fill(value)


def jax_closure():
    held = [jnp.ones(())]
    return (lambda model, batch: held[0] * jax_loss(model, batch)), lambda value: held.__setitem__(0, jnp.array(value))


def nested():
    beta = [1.0]

    def loss(model, batch):
        scale = lambda x: beta[0] * x
        return scale(jax_loss(model, batch))

    return loss, lambda value: beta.__setitem__(0, value)


def method(name):
    agent = Agent()
    return getattr(agent, name), lambda value: setattr(agent.config, "beta", value)


def replaced_config():
    agent = Agent()
    return agent.loss, lambda value: setattr(agent, "config", types.SimpleNamespace(beta=value))


def replaced_objective():
    agent = Agent()
    return agent.loss, lambda value: setattr(agent, "objective", lambda model, batch: value * jax_loss(model, batch))


def partial():
    config = {"beta": 1.0}
    loss = functools.partial(lambda config, model, batch: config["beta"] * jax_loss(model, batch), config)
    return loss, lambda value: config.update(beta=value)


def default():
    config = types.SimpleNamespace(beta=1.0)

    def loss(model, batch, config=config):
        return config.beta * jax_loss(model, batch)

    return loss, lambda value: setattr(config, "beta", value)


def passed_on():
    config = types.SimpleNamespace(beta=1.0)
    scale = lambda given, loss: given.beta * loss
    return (lambda model, batch: scale(config, jax_loss(model, batch))), lambda value: setattr(config, "beta", value)


def jitted():
    config = types.SimpleNamespace(beta=1.0)
    inner = jax.jit(lambda model, batch: config.beta * jax_loss(model, batch))
    return (lambda model, batch: inner(model, batch)), lambda value: setattr(config, "beta", value)


def checkpointed():
    config = types.SimpleNamespace(beta=1.0)
    inner = jax.checkpoint(lambda model, batch: config.beta * jax_loss(model, batch))
    return inner, lambda value: setattr(config, "beta", value)


LOSSES = {
    "a global": lambda: ((lambda m, b: BETA * jax_loss(m, b)), lambda v: globals().update(BETA=v)),
    "a global of a helper": lambda: ((lambda m, b: helper(jax_loss(m, b))), lambda v: globals().update(BETA=v)),
    "an attribute of a global": lambda: (
        (lambda m, b: CONFIG.beta * jax_loss(m, b)),
        lambda v: setattr(CONFIG, "beta", v),
    ),
    "an entry of a dict": lambda: (
        (lambda m, b: SETTINGS["beta"] * jax_loss(m, b)),
        lambda v: SETTINGS.update(beta=v),
    ),
    "an entry by get": lambda: (
        (lambda m, b: SETTINGS.get("beta", 0) * jax_loss(m, b)),
        lambda v: SETTINGS.update(beta=v),
    ),
    "an array in place": lambda: ((lambda m, b: WEIGHTS[0] * jax_loss(m, b)), lambda v: WEIGHTS.fill(v)),
    "a closure": closure,
    "a tensor": tensor_closure,
    "a module": module_closure,
    "a captured array": array_closure,
    "a JAX array": jax_closure,
    "an inner function": nested,
    "self": lambda: method("loss"),
    "a property": lambda: method("by_property"),
    "a method": lambda: method("by_method"),
    "another config": replaced_config,
    "another objective": replaced_objective,
    "partial": partial,
    "a default": default,
    "an object passed on": passed_on,
    "jax.jit": jitted,
    "jax.checkpoint": checkpointed,
}


@pytest.fixture(autouse=True)
def _restored():
    yield
    globals().update(BETA=1.0)
    CONFIG.beta = SETTINGS["beta"] = 1.0
    WEIGHTS.fill(1.0)


QUICK = ("a global", "a closure", "a tensor", "self", "jax.jit")


@pytest.mark.parametrize("name", few(LOSSES, *QUICK))
def test_a_loss_that_reads_something_new_is_refused(name, x64):
    loss, change = LOSSES[name]()
    net, optimizer, mapping = make(torch.optim.SGD, lr=0.1)
    batch = batches(1)[0]
    start = copy.deepcopy(net.state_dict())
    step = Step(net, optimizer, loss, mapping, verify=False)
    first = step(batch)
    step(batch)
    CONFIG.seen += 1
    SETTINGS["seen"] += 1 if "get" not in name else 0
    step(batch)  # what the loss does not read may change
    before = copy.deepcopy(net.state_dict())
    change(2.0)
    for _ in range(2):
        with pytest.raises(UsageError, match="jax_loss reads .*Pass what changes in the batch"):
            step(batch)
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())
    step.close()
    if name in ("a closure", "jax.jit", "jax.checkpoint"):  # a new step has the new value, whatever JAX has kept
        net.load_state_dict(start)
        again = Step(net, optimizer, loss, mapping, verify=False)
        torch.testing.assert_close(again(batch), 2 * first, rtol=1e-12, atol=0)


def test_the_words_name_the_variable_and_both_values(x64):
    loss, change = closure()
    net, optimizer, mapping = make()
    step = Step(net, optimizer, loss, mapping, verify=False)
    step(batches(1)[0])
    change(0.25)
    with pytest.raises(UsageError, match=r"jax_loss reads beta, which was 1\.0 .* and is 0\.25 now"):
        step(batches(1)[0])
    change(1.0)
    step(batches(1)[0])  # set back, it goes on


def test_changing_numbers_travel_in_the_batch(x64):
    """What the words advise."""
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    weighted = lambda loss: lambda model, batch: batch["beta"] * loss(model, batch)
    step = Step(net, optimizer, weighted(jax_loss), mapping, torch_loss=weighted(torch_loss))
    for i, batch in enumerate(batches(4)):
        step({**batch, "beta": 1.0 + i})
        reference_optimizer.zero_grad()
        ((1.0 + i) * torch_loss(reference, tensors(batch))).backward()
        reference_optimizer.step()
    assert step.stats.compiles == 1
    assert distance(net, reference) <= 1e-12


def test_a_loss_may_count_its_own_traces(x64):
    seen = []

    def loss(model, batch):
        seen.append(len(seen))
        return jax_loss(model, batch)

    net, optimizer, mapping = make()
    step = Step(net, optimizer, loss, mapping, verify=False)
    for batch in batches(3):
        step(batch)


def test_another_clip_norm_makes_another_program(x64):
    net, optimizer, mapping = make()
    reference, reference_optimizer = copy.deepcopy((net, optimizer))
    step = Step(net, optimizer, jax_loss, mapping, verify=False, clip_norm=0.5)
    data = batches(2)
    step(data[0])
    step.clip_norm = 0.01
    step(data[1])
    torch_steps(reference, reference_optimizer, data[:1], clip_norm=0.5)
    torch_steps(reference, reference_optimizer, data[1:], clip_norm=0.01)
    assert distance(net, reference) <= 1e-12


def test_info_is_of_the_parameters_before_the_update(x64):
    """However late the program computes it: parameters are written when all of it has ended."""

    def late(model, batch):
        work = jnp.eye(300) + 1e-3 * model.out.bias[0]
        for _ in range(4):
            work = work @ work / jnp.linalg.norm(work)
        return jax_loss(model, batch), {"bias": model.out.bias, "work": work[0, 0]}

    net, optimizer, mapping = make()
    step = Step(net, optimizer, late, mapping, verify=False)
    for batch in batches(5):
        before = net.out.bias.detach().clone()
        assert torch.equal(step(batch)[1]["bias"], before)


def test_a_frozen_group_with_other_counts_is_refused(x64):
    """torch would go on with other counts inside one group; optax cannot."""
    net, optimizer, mapping = make()
    net.hidden.weight.requires_grad_(False)
    step = Step(net, optimizer, jax_loss, mapping, verify=False)
    step(batches(1)[0])
    net.hidden.weight.requires_grad_(True)
    with pytest.raises(NoCounterpart, match="a parameter group of their own"):
        step(batches(1)[0])
