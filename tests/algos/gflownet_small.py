"""Small GFlowNets to test with."""

from crossfade.algos.gflownet import initial_parameters, learner_jax
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.envs.dag.hypergrid.params import HypergridParams
from crossfade.random import random_numpy

SMALL = HypergridParams(2, 4)


def started(config, env):
    """A fresh policy, its optimiser and the optimiser's state."""
    parameters = initial_parameters.parameters(config, env, random_numpy.key(config.seed), config.dtype)
    policy = learner_jax.make_policy(config, env, parameters)
    tx = learner_jax.make_optimizer(config, policy)
    return policy, tx, tx.init(policy)


def with_optimizers(system, policy):
    """The optimisers of a JAX system and their states, as the trainers hold them."""
    optimizers = system.make_optimizers(policy)
    return optimizers, {name: tx.init(policy) for name, tx in optimizers.items()}


def tiny(**settings):
    settings = {"env": SMALL, "hidden": 8, "batch_size": 8, "dtype": "float64", **settings}
    return GFlowNetConfig(**settings)
