"""The settings of offline learning: one config for both frameworks, every mode and every agent. A system adds its data.

An update of a run is one gradient step. Pre-training comes first, `pretrain` updates of it; the others fine-tune.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from ...config import choice
from ...errors import UsageError
from ...ranges import Count, Fraction, Natural, Positive, Probability, Range
from ...run.settings import RunConfig
from .agent import Agent, Revision, Sizes
from .batch import Phase

AGENTS = {
    name: f"crossfade.algos.offline.{name}.params:{cls}"
    for name, cls in {
        "iql": "IQL",
        "rebrac": "ReBRAC",
        "crl_infonce": "CRLInfoNCE",
        "td_infonce": "TDInfoNCE",
        "fb_repr": "FBRepr",
        "hilp": "HILP",
        "infom": "InFOM",
        "dino_rebrac": "DINOReBRAC",
        "mbpo_rebrac": "MBPOReBRAC",
    }.items()
}
Quirk = Literal[
    "tiny_model_buffer",
    "standing_rollouts",
    "constant_center",
    "unsynced_target",
    "geometric_offset",
    "own_statistics",
    "foreign_next_actions",
    "bare_dino",
    "latent_mix",
    "exorl_validation",
    "summed_norms",
    "first_member",
]
Normalize = Literal["normal", "bounded", "none"]
QUIRKS: tuple[Quirk, ...] = get_args(Quirk)
"""Faults of the published system, U1 to U13 without U11, which is one of its documentation:

U1 tiny_model_buffer: MBPO's buffer holds 100 rows and is read when it holds more than a batch, so never.
U2 standing_rollouts: MBPO's rollouts of several steps start each step at the same states.
U3 constant_center: DINO's centre stays 0 while it is used.
U4 unsynced_target: FB's target critic starts at numbers of its own.
U5 geometric_offset: a geometric goal is at least one step ahead, whatever `geometric_start` says.
U6 own_statistics: the data of each phase are normalised by their own mean and variance.
U7 foreign_next_actions: the next action at the end of a trajectory is the first one of the next.
U8 bare_dino: DINO has no encoder unless it is told so, and cannot do without.
U9 latent_mix: FB keeps a normal latent with probability `latent_mix` where its documentation says that it is replaced.
U10 exorl_validation: too large a validation set shortens the training set.
U12 summed_norms: the norm of a gradient is the sum of the norms of its arrays.
U13 first_member: HILP's directions are those of the first member of its ensemble alone."""


@dataclass(frozen=True)
class OfflineConfig(RunConfig):
    agent: Any = choice(AGENTS, default="iql")
    """The algorithm: `agent=infom` chooses, `agent.latent_dim=128` sets."""
    spec: Revision = "r2026-05"
    """Which state of the published code is meant; agents say what changed."""
    faithful: bool = True
    """With the faults of the published system."""
    corrected: tuple[Quirk, ...] = ()
    """Faults that are mended all the same."""
    pretrain: Natural = 0
    """Updates of pre-training, out of `steps`."""
    hidden: tuple[Count, ...] = (512, 512, 512, 512)
    """Widths of the hidden layers of every network."""
    encoder: Literal["mlp", "impala", "impala_small", "impala_large", "impala_debug", "resnet_34"] | None = None
    """What stands before the networks; images need one."""
    encoder_hidden: tuple[Count, ...] = (512, 512, 512, 512)
    """Widths of the layers of encoder=mlp."""
    const_std: bool = True
    """Whether actors have standard deviation 1 instead of learning it."""
    batch_size: Count = 256
    """Transitions per update."""
    lr: Positive = 3e-4
    """Adam's learning rate."""
    gamma: Fraction = 0.99
    """Discount of a step."""
    tau: Fraction = 0.005
    """Share of a network, as it was before the update, that goes into its target."""
    actor_every: Count = 4
    """Fine-tuning trains the actor in every so many updates, counted from the start of the run."""
    latent_samples: Count = 10_000
    """Transitions from which an agent infers the latent of a task."""

    normalize: Normalize = "normal"
    """Observations by mean and variance, by least and greatest number, or as they are; images always are."""
    frame_stack: Annotated[int, Range(1, 64)] = 1
    """Observations in a row that networks read at once."""
    p_aug: Probability | None = None
    """Probability that the images of a batch are shifted by up to 3 pixels."""
    num_aug: Annotated[int, Range(1, 8)] = 1
    """Shifted copies of an image, unless it is replaced."""
    inplace_aug: bool = True
    """Whether shifted images replace those of the data."""
    geometric_start: Annotated[int, Range(0, 1)] = 1
    """The least offset of a geometric goal, if geometric_offset is corrected."""
    gc_negative: bool = True
    """Whether relabelled rewards are -1 and, at the goal, 0; else 0 and 1."""

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.agent, Agent):
            raise UsageError(f"agent: expected one of {', '.join(AGENTS)}, got {type(self.agent).__name__}.")
        if self.pretrain > self.steps:
            raise UsageError(f"steps: expected at least pretrain={self.pretrain}, got {self.steps}.")

        if self.inplace_aug and self.num_aug > 1:
            raise UsageError(f"num_aug: expected 1 with inplace_aug=true, got {self.num_aug}. Use inplace_aug=false.")
        if not self.inplace_aug and self.p_aug not in (None, 1):
            raise UsageError(f"p_aug: expected 1 with inplace_aug=false, got {self.p_aug}: views are always there.")
        if self.agent.needs_encoder and self.encoding is None:
            raise UsageError(
                "encoder: expected one, which this agent cannot do without, got none. Use encoder=mlp for observations "
                "that are numbers (corrected=bare_dino does so by itself), encoder=impala_small for images."
            )

    def has(self, quirk: Quirk) -> bool:
        """Whether a published fault is kept."""
        return self.faithful and quirk not in self.corrected

    def sizes(self, observation: tuple[int, ...], action: int) -> Sizes:
        """The sizes of the agent on data of these shapes."""
        kept = tuple(quirk for quirk in QUIRKS if self.has(quirk))
        return Sizes(
            observation,
            action,
            self.batch_size,
            self.hidden,
            self.encoding,
            self.encoder_hidden,
            self.spec,
            self.const_std,
            kept,
        )

    @property
    def encoding(self) -> str | None:
        """The encoder in front of the networks."""
        bare = self.agent.needs_encoder and not self.has("bare_dino")
        return "mlp" if self.encoder is None and bare else self.encoder

    @property
    def breaks(self) -> tuple[int, ...]:
        return (self.pretrain,) if 0 < self.pretrain < self.steps else ()

    def phase(self, update: int) -> Phase:
        """The phase of update number `update`, from 0."""
        return "pretraining" if update < self.pretrain else "finetuning"

    def full(self, update: int) -> bool:
        """Whether update number `update`, from 0, trains the actor in fine-tuning."""
        return (update + 1) % self.actor_every == 0
