"""What an update of an offline agent learns from. NumPy, torch and JAX share these types."""

from typing import Any, Literal, NamedTuple

Phase = Literal["pretraining", "finetuning"]
"""Pre-training learns without rewards, fine-tuning with those of a task."""
PHASES: tuple[Phase, ...] = ("pretraining", "finetuning")


class Batch(NamedTuple):
    """Transitions with (batch,) in front, and what an agent asks for beside them; the rest is None."""

    observations: Any
    """(batch, *observation): floats, or images of bytes."""
    actions: Any
    """(batch, action), each number inside (-1, 1)."""
    next_observations: Any
    rewards: Any
    """(batch,)"""
    masks: Any
    """(batch,): 0 where the task is achieved and nothing follows, else 1."""
    next_actions: Any = None
    """(batch, action): the action that the data took next."""
    value_goals: Any = None
    """(batch, *observation): goals for values."""
    actor_goals: Any = None
    """(batch, *observation): goals for the actor."""
    relabeled_rewards: Any = None
    """(batch,): -1, or 0 where the value goal is the observation itself."""
    relabeled_masks: Any = None
    """(batch,): 1, or 0 there."""
    views: Any = None
    """(2, batch, *observation): images augmented twice."""
    imagined: Any = None
    """A `Batch` from a model of the world, or None: what values and actor learn from instead."""
    noise: Any = None
    """{name: array}: the random numbers that the agent declares (`Agent.draws`)."""
    latent: Any = None
    """(latent,): the task as an agent of latents has inferred it, in fine-tuning."""
    latents: Any = None
    """(batch, latent): the latent of each transition; the agent's `prepare` fills it in."""
    shared: Any = None
    """{name: array}: what several terms read, computed once and with its gradients; `prepare` fills it in."""
    bounds: Any = None
    """(2, observation): least and greatest number of each dimension in the data."""
    full: Any = None
    """Whether this update trains the actor too, a bool; None in pre-training."""

    ends: Any = None
    """Whether this is the last update of pre-training, after which targets are reset, a bool; None in fine-tuning."""

    @property
    def phase(self) -> Phase:
        """By the structure alone, so that compiled programs know it too."""
        return "pretraining" if self.full is None else "finetuning"
