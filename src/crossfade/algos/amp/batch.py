"""What the discriminator is given and remembers. Framework-free; the arrays are NumPy's, torch's or JAX's."""

from typing import Any, NamedTuple


class Transitions(NamedTuple):
    """Transitions x = (Phi(s), Phi(s')), normalised: a batch of the discriminator, or several."""

    reference: Any  # (*n, x) of the motion that is imitated
    policy: Any  # (*n, x) of the policy, now and before


class Replay(NamedTuple):
    """Transitions of the policy, the oldest of which are written over."""

    transition: Any  # (memory, x)
    index: Any  # () int32, the row that is written next
    size: Any  # () int32, rows that hold a transition


class Noise(NamedTuple):
    """The randomness of the discriminator's gradient steps between two rollouts, as data: uniform numbers."""

    reference: Any  # (updates, batch) which reference transitions
    policy: Any  # (updates, batch) which of those remembered


class Reference(NamedTuple):
    """The motion that is imitated, and by what its features are normalised: statistics that no policy can move."""

    transition: Any  # (n, x) normalised
    mean: Any  # (f,) of each feature over the motion
    deviation: Any  # (f,)
