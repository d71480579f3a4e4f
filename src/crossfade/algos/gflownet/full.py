"""Training compiled as a whole: collecting and learning, many iterations in one program."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...envs.base_jax import Env
from ...errors import UsageError
from .config import GFlowNetConfig
from .distinct import find
from .learner_jax import update
from .nodes_jax import at_table, dense, table
from .noise_jax import draw
from .policy_jax import Policy
from .rollout import sample, sample_table, sample_until_done


@partial(jax.jit, static_argnames=("tx", "env", "n", "config"), donate_argnames=("policy", "opt_state"))
def train(
    policy: Policy,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    env: Env,
    key: PRNGKeyArray,
    first_step: int | Array,
    n: int,
    config: GFlowNetConfig,
) -> tuple[Policy, PyTree, dict[str, Float[Array, " n"]]]:
    """`n` iterations of collecting a batch and one update on it; the metrics hold a value for each iteration.

    Iteration i draws from fold_in(key, first_step + i), so a run cut into calls equals one call. The memory of
    `policy` and `opt_state` is given away: go on with the returned ones. Compiled once for each `n`.
    """
    parents = config.loss == "fm"
    acting = (config.epsilon, config.temperature)

    if config.execution == "table":
        nodes = table(env, parents)

        def iterate(policy, opt_state, noise):
            # `update` evaluates the policy on the same nodes again; the compiler keeps one of the two.
            logits = policy.forward_logits(nodes.observation)
            batch = at_table(sample_table(logits, env, noise, *acting), env, nodes)
            return update(policy, tx, opt_state, batch, config)

    elif config.execution == "dense":

        def iterate(policy, opt_state, noise):
            return update(policy, tx, opt_state, dense(sample(policy, env, noise, *acting), env, parents), config)

    elif config.execution == "unique":

        def iterate(policy, opt_state, noise):
            trajectories = sample_until_done(policy, env, noise, *acting)
            found = find(trajectories.x, env)
            visits = found.node.size
            capacities = [visits * eighths // 8 for eighths in (1, 2, 3, 4, 8)]

            def at(capacity):
                nodes = dense(trajectories._replace(x=found.objects(capacity)), env, parents)
                return update(policy, tx, opt_state, nodes._replace(node=found.node), config)

            smallest = jnp.searchsorted(jnp.array(capacities), found.count)
            return jax.lax.switch(smallest, [partial(at, capacity) for capacity in capacities])

    else:
        raise UsageError(f"execution: expected 'table', 'dense' or 'unique', got {config.execution!r}. Decide first.")

    def iteration(carry, step):
        noise = draw(jax.random.fold_in(key, step), env.max_steps, config.batch_size, env.n_actions, config.dtype)
        policy, opt_state, info = iterate(*carry, noise)
        return (policy, opt_state), info

    (policy, opt_state), metrics = jax.lax.scan(iteration, (policy, opt_state), first_step + jnp.arange(n))
    return policy, opt_state, metrics
