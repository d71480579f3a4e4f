"""One process of the trading bench: one contender. `bench.py` says what is asked."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...algos.ppo.batch import Noise
from ...algos.ppo.config import PPOConfig
from ...bench.contest_worker import Contender, serve
from ...envs.trading.market import Market, Settings, State
from ...envs.trading.params import START_NUMBERS, TradingParams
from ...envs.world import BareOutcome, BoundWorld
from ...nn.distribution import Distribution

STEPS = 128  # of every account in a pass
DAYS = 200  # 100,000 bars
OLD_WORLD = Path(__file__).parents[4] / "benchmarks" / "trading_pandas.py"


class Task:
    """What every world is given: bars, and a linear policy that reads all 225 numbers, with its noise drawn ahead."""

    def __init__(self, n: int, days: int = DAYS):
        from ...envs.trading import build, synthetic

        rng = np.random.default_rng(0)
        self.n, self.params, self.settings = n, TradingParams(), Settings()
        self.bars = synthetic.bars(("ES",), days)
        self.market = build.market(self.bars)
        self.weight = rng.normal(size=(self.params.observation_dim, self.params.n_actions), scale=0.01).astype(
            "float32"
        )
        self.gumbel = rng.gumbel(size=(STEPS, n, self.params.n_actions)).astype(np.float32)
        self.uniform = rng.random((STEPS, n, START_NUMBERS), np.float32)

    def choose(self, observation: np.ndarray, mask: np.ndarray, gumbel: np.ndarray) -> Any:
        """The actions of accounts, or of one."""
        return np.where(mask, observation @ self.weight + gumbel, -np.inf).argmax(-1)


class JaxWorld:
    """Accounts in one compiled program; observations go to the policy, episodes that end begin anew."""

    def __init__(self, n: int, days: int = DAYS):
        import jax
        import jax.numpy as jnp

        from ...envs.trading.trading_jax import Trading

        task = Task(n, days)
        self.steps, env = n * STEPS, Trading(task.params)
        market, settings = (jax.tree.map(jnp.asarray, tree) for tree in (task.market, task.settings))
        weight, gumbel, uniform = map(jnp.asarray, (task.weight, task.gumbel, task.uniform))

        def step(market: Market, settings: Settings, state: State, noise: tuple[Any, Any]) -> tuple[State, Any]:
            observation, mask = env.observe(market, settings, state), env.mask(market, settings, state)
            action = jnp.where(mask, observation @ weight + noise[0], -jnp.inf).argmax(-1).astype(jnp.int32)
            after, outcome = env.step(market, settings, state, action)
            ended, fresh = outcome.terminated | outcome.truncated, env.begin(market, settings, noise[1])
            return jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, after), outcome.reward.sum()

        def go(market: Market, settings: Settings, state: State, gumbel: Any, uniform: Any) -> tuple[State, Any]:
            return jax.lax.scan(lambda now, noise: step(market, settings, now, noise), state, (gumbel, uniform))

        # Copies: memory is given away, and `begin` may use one array for several fields.
        self.state = jax.tree.map(jnp.array, env.begin(market, settings, uniform[0]))
        compiled = jax.jit(go, donate_argnums=2)
        self.go = lambda state: jax.block_until_ready(compiled(market, settings, state, gumbel, uniform))

    def once(self) -> None:
        self.state, _ = self.go(self.state)


class NumpyWorld:
    """Accounts as NumPy arrays."""

    def __init__(self, n: int, days: int = DAYS):
        from ...envs.trading.trading_numpy import Trading
        from ...envs.vector_numpy import Vectorized

        self.task, self.steps = Task(n, days), n * STEPS
        world = BoundWorld(Trading(self.task.params), self.task.market, self.task.settings)
        self.accounts = Vectorized(world, world.begin(self.task.uniform[0]))

    def once(self) -> None:
        accounts: Any = self.accounts
        for gumbel, uniform in zip(self.task.gumbel, self.task.uniform, strict=True):
            action = self.task.choose(accounts.observe(), accounts.mask(), gumbel)
            outcome = accounts.step(action.astype(np.int32))
            if (ended := outcome.terminated | outcome.truncated).any():
                accounts.restart(ended, uniform)


class OneAccount:
    """One account in plain Python, with or without pandas."""

    def __init__(self, world: str, days: int = DAYS):
        from ...envs.trading.scalar import ScalarTrading

        self.task, self.steps = Task(1, days), STEPS
        make: dict[str, Callable[[], Any]] = {
            "plain": lambda: ScalarTrading(self.task.params, self.task.market, self.task.settings),
            "pandas": lambda: old_world().PandasTrading(self.task.bars["ES"], "ES", self.task.settings),
        }
        self.world = make[world]()
        self.world.begin(self.task.uniform[0, 0])

    def once(self) -> None:
        for gumbel, uniform in zip(self.task.gumbel[:, 0], self.task.uniform[:, 0], strict=True):
            action = self.task.choose(self.world.observation(), self.world.mask(), gumbel)
            outcome = self.world.step(int(action))
            if outcome.terminated or outcome.truncated:
                self.world.begin(uniform)


class Processes:
    """Accounts in a process each, by Gymnasium: how PyTorch code steps environments today (SubprocVecEnv)."""

    vector: Any = None  # started once, for all updates

    def __init__(self, params: TradingParams, market: Market, settings: Settings, state: State):
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode

        from ...envs.trading.gymnasium_env import TradingEnv

        self.state = state  # that of the run, which the processes do not share
        if Processes.vector is None:
            make = lambda: TradingEnv(params, market, Settings(*(np.asarray(value).item() for value in settings)))
            Processes.vector = AsyncVectorEnv([make] * len(state.t), autoreset_mode=AutoresetMode.SAME_STEP)
            Processes.now = Processes.vector.reset(seed=0)
        self.seen, told = Processes.now
        self.legal = told["action_mask"]

    def observe(self) -> np.ndarray:
        return self.seen

    def mask(self) -> np.ndarray:
        return self.legal

    def step(self, action: np.ndarray) -> BareOutcome:
        seen, reward, terminated, truncated, told = Processes.vector.step(action)
        Processes.now, self.legal, self.seen = (seen, told), told["action_mask"], seen.copy()
        for i in np.flatnonzero(terminated | truncated):
            self.seen[i] = told["final_obs"][i]  # until `restart`: the episode has begun anew already
        return BareOutcome(reward.astype(np.float32), terminated, truncated)

    def restart(self, where: np.ndarray, uniform: np.ndarray) -> None:
        self.seen = Processes.now[0].copy()


class Ppo:
    """Whole updates of PPO in one mode: collecting, advantages, epochs of minibatches."""

    def __init__(self, words: list[str], updates: int = 1, processes: bool = False):
        import torch

        from ...algos.ppo import rollout_numpy
        from ...config import apply
        from ...trainers.making import make_trainer
        from . import RECORD, system_torch
        from .config import TradingConfig

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        rollout_numpy.draw = draw_natively
        if processes:
            system_torch.Accounts = Processes
        config = apply(TradingConfig(steps=1_000_000), words)
        self.trainer, self.update, self.updates = make_trainer(RECORD, config), 0, updates
        self.steps = updates * config.n_envs * config.n_steps

    def once(self) -> None:
        self.trainer.run(self.update, self.updates)
        self.update += self.updates


def draw_natively(key: np.ndarray, config: PPOConfig, actions: Distribution, start_numbers: int) -> Noise:
    """An update's randomness from NumPy's own generator: equal streams must not slow the modes on the host."""
    rng, shape = np.random.default_rng(key), (config.n_steps, config.n_envs)
    gumbel = -np.log(rng.standard_exponential((*shape, actions.noise_dim), config.dtype))
    order = np.stack([rng.permutation(shape[0] * shape[1]) for _ in range(config.epochs)])
    return Noise(gumbel, rng.random((*shape, start_numbers), np.float32), order)


def old_world() -> Any:
    """The row-by-row environment kept in the repository, as a module."""
    spec = importlib.util.spec_from_file_location("trading_pandas", OLD_WORLD)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def missing() -> Iterator[str]:
    """Why the old world cannot be measured here, if it cannot."""
    if not OLD_WORLD.exists():
        yield "it is kept in the repository's folder benchmarks/, which is not here"
    if importlib.util.find_spec("pandas") is None:
        yield "pandas is not installed"


KINDS: dict[str, Callable[..., Contender]] = {"jax": JaxWorld, "numpy": NumpyWorld, "one": OneAccount, "ppo": Ppo}

if __name__ == "__main__":
    serve(KINDS)
