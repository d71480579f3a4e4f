"""The data of an offline config: what each phase learns from, what validates it, how observations are normalised.

Framework-free. Data are read or made once for all runs of a process that agree in their settings.
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...algos.offline.batch import PHASES, Phase
from ...algos.offline.data.dataset import Dataset, from_transitions, split
from ...algos.offline.data.source import Source, discounted, make_source, observation_shape
from ...algos.offline.data.statistics import Statistics, both_statistics
from ...envs.maze import data as maze
from ...errors import UsageError
from ...nn.initial import Shape
from .config import OfflineDataConfig


class Data(NamedTuple):
    """All that a run reads."""

    learning: dict[Phase, Source]
    validation: dict[Phase, Source]
    """The trajectories that are held out; empty where there are none."""
    statistics: Statistics
    """By which observations of an evaluation are normalised."""
    observation: Shape
    action: int


def load(config: OfflineDataConfig) -> Data:
    """The data of a config. Configs that differ in how they learn have the same arrays, but for offsets of goals."""
    neutral = replace(
        config,
        seed=0,
        mode="torch",
        steps=max(config.pretrain, 1),
        eval_episodes=1,
        lr=OfflineDataConfig.lr,
        tau=OfflineDataConfig.tau,
        gamma=OfflineDataConfig.gamma,
        agent=type(config.agent)(),
    )
    data = _load(neutral)
    own = lambda sources: {phase: discounted(source, config.gamma) for phase, source in sources.items()}
    return data._replace(learning=own(data.learning), validation=own(data.validation))


@lru_cache(maxsize=4)
def _load(config: OfflineDataConfig) -> Data:
    after = _read(config.data, config)
    before = after if config.pretrain_data is None else _read(config.pretrain_data, config)
    shapes = [(d.observations.shape[1:], d.actions.shape[1:], d.observations.dtype) for d in (before, after)]
    if shapes[0] != shapes[1]:
        raise UsageError(
            f"pretrain_data: expected observations and actions of the form of data={config.data}, {shapes[1]}, got "
            f"{shapes[0]}."
        )
    observation = observation_shape(after, config)
    check_readable(config, observation)
    statistics = both_statistics(before, after, config)
    learning: dict[Phase, Source] = {}
    validation: dict[Phase, Source] = {}
    for phase, data, own in zip(PHASES, (before, after), statistics, strict=True):
        learn, held = split(data, config.validation)
        learning[phase] = make_source(learn, own, phase, config)
        if held is not None:
            validation[phase] = make_source(held, own, phase, config)
    found = Data(learning, validation, statistics[1], observation, after.actions.shape[1])
    if config.gym is not None:
        from .gymnasium_evaluation import make

        make(config, found).close()  # refused now rather than when training has come to its first evaluation
    return found


def _read(path: str | None, config: OfflineDataConfig) -> Dataset:
    data = _maze(config) if path is None else _from_files(path)
    return data if data.rewards is None else data._replace(rewards=data.rewards + np.float32(config.reward_shift))


def _from_files(path: str) -> Dataset:
    from ...algos.offline.data.loaders import load as load_files

    if not Path(path).exists():
        raise UsageError(f"data: expected a file or folder of transitions, got {path!r}, where nothing is.")
    return load_files(path)


def _maze(config: OfflineDataConfig) -> Dataset:
    """Steps of a scripted policy, with the rewards of the maze's task: those that the world gives."""
    rows = maze.collect(config.env, config.episodes, config.length, config.data_seed, style=config.style)
    steps = maze.transitions(rows)
    rewards, masks = maze.relabel(config.env, steps.next_observations)
    return from_transitions(
        steps.observations,
        steps.actions,
        steps.next_observations,
        steps.terminals,
        rewards=rewards,
        masks=masks,
        where="maze",
    )


def check_readable(config: OfflineDataConfig, observation: Shape) -> None:
    """Refuses agents and encoders that cannot read such observations."""
    image = len(observation) == 3
    if image and config.encoding in (None, "mlp"):
        raise UsageError(f"encoder: expected one for images {observation}, as impala_small, got {config.encoding}.")
    if not image and config.encoding not in (None, "mlp"):
        raise UsageError(f"encoder: expected mlp or none for observations {observation}, got {config.encoding}.")
    if image and not config.agent.images:
        raise UsageError(f"agent: expected one that reads images, got {config.agent_name}, which models observations.")
    if len(observation) not in (1, 3):
        raise UsageError(f"data: expected observations of one axis, or images of three, got shape {observation}.")


def task_rewards(data: Data) -> np.ndarray:
    """The rewards of fine-tuning's steps."""
    return data.learning["finetuning"].data.rewards
