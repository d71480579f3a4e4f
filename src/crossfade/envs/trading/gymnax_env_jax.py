"""Trading with the face of gymnax 1.0: pure functions of a key, for one account; `jax.vmap` makes many.

An ended episode begins anew within the step, so what the last bar showed is in `info["final_observation"]`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, Key

from .market import Market, Settings, State
from .params import START_NUMBERS, TradingParams
from .trading_jax import Trading


class EnvParams(NamedTuple):
    """Data of an environment: hand it over as an argument and map it with `in_axes=None`."""

    market: Market
    settings: Settings = Settings()


@dataclass(frozen=True)
class TradingEnv:
    """See `TradingParams`."""

    params: TradingParams

    @property
    def num_actions(self) -> int:
        return self.params.n_actions

    @property
    def obs_shape(self) -> tuple[int]:
        return (self.params.observation_dim,)

    def reset(self, key: Key[Array, ""], params: EnvParams) -> tuple[Float[Array, " observation"], State]:
        """An account after a bar drawn at random: flat, or as `Settings.forced` says."""
        env = Trading(self.params)
        state = env.begin(*params, jax.random.uniform(key, (START_NUMBERS,)))
        return env.observe(*params, state), state

    def step(
        self, key: Key[Array, ""], state: State, action: Int32[Array, ""], params: EnvParams
    ) -> tuple[Float[Array, " observation"], State, Float[Array, ""], Bool[Array, ""], Bool[Array, ""], dict[str, Any]]:
        """(observation, state, reward, terminated, truncated, info), the first two of a new episode if one ended."""
        env = Trading(self.params)
        state, outcome = env.step(*params, state, action)
        final = env.observe(*params, state)
        over = outcome.terminated | outcome.truncated
        fresh = self.reset(key, params)
        observation, begun = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, (final, state))
        info = {
            "action_mask": self.action_mask(begun, params),
            "final_observation": final,
            "equity": env.equity(params.market, state),
            "reason": outcome.reason,
            "result": outcome.result,
        }
        return observation, begun, outcome.reward, outcome.terminated, outcome.truncated, info

    def action_mask(self, state: State, params: EnvParams) -> Bool[Array, " actions"]:
        """The legal actions."""
        return Trading(self.params).mask(*params, state)
