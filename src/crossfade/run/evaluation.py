"""What an evaluation is asked for and what it gives, for every system."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..ranges import check


@dataclass(frozen=True)
class Effort:
    """How much `crossfade eval` computes; a system extends it, and its fields become options of that verb."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Evaluation:
    """What a policy turned out to be."""

    metrics: dict[str, float]
    """Figures by name, `eval/...`; `<name>_se` is a standard error, `<name>_perfect` what a perfect policy scores."""
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """For pictures; kept as eval/<name>.npy in the run's folder."""
    test_set: str = ""
    """What the policy was judged by, in words; empty where that is the training world itself."""
    study: dict[str, Any] = field(default_factory=dict)
    """All that was asked for with an effort, ready for JSON but for numbers that are not finite."""
    files: dict[str, str | bytes] = field(default_factory=dict)
    """Texts and other files to be kept beside the arrays, by name."""


@dataclass(frozen=True)
class Judged:
    """An evaluation as `crossfade eval` writes and prints it."""

    record: dict[str, Any]
    """What is added to the JSON file of the evaluation."""
    lines: list[str]
    """What is printed."""
