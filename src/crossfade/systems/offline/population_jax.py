"""Populations of offline agents, for `crossfade sweep offline`: runs that differ in seed and hyper-parameters, side by
side in one compiled program.

Each member is the run that its config gives alone: same parameters at the start, same keys, same updates. The numbers
that vary are inputs of the program, so it is compiled once however many members there are and whatever they try. All
read the same data, which are there once.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...algos.offline import train_jax
from ...algos.offline.agent import Agent, Sizes
from ...algos.offline.batch import PHASES, Phase
from ...algos.offline.config import OfflineConfig
from ...algos.offline.data.source import Source
from ...algos.offline.learner_jax import make_optimizer, reset_targets
from ...algos.offline.memory import Memory
from ...algos.offline.networks_jax import Modules
from ..population import check_members, with_values
from .config import OfflineDataConfig
from .system_jax import System

TRACED = ("lr", "tau", "gamma")
OF_AGENT = (
    "expectile",
    "alpha",
    "alpha_actor",
    "alpha_critic",
    "alpha_repr",
    "alpha_awr",
    "kl_weight",
    "orthonormal",
    "latent_mix",
    "penalty",
    "actor_noise",
    "noise_clip",
    "view_noise",
    "view_clip",
    "temperature",
    "target_temperature",
    "center_rate",
)
"""Settings of agents that may differ, as far as an agent has them."""
VARYING = ("seed", *TRACED, *(f"agent.{name}" for name in OF_AGENT))
"""The settings in which members may differ. Any other changes the program itself."""


class Members(NamedTuple):
    """The state of a population; every array has a first axis of members."""

    policy: Modules
    opt_state: PyTree
    memory: Memory
    key: PRNGKeyArray
    settings: dict[str, Array]
    agent: dict[str, Array]
    """The settings of the agent."""
    geometric: dict[Phase, Array]
    """The offsets of goals, which go with the discount, by phase; see `Source`."""


class Population:
    """Members in the order of their configs, at the start; `run` trains all of them, `evaluate` judges each."""

    varying = VARYING

    def __init__(self, configs: Sequence[OfflineDataConfig]):
        check_members(configs, VARYING)
        # Of this mode, a half keeps what it infers on the host: the program below has the one copy of the data.
        self.systems = [System(replace(config, mode="jax_policy")) for config in configs]
        first, agent = configs[0], configs[0].agent
        plain = replace(agent, **{name: getattr(type(agent), name) for name in _own(agent)})
        defaults = {name: getattr(OfflineDataConfig, name) for name in ("seed", *TRACED)}
        self.config = replace(first, **defaults, agent=plain)
        learning = self.systems[0].data.learning
        self.there = {phase: jax.tree.map(jnp.asarray, s._replace(geometric=None)) for phase, s in learning.items()}
        members = [_member(system, _offsets(self.systems)) for system in self.systems]
        self.members = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)

    def run(self, step: int, n: int) -> dict[str, Float[np.ndarray, "members n"]]:
        """Updates `step` to `step + n` of every member, of one phase: their metrics, on the host."""
        phase, sizes = self.config.phase(step), self.systems[0].sizes
        assert self.config.phase(step + n - 1) == phase, "`breaks` of the config keep the phases apart"
        if phase == "finetuning" and self.config.agent.infers_latent and not self.members.memory.inferred.all():
            self._infer()
        self.members, metrics = train(self.members, self.there[phase], step, n, sizes, phase, self.config)
        if step + n == self.config.pretrain:
            self.members = self.members._replace(policy=reset_targets(self.members.policy, self.config))
        return jax.device_get(metrics)

    def evaluate(self) -> dict[str, Float[np.ndarray, " members"]]:
        """What `eval/` figures each member has now; NaN for one that has left the finite numbers, whose policy cannot
        act."""
        found: list[dict[str, float]] = []
        for i, system in enumerate(self.systems):
            policy, memory = self._of(i)
            finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(policy))
            found.append(dict(system.evaluate(policy, None, memory).metrics) if finite else {})
        names = dict.fromkeys(name for figures in found for name in figures) or ("eval/success",)
        return {name.removeprefix("eval/"): np.array([f.get(name, np.nan) for f in found]) for name in names}

    def policy(self, i: int) -> Modules:
        """That of a member, on the host."""
        return self._of(i)[0]

    def _infer(self) -> None:
        """The latent of the task, as each member sees it."""
        latents = [system.infer_latent(self._of(i)[0]) for i, system in enumerate(self.systems)]
        inferred = jnp.ones(len(latents), bool)
        memory = self.members.memory._replace(latent=jnp.stack(latents), inferred=inferred)
        self.members = self.members._replace(memory=memory)

    def _of(self, i: int) -> tuple[Modules, Memory]:
        """Policy and memory of a member, on the host."""
        return jax.tree.map(itemgetter(i), jax.device_get((self.members.policy, self.members.memory)))


@partial(jax.jit, static_argnames=("n", "sizes", "phase", "config"), donate_argnames="members")
def train(
    members: Members,
    source: Source,
    first_step: int | Array,
    n: int,
    sizes: Sizes,
    phase: Phase,
    config: OfflineConfig,
) -> tuple[Members, dict[str, Float[Array, "members n"]]]:
    """`n` updates of one phase of every member, and their metrics at each. All read the same source.

    What the members have of their own is not read from `config`: leave it at its default, and every population is the
    same program.
    """

    def member(state: Members) -> tuple[Members, dict[str, Array]]:
        own = with_values(config, {**state.settings, "agent": with_values(config.agent, state.agent)})
        # Compiled by itself it would want a config that can be hashed, and so no traced numbers in it.
        train_one = inspect.unwrap(train_jax.train)
        policy, opt_state, memory, metrics = train_one(
            state.policy,
            make_optimizer(state.policy, own),
            state.opt_state,
            state.memory,
            source._replace(geometric=state.geometric[phase]),
            state.key,
            first_step,
            n,
            sizes,
            phase,
            own,
        )
        return state._replace(policy=policy, opt_state=opt_state, memory=memory), metrics

    return jax.vmap(member)(members)


def _offsets(systems: Sequence[System]) -> dict[Phase, int]:
    """The greatest number of offsets that a member's goals can have, by phase."""
    return {phase: max(len(system.data.learning[phase].geometric) for system in systems) for phase in PHASES}


def _member(system: System, offsets: Mapping[Phase, int]) -> Members:
    """One run at its start."""
    config, policy = system.config, system.make_policy(system.parameters())
    traced = lambda of, names: {name: jnp.asarray(getattr(of, name), config.dtype) for name in names}
    tables = system.data.learning
    # No number is as large as 1: what is added counts for nothing.
    padded = lambda table, n: jnp.pad(table, (0, n - len(table)), constant_values=1)
    return Members(
        policy,
        make_optimizer(policy, config).init(policy),
        jax.tree.map(jnp.asarray, system.start_buffer()),
        jax.random.wrap_key_data(jnp.asarray(system.key)),
        traced(config, TRACED),
        traced(config.agent, _own(config.agent)),
        {phase: padded(tables[phase].geometric, offsets[phase]) for phase in PHASES},
    )


def _own(agent: Agent) -> tuple[str, ...]:
    """The settings of this agent that may differ."""
    return tuple(f.name for f in fields(agent) if f.name in OF_AGENT)
