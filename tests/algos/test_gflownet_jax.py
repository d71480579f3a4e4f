"""The JAX half of the GFlowNet algorithm: losses at the optimum, samplers, nodes, optimiser."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gflownet_small import SMALL, started, tiny

from crossfade.algos.gflownet import initial_parameters, learner_jax, losses_jax
from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.algos.gflownet.sampling import (
    distinct_jax,
    nodes_jax,
    noise_jax,
    noise_numpy,
    rollout_jax,
    vectorized,
)
from crossfade.algos.gflownet.sampling.acting_jax import act, choose
from crossfade.envs.dag import base_numpy
from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.hypergrid.hypergrid_jax import Hypergrid
from crossfade.envs.dag.hypergrid.hypergrid_numpy import Hypergrid as HostHypergrid
from crossfade.envs.dag.hypergrid.params import HypergridParams
from crossfade.errors import UsageError
from crossfade.nn import layers_jax
from crossfade.random import random_numpy
from default_run import few

LOSSES = ("tb", "vargrad", "db", "mdb", "subtb", "fm", "fldb")
EXPLORING = {"epsilon": 0.3, "temperature": 1.5}


class Tabular(Hypergrid):
    """The hypergrid seen as a one-hot of the state's number: a linear policy is then any policy at all."""

    @property
    def observation_dim(self):
        return self.n_states

    def features(self, x):
        return jnp.arange(self.n_states) == self.encode(x)


def uniform_trajectories(env, batch=16):
    """Trajectories of a policy that takes every valid action alike."""
    noise = noise_jax.draw(jax.random.key(0), env.max_steps, batch, env.n_actions, "float64")
    logits = jnp.zeros((env.n_states, env.n_actions))
    return rollout_jax.sample_table(logits, env, noise, epsilon=0.0, temperature=1.0)


# The losses


def optimum(loss, graph):
    """Parameters of a tabular policy that satisfy the balance condition of a loss, with a P_B that is not uniform."""
    finite = lambda table: np.where(np.isfinite(table), table, 0).T
    log_pb = exact_numpy.max_entropy_backward(graph)
    log_flow, log_pf = exact_numpy.optimal_policy(graph, log_pb)
    edge_flow = log_pf + log_flow[:, None]
    parameters = {
        "forward_head.weight": finite(edge_flow if loss == "fm" else log_pf),
        "backward_head.weight": finite(log_pb),
        "log_z": np.array([graph.log_z]),
    }
    if loss in ("db", "subtb", "fldb"):
        parameters["flow_head.weight"] = (log_flow - graph.log_reward * (loss == "fldb"))[None]
    biases = {name.replace("weight", "bias"): np.zeros(len(p)) for name, p in parameters.items() if "weight" in name}
    return {**parameters, **biases}


@pytest.mark.parametrize("loss", few(LOSSES, "subtb"))
def test_losses_and_gradients_vanish_at_the_optimum_and_nowhere_near(loss, x64):
    env, graph = Tabular(SMALL), enumerate_states(HostHypergrid(SMALL))
    config = tiny(loss=loss, layers=0)
    policy = learner_jax.make_policy(config, env, optimum(loss, graph))
    batch = nodes_jax.at_table(uniform_trajectories(env), env, nodes_jax.table(env, parents=loss == "fm"))
    measure = jax.jit(jax.value_and_grad(lambda policy: losses_jax.loss(policy, batch, config)[0]))
    value, gradient = measure(policy)
    assert value < 1e-24
    assert max(jnp.abs(leaf).max() for leaf in jax.tree.leaves(gradient)) < 1e-12

    p = exact_numpy.terminating_distribution(
        graph, np.asarray(jax.jit(lambda p: learner_jax.log_pf_table(p, env))(policy))
    )
    np.testing.assert_allclose(p, graph.target, atol=1e-14)

    heads = [lambda p: p.forward_head.weight]
    heads += [lambda p: p.backward_head.weight] * (loss != "fm")
    heads += [lambda p: p.flow_head.weight] * (policy.flow_head is not None)
    heads += [lambda p: p.log_z] * (loss == "tb")
    for head in heads:
        shaken = eqx.tree_at(
            head, policy, head(policy) + 0.1 * jnp.arange(head(policy).size).reshape(head(policy).shape) + 0.1
        )
        assert measure(shaken)[0] > 1e-4


def test_padding_may_hold_anything(x64):
    env = Hypergrid(SMALL)
    policy, _, _ = started(tiny(loss="db"), env)  # its flow head does for every loss
    batch = nodes_jax.at_table(uniform_trajectories(env), env, nodes_jax.table(env, parents=True))
    rng = np.random.default_rng(0)
    moves = batch.valid & (batch.action != env.n_actions - 1)
    reached = jnp.concatenate([jnp.ones((1, moves.shape[1]), bool), moves])
    keep = lambda array, where, below: jnp.where(where, array, jnp.asarray(rng.integers(below, size=array.shape)))
    other = batch._replace(
        node=keep(batch.node, reached, env.n_states),
        action=keep(batch.action, batch.valid, env.n_actions),
        parent=keep(batch.parent, moves, env.n_parents),
    )
    assert all((a != b).any() for a, b in zip(batch[4:7], other[4:7], strict=True))

    @jax.jit
    def every_loss(batch):
        return [losses_jax.loss(policy, batch, tiny(loss=loss))[0] for loss in LOSSES]

    np.testing.assert_allclose(every_loss(other), every_loss(batch), rtol=1e-14)


def random_terms(steps=5, batch=6):
    """Terms of trajectories of different lengths with nothing in balance."""
    rng = np.random.default_rng(0)
    length = 1 + np.arange(batch) % steps
    time = np.arange(steps)[:, None]
    valid, stop = time < length, time == length - 1
    draw = lambda *shape: rng.normal(size=shape)
    values = losses_jax.Terms(
        log_pf=np.where(valid, draw(steps, batch), 0),
        log_pb=np.where(valid & ~stop, draw(steps, batch), 0),
        log_flow=draw(steps + 1, batch),
        log_reward=draw(batch),
        log_reward_t=draw(steps + 1, batch),
        stop_t=draw(steps + 1, batch),
        valid=valid,
        stop=stop,
    )
    return jax.tree.map(jnp.asarray, values)


def one_by_one(terms):
    host_terms = jax.tree.map(np.asarray, terms)
    cut = lambda b: jax.tree.map(lambda a: jnp.asarray(a[..., b : b + 1]), host_terms)
    return [cut(b) for b in range(terms.valid.shape[1])]


def test_sub_trajectory_balance_lies_between_detailed_and_trajectory_balance(x64):
    terms = random_terms()
    for lambda_, same in [
        (0.0, losses_jax.detailed_balance),
        (1e14, lambda t: losses_jax.trajectory_balance(t, t.log_flow[0])),
    ]:
        expected = np.mean([jax.jit(same)(alone) for alone in one_by_one(terms)])
        assert jax.jit(losses_jax.sub_trajectory_balance)(terms, lambda_) == pytest.approx(expected, rel=1e-12)


def test_sub_trajectory_balance_is_the_weighted_mean_over_all_pieces(x64):
    terms = random_terms()
    expected = []
    for alone in one_by_one(terms):
        n = int(alone.valid.sum())
        flow = [*np.asarray(alone.log_flow[:n, 0]), float(alone.log_reward[0])]
        step = np.asarray(alone.log_pf - alone.log_pb)[:, 0]
        pieces = [(i, j) for i in range(n + 1) for j in range(i + 1, n + 1)]
        weights = [0.9 ** (j - i) for i, j in pieces]
        squares = [(flow[i] + step[i:j].sum() - flow[j]) ** 2 for i, j in pieces]
        expected.append(np.average(squares, weights=weights))
    assert jax.jit(losses_jax.sub_trajectory_balance)(terms, 0.9) == pytest.approx(np.mean(expected), rel=1e-13)


def test_the_detached_mean_of_vargrad_changes_no_gradient(x64):
    def variance(log_pf):
        return losses_jax.log_z_estimate(terms._replace(log_pf=log_pf)).var()

    terms = random_terms()
    ours = jax.value_and_grad(lambda log_pf: losses_jax.vargrad(terms._replace(log_pf=log_pf)))(terms.log_pf)
    for a, b in zip(ours, jax.value_and_grad(variance)(terms.log_pf), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-15)


def test_forward_looking_with_a_constant_reward_is_detailed_balance_with_a_shifted_flow(x64):
    terms = random_terms()
    terms = terms._replace(
        log_reward=jnp.full_like(terms.log_reward, 0.7), log_reward_t=jnp.full_like(terms.stop_t, 0.7)
    )
    expected = losses_jax.detailed_balance(terms._replace(log_flow=terms.log_flow + 0.7))
    assert losses_jax.forward_looking(terms) == pytest.approx(float(expected), rel=1e-14)
    assert losses_jax.forward_looking(terms) != pytest.approx(float(losses_jax.detailed_balance(terms)), rel=1e-3)


def test_modified_detailed_balance_without_a_move_is_zero(x64):
    stopped = jax.tree.map(lambda a: a[..., :1], random_terms())  # the first trajectory stops at once
    assert losses_jax.modified_detailed_balance(stopped) == 0


@pytest.mark.parametrize(
    "kind, formula",
    [
        ("square", lambda t: t**2),
        ("half", lambda t: t**2 / 2),
        ("huber", lambda t: min(t**2 / 2, abs(t) - 0.5) if abs(t) > 1 else t**2 / 2),
        ("exponential", lambda t: np.exp(np.clip(t, -80, 80)) + np.exp(-np.clip(t, -80, 80)) - 2),
        ("linex", lambda t: np.exp(t) - t - 1),
    ],
)
def test_regression_losses(kind, formula, x64):
    t = jnp.array([0.0, 0.3, -0.3, 2.0, -2.0, 100.0, -100.0])
    np.testing.assert_allclose(losses_jax.regression(t, kind), [formula(float(v)) for v in t], rtol=1e-13)
    assert jax.grad(losses_jax.regression)(t[0], kind) == 0


def test_an_unknown_regression_gets_the_nearest_name():
    with pytest.raises(UsageError, match="Did you mean 'square'"):
        losses_jax.regression(jnp.zeros(1), "sqare")


# Noise, acting, sampling


@pytest.mark.parametrize("dtype", few(("float32", "float64"), "float32"))
def test_noise_is_that_of_numpy_and_of_jax_random_bit_for_bit(dtype):
    with jax.enable_x64(dtype == "float64"):
        draw = jax.jit(lambda key: noise_jax.draw(key, 7, 33, 5, dtype))
        ours, raw = draw(jax.random.key(3)), draw(jax.random.PRNGKey(3))
        gumbel, explore = jax.random.split(jax.random.key(3))
        jax_random = (jax.random.gumbel(gumbel, (7, 33, 5), dtype), jax.random.uniform(explore, (7, 33), dtype))
        for theirs in (noise_numpy.draw(random_numpy.key(3), 7, 33, 5, dtype), jax_random, raw):
            for a, b in zip(ours, theirs, strict=True):
                assert a.dtype == dtype
                np.testing.assert_array_equal(a, b)


def test_keys_of_another_generator_are_refused():
    with pytest.raises(UsageError, match="Threefry"):
        noise_jax.draw(jax.random.key(0, impl="rbg"), 1, 1, 2)


def test_choose_masks_explores_and_cools():
    logits, no_noise, wide = jnp.array([5.0, 1.0, 0.0]), jnp.zeros(3), jnp.array([0.0, 1.0, 0.5])
    everything, explore = jnp.ones(3, bool), jnp.array(0.2)
    assert choose(logits, everything, no_noise, explore, 0.0, 1.0) == 0
    assert choose(logits, everything.at[0].set(False), no_noise, explore, 0.0, 1.0) == 1
    assert choose(logits, everything, wide, explore, 0.3, 1.0) == 1  # explores: the noise alone decides
    assert choose(logits, everything, wide, explore, 0.0, 1000.0) == 1  # so hot that the logits hardly count


@pytest.fixture(scope="module")
def sampled():
    """The same policy and noise given to each sampler, in float64."""
    with jax.enable_x64(True):
        env, config = Hypergrid(HypergridParams(2, 5)), tiny(batch_size=16)
        policy, _, _ = started(config, env)
        draw = jax.jit(lambda key: noise_jax.draw(key, env.max_steps, 16, env.n_actions, "float64"))
        noise = draw(jax.random.key(1))

        @jax.jit
        def every_way(policy, noise):
            logits = policy.forward_logits(env.observe(env.state(jnp.arange(env.n_states))))
            return {
                "scan": rollout_jax.sample(policy, env, noise, **EXPLORING),
                "until_done": rollout_jax.sample_until_done(policy, env, noise, **EXPLORING),
                "table": rollout_jax.sample_table(logits, env, noise, **EXPLORING),
            }

        return env, policy, noise, jax.tree.map(np.asarray, every_way(policy, noise))


@pytest.mark.parametrize("way", ["until_done", "table"])
def test_every_sampler_gives_the_same_trajectories(sampled, way):
    trajectories = sampled[-1]
    assert len(set(trajectories["scan"].valid.sum(0))) > 2
    for ours, theirs in zip(trajectories["scan"], trajectories[way], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_host_sampler_gives_the_same_trajectories(sampled, x64):
    env, policy, noise, trajectories = sampled
    host_env = HostHypergrid(env.params)
    step = jax.jit(lambda *arrays: act(policy, *arrays, **EXPLORING))

    def chosen(state, gumbel, explore):
        return np.asarray(step(host_env.observe(state), host_env.forward_mask(state), gumbel, explore))

    ours, theirs = trajectories["scan"], vectorized.sample(chosen, host_env, jax.tree.map(np.asarray, noise))
    np.testing.assert_array_equal(ours.x, theirs.x)
    np.testing.assert_array_equal(ours.valid, theirs.valid)
    np.testing.assert_array_equal(ours.action[ours.valid], theirs.action[ours.valid])
    np.testing.assert_array_equal(ours.parent[ours.valid], theirs.parent[ours.valid])


def test_sampled_actions_are_valid_and_undone_by_their_parents(sampled):
    env, _, _, trajectories = sampled
    host_env, (x, action, parent, valid) = HostHypergrid(env.params), trajectories["scan"]
    state = host_env.reset((x.shape[1],))
    for t in range(len(action)):
        np.testing.assert_array_equal(valid[t], ~state.done)
        base_numpy.check_action(host_env, state, action[t])
        after = host_env.step(state, action[t])
        np.testing.assert_array_equal(after.x, x[t + 1])
        moved = ~after.done
        before = host_env.unstep(after, parent[t])
        np.testing.assert_array_equal(before.x[moved], state.x[moved])
        state = after
    assert state.done.all()


# Nodes


@pytest.mark.slow
@pytest.mark.parametrize("loss", ("tb", "subtb", "fm"))
def test_every_execution_has_the_same_loss_and_gradient(sampled, loss, x64):
    env, _, _, trajectories = sampled
    trajectories, parents = jax.tree.map(jnp.asarray, trajectories["scan"]), loss == "fm"
    config = tiny(loss=loss, env=env.params, backward="learned")
    policy, _, _ = started(config, env)

    @jax.jit
    def measures(policy):
        batches = (
            nodes_jax.dense(trajectories, env, parents),
            nodes_jax.at_table(trajectories, env, nodes_jax.table(env, parents)),
            nodes_jax.unique(trajectories, env, 26, parents),
        )
        return [jax.value_and_grad(losses_jax.loss, has_aux=True)(policy, batch, config) for batch in batches]

    dense, *others = measures(policy)
    for other in others:
        for a, b in zip(jax.tree.leaves(dense), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_more_distinct_states_than_the_capacity_are_an_error(sampled):
    env, _, _, trajectories = sampled
    trajectories = jax.tree.map(jnp.asarray, trajectories["scan"])
    nodes = eqx.filter_jit(lambda trajectories: nodes_jax.unique(trajectories, env, 5))
    with pytest.raises(eqx.EquinoxRuntimeError, match="at most 5 distinct states"):
        jax.block_until_ready(nodes(trajectories))


@pytest.mark.parametrize("slots", [1 << 20, 7], ids=["own slots", "colliding hashes"])
def test_distinct_objects_are_told_apart(sampled, slots, monkeypatch):
    env, _, _, trajectories = sampled
    monkeypatch.setattr(distinct_jax, "SLOTS", slots)
    x = jnp.asarray(trajectories["scan"].x)
    found = jax.jit(lambda x: distinct_jax.find(x, env))(x)
    objects = np.asarray(found.objects(int(found.total)))
    np.testing.assert_array_equal(objects[found.node], x)
    n = len(np.unique(x.reshape(-1, 2), axis=0))
    assert found.total == n if slots > env.n_states else n < found.total < found.node.size


# The learner


def test_the_optimizer_is_torch_adam_with_groups_steps_and_clipping(x64):
    config = tiny(lr_period=5, clip_norm=0.5, lr=0.01)
    policy, tx, opt_state = started(config, Hypergrid(SMALL))
    names = [layers_jax.name(path) for path, _ in jax.tree_util.tree_leaves_with_path(policy)]
    tensors = [torch.tensor(np.asarray(leaf), requires_grad=True) for leaf in jax.tree.leaves(policy)]
    networks = [t for t, name in zip(tensors, names, strict=True) if name != "log_z"]
    log_z = tensors[names.index("log_z")]
    adam = torch.optim.Adam([{"params": networks, "lr": config.lr}, {"params": [log_z], "lr": config.lr_z}])
    schedule = torch.optim.lr_scheduler.StepLR(adam, config.lr_period, config.lr_gamma)
    rng, update = np.random.default_rng(0), jax.jit(tx.update)
    for _ in range(12):
        gradients = [rng.normal(size=t.shape) for t in tensors]
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_(networks, config.clip_norm)
        adam.step()
        schedule.step()
        tree = jax.tree.unflatten(jax.tree.structure(policy), map(jnp.asarray, gradients))
        updates, opt_state = update(tree, opt_state, policy)
        policy = eqx.apply_updates(policy, updates)
    for leaf, tensor in zip(jax.tree.leaves(policy), tensors, strict=True):
        np.testing.assert_allclose(leaf, tensor.detach().numpy(), rtol=1e-12)


def test_parameters_that_do_not_fit_are_named():
    env, config = Hypergrid(SMALL), tiny(dtype="float32")
    parameters = initial_parameters.parameters(config, env, random_numpy.key(0))
    parameters["extra"] = parameters.pop("log_z")
    with pytest.raises(UsageError, match=r"extra: expected None, got \(1,\); log_z: expected \(1,\), got None"):
        learner_jax.make_policy(config, env, parameters)


def test_float64_without_x64_is_refused():
    with pytest.raises(UsageError, match="enable_x64"):
        learner_jax.make_policy(tiny(), Hypergrid(SMALL), {})
