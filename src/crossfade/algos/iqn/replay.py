"""Replay that stacks frames: which windows of rows can be learned from. Framework-free; `replay_*` compute it.

All games and agents write at the same time, so that one index serves them all. With F = frames, T = turns, M = memory,
and rows counted modulo M:

**An episode opens** with a gap: the index moves on by F - 1 rows, whose turn becomes -1 and whose observations, actions
and rewards become 0. The history of an agent at the start of the episode are the F - 1 rows before the index: zeros.

**An episode is stored** turn by turn in the next T rows, with turns 0 to T - 1, and in one more row the observation
after the last turn, with turn T, action 0 and reward 0. `size` grows by T, `filled` by all rows passed, gap included;
neither beyond M.

**A window** is named by its last row j: the state is rows j - F + 1 to j, oldest first, flattened; action at j. It
looks m = min(n_step, T - turn[j]) turns ahead: the reward is sum_{k<m} gamma^k reward[j + k], the next state
rows j + m - F + 1 to j + m, the discount gamma^m, or 0 with ends=terminal where turn[j] + m = T. `valid` is 1.

**A window can be drawn** if 0 <= turn[j] < T and all its rows are there: with o = (j - index) mod M, the place of
row j counted from the oldest, o - (F - 1) >= M - filled and o + m <= M - 1.

**A batch** of each agent is drawn without replacement: of the numbers `choice`, (worlds, memory) of each agent
flattened, those of rows that cannot be drawn are replaced by 2, and the batch are the `batch_size` smallest in order
(of equal ones the first). It is `ready` if at least `batch_size` rows of all worlds together can be drawn; if not, what
is returned does not matter but for its shape.

The published system does otherwise, and each fault can be kept (`IQNConfig.quirks`):

    Q1 unmarked_ends       sampling does not know where episodes end: m = n_step everywhere, the discount is never 0.
                           Without it, `valid` is 0 where any row of the state but the last has turn T - 1.
    Q2 gap_rows            any row can be drawn, whatever its turn; m = n_step where turn[j] is not of 0 .. T - 1
    Q3 gap_bootstrap       the observation after the last turn is not stored: the next state reads the gap
    Q4 lagging_size        what can be drawn is bounded by `size`, which the gaps do not move: also
                           0 <= j - (F - 1) < max(1, size - F - 1)
    Q5 stale_history       gaps are not cleared: observations, actions and rewards of old episodes stay (turn is -1)
    Q6 straddling_windows  the place of the index is not looked at: in place of the condition on o,
                           0 <= j - (F - 1) < max(1, (size if Q4 else filled) - F - 1)
    Q8 discount_only       m = 1 and the reward is that of row j alone, but the discount is gamma^n_step (0 as above)
"""

import numpy as np
from jaxtyping import Float

from ...errors import UsageError
from .config import IQNConfig


def gap(config: IQNConfig) -> int:
    """Rows before the first turn of an episode."""
    return config.frames - 1


def rows(config: IQNConfig, turns: int) -> int:
    """Rows that an episode is stored in, its gap left out."""
    return turns + (not config.has("gap_bootstrap"))


def powers(config: IQNConfig) -> Float[np.ndarray, "agents powers"]:
    """gamma^0 to gamma^n_step of each agent, rounded from float64."""
    # By Python's power, which is that of C: NumPy's of an array may differ in the last bit, by machine.
    return np.array([[gamma**k for k in range(config.n_step + 1)] for gamma in config.each("gamma")], config.dtype)


def check_sizes(config: IQNConfig, turns: int) -> None:
    """Refuses a replay that never holds a batch: the rows of whole episodes that fit, less what hangs over."""
    episode = gap(config) + rows(config, turns)
    if config.memory < episode + 1:
        raise UsageError(
            f"memory: expected at least {episode + 1}, one episode of {turns} turns with its gap, got {config.memory}."
        )
    whole, rest = divmod(config.memory, episode)
    held = whole * turns + max(0, rest - 2 * config.frames - config.n_step)
    if config.batch_size > (most := config.worlds * held):
        raise UsageError(
            f"batch_size: expected at most {most}, what memory={config.memory} rows of worlds={config.worlds} "
            f"always hold, got {config.batch_size}."
        )
