"""The settings of offline learning on data: those of the agents, and where data and judgement come from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ...algos.offline.config import AGENTS, OfflineConfig
from ...envs.maze.params import MazeParams
from ...errors import UsageError
from ...ranges import Count, Finite, Fraction, Natural, Positive, Range, Seed


@dataclass(frozen=True)
class OfflineDataConfig(OfflineConfig):
    env: MazeParams = MazeParams()
    """The maze of the embedded data, and its task: `env.map=large`, `env.task=2`."""
    data: str | None = None
    """Transitions to fine-tune by: a file or folder of OGBench's, D4RL's, Minari's or ExORL's kind; by default those
    that a scripted policy collects in the maze."""
    pretrain_data: str | None = None
    """Transitions to pre-train by, without rewards; by default those of `data`."""
    style: Literal["navigate", "explore"] = "navigate"
    """How the embedded data are collected: on the way from cell to cell, or in random directions."""
    episodes: Count = 500
    """Trajectories of the embedded data."""
    length: Annotated[int, Range(2, 100_000)] = 200
    """Steps of each."""
    data_seed: Seed = 0
    """Seed of the embedded data."""
    reward_shift: Finite = 0.0
    """Added to every reward; with 1 the maze's rewards, -1 and 0, become 0 and 1."""
    validation: Annotated[float, Range(least=0, below=1)] = 0.05
    """Share of the trajectories, the last ones, that are only for validation losses."""
    gym: str | None = None
    """Gymnasium environment that judges a policy learned from files, as `pointmaze-medium-singletask-task1-v0`; an
    OGBench one needs crossfade[ogbench]. Without it such a policy is judged by validation losses alone."""
    eval_episodes: Count = 50
    """Episodes by which the policy is judged, always the same ones."""
    hidden: tuple[Count, ...] = (128, 128)
    """Widths of the hidden layers of every network."""
    encoder_hidden: tuple[Count, ...] = (128, 128)
    """Widths of the layers of encoder=mlp."""
    lr: Positive = 1e-3
    """Adam's learning rate."""
    tau: Fraction = 0.02
    """Share of a network, as it was before the update, that goes into its target."""
    steps: Count = 10_000
    """Updates in all, pre-training included."""
    pretrain: Natural = 2000
    """Updates of pre-training, out of `steps`."""
    eval_every: Natural = 2000
    """Updates between evaluations; 0 evaluates only when a phase ends."""
    checkpoint_every: Natural = 5000
    """Updates between checkpoints; one is also written at the end and when the run is stopped."""

    def __post_init__(self):
        super().__post_init__()
        if self.devices > 1:
            raise UsageError(
                f"devices: expected 1, got {self.devices}: losses that compare all pairs of a batch are not shared. "
                "`crossfade sweep offline` trains several seeds side by side."
            )
        if self.pretrain_data is not None and self.data is None:
            raise UsageError(
                f"data: expected transitions to fine-tune by, beside pretrain_data={self.pretrain_data}, got none."
            )
        if self.gym is not None and self.data is None:
            raise UsageError(f"gym: expected none where the maze's own data are learned from, got {self.gym}.")

    @property
    def sources(self) -> tuple[Path, ...]:
        return tuple(
            Path(path) for path in (self.pretrain_data, self.data) if path is not None and Path(path).is_file()
        )

    @property
    def agent_name(self) -> str:
        """The agent's name on the command line."""
        own = type(self.agent).__name__
        return next((name for name, place in AGENTS.items() if place.endswith(f":{own}")), own.lower())

    @property
    def parts(self) -> tuple[str, ...]:
        world = f"maze-{self.env.map}" if self.data is None else Path(self.data).stem
        return self.agent_name, world, self.mode

    @property
    def test_set(self) -> str:
        if self.data is None:
            return f"{self.env}, {self.eval_episodes} episodes"
        return f"{self.gym}, {self.eval_episodes} episodes" if self.gym else f"validation part of {self.data}"
