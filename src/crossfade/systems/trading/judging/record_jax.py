"""What accounts did, bar by bar, in one compiled call: every session of every market by every checkpoint at once.

Twin: record.py, whose `Record` this is, with the checkpoints as first axis. Compiling takes seconds, so for one policy
and some dozens of sessions NumPy is done before; for many checkpoints or years of sessions this is far ahead.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from ....algos.ppo.network_jax import ActorCritic
from ....envs.trading.market import Market, Settings, State
from ....envs.trading.params import Action, Reason
from ....envs.trading.trading_jax import Trading
from ....nn.categorical_jax import Categorical
from ....nn.normalizer_jax import Statistics, normalize
from .record import Record

Tree = TypeVar("Tree")
Row = dict[str, Array]


def stack(checkpoints: Sequence[Tree]) -> Tree:
    """Policies, or statistics, of several checkpoints as one, with a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *checkpoints)


@partial(jax.jit, static_argnames=("env", "n_bars"))
def trade(
    policies: ActorCritic,
    statistics: Statistics | None,
    env: Trading,
    market: Market,
    settings: Settings,
    m: Int32[Array, " sessions"],
    t: Int32[Array, " sessions"],
    n_bars: int,
) -> Record:
    """Accounts that begin flat after bar `t` of market `m`, each stepped by each policy to its end, for at most
    `n_bars` bars; arrays (checkpoints, bars, sessions).

    `policies` and the `statistics` of their observations are stacked; without statistics observations are seen raw. A
    policy takes its most probable action.
    """

    actions = Categorical(env.params.n_actions)

    def one(policy: ActorCritic, statistics: Statistics | None) -> Record:
        def step(now: tuple[State, Bool[Array, " sessions"]], _: None) -> tuple[tuple[State, Array], Row]:
            state, running = now
            before = state._replace(t=jnp.where(running, state.t, state.began))  # one that ended may be at the last bar
            seen = env.observe(market, settings, before)
            mask = env.mask(market, settings, before)
            outputs = policy(seen if statistics is None else normalize(statistics, seen))[0]
            action = actions.mode(actions.masked(outputs, mask))
            after, outcome = env.step(market, settings, before, action)
            held = jnp.where(before.position == 0, env.size(market, settings, before), before.contracts)
            paid = after.commissions + after.slippages - before.commissions - before.slippages
            state = State(*(jnp.where(running, new, old) for new, old in zip(after, state, strict=True)))
            row = {
                "position": after.position,
                "contracts": jnp.where(outcome.reason == Reason.NONE, after.contracts, held),
                "action": action,
                "reason": outcome.reason,
                "result": outcome.result,
                "cost": paid,
                "could_enter": mask[:, Action.BUY],
                "bust": outcome.terminated,
            }
            row = {name: jnp.where(running, column, jnp.zeros_like(column)) for name, column in row.items()}
            row |= {"equity": env.equity(market, state), "running": running}
            return (state, running & ~(outcome.terminated | outcome.truncated)), row

        start: Any = env.reset(market, settings, m, t), jnp.ones(len(t), bool)
        (state, _), rows = jax.lax.scan(step, start, length=n_bars)
        return Record(**rows | {"bust": rows["bust"].any(0)}, state=state)

    return jax.vmap(one)(policies, statistics)
