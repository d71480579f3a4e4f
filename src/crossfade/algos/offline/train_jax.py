"""Training compiled: draws, batches with their goals, imagined transitions and gradient steps, many in one program."""

from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int32, PRNGKeyArray, PyTree

from .agent import Sizes
from .batch import Batch, Phase
from .config import OfflineConfig
from .data import ring_jax
from .data.choice import Choice, Places
from .data.draws_jax import draw
from .data.sampling_jax import chosen, observations, places, read
from .data.source import Source
from .learner_jax import update
from .memory import Memory, split_noise
from .networks_jax import Modules
from .terms_jax import Info

Trained = tuple[Modules, PyTree, Memory, dict[str, Float[Array, " n"]]]
PLANNED = 32
"""Updates whose random numbers are drawn side by side."""


@partial(
    jax.jit,
    static_argnames=("tx", "sizes", "phase", "n", "config"),
    donate_argnames=("policy", "opt_state", "memory"),
)
def train(
    policy: Modules,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    memory: Memory,
    source: Source,
    key: PRNGKeyArray,
    first_step: int | Array,
    n: int,
    sizes: Sizes,
    phase: Phase,
    config: OfflineConfig,
) -> Trained:
    """`n` updates of one phase; what they tell holds a value for each.

    Update i draws from fold_in(key, first_step + i), so a run cut into calls equals one call. The memory of `policy`,
    `opt_state` and `memory` is given away: go on with the returned ones.
    """

    def one(
        now: tuple[Modules, PyTree, Memory], xs: tuple[Array, Places]
    ) -> tuple[tuple[Modules, PyTree, Memory], Info]:
        (policy, opt_state, memory), (step, at) = now, xs
        batch, memory = collect(policy, memory, source, at, jax.random.fold_in(key, step), sizes, phase, config)
        if phase == "finetuning":
            latent = memory.latent if config.agent.infers_latent else None
            batch = batch._replace(full=(step + 1) % config.actor_every == 0, latent=latent)
        policy, opt_state, info = update(policy, tx, opt_state, batch, config)
        return (policy, opt_state, memory), info

    steps = first_step + jnp.arange(n, dtype=jnp.int32)
    xs = steps, planned(source, key, steps, sizes, phase, config)
    (policy, opt_state, memory), told = jax.lax.scan(one, (policy, opt_state, memory), xs)
    return policy, opt_state, memory, told


def planned(
    source: Source, key: PRNGKeyArray, steps: Int32[Array, " n"], sizes: Sizes, phase: Phase, config: OfflineConfig
) -> Places:
    """The places of updates, (n, batch) each; see sampling_jax.py.

    First all random numbers: as part of what reads the data by them they would be computed one by one.
    """

    def numbers(step: Array) -> Choice:
        choice = draw(jax.random.fold_in(key, step), source.data.steps, sizes, phase, config)
        return Choice(choice.rows, choice.value_goals, choice.actor_goals, *[None] * (len(choice) - 3))

    drawn = jax.lax.map(numbers, steps, batch_size=min(PLANNED, len(steps)))
    return jax.vmap(lambda choice: places(source, choice, config))(drawn)


def collect(
    policy: Modules,
    memory: Memory,
    source: Source,
    at: Places,
    key: PRNGKeyArray,
    sizes: Sizes,
    phase: Phase,
    config: OfflineConfig,
) -> tuple[Batch, Memory]:
    """The batch of an update, from its places and its key, and the memory after it."""
    choice = draw(key, source.data.steps, sizes, phase, config)
    batch, own = split_noise(read(source, at, choice, config))
    if not own:
        return batch, memory
    states = observations(source, chosen(source, own["rollout_rows"]), config)
    ring = ring_jax.push(memory.imagined, imagine(policy, states, own["rollout"], config))
    rows = ring_jax.sample(ring, own["imagined"])
    return imagined_of(batch, rows, ring.size > len(batch.actions)), memory._replace(imagined=ring)


def imagine(policy: Modules, states: Array, noise: Array, config: OfflineConfig) -> Batch:
    """Transitions of the agent's model."""
    return import_module(config.agent.jax).imagine(policy, states, noise, config)


def imagined_of(batch: Batch, rows: Batch, enough: Bool[Array, ""]) -> Batch:
    """The batch with imagined transitions, or with its own until there are enough of them."""
    own = Batch(*(None if x is None else getattr(batch, name) for name, x in rows._asdict().items()))
    return batch._replace(imagined=jax.tree.map(lambda new, real: jnp.where(enough, new, real), rows, own))
