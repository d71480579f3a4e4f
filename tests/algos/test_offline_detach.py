"""The detach matrix: which modules learn from which term, measured in both frameworks, is what each agent states."""

import copy
from contextlib import ExitStack
from unittest.mock import patch

import jax
import numpy as np
import pytest
import torch

from crossfade.algos.offline import losses_jax, losses_torch
from crossfade.algos.offline.config import AGENTS
from crossfade.algos.offline.crl_infonce import agent_jax as crl_jax, agent_torch as crl_torch
from crossfade.algos.offline.iql import agent_jax as iql_jax, agent_torch as iql_torch
from crossfade.parity.arrays import jax_tree, leaves, torch_tree
from crossfade.systems.offline.matrix import matrix, table
from crossfade.systems.offline.twin import offline, settings
from default_run import few_of

PRE, FINE, OLD = "pretrain=1000", "pretrain=0", "spec=r2025-06"
CASES = {
    ", ".join((agent, phase, *(("old",) if spec else ()), *(("encoded",) if encoder else ()))): (
        f"agent={agent}",
        PRE if phase == "pre" else FINE,
        *spec,
        *encoder,
    )
    for agent in AGENTS
    for phase in ("pre", "fine")
    for spec in ((), (OLD,))
    for encoder in ((), ("encoder=mlp",))
    if not (encoder and agent == "dino_rebrac")  # which has one anyway
} | {
    "iql, critic's gradient": ("agent=iql", "agent.actor_loss=ddpgbc"),
    "td, sampled": ("agent=td_infonce", "const_std=false"),
}
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def stated(words):
    """What the agent says, of the phase of the words."""
    config = settings(*words)
    found = matrix(config.agent, config.sizes((2,), 2))["pretraining" if PRE in words else "finetuning"]
    return {term: {module for module, learns in of.items() if learns} for term, of in found.items()}


def torch_matrix(words):
    """Targets are asked too: nothing but the terms keeps gradients from them."""
    twin, config = offline(*words), settings(*words)
    policy = copy.deepcopy(twin.torch).requires_grad_(True)
    named = dict(policy.named_parameters())
    found = {}
    for term, value in losses_torch.terms(policy, torch_tree(twin.batch_at(0), "float32"), config).items():
        gradient = torch.autograd.grad(value, list(named.values()), allow_unused=True, retain_graph=True)
        found[term] = {name.split(".")[0] for name, g in zip(named, gradient, strict=True) if g is not None and g.any()}
    return found


def jax_matrix(words):
    twin, config = offline(*words), settings(*words)
    measure = jax.jit(jax.jacrev(lambda policy, batch: losses_jax.terms(policy, batch, config)), compiler_options=QUICK)
    gradients = measure(twin.jax, jax_tree(twin.batch_at(0), "float32"))
    return {t: {name.split(".")[0] for name, leaf in leaves(g, "").items() if leaf.any()} for t, g in gradients.items()}


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
def test_terms_in_torch_teach_whom_the_agent_says(words):
    assert torch_matrix(words) == stated(words)


KEPT = "iql, fine", "rebrac, fine", "crl_infonce, fine", "fb_repr, pre", "fb_repr, pre, old", "dino_rebrac, fine"


@pytest.mark.parametrize("words", few_of(CASES, *KEPT, "infom, pre", "hilp, pre"))
def test_terms_in_jax_teach_whom_the_agent_says(words):
    assert jax_matrix(words) == stated(words)


def test_every_module_learns_from_something_and_no_target_does():
    for name in AGENTS:
        config = settings(f"agent={name}")
        modules = config.agent.modules(config.sizes((2,), 2))
        taught = {module for phase in (PRE, FINE) for of in stated((f"agent={name}", phase)).values() for module in of}
        assert taught == {module for module in modules if not module.startswith("target_")}, name


# What a wrong detachment does


def attached(*agents):
    """`frozen` that does not freeze."""
    stack = ExitStack()
    for agent in agents:
        stack.enter_context(patch.object(agent, "frozen", lambda module: module))
    return stack


@pytest.mark.parametrize(
    ("measured", "agent"), [(torch_matrix, iql_torch), (jax_matrix, iql_jax)], ids=["torch", "jax"]
)
def test_a_critic_that_the_actor_teaches_is_seen(measured, agent):
    words = CASES["iql, critic's gradient"]
    with attached(agent):
        found = measured(words)
    assert found["actor_loss"] == {"actor", "critic"} != stated(words)["actor_loss"]


@pytest.mark.parametrize(
    ("measured", "agent"), [(torch_matrix, crl_torch), (jax_matrix, crl_jax)], ids=["torch", "jax"]
)
def test_rewards_that_the_actor_teaches_are_seen(measured, agent):
    words = CASES["crl_infonce, fine"]
    with attached(agent):
        found = measured(words)
    assert found["actor_loss"] == {"actor", "critic", "reward"} != stated(words)["actor_loss"]


def test_an_actor_that_the_critic_does_not_teach_is_seen():
    """Actions as constants: without cloning, nothing is left."""
    words = (*CASES["iql, critic's gradient"], "agent.alpha=0")
    right = iql_torch.policy_action
    with patch.object(iql_torch, "policy_action", lambda *given: right(*given).detach()):
        found = torch_matrix(words)
    assert found["actor_loss"] == set() != stated(words)["actor_loss"]


# As a table


def test_the_matrix_as_a_table():
    config = settings("agent=fb_repr", OLD)
    lines = table(matrix(config.agent, config.sizes((2,), 2))).splitlines()
    assert lines[0] == "| phase | term | forward_repr | backward_repr | value | critic | actor |"
    assert lines[2] == "| pre-training | repr_loss | ● | ● |  |  |  |"
    assert lines[4] == "| pre-training | fb_actor_loss | ● |  |  |  | ● |"  # of the old revision
    assert lines[-1] == "| fine-tuning | awr_loss |  |  |  |  | ● |"
    assert len(lines) == 2 + 6 and np.all([line.count("|") == 8 for line in lines])
