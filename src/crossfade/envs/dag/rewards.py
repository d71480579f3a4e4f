"""A reward is a finite number above 0. Who breaks that is named, before or while a GFlowNet trains."""

from typing import Any

import numpy as np

from ...errors import RewardError

MOST_STATES = 5_000
WALKS = 64

Array = np.ndarray | np.generic


def check_reward(env: Any, x: Array, value: Array) -> None:
    """Raise, naming an object, unless every log-reward is finite: one NaN would spoil a whole training run."""
    if sentence := describe(env, x, value):
        raise RewardError(
            f"expected a finite log R, got {sentence}. R must be a finite number above 0: a reward of 0 has "
            f"log R = -inf, so give it a floor; a negative one has no log R."
        )


def describe(env: Any, x: Array, value: Array) -> str:
    """Which log-rewards are not finite, in words; empty when all are."""
    finite = np.isfinite(value)
    if finite.all():
        return ""
    where = tuple(int(i) for i in np.argwhere(~finite)[0])
    return (
        f"{np.asarray(value)[where]} from {type(env).__name__} for x = {np.asarray(x)[where].tolist()} "
        f"({(~finite).sum()} such of {finite.size} objects)"
    )


def find_bad(params: Any, seed: int = 0) -> str:
    """A search for an object whose log-reward is not finite, in either twin; empty when none is found.

    Looks at all states where they are few, else at those that random walks visit. Of params that are not those of a
    discrete environment nothing is known.
    """
    from .params import Params

    if not isinstance(params, Params):
        return ""
    import jax.numpy as jnp

    from .base_jax import State
    from .conformance import noise, states_of, walk
    from .registry import make

    env, jax_env = make(params, "numpy"), make(params, "jax")
    visited, _ = walk(env, *noise(env, seed, WALKS))
    states = states_of(env, visited)
    value = np.asarray(jax_env.log_reward(State(jnp.asarray(states.x), jnp.asarray(states.done))))
    return describe(env, states.x, env.log_r(states.x)) or describe(jax_env, states.x, value)
