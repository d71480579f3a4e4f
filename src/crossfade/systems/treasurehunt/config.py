"""The settings of treasurehunt: IQN's, and those of the map."""

from dataclasses import dataclass

from ...algos.iqn.config import IQNConfig
from ...algos.iqn.replay import check_sizes
from ...envs.treasurehunt.params import TreasurehuntParams
from ...ranges import Count, Natural


@dataclass(frozen=True)
class TreasurehuntConfig(IQNConfig):
    env: TreasurehuntParams = TreasurehuntParams()
    """The map, its items and its agents: `env.agents=3`, `env.items=gem:10:0.02,bone:-10:0.01`."""
    eval_episodes: Count = 64
    """Episodes by which the greedy policy is judged, always the same ones."""
    steps: Count = 1000
    """Epochs in all: an episode, then one gradient step of each model."""
    chunk: Count = 10
    """Epochs between two looks at the clock, the log and Ctrl-C; one compiled call in jax_full."""
    log_every: Count = 10
    """Epochs per row of the log."""
    eval_every: Natural = 100
    """Epochs between evaluations; 0 evaluates only at the end."""
    checkpoint_every: Natural = 100
    """Epochs between checkpoints; one is also written at the end and when the run is stopped."""

    def __post_init__(self):
        super().__post_init__()
        check_sizes(self, self.env.turns)

    @property
    def agents(self) -> int:
        return self.env.agents

    @property
    def parts(self) -> tuple[str, ...]:
        game = "tag" if self.env.rule == "tag" else "treasurehunt"
        return game, "legacy" if self.legacy else "iqn", self.mode
