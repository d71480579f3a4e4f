"""The settings of a GFlowNet: one config for both frameworks and every mode."""

from dataclasses import dataclass
from typing import Any, Literal

from ...config import choice
from ...envs.registry import ENVS
from ...errors import UsageError
from ...run.settings import RunConfig

PARAMS = {name: f"crossfade.envs.{entry.package}.params:{entry.name}Params" for name, entry in ENVS.items()}
Loss = Literal["tb", "vargrad", "db", "mdb", "subtb", "fm", "fldb"]


@dataclass(frozen=True)
class GFlowNetConfig(RunConfig):
    env: Any = choice(PARAMS, default="grid")
    """The world in which objects are built; `env=hypergrid` chooses, `env.length=16` sets."""
    loss: Loss = "tb"
    """Trajectory balance, VarGrad, detailed balance, modified DB, SubTB(lambda), flow matching, forward-looking DB."""
    backward: Literal["shared", "learned", "uniform"] = "shared"
    """P_B: a head on the forward trunk, a network of its own, or 1 / number of parents."""
    batch_size: int = 100
    """Trajectories per iteration."""
    hidden: int = 128
    """Width of a hidden layer."""
    layers: int = 2
    """Number of hidden layers; 0 makes the policy linear in the observation."""
    lr: float = 1e-3
    """Adam's learning rate of the networks."""
    lr_z: float = 0.1
    """Adam's learning rate of log Z."""
    lr_period: int = 1_000_000
    """Iterations between two reductions of the learning rates."""
    lr_gamma: float = 0.5
    """Factor of a reduction."""
    clip_norm: float | None = None
    """Largest norm of the networks' gradient; log Z is not clipped."""
    z_dim: int = 1
    """log Z is the sum of this many parameters."""
    z_init: float = 0.0
    """Where each of them starts."""
    epsilon: float = 0.0
    """Probability, per trajectory and step, of acting uniformly at random."""
    temperature: float = 1.0
    """The sampler divides its logits by this."""
    subtb_lambda: float = 0.9
    """SubTB weighs a sub-trajectory of length n by lambda ** n."""
    regression: Literal["square", "half", "huber", "exponential", "linex"] = "square"
    """What is done to a residual."""
    execution: Literal["auto", "table", "dense", "unique"] = "auto"
    """Nodes of the networks: all states of the environment, every visited one, or each visited one once."""

    def __post_init__(self):
        super().__post_init__()
        positive = {"batch_size": self.batch_size, "hidden": self.hidden, "z_dim": self.z_dim, "lr": self.lr}
        for name, value in {**positive, "temperature": self.temperature, "lr_period": self.lr_period}.items():
            if value <= 0:
                raise UsageError(f"{name}: expected a positive number, got {value}.")
        if not 0 <= self.epsilon <= 1:
            raise UsageError(f"epsilon: expected a probability from 0 to 1, got {self.epsilon}.")
        if self.layers < 0:
            raise UsageError(f"layers: expected 0 or more, got {self.layers}.")

    @property
    def parts(self) -> tuple[str, str, str]:
        """Algorithm, environment and mode: the name of a run."""
        env = next((name for name, place in PARAMS.items() if place.endswith(f":{type(self.env).__name__}")), "own")
        return self.loss, env, self.mode


def needs_flow(loss: str) -> bool:
    """Whether a loss reads the state flow log F."""
    return loss in ("db", "subtb", "fldb")
