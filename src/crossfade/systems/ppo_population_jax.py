"""Populations of PPO on any world: runs that differ in seed and hyper-parameters, side by side in one compiled program.

Each member is the run that its config gives alone: same parameters at the start, same keys, same updates. The numbers
that vary are inputs of the program, so it is compiled once however many members there are and whatever they try.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ..algos.ppo import train_jax
from ..algos.ppo.batch import Carry, named
from ..algos.ppo.config import PPOConfig
from ..algos.ppo.learner_jax import make_optimizer
from ..algos.ppo.network_jax import ActorCritic
from ..envs.world import World
from ..errors import UsageError
from ..nn import normalizer_jax
from .population import check_members, with_values
from .ppo_jax import PPOSystem

TRACED = ("gamma", "gae_lambda", "clip", "value_coef", "entropy_coef", "clip_norm")
VARYING = ("seed", "lr", "lr_final", *TRACED)
"""The settings in which members may differ. Any other changes the program itself."""


class Members(NamedTuple):
    """The state of a population; every array has a first axis of members."""

    policy: ActorCritic
    opt_state: PyTree
    carry: Carry
    key: PRNGKeyArray
    settings: dict[str, Array]


class PPOPopulation:
    """Members in the order of their configs, at the start; `run` trains all of them, `evaluate` judges each.

    `make_system` is the system's JAX half. What its world reads is the same for all members, as it may not depend on
    what varies.
    """

    varying = VARYING

    def __init__(self, configs: Sequence[PPOConfig], make_system: Callable[[Any], PPOSystem[Any]]):
        check_members(configs, VARYING)
        # Of this mode, a half keeps its data on the host: the program below has the one copy on the device.
        self.systems = [make_system(replace(config, mode="jax_policy")) for config in configs]
        if self.systems[0].hook is not None:
            raise UsageError(f"a population learns no {self.systems[0].hook.name}. Train such runs one by one.")
        first, defaults = configs[0], {name: getattr(type(configs[0]), name) for name in VARYING}
        self.config = replace(first, **{n: v for n, v in defaults.items() if getattr(first, n) is not None})
        self.data = jax.tree.map(jnp.asarray, self.systems[0].data)
        self.members = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(_member, self.systems))

    def run(self, step: int, n: int) -> dict[str, Float[np.ndarray, "members n"]]:
        """Updates `step` to `step + n` of every member: their metrics, on the host."""
        steps, first = range(step, step + n), self.systems[0]
        settings = jax.tree.map(lambda *values: np.stack(values), *map(first.settings, steps))
        rates = np.array([[s.config.learning_rate(i) for i in steps] for s in self.systems], self.config.dtype)
        self.members, metrics = train(self.members, first.compiled, self.data, settings, rates, step, self.config)
        return named(jax.device_get(metrics), first.names)

    def evaluate(self) -> dict[str, Float[np.ndarray, " members"]]:
        """What `eval/` figures each member has now; NaN for one that has left the finite numbers."""
        members = jax.device_get(self.members._replace(key=None))
        found: list[dict[str, float]] = []
        for i, system in enumerate(self.systems):
            policy, carry = jax.tree.map(itemgetter(i), (members.policy, members.carry))
            figures = system.evaluate(policy, None, carry).metrics  # pyright: ignore[reportAttributeAccessIssue]
            finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(policy))
            found.append({name: figure if finite else np.nan for name, figure in figures.items()})
        return {name.removeprefix("eval/"): np.array([figures[name] for figures in found]) for name in found[0]}


@partial(jax.jit, static_argnames=("world", "config"), donate_argnames="members")
def train(
    members: Members,
    world: World,
    data: Any,
    settings: Any,
    learning_rate: Float[Array, "members n"],
    first_step: int | Array,
    config: PPOConfig,
) -> tuple[Members, dict[str, Float[Array, "members n"]]]:
    """`n` updates of every member, and their metrics at each.

    What the members have of their own is not read from `config`: leave it at its default, and every population is the
    same program.
    """

    def member(state: Members, learning_rate: Float[Array, " n"]) -> tuple[Members, dict[str, Array]]:
        own = with_values(config, state.settings)
        # Compiled by itself it would want a config that can be hashed, and so no traced numbers in it.
        train_one = inspect.unwrap(train_jax.train)
        policy, opt_state, carry, metrics = train_one(
            state.policy,
            make_optimizer(own, state.policy),
            state.opt_state,
            state.carry,
            world,
            data,
            settings,
            learning_rate,
            state.key,
            first_step,
            own,
        )
        return state._replace(policy=policy, opt_state=opt_state, carry=carry), metrics

    return jax.vmap(member)(members, learning_rate)


def _member(system: PPOSystem[Any]) -> Members:
    """One run at its start."""
    config, policy, carry = system.config, system.make_policy(system.parameters()), system.start_buffer()
    traced = {name: getattr(config, name) for name in TRACED if getattr(config, name) is not None}
    parameters: Any = policy
    return Members(
        policy,
        make_optimizer(config, policy).init(parameters),
        carry._replace(statistics=normalizer_jax.Statistics(*carry.statistics)),
        jax.random.wrap_key_data(jnp.asarray(system.key)),
        {name: jnp.asarray(value, config.dtype) for name, value in traced.items()},
    )
