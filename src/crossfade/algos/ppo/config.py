"""The settings of PPO: one config for both frameworks and every mode. A system extends one with its world."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ...errors import UsageError
from ...ranges import Count, Fraction, Layers, NotNegative, Positive, Probability, Range
from ...run.settings import Arrays, RunConfig
from .architecture import Architecture


@dataclass(frozen=True)
class PPOConfig(RunConfig):
    n_envs: Count = 256
    """Environments that are stepped together."""
    n_steps: Count = 128
    """Steps of each between two updates."""
    epochs: Count = 4
    """Passes over the steps of an update."""
    minibatches: Count = 4
    """Parts of a pass, each of which makes one gradient step."""
    gamma: Fraction = 0.99
    """Discount of a step."""
    gae_lambda: Fraction = 0.95
    """Trade-off of the advantage estimate: 0 one step, 1 the whole episode."""
    truncation: Literal["bootstrap", "mask", "terminal"] = "bootstrap"
    """Where an episode is cut off: its value goes on, the step is left out, or it counts as an end."""
    clip: Positive = 0.2
    """How far the probability ratio may move."""
    clip_value: Positive | None = None
    """How far the value may move from the old one, in units of reward; none leaves it free."""
    value_coef: NotNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: NotNegative = 0.01
    """Weight of the entropy bonus."""
    normalize_advantages: bool = True
    """Advantages of a minibatch have mean 0 and deviation 1."""
    normalize_observations: bool = True
    """The network sees observations in their own mean and deviation so far."""
    floor: Probability = 0.0
    """Least probability of every legal action."""
    target_kl: Positive | None = None
    """An update stops before a minibatch once the policy has moved this far."""
    lr: Positive = 3e-4
    """Adam's learning rate at the start."""
    lr_final: NotNegative = 0.0
    """Adam's learning rate after the last update; it falls linearly, counted in updates."""
    schedule: Count | None = None
    """Updates over which the rate and a curriculum run their course; none takes `steps`."""
    adam_eps: Positive = 1e-5
    """Adam's epsilon."""
    clip_norm: Positive | None = 0.5
    """Largest norm of the whole gradient."""
    hidden: Count = 64
    """Width of a hidden layer."""
    layers: Layers = 2
    """Hidden layers of the trunk that actor and critic share."""
    apart: bool = False
    """Actor and critic are networks of their own, each with these layers, instead of sharing them."""
    activation: Literal["tanh", "relu", "swish"] = "tanh"
    """Of every hidden layer."""
    initial: Literal["orthogonal", "lecun", "lecun_uniform"] = "orthogonal"
    """Weights at the start: see `Architecture`."""
    advantage: Literal["gae", "lambda_return"] = "gae"
    """What a step is weighed by: sum (gamma lambda)^k delta; or r + gamma v(s') - V(s) with the lambda-return v."""
    segments: bool = False
    """Minibatches are all steps of some environments, and advantages are computed anew in every gradient step by the
    critic of the moment; else single steps, with the advantages by the critic that acted."""
    join_first: bool = False
    """The observations of a rollout join their statistics before its gradient steps; else the network learns on what it
    saw."""
    share_gradients: bool | None = None
    """Each of several devices learns from its part of every minibatch, or from all of it; none shares gradient steps
    that take longer than it takes the devices to meet."""

    def __post_init__(self):
        super().__post_init__()
        if self.n_envs * self.n_steps % self.minibatches:
            raise UsageError(
                f"minibatches: expected a divisor of n_envs * n_steps = {self.n_envs * self.n_steps}, "
                f"got {self.minibatches}."
            )
        if self.segments:
            self._check_segments()
        shared = {"n_envs": self.n_envs}
        if self.share_gradients:
            shared["n_envs * n_steps / minibatches"] = self.minibatch_size
        for name, n in shared.items():
            if n % self.devices:
                raise UsageError(f"devices: expected a divisor of {name} = {n}, got {self.devices}.")

    def _check_segments(self) -> None:
        if self.n_envs % self.minibatches:
            raise UsageError(
                f"minibatches: expected a divisor of n_envs = {self.n_envs}, got {self.minibatches}. With "
                "segments=true a minibatch holds all steps of some environments."
            )
        if self.truncation == "bootstrap":
            raise UsageError(
                "segments=true: expected truncation=mask or truncation=terminal, got bootstrap. States in which "
                "episodes are cut off are not kept, so that a later critic cannot value them."
            )
        if self.share_gradients:
            raise UsageError(
                "segments=true: expected share_gradients=none or false, got true. Advantages are normalised over whole "
                "minibatches, in every gradient step."
            )

    @property
    def samples_entropy(self) -> bool:
        """Whether the entropy is estimated by noise."""
        return False

    @property
    def architecture(self) -> Architecture:
        """Of the network: `layers` times `hidden`, common to actor and critic or each their own, and linear heads."""
        layers = (self.hidden,) * self.layers
        trunk, head = ((), layers) if self.apart else (layers, ())
        return Architecture(trunk, head, self.activation, initial=self.initial)

    @property
    def minibatch_size(self) -> int:
        """Steps in a minibatch."""
        return self.n_envs * self.n_steps // self.minibatches

    @property
    def env_steps(self) -> int:
        """Steps of all environments in an update."""
        return self.n_envs * self.n_steps

    @property
    def horizon(self) -> int:
        """Updates over which rate and curriculum run."""
        return self.steps if self.schedule is None else self.schedule

    def progress(self, update: int) -> float:
        """Share of the schedule that is over, at most 1."""
        return min(update / self.horizon, 1.0)

    def learning_rate(self, update: int) -> float:
        """Adam's learning rate during an update, counted from 0."""
        return self.lr + (self.lr_final - self.lr) * self.progress(update)

    def course(self, update: int) -> dict[str, float]:
        return {"lr": self.learning_rate(update)} if self.lr_final != self.lr else {}

    def exported(self, buffer: dict[str, Any]) -> Arrays:
        """The statistics by which observations are normalised: without them the parameters are of no use."""
        return {f"normalizer.{name}": array for name, array in buffer["statistics"].items()}

    def check_resumed(self, saved: Any) -> None:
        """A run may be prolonged; what runs by a schedule must then be told how."""
        if self.horizon != saved.horizon and self.schedule is None and self.course(0):
            raise UsageError(
                f"steps: the run was meant for {saved.horizon} updates, over which these change: "
                f"{', '.join(self.course(0))}. With steps={self.steps} they would jump in the middle of it. Say "
                f"schedule={saved.horizon} to keep their course and then their last values, or schedule={self.steps} "
                "to stretch it from here on."
            )


@dataclass(frozen=True)
class ContinuousPPOConfig(PPOConfig):
    """For worlds whose actions are numbers."""

    squashed: bool = False
    """Actions are tanh of a normal number, instead of one that is clipped to [-1, 1]."""
    log_std: Literal["free", "state"] = "free"
    """Deviations of the normal numbers: parameters of their own, or outputs of the network."""
    deviation: Literal["exp", "softplus"] = "exp"
    """Deviations by the network's outputs x: exp(x), or softplus(x) + 0.001."""
    entropy: Literal["normal", "squashed"] = "normal"
    """What the entropy bonus is of: the normal number, exactly; or its tanh, estimated anew in every gradient step."""
    log_std_start: Annotated[float, Range(-20, 2)] = 0.0
    """Logarithm of the deviations at the start, if they are free."""

    def __post_init__(self):
        super().__post_init__()
        if self.floor:
            raise UsageError(f"floor: expected 0 where actions are numbers, got {self.floor}.")
        if self.deviation == "softplus" and self.log_std != "state":
            raise UsageError(f"deviation=softplus: expected log_std=state, got {self.log_std}.")
        if self.entropy == "squashed" and not self.squashed:
            raise UsageError("entropy=squashed: expected squashed=true, got false.")

    @property
    def samples_entropy(self) -> bool:
        return self.entropy == "squashed"


def continuous(config: PPOConfig) -> ContinuousPPOConfig:
    """The config, if it has what continuous actions need."""
    if not isinstance(config, ContinuousPPOConfig):
        raise UsageError(
            f"expected the config of a world with continuous actions to extend ContinuousPPOConfig, got "
            f"{type(config).__name__}."
        )
    return config
