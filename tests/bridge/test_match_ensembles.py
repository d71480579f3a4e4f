"""Ensembles: lists of modules on one side, stacked arrays on the other, also several of them side by side."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
import torch
from torch import nn

from bridge import zoo_equinox, zoo_torch
from bridge.zoo import ZOO
from crossfade.bridge import match
from crossfade.errors import MappingError

KEYS = jax.random.split(jax.random.key(0), 4)
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


def test_one_torch_array_for_all_critics_goes_to_a_list():
    case = ZOO["stacked_critics"]
    module = case.torch()
    mapping = match(module, zoo_equinox.CriticList(), case.example(), **case.options("equinox"))
    assert {e.torch[0]: e.jax for e in mapping.entries}["w1"] == ("critics.0.0.weight", "critics.1.0.weight")
    assert mapping.verify().ok


def test_two_stacks_go_to_two_lists():
    class Stacks(nn.Module):
        def __init__(self):
            super().__init__()
            self.target, self.online = zoo_torch.StackedCritics(), zoo_torch.StackedCritics()

        def forward(self, x):
            return self.online(x).T, self.target(x).T

    class Lists(eqx.Module):
        a: eqx.Module
        b: eqx.Module

        def __call__(self, x):
            return self.b(x), self.a(x)

    mapping = match(Stacks(), Lists(zoo_equinox.CriticList(), zoo_equinox.CriticList()), X)
    assert ("b.critics.0.0.weight", "b.critics.1.0.weight") in [entry.jax for entry in mapping.entries]
    assert mapping.verify().ok


class Crosswise(eqx.Module):
    """Four critics, stacked two by two across the groups in which they are returned."""

    stacks: list

    def __init__(self):
        self.stacks = [eqx.filter_vmap(zoo_equinox.Critic)(KEYS[:2]), eqx.filter_vmap(zoo_equinox.Critic)(KEYS[2:])]

    def __call__(self, x):
        target, online = jnp.stack([eqx.filter_vmap(lambda critic: critic(x))(stack) for stack in self.stacks], 1)
        return online, target


class FlatTargets(nn.Module):
    """The names of SAC's and TD3's critics."""

    def __init__(self):
        super().__init__()
        (self.q1, self.q2), (self.q1_target, self.q2_target) = zoo_torch.critics(), zoo_torch.critics()

    def forward(self, x):
        return torch.cat([self.q1(x), self.q2(x)], 1), torch.cat([self.q1_target(x), self.q2_target(x)], 1)


@pytest.mark.parametrize(
    ("module", "model", "stacked"),
    [
        (zoo_torch.Targets, Crosswise, ("target.1.0.weight", "online.1.0.weight")),
        (FlatTargets, zoo_equinox.Targets, ("q1_target.0.weight", "q2_target.0.weight")),
    ],
)
def test_the_outputs_decide_which_modules_are_stacked(module, model, stacked):
    mapping = match(module(), model(), X)
    assert stacked in [entry.torch for entry in mapping.entries]
    assert mapping.verify().ok


def test_a_difference_in_an_ensemble_is_named_where_it_is():
    class Squashed(zoo_equinox.Targets):
        def __call__(self, x):
            return jax.tree.map(jnp.tanh, super().__call__(x))

    with pytest.raises(MappingError) as error:
        match(zoo_torch.Targets(), Squashed(), X)
    assert "the outputs differ by" in str(error.value) and "first difference" not in str(error.value)
