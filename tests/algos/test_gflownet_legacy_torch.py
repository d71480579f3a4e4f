"""The published faults as switches, in torch: what each does, and what it breaks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from crossfade.algos.gflownet import learner_torch
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.bridge.optimizers.state_torch import read_torch
from crossfade.config import apply
from crossfade.envs.dag.ground_truth import graph_of
from crossfade.errors import NoCounterpart, UsageError
from crossfade.optim import functional_torch
from crossfade.systems.gflownet.discrete_torch import System
from crossfade.trainers.system import PureState

SMALL = ("env=hypergrid", "env.length=4", "hidden=8", "batch_size=8", "dtype=float64")


def system(*words: str) -> System:
    return System(apply(GFlowNetConfig(), (*SMALL, *words)))


def updated(ours: System, n: int, start: dict[str, np.ndarray] | None = None):
    """A policy and its optimiser after `n` updates, and the losses on the way."""
    policy = ours.make_policy(start or ours.parameters())
    optimizers = ours.make_optimizers(policy)
    losses = [ours.update(policy, optimizers, batch_of(ours, policy, i))["loss"] for i in range(n)]
    return policy, optimizers["policy"], losses


def batch_of(ours: System, policy, step: int):
    return ours.tensors(ours.collect(policy, ours.start_buffer(), step)[0])


# The trunk stands in the optimiser twice


def with_the_trunk_twice(ours: System, n: int):
    """What upstream does: the trunk's tensors are in Adam's list, and in the list that is clipped, twice."""
    policy = ours.make_policy(ours.parameters())
    networks = [p for name, p in policy.named_parameters() if name != "log_z"] + list(policy.trunk.parameters())
    groups = [{"params": networks, "lr": ours.config.lr}, {"params": [policy.log_z], "lr": ours.config.lr_z}]
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optimizer = torch.optim.Adam(groups, foreach=False)
    for i in range(n):
        optimizer.zero_grad()
        ours.loss(policy, batch_of(ours, policy, i))[0].backward()
        if ours.config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(networks, ours.config.clip_norm)
        optimizer.step()
    return policy, optimizer


@pytest.mark.parametrize("words", [(), ("clip_norm=0.1",)], ids=["plain", "clipped"])
def test_double_step_is_adam_with_the_trunk_given_twice(words):
    ours = system("legacy_double_step=true", *words)
    policy, (adam, _), _ = updated(ours, 5)
    reference, expected = with_the_trunk_twice(ours, 5)
    right, _, _ = updated(system(*words), 5)
    apart = lambda a, b: max(
        float((p - q).detach().abs().max()) for p, q in zip(a.parameters(), b.parameters(), strict=True)
    )
    assert apart(policy, reference) <= 1e-15 < apart(policy, right)
    for (name, p), q in zip(policy.named_parameters(), reference.parameters(), strict=True):
        times = 2 if name.startswith("trunk.") else 1
        assert int(expected.state[q]["step"]) == 5 * times  # Adam's own count of the trunk ...
        assert int(adam.state[p]["step"]) == 5  # ... and that of updates, which is what is kept
        for slot in ("exp_avg", "exp_avg_sq"):
            assert torch.equal(adam.state[p][slot], expected.state[q][slot])


def test_double_step_moves_the_trunk_twice_as_far():
    start = system().make_policy(system().parameters()).state_dict()
    (right, _, _), (wrong, _, _) = (updated(system(f"legacy_double_step={on}"), 1) for on in ("false", "true"))
    moved = lambda policy, name: policy.state_dict()[name] - start[name]
    some = moved(right, "trunk.0.weight").abs() > 1e-5
    ratio = moved(wrong, "trunk.0.weight")[some] / moved(right, "trunk.0.weight")[some]
    assert some.any() and ((ratio > 1.9) & (ratio < 2.1)).all()
    assert torch.equal(moved(wrong, "forward_head.weight"), moved(right, "forward_head.weight"))


def pure_state(policy, optimizer) -> PureState:
    """What `torch_pure` starts from."""
    params = {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}
    return PureState(params, {"policy": functional_torch.init(read_torch(optimizer, policy))})


@pytest.mark.parametrize("words", [(), ("clip_norm=0.1", "lr_period=2")], ids=["plain", "clipped, decaying"])
def test_the_functional_learner_has_the_same_fault(words):
    ours = system("legacy_double_step=true", *words)
    policy, (adam, _), _ = updated(ours, 5)
    start = ours.make_policy(ours.parameters())
    state = pure_state(start, ours.make_optimizers(start)["policy"].optimizer)
    update = ours.pure_update(start, lambda function: function)
    for i in range(5):
        start.load_state_dict(state.params)
        state, _ = update(state, batch_of(ours, start, i))
    for name, p in policy.named_parameters():
        torch.testing.assert_close(state.params[name], p.detach(), rtol=0, atol=1e-14)
        for slot in ("exp_avg", "exp_avg_sq"):
            found = state.moments["policy"].slots[name][slot]
            torch.testing.assert_close(found, adam.state[p][slot], rtol=1e-12, atol=1e-14)
    again = pure_state(policy, adam)  # and it goes on from torch's optimiser
    assert float(again.moments["policy"].step) == float(state.moments["policy"].step) == 5


def test_a_learner_that_steps_once_refuses_to_step_twice():
    config = replace(system().config, mode="jax_minimal")
    assert set(System(config).objectives()) == {"policy"}
    with pytest.raises(NoCounterpart, match="legacy_double_step"):
        System(replace(config, legacy_double_step=True)).objectives()
    with pytest.raises(UsageError, match="backward=shared"):
        replace(config, legacy_double_step=True, backward="uniform")


# A finished object keeps its ordinary parents


def tabular_toy(wrong: bool) -> tuple[System, dict[str, np.ndarray], np.ndarray]:
    """The toy graph with a linear policy, hence any policy: zero loss for rewards R(x) c(x), c(x) arbitrary.

    With the fault c(x) is what P_B gives to undoing stop; without it the same policy has a P_B(stop) of 1.
    """
    config = apply(GFlowNetConfig(), ("env=toy", "layers=0", "batch_size=64", "dtype=float64"))
    ours = System(replace(config, legacy_finished_mask=wrong))
    graph = graph_of(ours.config.env)
    c = np.random.default_rng(0).uniform(0.1, 0.9, len(graph.level))
    log_pb = exact_numpy.uniform_backward(graph)
    log_flow, log_pf = exact_numpy.optimal_policy(replace(graph, log_reward=graph.log_reward + np.log(c)), log_pb)
    finite = lambda table: np.where(np.isfinite(table), table, 0).T
    undo_stop = np.where(graph.backward_mask.any(-1), np.log(c / (1 - c)), 0)[None]
    parameters = {
        "forward_head.weight": finite(log_pf),
        "forward_head.bias": np.zeros(log_pf.shape[1]),
        "backward_head.weight": np.concatenate([finite(log_pb), undo_stop][: 1 + wrong]),
        "backward_head.bias": np.zeros(log_pb.shape[1] + wrong),
        "log_z": log_flow[[graph.source]],
    }
    return ours, parameters, graph.target


def loss_and_distance(ours: System, parameters: dict[str, np.ndarray], target: np.ndarray) -> tuple[float, float]:
    policy = ours.make_policy(parameters)
    loss, _ = ours.loss(policy, batch_of(ours, policy, 0))
    p = exact_numpy.terminating_distribution(graph_of(ours.config.env), learner_torch.log_pf_table(policy, ours.env))
    return float(loss.detach()), float(exact_numpy.total_variation(p, target))


def test_with_a_wrong_finished_mask_zero_loss_does_not_mean_the_target():
    loss, distance = loss_and_distance(*tabular_toy(wrong=True))
    assert loss < 1e-24 and distance > 0.1
    loss, distance = loss_and_distance(*tabular_toy(wrong=False))
    assert loss > 0.01 and distance > 0.1  # the right mask tells


def test_the_extra_output_is_read_only_at_stop():
    ours = system("legacy_finished_mask=true")
    policy, nodes = ours.make_policy(ours.parameters()), ours.tensors(ours.table)
    with torch.no_grad():
        before = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask)
        policy.backward_head.bias[-1] += 1.0
        after = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask)
    assert torch.equal(before.log_pb, after.log_pb)
    assert before.log_pb_stop[0] == after.log_pb_stop[0] == 0  # the source has no other way back
    assert (before.log_pb_stop[1:] < after.log_pb_stop[1:]).all() and (after.log_pb_stop[1:] < 0).all()


# The trunk is copied and its copies are trained apart


def test_an_untied_trunk_comes_apart():
    ours, right = system("legacy_untied_trunk=true"), system()
    pairs = lambda policy: zip(policy.trunk.parameters(), policy.backward_trunk.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs(ours.make_policy(ours.parameters())))
    tied = right.parameters()
    copies = {f"backward_{name}": array.copy() for name, array in tied.items() if name.startswith("trunk.")}
    policy, _, losses = updated(ours, 100, tied | copies)
    whole, _, tied_losses = updated(right, 100, tied)
    assert not whole.backward_trunk
    assert all(float((a - b).detach().abs().max()) > 1e-3 for a, b in pairs(policy))
    apart = [abs(float(a) - float(b)) for a, b in zip(losses, tied_losses, strict=True)]
    assert apart[0] == 0 and apart[-1] > 1e-6  # one function at the start, two systems after
