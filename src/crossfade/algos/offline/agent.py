"""What an offline agent states of itself, without a framework: modules, terms, targets, randomness, data.

An agent is a frozen dataclass that extends `Agent`; its fields are its settings. Its terms are functions of the same
name in `agent_torch.py` and `agent_jax.py` beside it, each `(modules, batch, config) -> (value, info)`; the loss of a
phase is their sum, and `terms` says which modules each of them may teach: the detach matrix.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from ...nn.initial import Shape
from ...ranges import check
from .batch import Phase
from .encoders import Encoder, code_dim, encoder
from .modules import Module

Revision = Literal["r2025-06", "r2026-05"]
"""Which state of the published code is meant: that of June 2025, or that of May 2026."""


@dataclass(frozen=True)
class Sizes:
    """What modules and randomness are sized by."""

    observation: Shape
    """The shape of an observation: (numbers,), or (height, width, channels)."""
    action: int
    batch_size: int
    widths: tuple[int, ...]
    """Hidden layers of every network."""
    encoder: str | None
    encoder_widths: tuple[int, ...]
    """Layers of the encoder `mlp`."""
    spec: Revision
    const_std: bool
    faithful: tuple[str, ...]
    """The published faults that are kept."""

    @property
    def encoding(self) -> Encoder | None:
        """The encoder in front of a network."""
        return encoder(self.encoder, self.observation, self.encoder_widths)

    @property
    def code(self) -> int:
        """Numbers that a network reads of an observation."""
        return code_dim(self.encoding, self.observation)


class Draw(NamedTuple):
    """Random numbers of an update."""

    kind: Literal["normal", "uniform", "permutation", "rows", "words"]
    """Standard normal, uniform in [0, 1), the numbers from 0 to n - 1 in random order (shape (n,)), steps of the data
    (numbers of those that can be drawn), or words of 32 random bits."""
    shape: Shape


class Goals(NamedTuple):
    """How the goal of a transition is drawn: a later row of its trajectory, any row of the data, or the row itself."""

    trajectory: float = 1.0
    """Probability of a later row."""
    current: float = 0.0
    """Probability of the row itself; what is left is that of any row."""
    geometric: bool = True
    """Offsets of later rows are Geometric(1 - gamma), cut at the end of the trajectory; else uniform up to it."""


@dataclass(frozen=True)
class Agent:
    """An offline agent."""

    torch: ClassVar[str]
    """The module with its terms in torch."""
    jax: ClassVar[str]
    """The same in JAX."""
    terms: ClassVar[Mapping[Phase, Mapping[str, tuple[str, ...]]]]
    """For each phase its terms, and for each term the modules that its gradient reaches."""
    when_full: ClassVar[tuple[str, ...]] = ()
    """Terms of fine-tuning that only full updates have."""
    averages: ClassVar[Mapping[Phase, tuple[str, ...]]] = {"pretraining": (), "finetuning": ()}
    """Modules whose targets follow them in a phase, without encoders; ask `followed`."""
    averages_when_full: ClassVar[bool] = False
    """Whether targets follow in full updates only, in fine-tuning."""
    resets: ClassVar[tuple[str, ...]] = ()
    """Modules whose targets are set to them between the phases, without encoders; ask `reset`."""
    needs_encoder: ClassVar[bool] = False
    """Whether it cannot do without an encoder."""
    images: ClassVar[bool] = True
    """Whether it learns from images too."""
    views: ClassVar[bool] = False
    """Whether pre-training on images reads two augmented views of each."""
    actor: ClassVar[str] = "actor"
    """The module that acts."""
    next_actions: ClassVar[bool] = False
    """Whether batches hold the data's next actions."""
    value_goals: ClassVar[Goals | None] = None
    actor_goals: ClassVar[Goals | None] = None
    infers_latent: ClassVar[bool] = False
    """Whether a task is inferred as a latent between the phases (`infer_latent` in its twins)."""
    bounded: ClassVar[bool] = False
    """Whether batches hold the bounds of the data."""

    def __post_init__(self) -> None:
        check(self, "agent.")

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        """Its networks by name; those named `target_x` are targets of x, and no optimiser owns them."""
        raise NotImplementedError

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        """The random numbers of an update."""
        return {}

    def reached(self, spec: Revision, encoded: bool = False) -> Mapping[Phase, Mapping[str, tuple[str, ...]]]:
        """`terms` as a revision has them, with encoders or without."""
        return self.terms

    def followed(self, phase: Phase, encoded: bool = False) -> tuple[str, ...]:
        """The modules whose targets follow them in a phase."""
        return self.averages[phase]

    def reset(self, encoded: bool = False) -> tuple[str, ...]:
        """The modules whose targets are set to them between the phases."""
        return self.resets

    def uncopied(self, sizes: Sizes) -> tuple[str, ...]:
        """Targets that start at numbers of their own instead of those of their modules."""
        return ()


def online(modules: Mapping[str, Module]) -> tuple[str, ...]:
    """The modules that an optimiser owns."""
    return tuple(name for name in modules if not name.startswith("target_"))
