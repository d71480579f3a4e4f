"""The settings of IQN for several agents: one config for both frameworks and every mode. A system adds its game.

An update of a run is one epoch: an episode in every game, then one gradient step of every model.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from ...envs.game import Moves, Order
from ...errors import UsageError
from ...ranges import Count, Finite, Fraction, Natural, NotNegative, Positive, Probability, Range
from ...run.settings import RunConfig

Quirk = Literal[
    "unmarked_ends",
    "gap_rows",
    "gap_bootstrap",
    "lagging_size",
    "stale_history",
    "straddling_windows",
    "attached_target",
    "discount_only",
    "both_targets",
]
QUIRKS: tuple[Quirk, ...] = get_args(Quirk)
"""Faults of the published system, Q1 to Q9; `replay.py` says what the first six and `discount_only` do, `losses_*` what
`attached_target` does. `both_targets` makes target networks follow softly and copies them every `sync` epochs too."""
Risk = Literal["neutral", "cvar", "wang", "power"]


@dataclass(frozen=True)
class IQNConfig(RunConfig):
    worlds: Count = 1
    """Games that are played side by side in every epoch; agents learn from all of them."""
    moves: Moves = "sequential"
    """Whether agents act one after the other, all at once, or one after the other on what they saw at first."""
    order: Order = "fixed"
    """Who acts first in a turn."""
    parameters: Literal["separate", "shared", "groups"] = "separate"
    """Whether each agent has a model of its own, all have one, or as `groups` says."""
    groups: tuple[Natural, ...] = ()
    """The number of each agent's model, with parameters=groups."""
    agent_axis: Literal["vmap", "map", "unroll", "shard"] = "map"
    """How the models are trained side by side; equal but for rounding: all in one batched program, one after the other
    in a compiled loop, or one after the other unrolled. Several `devices` share every batch, each doing so with its
    part; or, with shard, they share the models."""
    memory: Count = 1024
    """Rows of the replay of each agent in each game."""
    batch_size: Count = 64
    """Transitions of each agent in a gradient step."""
    frames: Annotated[int, Range(1, 100)] = 5
    """Observations that a network sees, the present one and those before it."""
    n_step: Annotated[int, Range(1, 100)] = 1
    """Rewards that a target sums before it bootstraps. They are not corrected for actions that the policy would not
    have taken: with much exploration more than one teaches the value of exploring."""
    ends: Literal["bootstrap", "terminal"] = "bootstrap"
    """Whether the value goes on where an episode is cut off."""
    quantiles: Count = 12
    """Quantile fractions drawn for each transition, of the present and of the target."""
    acting_quantiles: Count = 12
    """Quantile fractions over which values are averaged to act."""
    risk: tuple[Risk, ...] = ("neutral",)
    """How agents distort the fractions they act by; one for all agents or one for each."""
    risk_level: tuple[Finite, ...] = (0.0,)
    """How strongly: the share of the worst outcomes for cvar, eta for wang and power."""
    hidden: Count = 250
    """Width of the network."""
    cosines: Count = 64
    """Cosine features of a quantile fraction."""
    dueling: bool = True
    """The network adds a value to advantages of mean 0."""
    double: bool = True
    """The action of a target is chosen by the local network, not by the target network."""
    noisy: bool = True
    """The last layers have noise in training."""
    sigma: NotNegative = 0.017
    """Scale of that noise at the start."""
    gamma: tuple[Fraction, ...] = (0.99,)
    """Discount of a turn; one for all agents or one for each."""
    kappa: Positive = 1.0
    """Where the Huber loss turns from a square into a line."""
    lr: tuple[Positive, ...] = (2.5e-4,)
    """Adam's learning rate; one for all agents or one for each."""
    clip_norm: Positive | None = 1.0
    """Largest norm of a model's gradient."""
    target: Literal["soft", "hard"] = "soft"
    """Whether target networks follow a little with every step, or are copied every `sync` epochs."""
    tau: Fraction = 0.001
    """Share of the local network that goes into the target network at a step."""
    sync: Count = 200
    """Epochs between two copies."""
    epsilon: tuple[Probability, ...] = (1.0,)
    """Probability of a random action at the start; one for all agents or one for each."""
    epsilon_decay: Fraction = 0.001
    """Share of epsilon that an epoch takes away."""
    epsilon_min: Probability = 0.0
    """Least epsilon."""
    legacy: bool = False
    """With all faults of the published system."""
    quirks: tuple[Quirk, ...] = ()
    """With some of them."""

    bookkeeping = (*RunConfig.bookkeeping, "agent_axis")

    def __post_init__(self):
        super().__post_init__()
        for name in ("risk", "risk_level", "gamma", "lr", "epsilon"):
            if len(getattr(self, name)) not in (1, self.agents):
                raise UsageError(
                    f"{name}: expected one value, or one for each of {self.agents} agents, got "
                    f"{len(getattr(self, name))}."
                )
        if (self.parameters == "groups") != bool(self.groups):
            raise UsageError("groups: expected the number of each agent's model with parameters=groups, and only then.")
        if self.groups and (len(self.groups) != self.agents or set(self.groups) != set(range(max(self.groups) + 1))):
            raise UsageError(
                f"groups: expected {self.agents} numbers, one for each agent, without a gap from 0 on, got "
                f"{','.join(map(str, self.groups))}."
            )
        if self.agent_axis == "shard" and self.devices == 1:
            raise UsageError("agent_axis: expected shard with several devices only, got shard with devices=1.")
        if self.shares_batches and self.batch_size % self.devices:
            raise UsageError(
                f"devices: expected a divisor of batch_size = {self.batch_size}, got {self.devices}. Change either, or "
                f"share the models instead: agent_axis=shard."
            )
        if len(set(self.each("lr"))) > 1 and self.n_models < self.agents:
            raise UsageError("lr: expected one value where agents share models, got several.")
        for risk, level in zip(self.each("risk"), self.each("risk_level"), strict=True):
            if risk == "cvar" and not 0 < level <= 1:
                raise UsageError(f"risk_level: expected a share above 0 and at most 1 for risk=cvar, got {level}.")

    @property
    def agents(self) -> int:
        """Agents of the game; a system says so."""
        return 1

    @property
    def shares_batches(self) -> bool:
        """Whether each of several devices learns from its part of every batch, not by its part of the models."""
        return self.devices > 1 and self.agent_axis != "shard"

    @property
    def model_of(self) -> tuple[int, ...]:
        """The number of each agent's model."""
        each = {"separate": tuple(range(self.agents)), "shared": (0,) * self.agents, "groups": self.groups}
        return each[self.parameters]

    @property
    def n_models(self) -> int:
        """Models that learn."""
        return max(self.model_of) + 1

    def members(self, model: int) -> tuple[int, ...]:
        """The agents that act by a model."""
        return tuple(agent for agent, own in enumerate(self.model_of) if own == model)

    def has(self, quirk: Quirk) -> bool:
        """Whether a fault is to be kept."""
        return self.legacy or quirk in self.quirks

    def each(self, name: str) -> tuple:
        """A setting that is one value for all agents or one for each: the value of each agent."""
        values = getattr(self, name)
        return values * self.agents if len(values) == 1 else values

    def epsilons(self, epoch: int) -> tuple[float, ...]:
        """Every agent's probability of a random action, max(epsilon (1 - decay)^epoch, least)."""
        return tuple(max(e * (1 - self.epsilon_decay) ** epoch, self.epsilon_min) for e in self.each("epsilon"))

    @property
    def follows(self) -> bool:
        """Whether target networks follow softly."""
        return self.target == "soft" or self.has("both_targets")

    def copies(self, epoch: int) -> bool:
        """Whether target networks are copied before the gradient step of an epoch."""
        return (self.target == "hard" or self.has("both_targets")) and epoch % self.sync == 0

    def course(self, update: int) -> dict[str, float]:
        return {"epsilon": self.epsilons(update)[0]}
