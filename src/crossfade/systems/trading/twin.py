"""Trading with PPO as a twin: the network, the loss and its gradient, updates, the accounts and whole rollouts."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ...algos.ppo.batch import Minibatch
from ...config import apply
from ...envs.trading.market import Market, Settings
from ...envs.world import BoundWorld
from ...parity.twin import Twin
from ...random import random_numpy as random
from .config import TradingConfig

SMALL = (
    "env.phase=2",
    "env.window=3",
    "market=gappy",
    "days=3",
    "drawdown=1500",
    "forced=0.5",
    "hidden=16",
    "n_envs=16",
    "n_steps=32",
    "epochs=1",
)
ENV_STEPS = 96


def trading(*words: str) -> Twin:
    """The system of a small config, `trading("env.phase=1", "rules=seed_jax")` for one; by default phase 2, sound."""
    import jax.numpy as jnp
    import torch

    from ...algos.ppo import learner_torch
    from ...bridge import Mapping
    from .system_jax import System as JaxSystem
    from .system_torch import System as TorchSystem

    config = apply(apply(TradingConfig(), SMALL), words)
    ours, theirs = TorchSystem(config), JaxSystem(config)
    policy, model = ours.make_policy(ours.parameters()), theirs.make_policy(ours.parameters())
    start, other = ours.start_buffer(), TorchSystem(replace(config, seed=config.seed + 1)).parameters()
    actor = ours.make_policy(other)

    @cache
    def batch(i: int) -> Minibatch:
        """All steps of a rollout of another policy, so that ratios are away from 1 and values from the old ones."""
        steps = ours.tensors(ours.collect(actor, start, i)[0]).steps
        steps = steps._replace(advantage=learner_torch.normalized(steps.advantage, config))
        return Minibatch._make(None if field is None else np.asarray(field) for field in steps)

    actions = np.random.default_rng(0).integers(0, config.params.n_actions, (ENV_STEPS, config.n_envs))
    return Twin(
        "trading",
        torch=policy,
        jax=model,
        mapping=Mapping.by_name(policy, model),
        batches=batch,
        forward=(lambda p, b: p(b.observation), lambda p, b: p(b.observation)),
        loss=(ours.loss, theirs.loss),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=config.lr, eps=config.adam_eps),
        clip_norm=config.clip_norm,
        env=(_Stepper(ours.world, ours, np.asarray), _Stepper(theirs.compiled, theirs, jnp.asarray)),
        actions=actions.astype(np.int32),
        rollout=(lambda p, key: _host_rollout(config, p, key), lambda p, key: _compiled_rollout(config, p, key)),
    )


class _Stepper:
    """Accounts as the level `env` steps them, by legal and illegal actions; where an episode ends, another begins."""

    def __init__(self, env: Any, system: Any, array: Callable[[np.ndarray], Any]):
        self.env, self.market = env, Market(*map(array, system.data))
        self.settings = Settings(*map(array, system.settings(0)))
        self.uniform = array(random.uniform(random.key(1), (system.config.n_envs, env.start_numbers), "float32"))

    def reset(self, key: Any) -> Any:
        return self.env.begin(self.market, self.settings, self.uniform)

    def step(self, state: Any, action: Any) -> Any:
        given = self.market, self.settings
        after, outcome = self.env.step(*given, state, action)
        outputs = {
            "outcome": outcome,
            "equity": self.env.equity(self.market, after),
            "mask": self.env.mask(*given, after),
            "observation": self.env.observe(*given, after),
        }
        ended, fresh = outcome.terminated | outcome.truncated, self.env.begin(*given, self.uniform)
        chosen = (new * ended + old * ~ended for new, old in zip(fresh, after, strict=True))
        return type(after)(*chosen), outputs


def _host_rollout(config: TradingConfig, policy: Any, key: Any) -> dict[str, Any]:
    from .system_torch import System

    system = System(replace(config, dtype=str(next(policy.parameters()).dtype).removeprefix("torch.")))
    system.key = key.numpy().astype(np.uint32)
    collected, carry = system.collect(policy, system.start_buffer(), 0)
    return _trajectory(collected.rollout, carry)


def _compiled_rollout(config: TradingConfig, policy: Any, key: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from ...algos.ppo.acting_jax import Actor
    from ...algos.ppo.rollout_jax import collect, draw
    from .system_jax import System

    config = replace(config, mode="jax_full", dtype=str(policy.critic[0].weight.dtype))
    system = System(config)
    world, actions, settings = system.compiled, system.actions, jax.tree.map(jnp.asarray, system.settings(0))
    noise = draw(jax.random.fold_in(key, 0), config, actions, world.start_numbers)
    envs, actor = BoundWorld(world, system.on_device, settings), Actor(policy, actions)
    rollout, carry, _ = collect(actor, envs, system.start_buffer(), noise, config)
    return _trajectory(rollout, carry)


def _trajectory(rollout: Any, carry: Any) -> dict[str, Any]:
    """All that was done, and the accounts and statistics after it; what was seen is kept in two ways."""
    done = {name: value for name, value in rollout._asdict().items() if name not in ("state", "watched")}
    return {**done, "accounts": carry.state, "statistics": carry.statistics}
