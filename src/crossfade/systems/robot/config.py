"""The settings of walking robots: PPO's, and those of the robot and its task."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ...algos.amp.config import AMPConfig
from ...algos.ppo.config import ContinuousPPOConfig
from ...config import choice
from ...envs.robot.params import RobotParams, Settings, as_settings
from ...errors import UsageError
from ...ranges import Count, Fraction, Natural, NotNegative
from ...run.settings import Mode

LEVELS: dict[int, Mode] = {1: "jax_policy", 2: "jax_full", 3: "jax_full", 4: "jax_full"}
"""The published system's levels as modes. In level 2 the compiled program calls the host's environment back, in level 4
it is shared among devices."""
AS_BRAX: dict[str, Any] = {
    "mode": "jax_full",
    "dtype": "float32",
    "squashed": True,
    "log_std": "state",
    "truncation": "mask",
    "clip_value": None,
    "target_kl": None,
    "adam_eps": 1e-8,
    "segments": True,
    "advantage": "lambda_return",
    "join_first": True,
    "apart": True,
    "initial": "lecun_uniform",
    "deviation": "softplus",
    "entropy": "squashed",
    "share_gradients": None,
    "curriculum": False,
}
"""What Brax's PPO does in any case, as settings of ours."""
STAGES = 4
"""Of the curriculum: one speed, the range of speeds, sideways, turning."""


@dataclass(frozen=True)
class RobotConfig(ContinuousPPOConfig):
    env: RobotParams = RobotParams()
    """The robot, its task and what is random in it: `env.model=sprig11`, `env.forward=0.2,0.6`."""
    level: Literal[1, 2, 3, 4] | None = None
    """The published name of a mode: 1 is jax_policy, 2 jax_full that calls the host's environment back, 3 jax_full, 4
    the same on several devices. It sets `mode`, `devices` and `env.callback`, and is none from then on."""
    trainer: Literal["own", "brax"] = "own"
    """Whose PPO trains: ours in five modes, or Brax's, which needs its own semantics: `--preset brax trainer=brax`."""
    curriculum: bool = False
    """Commands widen as training goes on, in quarters of the schedule: the middle of the speeds, all of them, sideways,
    turning."""
    style: AMPConfig | None = choice({"none": None, "amp": AMPConfig}, default="none")
    """A style reward beside the task's: `style=amp` imitates a gait of our own, `style.clip=walk.npz` a user's."""
    eval_episodes: Count = 32
    """Episodes by which the greedy policy is judged, always the same ones."""
    n_envs: Count = 64
    """Environments that are stepped together."""
    n_steps: Count = 20
    """Steps of each between two updates."""
    minibatches: Count = 8
    """Parts of a pass, each of which makes one gradient step."""
    gamma: Fraction = 0.97
    """Discount of a step."""
    entropy_coef: NotNegative = 5e-3
    """Weight of the entropy bonus."""
    steps: Count = 2000
    """Updates in all."""
    chunk: Count = 20
    """Updates between two looks at the clock, the log and Ctrl-C; one compiled call in jax_full."""
    log_every: Count = 20
    """Updates per row of the log."""
    eval_every: Natural = 200
    """Updates between evaluations; 0 evaluates only at the end."""
    checkpoint_every: Natural = 200
    """Updates between checkpoints; one is also written at the end and when the run is stopped."""

    def __post_init__(self):
        if self.level is not None:
            self._take_level(self.level)
        super().__post_init__()
        if self.trainer == "brax":
            self._check_brax()
        if self.style is not None:
            self.style.check_fits(self.n_envs * self.n_steps, self.devices, "style.")

    def _take_level(self, level: int) -> None:
        mode = LEVELS.get(level)
        if mode is None or self.mode not in (mode, "jax_full"):
            raise UsageError(
                f"level={level} is mode={mode or 'none of the five'}, got mode={self.mode}: say one of them."
            )
        devices = 1
        if level == 4:
            devices = math.gcd(self.devices if self.devices > 1 else cores(), self.n_envs)
        given = {"mode": mode, "devices": devices, "env": replace(self.env, callback=level == 2), "level": None}
        for name, value in given.items():
            object.__setattr__(self, name, value)  # before anything has seen the config

    def _check_brax(self) -> None:
        """What Brax's trainer cannot do otherwise must be asked for as it does it: nothing is passed over."""
        wrong = [f"{name}={_word(value)}" for name, value in AS_BRAX.items() if getattr(self, name) != value]
        wrong += [f"lr_final={self.lr:g}"] * (self.lr_final != self.lr) + ["style=none"] * (self.style is not None)
        if wrong:
            raise UsageError(
                f"trainer=brax: expected what Brax's PPO does: say {' '.join(wrong)}, or begin with --preset brax."
            )

    @property
    def trainer_place(self) -> str:
        return "crossfade.systems.robot.brax_trainer_jax:BraxTrainer" if self.trainer == "brax" else ""

    def check_resumed(self, saved: "RobotConfig") -> None:
        if "brax" in (self.trainer, saved.trainer):
            raise UsageError(
                "trainer=brax: expected a run from its start, got one to resume. Brax keeps neither its optimiser nor "
                "its environments; begin a new run."
            )
        super().check_resumed(saved)

    def settings(self, update: int) -> Settings:
        """The ranges of the command during an update."""
        env, still = self.env, (0.0, 0.0)
        if not self.curriculum:
            return env.settings(self.dtype)
        stage, middle = self.stage(update), sum(env.forward) / 2
        forward = env.forward if stage else (middle, middle)
        sideways, turning = env.sideways if stage > 1 else still, env.turning if stage > 2 else still
        return as_settings((forward, sideways, turning), self.dtype)

    def stage(self, update: int) -> int:
        """Of the curriculum, counted from 0."""
        return min(int(STAGES * self.progress(update)), STAGES - 1)

    def course(self, update: int) -> dict[str, float]:
        """The rate, and the stage of the curriculum."""
        return {**super().course(update), **({"stage": float(self.stage(update))} if self.curriculum else {})}

    @property
    def sources(self) -> tuple[Path, ...]:
        model, clip = Path(self.env.model), None if self.style is None else self.style.clip
        own = (model,) if model.suffix == ".xml" else ()
        return own if clip is None else (*own, Path(clip))

    @property
    def test_set(self) -> str:
        """The robot, in words."""
        return str(self.env)

    @property
    def parts(self) -> tuple[str, ...]:
        """Algorithm, robot and mode: the name of a run."""
        return "brax" if self.trainer == "brax" else "ppo", Path(self.env.model).stem.lower(), self.mode


def _word(value: object) -> str:
    """A value as on the command line."""
    return str("none" if value is None else value).lower()


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
