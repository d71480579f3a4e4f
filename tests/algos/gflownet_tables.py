"""Tabular GFlowNets: environments seen as a one-hot of the state's number, their optima, chosen trajectories."""

from functools import cache

import jax.numpy as jnp
import numpy as np

from crossfade.algos.gflownet.batch import Noise
from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.algos.gflownet.sampling import vectorized
from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.registry import make


@cache
def graph_of(params):
    return enumerate_states(make(params, "numpy"))


def tabular(params, framework):
    """The environment with a one-hot of the state's number as observation: a linear policy is then any policy."""
    env = make(params, framework)

    def features(self, x):
        if framework == "numpy":
            return np.arange(self.n_states) == self.encode(x)[..., None]
        return jnp.arange(self.n_states) == self.encode(x)

    seen = {"observation_dim": property(lambda self: self.n_states), "features": features}
    return type(type(env).__name__, (type(env),), seen)(params)


def optimum(loss, params):
    """Parameters of a linear policy of a tabular environment with zero loss, and a P_B that is not uniform."""
    graph, env = graph_of(params), make(params, "numpy")
    finite = lambda table: np.where(np.isfinite(table), table, 0).T
    ways = np.random.default_rng(0).uniform(0.5, 2, size=graph.backward_mask.shape) * graph.backward_mask
    log_pb = np.log(
        ways / np.maximum(ways.sum(-1, keepdims=True), 1e-9), where=ways > 0, out=np.full(ways.shape, -np.inf)
    )
    log_flow, log_pf = exact_numpy.optimal_policy(graph, log_pb)
    parameters = {
        "forward_head.weight": finite(log_pf + log_flow[:, None] if loss == "fm" else log_pf),
        "backward_head.weight": finite(log_pb),
        "log_z": np.array([graph.log_z]),
    }
    if loss in ("db", "subtb", "fldb"):
        log_reward = env.log_reward(env.state(np.arange(env.n_states)))
        parameters["flow_head.weight"] = (log_flow - log_reward * (loss == "fldb"))[None]
    biases = {name.replace("weight", "bias"): np.zeros(len(p)) for name, p in parameters.items() if "weight" in name}
    return {**parameters, **biases}


def all_trajectories(env):
    """Every trajectory of an environment, once."""
    state, actions, found = env.reset((1,)), np.zeros((0, 1), int), []
    while len(state.done):
        row, action = np.nonzero(env.forward_mask(state))
        actions = np.concatenate([actions[:, row], action[None]])
        state = env.step(type(state)(state.x[row], state.done[row]), action)
        found.extend(actions[:, state.done].T)
        state, actions = type(state)(state.x[~state.done], state.done[~state.done]), actions[:, ~state.done]
    return follow(env, found)


def through_every_edge(env, graph):
    """One trajectory through every transition of the environment, stop included."""
    found, stop = [], env.n_actions - 1
    for state, action in np.argwhere(graph.forward_mask):
        way, at = [], state
        while at != graph.source:
            k = graph.backward_mask[at].argmax()
            way.insert(0, graph.redo[at, k])
            at = graph.parent[at, k]
        while action != stop:
            way.append(action)
            state = graph.child[state, action]
            action = stop if graph.forward_mask[state, -1] else graph.forward_mask[state].argmax()
        found.append([*way, stop])
    return follow(env, found)


def follow(env, found):
    """The trajectories of these lists of actions."""
    actions = np.full((max(map(len, found)), len(found)), env.n_actions - 1)
    for column, chosen in enumerate(found):
        actions[: len(chosen), column] = chosen
    return vectorized.sample(lambda state, action, _: action, env, Noise(actions, actions))
