"""The random numbers of an update, as data; `draws_*` draw them, `sampling_*` use them. Framework-free.

The i-th field of `Choice` is drawn from fold_in(key, i), with the key of the update: fold_in(key of the run, number of
the update). Goals and noise fold in the number of their own field or name after that. Noise is drawn in float32
and then converted, so that NumPy and JAX have the same bits in any precision, and precisions have the same noise.
"""

from typing import Any, NamedTuple

from ....errors import UsageError
from ....nn.initial import Shape
from ..agent import Goals
from ..batch import Phase
from ..config import OfflineConfig

PAD = 3
"""Pixels by which images are widened, repeating their edges, before they are cropped to their size."""


class GoalNumbers(NamedTuple):
    """What decides on the goals of a batch; `sampling_*` say how."""

    random: Any
    """(batch,) int32: steps of the data, any of them."""
    offset: Any
    """(batch,) float32, uniform: how far ahead a goal of the same trajectory is."""
    trajectory: Any
    """(batch,) float32, uniform: whether the goal is of the same trajectory."""
    current: Any
    """(batch,) float32, uniform: whether the goal is the row itself."""


class Choice(NamedTuple):
    """All random numbers of an update; None where the agent needs none."""

    rows: Any
    """(batch,) int32: which steps of the data, counted among those that can be drawn."""
    value_goals: Any
    """`GoalNumbers`"""
    actor_goals: Any
    """`GoalNumbers`"""
    coin: Any
    """() float32, uniform: whether the images of this batch are augmented; None: always, and they are views."""
    crops: Any
    """(batch, 2) int32 from 0 to 2 PAD: from where images are cropped; of views (views, batch, 2)."""
    goal_coin: Any
    """() float32, uniform: the same for goals."""
    goal_crops: Any
    """(batch, 2) int32: the same for goals."""
    noise: Any
    """{name: array}: what the agent declares (`Agent.draws`)."""


class Places(NamedTuple):
    """The rows of the data that an update reads, (batch,) int32 each; None where the agent has no such goals."""

    rows: Any
    value_goals: Any
    actor_goals: Any


class Augmentation(NamedTuple):
    """How images are augmented."""

    probability: float
    """Of a batch."""
    views: int
    """Augmented copies beside the images as they are; 0: images are replaced."""


def augmentation(observation: Shape, phase: Phase, config: OfflineConfig) -> Augmentation | None:
    """How the images of a phase are augmented; None where they are not."""
    image, wanted = len(observation) == 3, config.agent.views and phase == "pretraining"
    if not image:
        if config.p_aug is not None:
            raise UsageError(f"p_aug: expected none for observations of shape {observation}, which are no images.")
        return None
    if wanted and config.p_aug is None and not config.has("bare_dino"):
        return Augmentation(1.0, 2)
    if wanted and (config.p_aug is None or config.inplace_aug or config.num_aug != 2):
        raise UsageError(
            "p_aug: expected p_aug=1 num_aug=2 inplace_aug=false, two views of every image, without which this agent "
            "cannot learn, got other settings (corrected=bare_dino does so by itself)."
        )
    if config.p_aug is None or (not config.inplace_aug and phase == "finetuning"):
        return None
    return Augmentation(config.p_aug, 0 if config.inplace_aug else config.num_aug)


def trajectory_probability(goals: Goals) -> float:
    """Probability of a goal of the same trajectory, given that it is not the row itself."""
    return goals.trajectory / (1 - goals.current + 1e-6)
