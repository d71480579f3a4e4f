"""The faults of published systems that can be switched on, in JAX: what each of them breaks."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gflownet_small import SMALL, tiny, with_optimizers

from crossfade.algos.gflownet import learner_jax, losses_jax
from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.algos.gflownet.sampling import nodes_jax, noise_jax, rollout_jax
from crossfade.bridge import Mapping, to_torch_optimizer
from crossfade.bridge.optimizers.exchange import read_torch, write_optax
from crossfade.envs.dag.ground_truth import graph_of
from crossfade.envs.dag.hypergrid.hypergrid_jax import Hypergrid
from crossfade.nn import layers_jax
from crossfade.systems.gflownet.discrete_jax import System


class Tabular(Hypergrid):
    """The hypergrid seen as a one-hot of the state's number: a linear policy is then any policy at all."""

    @property
    def observation_dim(self):
        return self.n_states

    def features(self, x):
        return jnp.arange(self.n_states) == self.encode(x)


# The trunk stands twice in the optimiser


def updated(config, policy, gradients):
    """Parameters by name after each update with the given gradients, and the optimiser's last state."""
    tx = learner_jax.make_optimizer(config, policy)
    opt_state, update = tx.init(policy), jax.jit(tx.update)
    for gradient in gradients:
        tree = jax.tree.unflatten(jax.tree.structure(policy), map(jnp.asarray, gradient))
        updates, opt_state = update(tree, opt_state, policy)
        policy = eqx.apply_updates(policy, updates)
        yield {layers_jax.name(path): np.asarray(a) for path, a in jax.tree_util.tree_leaves_with_path(policy)}


@pytest.mark.parametrize("clip_norm", [pytest.param(None, marks=pytest.mark.slow), 0.5])
def test_a_trunk_that_stands_twice_is_stepped_twice_as_torch_does_it(clip_norm, x64):
    config = tiny(legacy_double_step=True, lr_period=5, lr=0.01, clip_norm=clip_norm)
    run = System(config)
    start = run.parameters()
    policy, rng = run.make_policy(start), np.random.default_rng(0)
    gradients = [[rng.normal(size=leaf.shape) for leaf in jax.tree.leaves(policy)] for _ in range(8)]
    names = [layers_jax.name(path) for path, _ in jax.tree_util.tree_leaves_with_path(policy)]

    tensors = {name: torch.tensor(start[name], requires_grad=True) for name in names}
    networks = [tensors[name] for name in names if name != "log_z"]
    networks += [tensors[name] for name in names if name.startswith("trunk")]
    groups = [{"params": networks}, {"params": [tensors["log_z"]], "lr": config.lr_z}]
    with pytest.warns(UserWarning, match="duplicate"):
        adam = torch.optim.Adam(groups, lr=config.lr, foreach=False)
    schedule = torch.optim.lr_scheduler.StepLR(adam, config.lr_period, config.lr_gamma)
    once = next(iter(updated(tiny(lr=0.01, clip_norm=clip_norm), policy, gradients)))
    for i, ours in enumerate(updated(config, policy, gradients)):
        for name, gradient in zip(names, gradients[i], strict=True):
            tensors[name].grad = torch.tensor(gradient)
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(networks, clip_norm, foreach=False)
        adam.step()
        schedule.step()
        for name in names:
            np.testing.assert_allclose(ours[name], tensors[name].detach(), atol=1e-15, rtol=1e-14)
        if i == 0:
            assert adam.state[tensors["trunk.0.weight"]]["step"] == 2
            for name in names:
                ratio = (ours[name] - start[name]) / (once[name] - start[name])
                np.testing.assert_allclose(ratio, 2 if name.startswith("trunk") else 1, rtol=0.01)


def test_a_double_step_survives_the_neutral_form_of_the_optimiser(x64):
    """A JAX run that is saved and resumed in JAX goes on bit for bit."""
    from crossfade.systems.gflownet.discrete_torch import System as TorchSystem

    config = tiny(legacy_double_step=True, mode="jax_full", execution="table")
    run, other = System(config), TorchSystem(config)
    policy = run.make_policy(run.parameters())
    optimizers, states = with_optimizers(run, policy)
    policy, states, _, _ = run.train(policy, optimizers, states, None, 0, 3)
    tx, opt_state = optimizers["policy"], states["policy"]
    module = other.make_policy({n: np.asarray(a) for n, a in other.parameters().items()})
    mapping, (optimizer, scheduler) = Mapping.by_name(module, policy), other.make_optimizers(module)["policy"]
    named = dict(module.named_parameters())
    to_torch_optimizer(opt_state, mapping, optimizer, scheduler=scheduler, named_parameters=named)
    resumed = write_optax(read_torch(optimizer, named), tx.init(policy), mapping)
    for ours, theirs in zip(jax.tree.leaves(resumed), jax.tree.leaves(opt_state), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# A finished object keeps its ordinary parents


@pytest.mark.slow
def test_with_the_wrong_mask_a_policy_of_another_target_has_no_loss(x64):
    env, graph = Tabular(SMALL), graph_of(SMALL)
    share = np.random.default_rng(0).uniform(0.2, 0.9, env.n_states)
    share[graph.source] = 1  # it has no parents beside undoing stop
    log_pb = exact_numpy.uniform_backward(graph)
    wrong = replace(graph, log_reward=graph.log_reward + np.log(share))
    _, log_pf = exact_numpy.optimal_policy(wrong, log_pb)
    finite = lambda table: np.where(np.isfinite(table), table, 0).T
    logit = np.log(share) - np.log1p(-np.minimum(share, 0.99))  # its softmax beside P_B is `share`
    parameters = {
        "forward_head.weight": finite(log_pf),
        "forward_head.bias": np.zeros(env.n_actions),
        "backward_head.weight": np.concatenate([finite(log_pb), logit[None]]),
        "backward_head.bias": np.zeros(env.n_parents + 1),
        "log_z": np.array([wrong.log_z]),
    }
    right = parameters | {"backward_head.weight": finite(log_pb), "backward_head.bias": np.zeros(env.n_parents)}

    noise = noise_jax.draw(jax.random.key(0), env.max_steps, 32, env.n_actions, "float64")

    @eqx.filter_jit
    def measured(policy, config):
        trajectories = rollout_jax.sample_table(jnp.zeros((env.n_states, env.n_actions)), env, noise, 0.0, 1.0)
        return losses_jax.loss(policy, nodes_jax.at_table(trajectories, env, nodes_jax.table(env)), config)[0]

    loss = {}
    for fault, given in ((True, parameters), (False, right)):
        config = tiny(layers=0, legacy_finished_mask=fault)
        policy = learner_jax.make_policy(config, env, given)
        loss[fault] = measured(policy, config)
    p = exact_numpy.terminating_distribution(graph, log_pf)
    assert loss[True] < 1e-24
    assert exact_numpy.total_variation(p, graph.target) > 0.05
    assert loss[False] > 1e-2


# The shared trunk is copied and its copies are trained apart


@pytest.mark.slow
def test_trunks_that_are_not_tied_drift_apart(x64):
    settings = {"mode": "jax_full", "execution": "table", "layers": 1, "lr": 0.01}
    tied, untied = System(tiny(**settings)), System(tiny(**settings, legacy_untied_trunk=True))
    start = tied.parameters()
    fresh = untied.parameters()
    assert all((fresh[name] == fresh[f"backward_{name}"]).all() for name in start if name.startswith("trunk"))

    def trained(run, parameters):
        policy = run.make_policy(parameters)
        policy, _, _, metrics = run.train(policy, *with_optimizers(run, policy), None, 0, 100)
        return policy, np.asarray(metrics["loss"])

    _, expected = trained(tied, start)
    copies = {f"backward_{name}": array for name, array in start.items() if name.startswith("trunk")}
    policy, losses = trained(untied, start | copies)
    assert np.abs(policy.trunk[0].weight - policy.backward_trunk[0].weight).max() > 1e-2
    assert losses[0] == pytest.approx(expected[0], rel=1e-12)
    assert abs(losses[-1] / expected[-1] - 1) > 1e-2
