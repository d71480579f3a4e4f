"""The settings of a GFlowNet: one config for both frameworks and every mode."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from ...config import choice
from ...envs.dag.continuous_params import ContinuousParams
from ...envs.dag.params import Params
from ...envs.dag.registry import ALL
from ...envs.dag.rewards import find_bad
from ...errors import UsageError
from ...ranges import Count, Finite, Natural, NotNegative, Positive, Probability, Range
from ...run.memory import network_bytes
from ...run.settings import RunConfig

PARAMS = {name: f"crossfade.envs.dag.{entry.package}.params:{entry.name}Params" for name, entry in ALL.items()}
Loss = Literal["tb", "vargrad", "db", "mdb", "subtb", "fm", "fldb"]


@dataclass(frozen=True)
class GFlowNetConfig(RunConfig):
    env: Any = choice(PARAMS, default="grid")
    """The world in which objects are built: `env=hypergrid` chooses, `env.length=16` sets, `env=my:Params` is yours."""
    loss: Loss = "tb"
    """Trajectory balance, VarGrad, detailed balance, modified DB, SubTB(lambda), flow matching, forward-looking DB."""
    backward: Literal["shared", "learned", "uniform", "maxent", "fixed"] = "shared"
    """P_B: a head on the forward trunk, a network of its own, 1 / number of parents, all ways alike, fixed logits."""
    backward_logits: tuple[Finite, ...] = ()
    """For backward=fixed: one logit for each backward action; by default all are equal."""
    objective: Literal["sampled", "expected"] = "sampled"
    """The loss of sampled trajectories, or its exact expectation over all of them: no noise, enumerable worlds only."""
    through_sampling: bool = False
    """For objective=expected: differentiate the probabilities of the trajectories too, not only their losses."""
    batch_size: Count = 100
    """Trajectories per iteration that the policy samples."""
    replay_batch: Natural = 0
    """Further trajectories per iteration, built backwards from the best objects found so far."""
    replay_capacity: Count = 1000
    """How many of the best objects are remembered."""
    replay_sampling: Literal["uniform", "weighted"] = "uniform"
    """How they are drawn: all alike, or in proportion to their reward."""
    data_batch: Natural = 0
    """Further trajectories per iteration, built backwards from the objects of `data`."""
    data: str | None = None
    """Objects given: a .npy or .csv file with one x per row, or `all` that there are."""
    hidden: Count = 128
    """Width of a hidden layer."""
    layers: Annotated[int, Range(0, 1000)] = 2
    """Number of hidden layers; 0 makes the policy linear in the observation."""
    lr: Positive = 1e-3
    """Adam's learning rate of the networks."""
    lr_z: NotNegative = 0.1
    """Adam's learning rate of log Z."""
    lr_period: Count = 1_000_000
    """Iterations between two reductions of the learning rates."""
    lr_gamma: Annotated[float, Range(above=0, most=1)] = 0.5
    """Factor of a reduction."""
    clip_norm: Positive | None = None
    """Largest norm of the networks' gradient; log Z is not clipped."""
    z_dim: Count = 1
    """log Z is the sum of this many parameters."""
    z_init: Finite = 0.0
    """Where each of them starts."""
    epsilon: Probability = 0.0
    """Probability, per trajectory and step, of acting uniformly at random."""
    temperature: Positive = 1.0
    """The sampler divides its logits by this."""
    subtb_lambda: NotNegative = 0.9
    """SubTB weighs a sub-trajectory of length n by lambda ** n."""
    regression: Literal["square", "half", "huber", "exponential", "linex"] = "square"
    """What is done to a residual."""
    execution: Literal["auto", "table", "dense", "unique"] = "auto"
    """Nodes of the networks: all states of the environment, every visited one, or each visited one once."""
    components: Count = 5
    """For continuous worlds: components of the mixture in each dimension."""
    legacy_double_step: bool = False
    """A published fault: the shared trunk stands in the optimiser twice and is stepped twice."""
    legacy_finished_mask: bool = False
    """A published fault: a finished object keeps its ordinary parents, so P_B of stop is not 1."""
    legacy_untied_trunk: bool = False
    """A published fault: the shared trunk is copied at the start and its two copies are trained apart."""

    def blame(self) -> str:
        cause = find_bad(self.env)
        if not cause:
            return "All rewards that were looked at are finite: lower the learning rates, or set clip_norm."
        rule = "It must be a finite number above 0; `crossfade doctor` examines an environment of your own."
        return f"The reward is at fault: {cause}. {rule}"

    @property
    def sources(self) -> tuple[Path, ...]:
        return () if self.data in (None, "all") else (Path(self.data),)

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.env, Params | ContinuousParams):
            raise UsageError(
                f"env: expected a class that extends crossfade.envs.dag.params.Params, got {type(self.env).__name__}. "
                "`crossfade doctor` examines an environment of your own."
            )
        if (self.data_batch > 0) != (self.data is not None):
            raise UsageError(
                f"data and data_batch go together, got data={self.data}, data_batch={self.data_batch}. Say where the "
                "objects are and how many to use in an iteration, e.g. data=all data_batch=10."
            )
        if (self.legacy_untied_trunk or self.legacy_double_step) and self.backward != "shared":
            raise UsageError(f"a fault of the shared trunk needs backward=shared, got backward={self.backward}.")
        if self.legacy_untied_trunk and self.legacy_double_step:
            raise UsageError("legacy_untied_trunk leaves no shared trunk for legacy_double_step: use one of them.")
        if self.legacy_finished_mask and self.backward not in ("shared", "learned"):
            raise UsageError(f"legacy_finished_mask needs a P_B that is learned, got backward={self.backward}.")
        if self.backward_logits and self.backward != "fixed":
            raise UsageError(f"backward_logits are those of backward=fixed, got backward={self.backward}.")
        if self.objective == "expected" and (self.replay_batch or self.data_batch):
            raise UsageError("objective=expected samples nothing: leave replay_batch and data_batch at 0.")
        moments = self.loss in ("tb", "vargrad", "subtb") and self.regression not in ("square", "half")
        if self.objective == "expected" and moments:
            raise UsageError(
                f"objective=expected of loss={self.loss} needs regression=square or half, got {self.regression}."
            )

    def footprint(self) -> dict[str, int]:
        env: Any = self.env
        objects = self.batch_size + self.replay_batch + self.data_batch
        nodes = steps = objects * env.max_steps
        if self.continuous:
            outputs, per_node, tables, width = 3 * self.components * env.n_dim, 4 * env.observation_dim, 0, env.n_dim
        else:
            outputs, per_node, tables = env.n_actions + env.n_parents, env.node_bytes, env.footprint
            nodes, width = min(nodes, env.n_states or nodes), len(env.source)
        networks = network_bytes(env.observation_dim, self.hidden, self.layers, outputs, self.dtype)
        return {
            "of networks (hidden, layers, components)": networks + self.z_dim * 4,
            "of trajectories (batch_size, replay_batch, data_batch, env)": 4 * steps * (width + 1) + per_node * nodes,
            "of objects remembered (replay_capacity)": 4 * width * self.replay_capacity if self.replay_batch else 0,
            "of tables of the world (env)": tables,
        }

    @property
    def continuous(self) -> bool:
        """Whether objects are points of a continuous space."""
        return isinstance(self.env, ContinuousParams)

    @property
    def parts(self) -> tuple[str, str, str]:
        """Algorithm, environment and mode: the name of a run."""
        own = type(self.env).__name__.removesuffix("Params").lower()
        env = next((name for name, place in PARAMS.items() if place.endswith(f":{type(self.env).__name__}")), own)
        return self.loss, env, self.mode


def needs_flow(loss: str) -> bool:
    """Whether a loss reads the state flow log F."""
    return loss in ("db", "subtb", "fldb")
