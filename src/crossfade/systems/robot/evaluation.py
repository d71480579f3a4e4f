"""How a policy walks when it acts greedily: how far, how fast, how often it falls, which pushes it bears.

Every policy is judged by the same episodes, whatever its seed, in NumPy. Training looks at a few figures now and then;
with an effort the same policy also walks under other physics and is pushed harder and harder.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ...algos.amp.health import Distance
from ...envs.robot.kinematics_numpy import frames
from ...envs.robot.params import RobotParams, Settings
from ...envs.robot.robot_numpy import Robot
from ...nn.normalizer_numpy import Statistics, normalize
from ...random import random_numpy as random
from ...ranges import Count, Positive
from ...run.evaluation import Effort, Evaluation
from .config import RobotConfig
from .shown import film
from .style import distances

EPISODES = 2026
"""Seed of the episodes by which policies are judged."""
PUSHES = (0.25, 0.5, 1.0, 2.0)
"""Impulses of the pushes that a policy is to bear, in shares of `RobotEffort.push`."""


@dataclass(frozen=True)
class RobotEffort(Effort):
    """How much `crossfade eval` computes."""

    episodes: Count = 64
    """Episodes under each physics and each push."""
    physics: Literal["aba", "mujoco"] | None = None
    """Under which physics to judge; none takes that of the run."""
    push: Positive = 1.0
    """Impulse in N s of the pushes; shares of it are tried too."""


class Walked(NamedTuple):
    """Episodes of some robots side by side; where one has ended its numbers stay as they were."""

    qpos: Float[np.ndarray, "steps envs nq"]  # from the first on
    distance: Float[np.ndarray, " envs"]  # from start to end, in the plane
    steps: Float[np.ndarray, " envs"]
    fell: Bool[np.ndarray, " envs"]
    earned: Float[np.ndarray, " envs"]
    speed: Float[np.ndarray, " envs"]  # forward, mean over the steps, as below
    speed_error: Float[np.ndarray, " envs"]
    torque: Float[np.ndarray, " envs"]  # of a joint


Act = Callable[[np.ndarray, None], np.ndarray]
"""Observations as the network sees them -> actions."""
Walker = Callable[[RobotParams, Settings, int], Walked]
"""Walks so many episodes of a world."""


def walker(config: RobotConfig, act: Act, statistics: Any) -> Walker:
    """The policy that takes the most probable action; observations are normalised by `statistics`."""
    frozen = Statistics(*map(np.asarray, statistics))

    def decide(observation: np.ndarray) -> np.ndarray:
        seen = observation.astype(config.dtype)
        return act(normalize(frozen, seen) if config.normalize_observations else seen, None)

    return lambda params, settings, episodes: walk(params, settings, decide, episodes)


def walk(params: RobotParams, settings: Settings, decide: Callable[[np.ndarray], np.ndarray], episodes: int) -> Walked:
    """So many episodes, each to its end."""
    world = Robot(params)
    uniform = random.uniform(random.key(EPISODES), (episodes, world.start_numbers), "float32")
    state = world.begin(None, settings, uniform)
    going, fell = np.ones(episodes, bool), np.zeros(episodes, bool)
    sums, qpos = np.zeros((5, episodes)), [state.body.qpos]
    while going.any():
        state, outcome = world.step(None, settings, state, decide(state.observation))
        told = outcome.told
        numbers = np.ones(episodes), outcome.reward, told.speed, told.speed_error, told.torque
        sums += np.where(going, np.stack([n.astype(np.float64) for n in numbers]), 0)
        qpos.append(np.where(going[:, None], state.body.qpos, qpos[-1]))
        fell |= going & outcome.terminated
        going &= ~(outcome.terminated | outcome.truncated)
    steps, earned, *means = sums
    ends = [frames(world.model, place).links[:, 0, :2].astype(np.float64) for place in (qpos[0], qpos[-1])]
    distance = np.sqrt(((ends[1] - ends[0]) ** 2).sum(-1))
    return Walked(np.stack(qpos), distance, steps, fell, earned, *(mean / steps for mean in means))


def evaluate(config: RobotConfig, walker: Walker, effort: RobotEffort | None = None) -> Evaluation:
    """The policy on the episodes; with an effort on more of them, under the physics asked for, and pushed."""
    settings = config.env.settings(config.dtype)
    walked = walker(config.env, settings, config.eval_episodes)
    metrics = {f"eval/{name}": value for name, value in figures(config.env, walked).items()}
    if config.style is not None:
        metrics["eval/style_distance"] = style_distance(apart(config, walked))
    if effort is None:
        return Evaluation(metrics, _shown(walked), config.test_set)
    params = replace(config.env, physics=effort.physics or config.env.physics)
    judged = walker(params, settings, effort.episodes)
    study = {
        "physics": params.physics,
        "episodes": effort.episodes,
        "figures": figures(params, judged),
        "pushes": recovery(params, settings, walker, effort),
    }
    if config.style is not None:
        study["features"] = [distance._asdict() for distance in apart(config, judged)]
    animation, study["drawn_by"] = film(params, _shown(judged))
    files: dict[str, str | bytes] = {} if animation is None else {"episode.gif": animation}
    return Evaluation(metrics, _shown(judged), str(params), study=study, files=files)


def figures(params: RobotParams, walked: Walked) -> dict[str, float]:
    """Means over episodes, with their standard errors where they are sums over an episode."""
    seconds = params.substeps * Robot(params).model.timestep
    found = {
        "distance": walked.distance.mean(),
        "distance_se": _error(walked.distance),
        "return": walked.earned.mean(),
        "return_se": _error(walked.earned),
        "seconds": seconds * walked.steps.mean(),
        "falls": walked.fell.mean(),
        "speed": walked.speed.mean(),
        "speed_error": walked.speed_error.mean(),
        "torque": walked.torque.mean(),
    }
    return {name: float(value) for name, value in found.items()}


def recovery(params: RobotParams, settings: Settings, walker: Walker, effort: RobotEffort) -> list[dict[str, float]]:
    """The share of episodes without a fall under pushes every 2 s, of each size."""
    every = max(1, round(2 / (params.substeps * Robot(params).model.timestep)))
    found = []
    for share in PUSHES:
        size = share * effort.push
        ranges = replace(params.randomisation, push=(size, size), push_every=(every, every))
        pushed = walker(replace(params, randomisation=ranges), settings, effort.episodes)
        found.append(
            {"impulse": size, "stood": float(1 - pushed.fell.mean()), "distance": float(pushed.distance.mean())}
        )
    return found


def apart(config: RobotConfig, walked: Walked) -> list[Distance]:
    """How far every feature of the episodes is from the motion that is imitated."""
    assert config.style is not None
    ends = walked.steps.astype(int) + 1
    return distances(config.env, config.style, [walked.qpos[:end, i] for i, end in enumerate(ends)])


def style_distance(found: list[Distance]) -> float:
    """The mean over features of their Kolmogorov-Smirnov distances; no discriminator has a say in it."""
    return float(np.mean([distance.ks for distance in found]))


def _shown(walked: Walked) -> dict[str, np.ndarray]:
    """The episode of the median distance, for a picture, up to its end."""
    one = int(np.argsort(walked.distance, kind="stable")[len(walked.distance) // 2])
    return {"shown_qpos": walked.qpos[: int(walked.steps[one]) + 1, one]}


def _error(values: Float[np.ndarray, " episodes"]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
