"""What a style reward does to the walk of the planar biped: how near it comes to the reference gait, several seeds.

    python benchmarks/robot_style.py --json benchmarks/results/robot_style.json --gif docs/robot_style.gif

Every seed is trained twice by the preset `styled`: as it is, and as a control whose style reward weighs nothing, with
the same number of updates. `style distance` is the mean over features of their Kolmogorov-Smirnov distance from the
reference, in which no discriminator has a say; `style reward` is what each run's own discriminator gave at the end.
Intervals are Student's, 95 %, over seeds; that of the difference is over pairs of one seed.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from crossfade.config import apply
from crossfade.envs.gif import encode
from crossfade.envs.robot.view import stick_figures
from crossfade.run.files import write_json
from crossfade.systems.robot import RECORD
from crossfade.systems.robot.config import RobotConfig
from crossfade.systems.robot.style import clip_of
from crossfade.trainers.making import make_trainer

CONTROL = "style.style_weight=0"
LAST = 20
"""Updates at the end over which the style reward is averaged."""
COLUMNS = ("style_distance", "style_reward", "speed", "falls", "distance")
SECONDS = 5.0
"""Of the animation."""


def learn(config: RobotConfig) -> tuple[dict[str, Any], np.ndarray]:
    """Trains to the end: figures of the greedy policy, and the episode of its median distance."""
    began = time.perf_counter()
    trainer = make_trainer(RECORD, config)
    reward = trainer.run(0, config.steps)["style_reward"][-LAST:].mean()
    found = trainer.evaluate(None)
    figures = {name.removeprefix("eval/"): value for name, value in found.metrics.items()}
    seconds = round(time.perf_counter() - began, 1)
    return {**figures, "style_reward": float(reward), "seconds": seconds}, found.arrays["shown_qpos"]


def interval(values: Sequence[float]) -> str:
    """Mean and half the width of its interval."""
    n, numbers = len(values), np.array(values)
    half = stdtrit(n - 1, 0.975) * numbers.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return f"{numbers.mean():.3f} ± {half:.3f}"


def animation(config: RobotConfig, episodes: dict[str, np.ndarray]) -> bytes:
    """The reference and episodes side by side."""
    assert config.style is not None
    model, clip = config.env.load(), clip_of(config.env, config.style)
    motions, fps = {"reference": clip.qpos, **episodes}, clip.fps
    n = min(round(SECONDS * fps), *map(len, motions.values()))
    panels = [
        stick_figures(model, qpos[:n:2], [f"{name}, {i / fps:.1f} s" for i in range(0, n, 2)])
        for name, qpos in motions.items()
    ]
    return encode([np.concatenate(row, 1) for row in zip(*panels, strict=True)], round(2000 / fps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--gif", type=Path)
    parser.add_argument("words", nargs="*", help="settings of both, as env.model=tuft8")
    asked = parser.parse_args()
    arms = {"styled": (), "control": (CONTROL,)}
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in arms}
    shown: dict[str, np.ndarray] = {}
    print(f"| | seed | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    styled = apply(RobotConfig(), RECORD.presets["styled"])
    configs = {name: apply(styled, (*words, *asked.words)) for name, words in arms.items()}
    for seed in range(asked.seeds):
        for name, config in configs.items():
            figures, qpos = learn(replace(config, seed=seed))
            told[name].append(figures)
            shown.setdefault(name, qpos)
            print(f"| {name} | {seed} | {' | '.join(f'{figures[own]:.3f}' for own in COLUMNS)} |", flush=True)
            if asked.json:
                write_json(asked.json, told)
        if asked.gif and not seed:
            asked.gif.write_bytes(animation(configs["styled"], shown))
    for name, rows in told.items():
        print(f"| {name} | all | {' | '.join(interval([row[own] for row in rows]) for own in COLUMNS)} |")
    pairs = list(zip(*told.values(), strict=True))
    differences = [interval([ours[own] - theirs[own] for ours, theirs in pairs]) for own in COLUMNS]
    print(f"| difference | | {' | '.join(differences)} |")


if __name__ == "__main__":
    main()
