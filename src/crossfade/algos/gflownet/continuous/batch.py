"""What a continuous GFlowNet learner is given. Framework-free; the arrays are NumPy's, torch's or JAX's.

A transition is a move, by a ratio r in (0, 1) for each dimension, or a jump: forwards it is stop, backwards the return
to the source (continuous_numpy.py of the environments says more). Quantities of states have one row more than those of
transitions: transition t leads from state t to state t + 1. Once a trajectory has stopped its state stays as it is.
"""

from typing import Any, Literal, NamedTuple

Kind = Literal["beta", "von_mises"]
"""The density of a ratio: a mixture of Beta densities, or of von Mises densities of the angle 2 pi r."""

GAMMA_ROUNDS = 12
"""Proposals for one Gamma variate; all are refused with a probability below 1e-15."""
CIRCLE_ROUNDS = 40
"""Proposals for one von Mises variate; all are refused with a probability below 1e-15."""
NO_MOVE = 0.5
"""The ratio that is written down where there was no such move."""


class Options(NamedTuple):
    """What is possible in each state, in one direction."""

    log_width: Any  # (steps + 1, batch) sum of log widths over dimensions; 0 where no move is possible
    can_move: Any  # (steps + 1, batch)
    can_jump: Any  # (steps + 1, batch)


class Batch(NamedTuple):
    """Trajectories as the learner sees them, time first."""

    observation: Any  # (steps + 1, batch, o)
    log_reward: Any  # (steps + 1, batch) log R of the state's point
    forward: Options  # from each state; nothing is possible once done
    backward: Options  # from each state; nothing is possible at the source and once done
    ratio: Any  # (steps, batch, d) of the move forwards
    ratio_back: Any  # (steps, batch, d) of the move that undoes it
    jump: Any  # (steps, batch) stop; True in padding as well
    first: Any  # (steps, batch) the move from the source, which a jump undoes
    valid: Any  # (steps, batch) False once the trajectory has stopped


class Noise(NamedTuple):
    """The randomness of one batch of trajectories, as data; None where the kind of density needs none."""

    component: Any  # (steps, batch, d, c) Gumbel: which component of the mixture
    normal: Any  # (steps, batch, d, 2, GAMMA_ROUNDS) beta: proposals for two Gamma variates ...
    accept: Any  # (steps, batch, d, 2, GAMMA_ROUNDS) ... and uniforms that accept them
    circle: Any  # (steps, batch, d, CIRCLE_ROUNDS, 3) von Mises: uniforms that propose, accept and choose a side
    jump: Any  # (steps, batch) uniform; the row jumps where it is below the probability of a jump
    explore: Any  # (steps, batch) uniform; the row acts at random where it is below epsilon
    ratio: Any  # (steps, batch, d) uniform: the ratios of such a row

    def at(self, *index: Any) -> "Noise":
        """The noise of one step, or of some of its rows."""
        return Noise(*(None if array is None else array[index] for array in self))


class Trajectories(NamedTuple):
    """What a sampler returns."""

    x: Any  # (steps + 1, batch, d)
    t: Any  # (steps + 1, batch) moves so far, as the environment counts them
    ratio: Any  # (steps, batch, d) forwards, within EDGE of 0 and 1; NO_MOVE at stop and in padding
    ratio_back: Any  # (steps, batch, d) backwards; NO_MOVE at the first move as well
    jump: Any  # (steps, batch) stop, and True in padding
    valid: Any  # (steps, batch)
