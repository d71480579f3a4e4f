"""The random numbers of an update, drawn in JAX; choice.py says how. Twin: draws_numpy.py, bit for bit."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, PRNGKeyArray, Shaped

from ....random import shuffling_jax as shuffling, streams_jax as streams
from ..agent import Draw, Goals, Sizes
from ..batch import Phase
from ..config import OfflineConfig
from .choice import PAD, Choice, GoalNumbers, augmentation


def draw(key: PRNGKeyArray, steps: int, sizes: Sizes, phase: Phase, config: OfflineConfig) -> Choice:
    """The random numbers of an update, from its key, for data of so many steps."""
    agent, n = config.agent, sizes.batch_size
    keys = Choice(*(jax.random.fold_in(key, i) for i in range(len(Choice._fields))))
    augmented = augmentation(sizes.observation, phase, config)
    in_place = augmented is not None and augmented.views == 0
    goals = in_place and (agent.value_goals is not None or agent.actor_goals is not None)
    crops = (n, 2) if augmented is None or in_place else (augmented.views, n, 2)
    crop = lambda key, shape: draw_rows(key, 2 * PAD + 1, shape)
    noise = enumerate(agent.draws(sizes, phase).items())
    return Choice(
        rows=draw_rows(keys.rows, steps, (n,)),
        value_goals=_goals(keys.value_goals, steps, n, agent.value_goals),
        actor_goals=_goals(keys.actor_goals, steps, n, agent.actor_goals),
        coin=streams.uniform(keys.coin, (), "float32") if in_place else None,
        crops=None if augmented is None else crop(keys.crops, crops),
        goal_coin=streams.uniform(keys.goal_coin, (), "float32") if goals else None,
        goal_crops=crop(keys.goal_crops, crops) if goals else None,
        noise={name: _noise(jax.random.fold_in(keys.noise, i), one, steps, config) for i, (name, one) in noise},
    )


def draw_rows(key: PRNGKeyArray, steps: int, shape: tuple[int, ...]) -> Int32[Array, "..."]:
    """Steps of the data with replacement, each as likely as the others, as jax.random.randint draws them."""
    span = jnp.uint32(steps)
    high, low = (streams.bits(half, math.prod(shape), 32) % span for half in jax.random.split(key))
    carried = jnp.uint32(2**16) % span  # 64 random bits modulo the span: 2**32 is the square of 2**16
    return ((high * (carried * carried % span) + low) % span).astype(jnp.int32).reshape(shape)


def _goals(key: PRNGKeyArray, steps: int, n: int, goals: Goals | None) -> GoalNumbers | None:
    if goals is None:
        return None
    keys = GoalNumbers(*(jax.random.fold_in(key, i) for i in range(len(GoalNumbers._fields))))
    uniform = (streams.uniform(key, (n,), "float32") for key in keys[1:])
    return GoalNumbers(draw_rows(keys.random, steps, (n,)), *uniform)


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
