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

    def footprint(self) -> dict[str, int]:
        env, number = self.env, 8 if self.dtype == "float64" else 4
        stacked, fractions = self.frames * env.observation_dim, self.batch_size * self.quantiles
        weights = self.hidden * (stacked + self.cosines + 2 * self.hidden + 10)
        acting = env.turns * self.worlds * env.agents * self.acting_quantiles
        return {
            "of networks (hidden, cosines, frames)": 4 * self.n_models * weights * number,
            "of replay (worlds, memory)": self.worlds * env.agents * self.memory * (env.observation_dim + 8),
            "of batches (batch_size, quantiles)": env.agents * (2 * self.batch_size * stacked + 3 * fractions) * number,
            "of a gradient step (quantiles, hidden)": 3 * fractions * (self.quantiles + 3 * self.hidden) * number,
            "of fractions to act by (worlds, env.turns, acting_quantiles)": 4 * acting,
            "of maps (worlds, env.turns, env.height, env.width)": 4 * self.worlds * (env.turns + 1) * env.inner,
        }

    @property
    def env_steps(self) -> int:
        """Turns of all games in an epoch; every agent acts in each."""
        return self.worlds * self.env.turns

    @property
    def agents(self) -> int:
        return self.env.agents

    @property
    def parts(self) -> tuple[str, ...]:
        game = "tag" if self.env.rule == "tag" else "treasurehunt"
        return game, "legacy" if self.legacy else "iqn", self.mode
