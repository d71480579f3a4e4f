"""The settings of adversarial motion priors, the same in both frameworks: a part of the config of a system."""

from dataclasses import dataclass
from typing import Literal

from ...errors import UsageError
from ...ranges import Count, NotNegative, Positive, check

Convention = Literal["lsgan_pm1", "lsgan_01", "bce"]
"""Targets of the discriminator, and the reward that belongs to them: one word says both, so that they always fit."""


@dataclass(frozen=True)
class AMPConfig:
    convention: Convention = "lsgan_pm1"
    """Loss and style reward: targets 1 and -1 with 1 - (D - 1)^2 / 4, targets 1 and 0 with D, or logits with
    -log(1 - sigmoid(D))."""
    task_weight: NotNegative = 0.5
    """Weight of the world's reward."""
    style_weight: NotNegative = 0.5
    """Weight of the style reward."""
    penalty: NotNegative = 10.0
    """Weight of the gradient penalty on reference transitions."""
    hidden: tuple[Count, ...] = (1024, 512)
    """Widths of the discriminator's hidden layers."""
    lr: Positive = 1e-4
    """Adam's learning rate for the discriminator."""
    updates: Count = 4
    """Gradient steps of the discriminator between two rollouts."""
    batch: Count = 512
    """Reference transitions, and as many of the policy, in each of them."""
    memory: Count = 100_000
    """Transitions of the policy that are remembered."""
    clip: str | None = None
    """Reference motion, a file .npz or .csv of positions; none takes a gait of our own."""
    fps: Positive | None = None
    """Rows of the clip per second, where the file does not say so."""

    def __post_init__(self):
        check(self)
        if not self.hidden:
            raise UsageError("hidden: expected at least one layer of the discriminator, got none.")
        if not self.task_weight + self.style_weight:
            raise UsageError("style_weight: expected task_weight or style_weight above 0, got 0 for both.")

    def check_fits(self, rollout: int, devices: int, prefix: str = "") -> None:
        """Refuses a memory that does not hold one rollout, and batches that devices cannot share."""
        if self.memory < rollout:
            raise UsageError(
                f"{prefix}memory: expected at least n_envs * n_steps = {rollout}, the transitions of one rollout, "
                f"got {self.memory}."
            )
        if self.batch % devices:
            raise UsageError(f"devices: expected a divisor of {prefix}batch = {self.batch}, got {devices}.")
