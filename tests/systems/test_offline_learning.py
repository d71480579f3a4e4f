"""Offline agents learn the maze: IQL arrives always, and all agents far more often than behavioural cloning does."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from crossfade.algos.offline.config import AGENTS
from crossfade.config import apply
from crossfade.registry import find
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.systems.offline.data import load, task_rewards
from crossfade.trainers.making import make_trainer

SMALL = ("env.map=umaze", "episodes=100", "hidden=64,64", "batch_size=128", "tau=0.05", "actor_every=1", "validation=0")


FROM_ANYWHERE = ("crl_infonce", "infom", "mbpo_rebrac", "td_infonce")
"""Agents whose policies now and then are wrong in one place of the task's way, and so fail in all of its episodes."""


def preset(agent: str, *words: str) -> OfflineDataConfig:
    return apply(apply(OfflineDataConfig(), find("offline").presets[f"maze_{agent}"]), words)


def success(config: OfflineDataConfig, figure: str = "success") -> float:
    """Of the policy at the end of a run in mode jax_full, in the task or from anywhere."""
    trainer = make_trainer(find("offline"), replace(config, mode="jax_full"))
    for first, last in pairwise((0, *config.breaks, config.steps)):
        trainer.run(first, last - first)
    return trainer.evaluate().metrics[f"eval/{figure}"]


@cache
def cloned(figure: str) -> float:
    """The success of behavioural cloning, after as many updates as IQL has."""
    config = preset("iql")
    return success(replace(config, pretrain=config.steps), figure)


@pytest.mark.parametrize("shift, rewards", [(0, {-1, 0}), (1, {0, 1})])
def test_rewards_are_shifted(shift, rewards):
    assert set(task_rewards(load(apply(OfflineDataConfig(), ("episodes=20", f"reward_shift={shift}"))))) == rewards


def test_iql_learns_a_small_maze():
    assert success(apply(OfflineDataConfig(), (*SMALL, "pretrain=0", "steps=2500"))) >= 0.8


def test_cloning_does_not():
    assert success(apply(OfflineDataConfig(), (*SMALL, "pretrain=500", "steps=500"))) <= 0.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_iql_always_arrives(seed):
    assert success(preset("iql", f"seed={seed}")) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_agents_arrive_more_often_than_cloning(agent):
    figure = "anywhere" if agent in FROM_ANYWHERE else "success"
    assert success(preset(agent), figure) >= cloned(figure) + 0.3
