"""Networks of the offline agents as data: what they read, their layers, shapes and initial laws. Framework-free.

`networks_*` and `encoders_*` compute them. A policy is a dictionary of modules by name, and a parameter is called by
its path in it, `critic.value_net.layers.0.weight`.

Weights of linear layers start at V(scale), U(-b, b) with b = sqrt(3 scale / ((fan_in + fan_out) / 2)), which for scale
1 is Xavier's uniform law (Glorot and Bengio 2010); biases start at 0, norms at scale 1 and bias 0. An ensemble has its
members stacked: every array gets an axis of members in front, each member is drawn by itself, all read the same input.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ...nn.initial import Law, Shape, constant, he_normal, variance_scaling

Laws = dict[str, tuple[Law, Shape]]
"""The parameters of a module: initial law and shape, by their names within it."""

EPS = 1e-6
"""Epsilon of every layer norm."""


@dataclass(frozen=True)
class MLP:
    """x <- W_i x + b_i, and behind every layer but the last gelu (its tanh form), then layer norm if there is one.

    With `activate_final` also behind the last. Parameters: `layers.i.weight` (out, in), `layers.i.bias`,
    `norms.i.weight`, `norms.i.bias`; with several members each has an axis of them in front.
    """

    inputs: int
    widths: tuple[int, ...]
    layer_norm: bool = False
    activate_final: bool = False
    members: int = 1

    @property
    def laws(self) -> Laws:
        found: Laws = {}
        for i, (fan_in, fan_out) in enumerate(zip((self.inputs, *self.widths), self.widths, strict=False)):
            found |= linear(f"layers.{i}", fan_in, fan_out, members=self.members)
            if self.layer_norm and (self.activate_final or i < len(self.widths) - 1):
                found |= norm(f"norms.{i}", fan_out, members=self.members)
        return found


# Encoders: what they make of an observation


@dataclass(frozen=True)
class MLPEncoder:
    """An MLP with layer norms whose last layer is linear."""

    inputs: int
    widths: tuple[int, ...] = (512, 512, 512, 512)

    @property
    def outputs(self) -> int:
        return self.widths[-1]

    @property
    def mlp(self) -> MLP:
        return MLP(self.inputs, self.widths, layer_norm=True)

    @property
    def laws(self) -> Laws:
        return within("mlp", self.mlp.laws)


@dataclass(frozen=True)
class Impala:
    """Images (height, width, channels) of bytes through stacks of convolutions (Espeholt et al. 2018).

    x / 255; for each of `stacks` (its number of channels): a 3x3 convolution, max-pooling 3x3 with stride 2, and
    `blocks` times x + conv(relu(conv(relu(x)))), all with padding SAME; relu; with `layer_norm` a norm over channels;
    flattened in the order height, width, channels; an MLP of one layer, `width`, gelu behind it. Parameters:
    `stacks.i.conv.*`, `stacks.i.blocks.j.conv_0.*`, `stacks.i.blocks.j.conv_1.*`, `norm.*`, `mlp.*`; a convolution's
    weight is (out, in, 3, 3).
    """

    shape: tuple[int, int, int]
    stacks: tuple[int, ...] = (16, 32, 32)
    blocks: int = 2
    width: int = 512
    layer_norm: bool = False

    @property
    def outputs(self) -> int:
        return self.width

    @property
    def flat(self) -> int:
        """Numbers behind the last stack: each halves height and width, rounded up."""
        height, width, _ = self.shape
        for _ in self.stacks:
            height, width = -(-height // 2), -(-width // 2)
        return height * width * self.stacks[-1]

    @property
    def mlp(self) -> MLP:
        return MLP(self.flat, (self.width,), activate_final=True)

    @property
    def laws(self) -> Laws:
        found: Laws = {}
        for i, (before, channels) in enumerate(zip((self.shape[-1], *self.stacks), self.stacks, strict=False)):
            found |= conv(f"stacks.{i}.conv", before, channels)
            for j in range(self.blocks):
                found |= conv(f"stacks.{i}.blocks.{j}.conv_0", channels, channels)
                found |= conv(f"stacks.{i}.blocks.{j}.conv_1", channels, channels)
        found |= norm("norm", self.stacks[-1]) if self.layer_norm else {}
        return found | within("mlp", self.mlp.laws)


@dataclass(frozen=True)
class ResNet34:
    """Images of bytes through a residual network of 34 layers (He et al. 2016) with group norms.

    x / 127.5 - 1 with two more channels, the row and the column from -1 to 1; a 7x7 convolution with stride 2 and
    padding 3, group norm (4 groups, eps 1e-5), swish, max-pooling 3x3 with stride 2 (SAME); stages of 3, 4, 6 and 3
    blocks with 64, 128, 256 and 512 channels, the first block of each but the first with stride 2; the mean over the
    image. A block is swish(shortcut(x) + norm(conv(swish(norm(conv(x)))))) with 3x3 convolutions (SAME); where shapes
    differ the shortcut is a 1x1 convolution and a norm. Convolutions have no bias. Parameters: `stem.weight`,
    `stem_norm.*`, `stages.i.j.conv_0.weight`, `.norm_0.*`, `.conv_1.weight`, `.norm_1.*`, and `.shortcut.weight`,
    `.shortcut_norm.*`.
    """

    shape: tuple[int, int, int]
    stages: tuple[int, ...] = (3, 4, 6, 3)
    channels: int = 64

    @property
    def outputs(self) -> int:
        return self.channels * 2 ** (len(self.stages) - 1)

    @property
    def laws(self) -> Laws:
        found = {
            "stem.weight": (he_normal(), (self.channels, self.shape[-1] + 2, 7, 7)),
            **norm("stem_norm", self.channels),
        }
        before = self.channels
        for i, blocks in enumerate(self.stages):
            channels = self.channels * 2**i
            for j in range(blocks):
                name = f"stages.{i}.{j}"
                found[f"{name}.conv_0.weight"] = he_normal(), (channels, before, 3, 3)
                found |= norm(f"{name}.norm_0", channels)
                found[f"{name}.conv_1.weight"] = he_normal(), (channels, channels, 3, 3)
                found |= norm(f"{name}.norm_1", channels)
                if before != channels or (i > 0 and j == 0):
                    found[f"{name}.shortcut.weight"] = he_normal(), (channels, before, 1, 1)
                    found |= norm(f"{name}.shortcut_norm", channels)
                before = channels
        return found


Encoder = MLPEncoder | Impala | ResNet34


def encoder(name: str | None, shape: Shape, widths: tuple[int, ...] = (512, 512, 512, 512)) -> Encoder | None:
    """The encoder with this name for observations of a shape; None for none. `widths` are those of `mlp`."""
    match name:
        case None:
            return None
        case "mlp":
            return MLPEncoder(shape[0], widths)
        case "impala":
            return Impala(_image(shape))
        case "impala_small":
            return Impala(_image(shape), blocks=1)
        case "impala_large":
            return Impala(_image(shape), stacks=(64, 128, 128), width=1024)
        case "impala_debug":
            return Impala(_image(shape), stacks=(4, 4), blocks=1)
        case "resnet_34":
            return ResNet34(_image(shape))
        case _:
            raise ValueError(name)


def code_dim(encoder: Encoder | None, shape: Shape) -> int:
    """Numbers that a network reads of an observation: its code, or itself."""
    return shape[0] if encoder is None else encoder.outputs


# Modules: each knows what it reads by the sizes of its parts; `encoder` comes before the first of them


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


def linear(name: str, fan_in: int, fan_out: int, scale: float = 1.0, members: int = 1) -> Laws:
    """Weight and bias of a linear layer."""
    front = (members,) if members > 1 else ()
    return {
        f"{name}.weight": (variance_scaling(scale), (*front, fan_out, fan_in)),
        f"{name}.bias": (constant(0.0), (*front, fan_out)),
    }


def norm(name: str, width: int, members: int = 1) -> Laws:
    """Weight and bias of a norm."""
    shape = (members, width) if members > 1 else (width,)
    return {f"{name}.weight": (constant(1.0), shape), f"{name}.bias": (constant(0.0), shape)}


def conv(name: str, before: int, channels: int) -> Laws:
    """Weight and bias of a 3x3 convolution."""
    return {
        f"{name}.weight": (variance_scaling(1.0), (channels, before, 3, 3)),
        f"{name}.bias": (constant(0.0), (channels,)),
    }


def within(prefix: str, laws: Mapping[str, tuple[Law, Shape]]) -> Laws:
    """The same parameters one level deeper."""
    return {f"{prefix}.{name}": law for name, law in laws.items()}


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


def _image(shape: Shape) -> tuple[int, int, int]:
    height, width, channels = shape
    return height, width, channels
