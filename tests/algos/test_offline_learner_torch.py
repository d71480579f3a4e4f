"""The learner of the offline agents in torch: one Adam over all modules, targets, what it tells, the pure step."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from offline_torch_cases import ACTION, LATENT, arrays, config, made, sizes, tensors, transitions
from torch.func import functional_call, grad

from crossfade.algos.offline import learner_torch as learner
from crossfade.algos.offline.agent import Agent
from crossfade.algos.offline.batch import Batch
from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.crl_infonce.params import CRLInfoNCE
from crossfade.algos.offline.dino_rebrac.params import DINOReBRAC
from crossfade.algos.offline.fb_repr.params import FBRepr
from crossfade.algos.offline.hilp.params import HILP
from crossfade.algos.offline.infom.params import InFOM
from crossfade.algos.offline.iql.params import IQL
from crossfade.algos.offline.losses_torch import loss, terms
from crossfade.algos.offline.mbpo_rebrac.params import MBPOReBRAC
from crossfade.algos.offline.networks_torch import make_policy
from crossfade.algos.offline.parameters import draw_parameters, online_names, optimizer_records
from crossfade.algos.offline.pure_update_torch import pure_update
from crossfade.algos.offline.rebrac.params import ReBRAC
from crossfade.algos.offline.td_infonce.params import TDInfoNCE
from crossfade.algos.offline.terms_torch import aggregate, frozen, q_loss
from crossfade.bridge.optimizers.state_torch import read_torch
from crossfade.optim import functional_torch
from crossfade.random.random_numpy import key

AGENTS = {
    "iql": IQL(),
    "iql-ddpgbc": IQL(actor_loss="ddpgbc"),
    "rebrac": ReBRAC(alpha_actor=0.1, alpha_critic=0.1),
    "infom": InFOM(latent_dim=LATENT, flow_steps=3, flow_goals=2, kl_weight=0.1),
    "hilp": HILP(latent_dim=LATENT),
    "fb_repr": FBRepr(latent_dim=LATENT),
    "crl_infonce": CRLInfoNCE(latent_dim=LATENT),
    "td_infonce": TDInfoNCE(latent_dim=LATENT),
    "mbpo_rebrac": MBPOReBRAC(),
    "dino_rebrac": DINOReBRAC(),
}
each_agent = pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
each_phase = pytest.mark.parametrize("full", [None, False, True], ids=["pretraining", "not_full", "full"])


@each_agent
@each_phase
def test_the_loss_is_the_sum_of_its_terms(agent, full):
    chosen = config(agent)
    policy, batch = made(chosen), tensors(transitions(chosen, full))
    value, info = loss(policy, batch, chosen)
    single = terms(policy, batch, chosen)
    assert list(single) == list(agent.terms[batch.phase])
    counted = {name: term.item() for name, term in single.items() if full is not False or name not in agent.when_full}
    assert value.item() == info["loss"].item() == pytest.approx(sum(counted.values()), rel=1e-12)
    assert {name: info[name].item() for name in counted} == pytest.approx(counted, rel=1e-12)
    assert not any(quantity.requires_grad for quantity in info.values())


@each_agent
def test_what_is_left_out_is_told_as_0_under_the_same_names(agent):
    chosen = config(agent)
    policy = made(chosen)
    _, full = loss(policy, tensors(transitions(chosen, True)), chosen)
    _, info = loss(policy, tensors(transitions(chosen, False)), chosen)
    assert list(info) == list(full)
    left_out = [name for name in info if name.split("/")[0] in agent.when_full]
    assert len(left_out) > 2
    assert all(info[name].item() == 0 and full[name].item() != 0 for name in left_out)


@each_agent
@each_phase
@pytest.mark.parametrize("spec", ["r2025-06", "r2026-05"])
@pytest.mark.parametrize("encoder", [None, "mlp"])
@pytest.mark.slow  # the default run has tests/algos/test_offline_detach.py
def test_a_term_teaches_the_modules_that_it_may(agent, full, spec, encoder):
    if agent.needs_encoder and encoder is None:
        pytest.skip("this agent has no business without an encoder")
    chosen = config(agent, spec=spec, encoder=encoder)
    policy, batch = made(chosen).requires_grad_(True), tensors(transitions(chosen, full))
    named = dict(policy.named_parameters())
    reached = agent.reached(chosen.spec, chosen.encoding is not None)[batch.phase]
    for name, term in terms(policy, batch, chosen).items():
        gradients = torch.autograd.grad(term, list(named.values()), retain_graph=True, materialize_grads=True)
        taught = {n.split(".")[0] for n, g in zip(named, gradients, strict=True) if g.abs().max() > 0}
        assert taught == set(reached[name]), name


@each_agent
def test_the_optimiser_owns_all_but_targets_in_the_order_of_their_names(agent):
    chosen = config(agent)
    policy = made(chosen)
    optimizer = learner.make_optimizer(policy, chosen)
    names = {id(p): name for name, p in policy.named_parameters()}
    owned = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
    assert owned == online_names(agent.modules(sizes(chosen)))
    assert (optimizer.defaults["lr"], optimizer.defaults["eps"]) == (chosen.lr, 1e-8)
    assert not any(p.requires_grad for name, p in policy.named_parameters() if name.startswith("target_"))


def test_idle_modules_move_on_by_their_momentum():
    """By hand: Adam with gradients of 0 wherever a module has none, and one count for all."""
    chosen = config(IQL())
    policy = made(chosen)
    optimizer = learner.make_optimizer(policy, chosen)
    names = online_names(chosen.agent.modules(sizes(chosen)))
    p = {name: arrays(policy)[name] for name in names}
    m = {name: np.zeros_like(array) for name, array in p.items()}
    s = {name: np.zeros_like(array) for name, array in p.items()}
    for count, full in enumerate([True, False, False, False], 1):
        batch = tensors(transitions(chosen, full, seed=count))
        value, _ = loss(policy, batch, chosen)
        owned = [dict(policy.named_parameters())[name] for name in names]
        gradients = torch.autograd.grad(value, owned, materialize_grads=True)
        for name, gradient in zip(names, gradients, strict=True):
            g = gradient.numpy()
            assert not (name.startswith("actor.") and not full and g.any())
            m[name], s[name] = 0.9 * m[name] + 0.1 * g, 0.999 * s[name] + 0.001 * g**2
            p[name] = p[name] - 0.01 * (m[name] / (1 - 0.9**count)) / (np.sqrt(s[name] / (1 - 0.999**count)) + 1e-8)
        learner.update(policy, optimizer, batch, chosen)
        after = arrays(policy)
        for name in names:
            np.testing.assert_allclose(after[name], p[name], rtol=1e-10, atol=1e-12, err_msg=name)


@each_agent
@each_phase
def test_targets_follow_the_modules_of_before_the_update(agent, full):
    chosen = config(agent)
    policy = made(chosen)
    optimizer = learner.make_optimizer(policy, chosen)
    before = arrays(policy)
    learner.update(policy, optimizer, tensors(transitions(chosen, full)), chosen)
    after = arrays(policy)
    still = agent.averages_when_full and full is False
    phase = "pretraining" if full is None else "finetuning"
    followed = () if still else agent.followed(phase)
    for name in (name for name in before if name.startswith("target_")):
        online = name.removeprefix("target_")
        rate = 0.1 if online.split(".")[0] in followed else 0
        expected = (1 - rate) * before[name] + rate * before.get(online, 0)
        np.testing.assert_allclose(after[name], expected, rtol=1e-12, atol=1e-15, err_msg=name)
        if rate:
            assert not np.allclose(after[name], before[name])


@pytest.mark.parametrize(
    "agent", [a for a in AGENTS.values() if a.images], ids=[n for n, a in AGENTS.items() if a.images]
)
def test_agents_learn_from_images(agent):
    """Bytes go through encoders of their own, and every module that a phase teaches moves."""
    chosen = config(agent, encoder="impala_debug", batch_size=2)
    shape = (8, 8, 3)
    specs = agent.modules(chosen.sizes(shape, ACTION))
    policy = make_policy(specs, draw_parameters(agent, chosen.sizes(shape, ACTION), key(1), "float64"), "float64")
    optimizer = learner.make_optimizer(policy, chosen)
    for full in (None, True):
        before = arrays(policy)
        learner.update(policy, optimizer, tensors(images(chosen, shape, full)), chosen)
        after = arrays(policy)
        phase = "pretraining" if full is None else "finetuning"
        taught = {name for names in agent.reached(chosen.spec, True)[phase].values() for name in names}
        moved = {name.split(".")[0] for name in before if (before[name] != after[name]).any()}
        assert taught <= moved and all(np.isfinite(array).all() for array in after.values())


def images(chosen: OfflineConfig, shape: tuple[int, int, int], full: bool | None) -> Batch:
    """A batch whose observations and goals are images of bytes."""
    rng, plain = np.random.default_rng(4), transitions(chosen, full, shape=shape)
    bytes_ = lambda *front: rng.integers(0, 256, (*front, *shape), dtype=np.uint8)
    names = ("observations", "next_observations", "value_goals", "actor_goals")
    rows = {name: part[:2] for name, part in plain._asdict().items() if isinstance(part, np.ndarray) and len(part) == 4}
    return plain._replace(**rows)._replace(**{name: bytes_(2) for name in names}, views=bytes_(2, 2))


def test_follow_moves_nothing_when_it_is_not_its_turn():
    chosen = config(ReBRAC())
    policy = made(chosen)
    kept = learner.remember(policy, tensors(transitions(chosen, True)), chosen)
    assert {name.split(".")[0] for name in kept} == {"critic", "actor"}
    before = arrays(policy)
    learner.follow(policy, kept, tensors(transitions(chosen, False)), chosen)
    assert all((before[name] == array).all() for name, array in arrays(policy).items())
    assert learner.remember(policy, tensors(transitions(chosen, False)), chosen) == {}


@each_agent
@each_phase
def test_the_pure_step_is_the_eager_one(agent, full):
    chosen = config(agent)
    policy, template = made(chosen), made(chosen, seed=9)
    optimizer = learner.make_optimizer(policy, chosen)
    learner.update(policy, optimizer, tensors(transitions(chosen, True, seed=5)), chosen)
    params = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    moments = functional_torch.init(read_torch(optimizer, policy))
    batch = tensors(transitions(chosen, full))
    told = learner.update(policy, optimizer, batch, chosen)
    params, moments, info = pure_update(template, chosen, lambda update: update)(params, moments, batch)
    for name, tensor in policy.state_dict().items():
        torch.testing.assert_close(params[name], tensor, rtol=1e-10, atol=1e-12)
    assert {n: x.item() for n, x in info.items()} == pytest.approx({n: x.item() for n, x in told.items()}, rel=1e-12)
    assert moments.step.item() == 2


def test_the_pure_step_compiles_each_kind_of_update_once():
    chosen = config(IQL())
    policy, compiled = made(chosen), []
    record = optimizer_records(chosen.agent.modules(sizes(chosen)), chosen.lr)["policy"]
    moments = functional_torch.init(read_torch(learner.make_optimizer(policy, chosen), policy))
    update = pure_update(policy, chosen, lambda step: compiled.append(step) or step)
    params = policy.state_dict()
    for full in (None, None, False, True, False, True):
        params, moments, _ = update(params, moments, tensors(transitions(chosen, full)))
    assert len(compiled) == 3 and moments.step.item() == 6 and set(moments.slots) == set(record.trained)


def compiles_whole(agent: Agent, full: bool | None, settings: dict) -> None:
    chosen = config(agent, **settings)
    policy, batch = made(chosen), tensors(transitions(chosen, full))
    moments = functional_torch.init(read_torch(learner.make_optimizer(policy, chosen), policy))
    whole = lambda step: torch.compile(step, backend="eager", fullgraph=True)
    got, _, told = pure_update(policy, chosen, whole)(policy.state_dict(), moments, batch)
    expected, _, info = pure_update(policy, chosen, lambda step: step)(policy.state_dict(), moments, batch)
    for name, tensor in {**expected, **info}.items():
        np.testing.assert_allclose((got | told)[name].numpy(), tensor.numpy(), rtol=0, atol=1e-12)


TRACED = [
    ("iql-ddpgbc", True, {}),
    pytest.param("rebrac", False, {}, marks=pytest.mark.slow),
    pytest.param("crl_infonce", True, dict(encoder="mlp"), marks=pytest.mark.slow),
    pytest.param("infom", True, {}, marks=pytest.mark.slow),
    pytest.param("hilp", None, {}, marks=pytest.mark.slow),
    pytest.param("dino_rebrac", None, dict(corrected=("constant_center",)), marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, full, settings", TRACED)
def test_the_pure_step_is_traced_whole(name, full, settings):
    """In a process of its own: torch.compile cannot trace the run-time checks of shapes that this suite runs with."""
    code = f"from test_offline_learner_torch import *; compiles_whole(AGENTS[{name!r}], {full}, {settings})"
    ran = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


# Frozen modules


def test_a_frozen_module_passes_gradients_to_its_inputs_alone():
    chosen = config(IQL())
    policy, batch = made(chosen), tensors(transitions(chosen))
    critic, actions = policy["critic"], batch.actions.clone().requires_grad_()
    free = critic(batch.observations, actions)
    value = frozen(critic)(batch.observations, actions)
    assert torch.equal(value, free)
    wanted = [actions, *critic.parameters()]
    through, *own = torch.autograd.grad(value.square().sum(), wanted, materialize_grads=True)
    expected, *learned = torch.autograd.grad(free.square().sum(), wanted)
    torch.testing.assert_close(through, expected)
    assert not any(g.any() for g in own) and all(g.any() for g in learned)
    assert all(p.requires_grad for p in critic.parameters())


def test_a_frozen_module_has_the_parameters_of_a_functional_call():
    chosen = config(IQL())
    policy, batch = made(chosen), tensors(transitions(chosen))

    class Through(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.policy = policy

        def forward(self, actions):
            return frozen(self.policy["critic"])(batch.observations, actions).square().sum()

    params = {f"policy.{name}": 2 * p for name, p in policy.state_dict().items()}
    value = lambda params, actions: functional_call(Through(), params, (actions,))
    other = made(chosen)
    other.load_state_dict({name: 2 * p for name, p in policy.state_dict().items()})
    expected = other["critic"](batch.observations, batch.actions).square().sum()
    torch.testing.assert_close(value(params, batch.actions), expected)
    assert not any(g.any() for g in grad(value)(params, batch.actions).values())
    assert grad(value, 1)(params, batch.actions).any()


# Pieces


def test_members_that_are_equal_share_the_gradient_of_their_minimum():
    values = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    aggregate(values, "min").sum().backward()
    assert values.grad is not None and (values.grad == 0.5).all()


def test_the_scale_of_values_is_a_constant():
    q = torch.tensor([1.0, -3.0], dtype=torch.float64, requires_grad=True)
    q_loss(q, normalize=True).backward()
    assert q.grad is not None and q.grad.tolist() == [-0.25, -0.25]


def test_between_the_phases_targets_are_set_to_their_modules():
    chosen = config(ReBRAC())
    policy = made(chosen)
    before = arrays(policy)
    learner.reset_targets(policy, chosen)
    assert all((before[name] == array).all() for name, array in arrays(policy).items()), "ReBRAC resets none"
