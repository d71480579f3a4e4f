"""Networks of the offline agents, in torch; modules.py says what they compute. Twin: networks_jax.py."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from ...nn.parameters_torch import filled
from . import encoders, modules
from .distribution_torch import Normal
from .layers import EPS, MLP as MLPSpec

Modules = nn.ModuleDict
Observations = Shaped[Tensor, "..."]
"""Numbers (..., observation), or images (batch, height, width, channels) for an encoder."""


class MLP(nn.Module):
    """Linear layers with gelu and layer norms between them; layers.py has the formula."""

    def __init__(self, spec: MLPSpec):
        super().__init__()
        self.spec = spec
        sizes = list(zip((spec.inputs, *spec.widths), spec.widths, strict=False))
        normed = len(sizes) if spec.activate_final else len(sizes) - 1
        layers = nn.ModuleList(_Linear(spec.members, *size) for size in sizes)
        self.layers: Sequence[_Linear] = layers  # pyright: ignore
        self.norms = nn.ModuleList(
            _LayerNorm(spec.members, width) for width in spec.widths[: normed if spec.layer_norm else 0]
        )

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "... outputs"]:
        return self._behind_first(self.layers[0]([x] * self.spec.members))

    def _behind_first(self, xs: Sequence[Tensor]) -> Float[Tensor, "... outputs"]:
        """The output, given what the first layer makes for each member."""
        for i in range(len(self.layers)):
            xs = self.layers[i](xs) if i > 0 else xs
            if i < len(self.layers) - 1 or self.spec.activate_final:
                xs = [F.gelu(x, approximate="tanh") for x in xs]
                xs = self.norms[i](xs) if self.spec.layer_norm else xs
        return xs[0] if self.spec.members == 1 else torch.stack(list(xs))


class Value(nn.Module):
    """A value of observations, or of observations and actions; modules.py has the shapes."""

    def __init__(self, spec: modules.Value):
        super().__init__()
        self.spec = spec
        self.encoder = _encoder(spec.encoder)
        self.value_net = MLP(spec.value_net)

    def forward(
        self, observations: Observations, actions: Float[Tensor, "*batch action"] | None = None
    ) -> Float[Tensor, "..."]:
        values = self.value_net(_joined(_coded(self.encoder, observations), actions))
        return values.squeeze(-1) if self.spec.outputs == 1 else values


class GCValue(nn.Module):
    """A value that is also given goals or latents; modules.py has the shapes."""

    def __init__(self, spec: modules.GCValue):
        super().__init__()
        self.spec = spec
        self.encoder = _encoder(spec.encoder)
        self.value_net = MLP(spec.value_net)

    def forward(
        self,
        observations: Observations,
        goals: Float[Tensor, "*batch goal"] | None = None,
        actions: Float[Tensor, "*batch action"] | None = None,
    ) -> Float[Tensor, "..."]:
        values = self.value_net(_joined(_coded(self.encoder, observations), goals, actions))
        return values.squeeze(-1) if self.spec.outputs == 1 else values


class _Actor(nn.Module):
    """What both actors have."""

    def __init__(self, spec: modules.Actor | modules.GCActor):
        super().__init__()
        self.spec = spec
        self.encoder = _encoder(spec.encoder)
        self.actor_net = MLP(spec.actor_net)
        self.mean_net = nn.Linear(spec.widths[-1], spec.actions)
        if not spec.const_std and spec.state_dependent_std:
            self.log_std_net = nn.Linear(spec.widths[-1], spec.actions)
        elif not spec.const_std:
            self.log_stds = nn.Parameter(torch.zeros(spec.actions))

    def _distribution(self, x: Float[Tensor, "*batch inputs"]) -> Normal:
        h = self.actor_net(x)
        mean = self.mean_net(h)
        if self.spec.const_std:
            log_std = torch.zeros_like(mean)
        elif self.spec.state_dependent_std:
            log_std = self.log_std_net(h)
        else:
            log_std = self.log_stds.expand_as(mean)
        return Normal(mean, log_std.clamp(*modules.LOG_STD), self.spec.tanh_squash)


class Actor(_Actor):
    """The distribution of actions; modules.py has the formula."""

    def __init__(self, spec: modules.Actor):
        super().__init__(spec)

    def forward(self, observations: Observations) -> Normal:
        return self._distribution(_coded(self.encoder, observations))


class GCActor(_Actor):
    """The distribution of actions, given goals or latents too; modules.py has the formula."""

    def __init__(self, spec: modules.GCActor):
        super().__init__(spec)

    def forward(self, observations: Observations, goals: Float[Tensor, "*batch goal"] | None = None) -> Normal:
        return self._distribution(_joined(_coded(self.encoder, observations), goals))


class GCBilinearValue(nn.Module):
    """Products of the representations of states and goals, of all pairs; modules.py has the formula."""

    def __init__(self, spec: modules.GCBilinearValue):
        super().__init__()
        self.spec = spec
        self.state_encoder = _encoder(spec.encoder)
        self.goal_encoder = _encoder(spec.encoder)
        self.phi, self.psi = MLP(spec.phi), MLP(spec.psi)

    def forward(
        self, observations: Observations, goals: Observations, actions: Float[Tensor, "states action"] | None = None
    ) -> Float[Tensor, "members states goals"]:
        values = self.products(self.encode_states(observations, actions), self.encode_goals(goals))
        return values.exp() if self.spec.value_exp else values

    def encode_states(
        self, observations: Observations, actions: Float[Tensor, "batch action"] | None = None
    ) -> Float[Tensor, "members batch latent"]:
        """phi, (members, batch, latent)."""
        return self.phi(_joined(_coded(self.state_encoder, observations), actions))

    def encode_goals(self, goals: Observations) -> Float[Tensor, "members batch latent"]:
        """psi, (members, batch, latent)."""
        return self.psi(_coded(self.goal_encoder, goals))

    def products(
        self, states: Float[Tensor, "members states latent"], goals: Float[Tensor, "members goals latent"]
    ) -> Float[Tensor, "members states goals"]:
        """phi . psi / sqrt(latent) of all pairs, (members, states, goals)."""
        return states @ goals.mT / math.sqrt(self.spec.latent)


class GCMetricValue(nn.Module):
    """Minus the distance of the representations of states and goals; modules.py has the formula."""

    def __init__(self, spec: modules.GCMetricValue):
        super().__init__()
        self.spec = spec
        self.encoder = _encoder(spec.encoder)
        self.phi = MLP(spec.phi)

    def forward(self, observations: Observations, goals: Observations) -> Float[Tensor, "members batch"]:
        return self.distance(self.encode(observations), self.encode(goals))

    def encode(self, observations: Observations) -> Float[Tensor, "members batch latent"]:
        """phi, (members, batch, latent)."""
        return self.phi(_coded(self.encoder, observations))

    def distance(
        self, states: Float[Tensor, "members batch latent"], goals: Float[Tensor, "members batch latent"]
    ) -> Float[Tensor, "members batch"]:
        """-sqrt(max(|states - goals|^2, 1e-12)) of representations, (members, batch)."""
        return -(states - goals).square().sum(-1).clamp(min=1e-12).sqrt()


class IntentionEncoder(nn.Module):
    """Mean and log std of a latent, given observations and actions."""

    def __init__(self, spec: modules.IntentionEncoder):
        super().__init__()
        self.spec = spec
        self.encoder = _encoder(spec.encoder)
        self.trunk_net = MLP(spec.trunk_net)
        self.mean_net = nn.Linear(spec.widths[-1], spec.latent)
        self.log_std_net = nn.Linear(spec.widths[-1], spec.latent)

    def forward(
        self, observations: Observations, actions: Float[Tensor, "*batch action"]
    ) -> tuple[Float[Tensor, "*batch latent"], Float[Tensor, "*batch latent"]]:
        h = self.trunk_net(_joined(_coded(self.encoder, observations), actions))
        return self.mean_net(h), self.log_std_net(h)


class VectorField(nn.Module):
    """The velocity of a flow at x and time t, given observations, actions and latents."""

    def __init__(self, spec: modules.VectorField):
        super().__init__()
        self.spec = spec
        self.vector_field_net = MLP(spec.vector_field_net)

    def forward(
        self,
        x: Float[Tensor, "*batch vector"],
        t: Float[Tensor, "*batch"],
        observations: Float[Tensor, "*batch observation"],
        actions: Float[Tensor, "*batch action"],
        latents: Float[Tensor, "*batch latent"],
    ) -> Float[Tensor, "*batch vector"]:
        return self.vector_field_net(torch.cat((x, t[..., None], observations, actions, latents), -1))


class Coder(nn.Module):
    """An encoder as a module of its own."""

    def __init__(self, spec: modules.Coder):
        super().__init__()
        self.spec = spec
        self.encoder = _encoder(spec.encoder)

    def forward(self, observations: Observations) -> Float[Tensor, "*batch code"]:
        return _coded(self.encoder, observations)


class Param(nn.Module):
    """An array by itself."""

    def __init__(self, spec: modules.Param):
        super().__init__()
        self.spec = spec
        self.array = nn.Parameter(torch.zeros(spec.shape))

    def forward(self) -> Float[Tensor, "*shape"]:
        return self.array


_CLASSES: dict[type, type[nn.Module]] = {
    modules.Value: Value,
    modules.GCValue: GCValue,
    modules.Actor: Actor,
    modules.GCActor: GCActor,
    modules.GCBilinearValue: GCBilinearValue,
    modules.GCMetricValue: GCMetricValue,
    modules.IntentionEncoder: IntentionEncoder,
    modules.VectorField: VectorField,
    modules.Coder: Coder,
    modules.Param: Param,
}


def make_policy(specs: Mapping[str, modules.Module], parameters: Mapping[str, np.ndarray], dtype: str) -> Modules:
    """The modules of these specifications with the given parameters, by name, in a precision."""
    policy = filled(nn.ModuleDict({n: _CLASSES[type(s)](s) for n, s in specs.items()}), parameters, dtype)
    for name, module in policy.items():
        module.requires_grad_(not name.startswith("target_"))
    return policy


class _Linear(nn.Module):
    """A linear layer of each member; one product for each is faster on a CPU than a batched one."""

    def __init__(self, members: int, fan_in: int, fan_out: int):
        super().__init__()
        self.members = members
        front = (members,) if members > 1 else ()
        self.weight = nn.Parameter(torch.zeros(*front, fan_out, fan_in))
        self.bias = nn.Parameter(torch.zeros(*front, fan_out))

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        each = zip(xs, _each(self.weight, self.members), _each(self.bias, self.members), strict=True)
        return [F.linear(x, weight, bias) for x, weight, bias in each]


class _LayerNorm(nn.Module):
    """A layer norm of each member."""

    def __init__(self, members: int, width: int):
        super().__init__()
        self.members = members
        shape = (members, width) if members > 1 else (width,)
        self.weight, self.bias = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))

    def forward(self, xs: Sequence[Tensor]) -> list[Tensor]:
        each = zip(xs, _each(self.weight, self.members), _each(self.bias, self.members), strict=True)
        return [F.layer_norm(x, weight.shape, weight, bias, EPS) for x, weight, bias in each]


def _each(parameter: Tensor, members: int) -> tuple[Tensor, ...]:
    """The parameter of each member."""
    return (parameter,) if members == 1 else parameter.unbind()


def _encoder(spec: encoders.Encoder | None) -> nn.Module | None:
    from .encoders_torch import make_encoder  # encoders are made of the MLP above

    return None if spec is None else make_encoder(spec)


def _coded(encoder: nn.Module | None, observations: Observations) -> Float[Tensor, "*batch code"]:
    return observations if encoder is None else encoder(observations)


def _joined(*parts: Tensor | None) -> Tensor:
    """The parts that there are, side by side."""
    present = [part for part in parts if part is not None]
    return present[0] if len(present) == 1 else torch.cat(present, -1)
