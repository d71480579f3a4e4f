"""One process of the treasurehunt bench: one contender. `bench.py` says what is asked."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...algos.iqn import replay_numpy, rollout_numpy
from ...algos.iqn.architecture import architecture
from ...algos.iqn.batch import Noise, Replay
from ...algos.iqn.config import IQNConfig
from ...bench.contest_worker import Contender, serve
from ...config import apply
from ...envs.game import Game, make_game
from ...envs.treasurehunt.one_by_one import OneByOne
from ...envs.treasurehunt.params import ACTIONS, TreasurehuntParams
from ...envs.treasurehunt.published import PublishedGame
from ...envs.treasurehunt.scalar import ScalarGame
from ...random import random_numpy as random
from ...trainers.making import make_trainer
from ...trainers.system import as_saved
from .. import iqn_jax, iqn_torch
from . import RECORD, system_jax, system_torch
from .config import TreasurehuntConfig
from .evaluation import draw_games, judging


class Task:
    """What every world is given: episodes of random actions, with all their numbers drawn ahead.

    All that is seen and earned goes into one sum for each map, in whole numbers that are exact in float32.
    """

    def __init__(self, maps: int, episodes: int, params: TreasurehuntParams):
        rng, agents = np.random.default_rng(0), params.agents
        turns = episodes, params.turns, maps
        self.params, self.steps = params, episodes * params.turns * maps
        self.start = rng.random((episodes, maps, params.inner), np.float32)
        self.spawn = rng.random((*turns, params.inner), np.float32)
        self.action = rng.integers(0, len(ACTIONS), (*turns, agents), np.int32)
        self.chance = rng.random((*turns, agents), np.float32)
        self.weight = rng.integers(1, 8, params.observation_dim).astype(np.float32)

    def noise(self) -> tuple[np.ndarray, ...]:
        """By episode."""
        return self.start, self.spawn, self.action, self.chance


class ObjectWorld:
    """One map of objects, as published or lean."""

    def __init__(self, published: bool, params: TreasurehuntParams | None = None):
        self.task = Task(1, 1, params or TreasurehuntParams())
        self.steps = self.task.steps
        self.game = (PublishedGame if published else ScalarGame)(self.task.params)

    def once(self) -> None:
        task, game, total = self.task, self.game, np.float32(0)
        for start, *turns in zip(*task.noise(), strict=True):
            game.begin(start[0])
            for spawn, action, chance in zip(*turns, strict=True):
                game.start_turn(spawn[0])
                for agent in range(task.params.agents):
                    total += game.observe(agent).astype(np.float32) @ task.weight
                    total += game.move(agent, int(action[0, agent]), chance[0, agent])
        self.total = np.array([total])


class NumpyWorld:
    """Maps as NumPy arrays."""

    def __init__(self, maps: int, params: TreasurehuntParams | None = None):
        self.task = Task(maps, 1, params or TreasurehuntParams())
        self.steps, self.game = self.task.steps, make_game(self.task.params, "numpy")

    def once(self) -> None:
        task, game, total = self.task, self.game, np.float32(0)
        for start, *turns in zip(*task.noise(), strict=True):
            state = game.begin(start)
            for spawn, action, chance in zip(*turns, strict=True):
                state = game.start_turn(state, spawn)
                for agent in range(game.agents):
                    total = total + game.observe(state, agent).astype(np.float32) @ task.weight
                    state, reward = game.move(state, agent, action[:, agent], chance[:, agent])
                    total = total + reward
        self.total = total


class JaxWorld:
    """Maps in one compiled program, several episodes in a call where there is one map."""

    def __init__(self, maps: int, episodes: int = 1, params: TreasurehuntParams | None = None):
        import jax
        import jax.numpy as jnp

        task = Task(maps, episodes, params or TreasurehuntParams())
        self.steps, game = task.steps, make_game(task.params, "jax")

        def act(carry: Any, now: Any) -> Any:
            (state, total), (agent, action, chance) = carry, now
            total += game.observe(state, agent).astype(jnp.float32) @ jnp.asarray(task.weight)
            state, reward = game.move(state, agent, action, chance)
            return (state, total + reward), None

        def turn(carry: Any, now: Any) -> Any:
            (state, total), (spawn, action, chance) = carry, now
            each = jnp.arange(game.agents, dtype=jnp.int32), action.T, chance.T
            return jax.lax.scan(act, (game.start_turn(state, spawn), total), each)

        def episode(total: Any, now: Any) -> Any:
            start, *turns = now
            (_, total), _ = jax.lax.scan(turn, (game.begin(start), total), tuple(turns))
            return total, None

        compiled = jax.jit(lambda noise: jax.lax.scan(episode, jnp.zeros(maps), noise)[0])
        noise = jax.device_put(task.noise())
        self.go = lambda: jax.block_until_ready(compiled(noise))

    def once(self) -> None:
        self.total = self.go()


class Greedy:
    """An episode of the greedy policy on one map, with its numbers drawn ahead."""

    def __init__(self, way: str, fractions: int, words: tuple[str, ...] = ()):
        _use_all_cores()
        self.config = judging(apply(TreasurehuntConfig(acting_quantiles=fractions), words), 1)
        self.noise, self.steps = draw_games(self.config), self.config.env.turns
        self.play: Callable[[], Any] = {
            "torch": lambda: self._on_host(OneByOne(self.config.env), system_torch),
            "vectorised": lambda: self._on_host(make_game(self.config.env, "numpy"), system_torch),
            "policy": lambda: self._on_host(make_game(self.config.env, "numpy"), system_jax),
            "compiled": self._compiled,
        }[way]()

    def once(self) -> None:
        self.episode = self.play()

    def _on_host(self, game: Game, half: Any) -> Callable[[], Any]:
        system, config = half.System(self.config), self.config
        act = system.act(system.make_policy(system.parameters()))
        history = np.zeros((1, game.agents, config.frames - 1, game.observation_dim), np.int8)
        return lambda: rollout_numpy.play(game, act, history, self.noise, np.zeros(game.agents), config)[0]

    def _compiled(self) -> Callable[[], Any]:
        import jax

        from ...algos.iqn.train_jax import play_greedily

        system = system_jax.System(self.config)
        policy, noise = system.make_policy(system.parameters()), jax.device_put(self.noise)
        return lambda: jax.block_until_ready(play_greedily(policy, noise, system.compiled, self.config))


class Epochs:
    """Whole epochs in one mode: an episode, replay, a gradient step of every model. Replay is full from the start."""

    def __init__(self, words: list[str], epochs: int = 1):
        _use_all_cores()
        iqn_torch.draw = iqn_jax.draw = draw_natively
        config = apply(TreasurehuntConfig(steps=1_000_000), words)
        self.trainer: Any = make_trainer(RECORD, config)
        self.trainer.buffer = self.trainer.system.start_buffer(as_saved(filled(config)))
        self.epoch, self.steps = 0, epochs

    def once(self) -> None:
        self.told = self.trainer.run(self.epoch, self.steps)
        self.epoch += self.steps


class Learning:
    """The gradient steps of all models alone, compiled, always on the same batch."""

    steps = 1

    def __init__(self, words: list[str]):
        import jax

        from ...algos.iqn.stacked_jax import stack, update_stacked
        from ...optim import sharing_jax as sharing

        config = apply(TreasurehuntConfig(mode="jax_full"), words)
        trainer: Any = make_trainer(RECORD, config)
        game = make_game(config.env, "numpy")
        dim = architecture(config, game.observation_dim, game.n_actions).noise_dim
        noise = draw_natively(random.key(0), game, dim, config)
        batch = iqn_jax.batch_of(filled(config), noise, {}, 0, game.turns, config)
        given = stack(trainer.policy, trainer.opt_states, config), batch
        self.stacked, batch = sharing.place(given, config.devices)
        update = lambda stacked, batch: update_stacked(stacked, batch, config)
        everywhere = sharing.EVERYWHERE
        program = sharing.spread(update, config.devices, (everywhere,) * 2, (everywhere,) * 2)
        compiled = jax.jit(program, donate_argnums=0)
        self.go = lambda stacked: jax.block_until_ready(compiled(stacked, batch))

    def once(self) -> None:
        self.stacked, self.told = self.go(self.stacked)


def filled(config: TreasurehuntConfig) -> Replay:
    """Replay full of episodes of random actions."""
    game = make_game(config.env, "numpy")
    replay, never = replay_numpy.start(config, game), lambda agent, stack, fractions: stack
    key = random.key(1)
    while replay.filled < config.memory:
        key = random.fold_in(key, 0)
        noise = draw_natively(key, game, 0, config)
        replay, history = replay_numpy.open_episode(replay, config)
        episode, _ = rollout_numpy.play(game, never, history, noise, np.ones(game.agents), config)
        replay = replay_numpy.store(replay, episode, config)
    return replay


def draw_natively(key: np.ndarray, game: Game, noise_dim: int, config: IQNConfig) -> Noise:
    """An epoch's randomness from torch's and NumPy's own generators, whichever is faster, for agents in fixed order:
    equal streams must not slow the modes on the host."""
    rng, normal = np.random.default_rng(key), torch.Generator().manual_seed(int(key[0]) << 32 | int(key[1]))
    uniform = lambda *shape: rng.random(shape, np.float32)
    each = game.turns, config.worlds, game.agents
    return Noise(
        start=uniform(config.worlds, game.start_numbers),
        turn=uniform(game.turns, config.worlds, game.turn_numbers),
        order=np.tile(np.arange(game.agents, dtype=np.int32), (game.turns, 1)),
        explore=uniform(*each),
        action=rng.integers(0, game.n_actions, each, np.int32),
        reward=uniform(*each),
        acting=uniform(*each, config.acting_quantiles),
        choice=uniform(game.agents, config.worlds * config.memory),
        fractions=uniform(game.agents, 3, config.batch_size, config.quantiles),
        noise=torch.randn((game.agents, 3, noise_dim), generator=normal).numpy(),
    )


def _use_all_cores() -> None:
    torch.set_num_threads(len(os.sched_getaffinity(0)))


KINDS: dict[str, Callable[..., Contender]] = {
    "objects": ObjectWorld,
    "numpy": NumpyWorld,
    "jax": JaxWorld,
    "greedy": Greedy,
    "epochs": Epochs,
    "learning": Learning,
}

if __name__ == "__main__":
    serve(KINDS)
