"""Networks of the offline agents as data: what they read, their layers, shapes and initial laws. Framework-free.

`networks_*` compute them. A policy is a dictionary of modules by name, and a parameter is called by its path in it,
`critic.value_net.layers.0.weight`. A module knows what it reads by the sizes of its parts; `encoder` comes before the
first of them.
"""

from dataclasses import dataclass

from ...nn.initial import Shape, constant
from .encoders import Encoder
from .layers import MLP, Laws, linear, within


@dataclass(frozen=True)
class Value:
    """An MLP on the concatenation of an observation and, if `actions`, an action.

    Parameters: `value_net.*`, and `encoder.*` if there is one; the encoder is shared by the members. With one output
    the value is a number, (batch,), else a vector, (batch, outputs); with several members (members, ...).
    """

    observation: int
    widths: tuple[int, ...]
    actions: int = 0
    outputs: int = 1
    layer_norm: bool = True
    members: int = 1
    encoder: Encoder | None = None

    @property
    def value_net(self) -> MLP:
        return MLP(self.observation + self.actions, (*self.widths, self.outputs), self.layer_norm, members=self.members)

    @property
    def laws(self) -> Laws:
        return _encoded(self.encoder) | within("value_net", self.value_net.laws)


@dataclass(frozen=True)
class GCValue:
    """`Value` that also reads a goal or a latent: observation, goal, action, in this order.

    The goal is read as it is; only the observation goes through the encoder.
    """

    observation: int
    widths: tuple[int, ...]
    goals: int = 0
    actions: int = 0
    outputs: int = 1
    layer_norm: bool = True
    members: int = 1
    encoder: Encoder | None = None

    @property
    def value_net(self) -> MLP:
        inputs = self.observation + self.goals + self.actions
        return MLP(inputs, (*self.widths, self.outputs), self.layer_norm, members=self.members)

    @property
    def laws(self) -> Laws:
        return _encoded(self.encoder) | within("value_net", self.value_net.laws)


@dataclass(frozen=True)
class Actor:
    """A normal distribution of actions: an MLP with gelu behind all its layers, then a linear layer for the mean.

    log std is 0 (`const_std`), a vector that learns (`log_stds`, starts at 0), or a linear layer of its own
    (`state_dependent_std`); it is clipped to LOG_STD. With `tanh_squash` actions are tanh of the normal numbers.
    Parameters: `actor_net.*`, `mean_net.*`, `log_stds` or `log_std_net.*`, and `encoder.*` if there is one. `mean_net`
    and `log_std_net` start at V(final_scale).
    """

    observation: int
    widths: tuple[int, ...]
    actions: int
    layer_norm: bool = False
    tanh_squash: bool = False
    state_dependent_std: bool = False
    const_std: bool = True
    final_scale: float = 1e-2
    encoder: Encoder | None = None

    @property
    def actor_net(self) -> MLP:
        return MLP(self.observation, self.widths, self.layer_norm, activate_final=True)

    @property
    def laws(self) -> Laws:
        return _actor_laws(self)


@dataclass(frozen=True)
class GCActor:
    """`Actor` that also reads a goal or a latent, as it is, behind the observation."""

    observation: int
    widths: tuple[int, ...]
    actions: int
    goals: int = 0
    layer_norm: bool = False
    tanh_squash: bool = False
    state_dependent_std: bool = False
    const_std: bool = True
    final_scale: float = 1e-2
    encoder: Encoder | None = None

    @property
    def actor_net(self) -> MLP:
        return MLP(self.observation + self.goals, self.widths, self.layer_norm, activate_final=True)

    @property
    def laws(self) -> Laws:
        return _actor_laws(self)


LOG_STD = (-5.0, 2.0)
"""Bounds of the log std of an actor."""


@dataclass(frozen=True)
class GCBilinearValue:
    """phi(s, a) . psi(g) / sqrt(d) of every pair of a batch, (members, states, goals); its exponential if `value_exp`.

    Parameters: `phi.*`, `psi.*`, and `state_encoder.*`, `goal_encoder.*` if there are encoders.
    """

    observation: int
    widths: tuple[int, ...]
    actions: int
    latent: int
    layer_norm: bool = True
    members: int = 2
    value_exp: bool = False
    shifts: bool = True
    """Whether psi's last bias matters: where goals of one state are compared with each other only, it cancels."""
    encoder: Encoder | None = None

    @property
    def phi(self) -> MLP:
        return MLP(self.observation + self.actions, (*self.widths, self.latent), self.layer_norm, members=self.members)

    @property
    def psi(self) -> MLP:
        return MLP(self.observation, (*self.widths, self.latent), self.layer_norm, members=self.members)

    @property
    def laws(self) -> Laws:
        own = within("phi", self.phi.laws) | within("psi", self.psi.laws)
        return _encoded(self.encoder, "state_encoder") | _encoded(self.encoder, "goal_encoder") | own


@dataclass(frozen=True)
class GCMetricValue:
    """-|phi(s) - phi(g)|, element by element, (members, batch): -sqrt(max(|phi(s) - phi(g)|^2, 1e-12)).

    Parameters: `phi.*`, and `encoder.*` if there is one.
    """

    observation: int
    widths: tuple[int, ...]
    latent: int
    layer_norm: bool = True
    members: int = 2
    encoder: Encoder | None = None

    @property
    def phi(self) -> MLP:
        return MLP(self.observation, (*self.widths, self.latent), self.layer_norm, members=self.members)

    @property
    def laws(self) -> Laws:
        return _encoded(self.encoder) | within("phi", self.phi.laws)


@dataclass(frozen=True)
class IntentionEncoder:
    """Mean and log std of a normal latent, given an observation and an action: an MLP with gelu behind all its layers,
    then a linear layer for each. log std is not clipped. Parameters: `trunk_net.*`, `mean_net.*`, `log_std_net.*`, and
    `encoder.*` if there is one."""

    observation: int
    widths: tuple[int, ...]
    actions: int
    latent: int
    layer_norm: bool = True
    encoder: Encoder | None = None

    @property
    def trunk_net(self) -> MLP:
        return MLP(self.observation + self.actions, self.widths, self.layer_norm, activate_final=True)

    @property
    def laws(self) -> Laws:
        own = within("trunk_net", self.trunk_net.laws)
        for name in ("mean_net", "log_std_net"):
            own |= linear(name, self.widths[-1], self.latent)
        return _encoded(self.encoder) | own


@dataclass(frozen=True)
class VectorField:
    """An MLP on x_t, t, observation, action and latent, in this order: a velocity like x. Parameters:
    `vector_field_net.*`."""

    vector: int
    widths: tuple[int, ...]
    observation: int
    actions: int
    latent: int
    layer_norm: bool = True

    @property
    def vector_field_net(self) -> MLP:
        inputs = self.vector + 1 + self.observation + self.actions + self.latent
        return MLP(inputs, (*self.widths, self.vector), self.layer_norm)

    @property
    def laws(self) -> Laws:
        return within("vector_field_net", self.vector_field_net.laws)


@dataclass(frozen=True)
class Coder:
    """An encoder as a module of its own. Parameters: `encoder.*`."""

    encoder: Encoder

    @property
    def laws(self) -> Laws:
        return _encoded(self.encoder)


@dataclass(frozen=True)
class Param:
    """An array by itself, 0 at the start. Parameters: `array`."""

    shape: Shape

    @property
    def laws(self) -> Laws:
        return {"array": (constant(0.0), self.shape)}


Module = (
    Value | GCValue | Actor | GCActor | GCBilinearValue | GCMetricValue | IntentionEncoder | VectorField | Coder | Param
)


def constants(module: Module) -> tuple[str, ...]:
    """Parameters that cancel in every loss and therefore do not learn: computed, their gradient, which is 0, would be
    rounding, and Adam makes that as large as any other."""
    match module:
        case GCMetricValue():
            return _last_biases("phi", module.phi)
        case GCBilinearValue(shifts=False):
            return _last_biases("psi", module.psi)
        case _:
            return ()


def _last_biases(name: str, mlp: MLP) -> tuple[str, ...]:
    """The biases that shift every output alike: that of the last layer, and of a norm before it."""
    last = len(mlp.widths) - 1
    shift = (f"{name}.norms.{last - 1}.bias",) if mlp.layer_norm and last else ()
    return (*shift, f"{name}.layers.{last}.bias")


def _encoded(encoder: Encoder | None, name: str = "encoder") -> Laws:
    return {} if encoder is None else within(name, encoder.laws)


def _actor_laws(spec: Actor | GCActor) -> Laws:
    found = _encoded(spec.encoder) | within("actor_net", spec.actor_net.laws)
    found |= linear("mean_net", spec.widths[-1], spec.actions, spec.final_scale)
    if spec.const_std:
        return found
    if spec.state_dependent_std:
        return found | linear("log_std_net", spec.widths[-1], spec.actions, spec.final_scale)
    return found | {"log_stds": (constant(0.0), (spec.actions,))}
