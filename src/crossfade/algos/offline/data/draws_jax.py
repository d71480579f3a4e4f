"""The random numbers of an update, drawn in JAX; choice.py says how. Twin: draws_numpy.py, bit for bit.

Arrays of a kind are drawn together, one per key: a smaller program, which compiles in half the time.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, Key, PRNGKeyArray, Shaped

from ....random import shuffling_jax as shuffling, streams_jax as streams
from ..agent import Draw, Sizes
from ..batch import Phase
from ..config import OfflineConfig
from .choice import PAD, Choice, GoalNumbers, augmentation


def draw(key: PRNGKeyArray, steps: int, sizes: Sizes, phase: Phase, config: OfflineConfig) -> Choice:
    """The random numbers of an update, from its key, for data of so many steps."""
    agent, n = config.agent, sizes.batch_size
    keys = Choice(*_folded(key, len(Choice._fields)))
    augmented = augmentation(sizes.observation, phase, config)
    in_place = augmented is not None and augmented.views == 0
    goals = [name for name in ("value_goals", "actor_goals") if getattr(agent, name) is not None]
    shape = (n, 2) if augmented is None or in_place else (augmented.views, n, 2)
    crop = lambda key: draw_rows(key, 2 * PAD + 1, shape)
    declared = agent.draws(sizes, phase)
    noise_keys = _folded(keys.noise, len(declared)) if declared else ()

    inner = [_folded(getattr(keys, name), len(GoalNumbers._fields)) for name in goals]
    rows = jax.vmap(lambda key: draw_rows(key, steps, (n,)))(jnp.stack([keys.rows, *(goal[0] for goal in inner)]))
    uniform = [jax.vmap(lambda key: streams.uniform(key, (n,), "float32"))(goal[1:]) for goal in inner]
    numbers = {name: GoalNumbers(rows[1 + i], *uniform[i]) for i, name in enumerate(goals)}
    return Choice(
        rows=rows[0],
        value_goals=numbers.get("value_goals"),
        actor_goals=numbers.get("actor_goals"),
        coin=streams.uniform(keys.coin, (), "float32") if in_place else None,
        crops=None if augmented is None else crop(keys.crops),
        goal_coin=streams.uniform(keys.goal_coin, (), "float32") if in_place and goals else None,
        goal_crops=crop(keys.goal_crops) if in_place and goals else None,
        noise={name: _noise(k, declared[name], steps, config) for k, name in zip(noise_keys, declared, strict=True)},
    )


def draw_rows(key: PRNGKeyArray, steps: int, shape: tuple[int, ...]) -> Int32[Array, "..."]:
    """Steps of the data with replacement, each as likely as the others, as jax.random.randint draws them."""
    span = jnp.uint32(steps)
    high, low = (streams.bits(half, math.prod(shape), 32) % span for half in jax.random.split(key))
    carried = jnp.uint32(2**16) % span  # 64 random bits modulo the span: 2**32 is the square of 2**16
    return ((high * (carried * carried % span) + low) % span).astype(jnp.int32).reshape(shape)


def _folded(key: PRNGKeyArray, n: int) -> Key[Array, " n"]:
    """fold_in(key, 0) .. fold_in(key, n - 1): all at once, one cipher in the compiled program."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(n, dtype=jnp.uint32))


def _noise(key: PRNGKeyArray, draw: Draw, steps: int, config: OfflineConfig) -> Shaped[Array, "..."]:
    match draw.kind:
        case "normal":
            return streams.normal(key, draw.shape, "float32").astype(config.dtype)
        case "uniform":
            return streams.uniform(key, draw.shape, "float32").astype(config.dtype)
        case "permutation":
            return shuffling.shuffled(key, draw.shape[0])
        case "rows":
            return draw_rows(key, steps, draw.shape)
        case "words":
            return streams.bits(key, math.prod(draw.shape), 32).reshape(draw.shape)
