"""Networks of the offline agents, in JAX; modules.py says what they compute. Twin: networks_torch.py."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...nn.layers_jax import filled, linear_of_rows
from . import encoders, modules
from .distribution_jax import Normal
from .layers import EPS, MLP as MLPSpec

Modules = dict[str, Any]
"""Modules by name: as a tree, the path of a parameter joined by dots is its name."""
Encoder = Callable[[Array], Float[Array, "batch code"]]


class _Linear(eqx.Module):
    """W x + b over any leading axes, in the precision of W."""

    weight: Float[Array, "*members outputs inputs"]
    bias: Float[Array, "*members outputs"]

    def __init__(self, fan_in: int, fan_out: int, members: int = 1):
        front = (members,) if members > 1 else ()
        self.weight, self.bias = jnp.zeros((*front, fan_out, fan_in)), jnp.zeros((*front, fan_out))

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return linear_of_rows(x, self.weight, self.bias)


class _LayerNorm(eqx.Module):
    """w (x - mean) / sqrt(E[(x - mean)^2] + EPS) + b over the last axis."""

    weight: Float[Array, "*members width"]
    bias: Float[Array, "*members width"]

    def __init__(self, width: int, members: int = 1):
        front = (members,) if members > 1 else ()
        self.weight, self.bias = jnp.zeros((*front, width)), jnp.zeros((*front, width))

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        centred = x - x.mean(-1, keepdims=True)
        normed = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + EPS)
        return normed * jnp.broadcast_to(self.weight, x.shape) + jnp.broadcast_to(self.bias, x.shape)


class MLP(eqx.Module):
    """Linear layers with gelu and layer norms between them; layers.py has the formula."""

    layers: tuple[_Linear, ...]
    norms: tuple[_LayerNorm, ...]
    spec: MLPSpec = eqx.field(static=True)

    def __init__(self, spec: MLPSpec):
        sizes = list(zip((spec.inputs, *spec.widths), spec.widths, strict=False))
        activated = spec.widths if spec.activate_final else spec.widths[:-1]
        self.layers = tuple(_Linear(*pair, spec.members) for pair in sizes)
        self.norms = tuple(_LayerNorm(width, spec.members) for width in activated) if spec.layer_norm else ()
        self.spec = spec

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "... outputs"]:
        return self._member(x) if self.spec.members == 1 else jax.vmap(lambda member: member._member(x))(self)

    def _member(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        return self._behind_first(self.layers[0](x))

    def _behind_first(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch outputs"]:
        """What comes behind the first linear layer."""
        for i in range(len(self.layers)):
            x = x if i == 0 else self.layers[i](x)
            if self.spec.activate_final or i < len(self.layers) - 1:
                x = jax.nn.gelu(x, approximate=True)
                x = self.norms[i](x) if self.spec.layer_norm else x
        return x


class Value(eqx.Module):
    """A value of observations, or of observations and actions; modules.py has the shapes."""

    value_net: MLP
    encoder: Encoder | None
    spec: modules.Value = eqx.field(static=True)

    def __init__(self, spec: modules.Value):
        self.value_net, self.encoder, self.spec = MLP(spec.value_net), _encoder(spec.encoder), spec

    def __call__(self, observations: Array, actions: Float[Array, "batch action"] | None = None) -> Float[Array, "..."]:
        values = self.value_net(_joined(_coded(self.encoder, observations), actions))
        return values[..., 0] if self.spec.outputs == 1 else values


class GCValue(eqx.Module):
    """A value that is also given goals or latents; modules.py has the shapes."""

    value_net: MLP
    encoder: Encoder | None
    spec: modules.GCValue = eqx.field(static=True)

    def __init__(self, spec: modules.GCValue):
        self.value_net, self.encoder, self.spec = MLP(spec.value_net), _encoder(spec.encoder), spec

    def __call__(
        self,
        observations: Array,
        goals: Float[Array, "batch goal"] | None = None,
        actions: Float[Array, "batch action"] | None = None,
    ) -> Float[Array, "..."]:
        values = self.value_net(_joined(_coded(self.encoder, observations), goals, actions))
        return values[..., 0] if self.spec.outputs == 1 else values


class Actor(eqx.Module):
    """The distribution of actions; modules.py has the formula."""

    actor_net: MLP
    mean_net: _Linear
    log_std_net: _Linear | None
    log_stds: Float[Array, " action"] | None
    encoder: Encoder | None
    spec: modules.Actor = eqx.field(static=True)

    def __init__(self, spec: modules.Actor):
        self.actor_net, self.mean_net, self.log_std_net, self.log_stds, self.encoder = _actor_parts(spec)
        self.spec = spec

    def __call__(self, observations: Array) -> Normal:
        return _normal(self, _coded(self.encoder, observations))


class GCActor(eqx.Module):
    """The distribution of actions, given goals or latents too; modules.py has the formula."""

    actor_net: MLP
    mean_net: _Linear
    log_std_net: _Linear | None
    log_stds: Float[Array, " action"] | None
    encoder: Encoder | None
    spec: modules.GCActor = eqx.field(static=True)

    def __init__(self, spec: modules.GCActor):
        self.actor_net, self.mean_net, self.log_std_net, self.log_stds, self.encoder = _actor_parts(spec)
        self.spec = spec

    def __call__(self, observations: Array, goals: Float[Array, "batch goal"] | None = None) -> Normal:
        return _normal(self, _joined(_coded(self.encoder, observations), goals))


class GCBilinearValue(eqx.Module):
    """Products of the representations of states and goals, of all pairs; modules.py has the formula."""

    phi: MLP
    psi: MLP
    state_encoder: Encoder | None
    goal_encoder: Encoder | None
    spec: modules.GCBilinearValue = eqx.field(static=True)

    def __init__(self, spec: modules.GCBilinearValue):
        self.phi, self.psi, self.spec = MLP(spec.phi), MLP(spec.psi), spec
        self.state_encoder, self.goal_encoder = _encoder(spec.encoder), _encoder(spec.encoder)

    def __call__(
        self, observations: Array, goals: Array, actions: Float[Array, "states action"] | None = None
    ) -> Float[Array, "members states goals"]:
        values = self.products(self.encode_states(observations, actions), self.encode_goals(goals))
        return jnp.exp(values) if self.spec.value_exp else values

    def encode_states(
        self, observations: Array, actions: Float[Array, "batch action"] | None = None
    ) -> Float[Array, "members batch latent"]:
        """phi, (members, batch, latent)."""
        return self.phi(_joined(_coded(self.state_encoder, observations), actions))

    def encode_goals(self, goals: Array) -> Float[Array, "members batch latent"]:
        """psi, (members, batch, latent)."""
        return self.psi(_coded(self.goal_encoder, goals))

    def products(
        self, states: Float[Array, "members states latent"], goals: Float[Array, "members goals latent"]
    ) -> Float[Array, "members states goals"]:
        """phi . psi / sqrt(latent) of all pairs, (members, states, goals)."""
        return jnp.einsum("eid,ejd->eij", states, goals) / math.sqrt(self.spec.latent)


class GCMetricValue(eqx.Module):
    """Minus the distance of the representations of states and goals; modules.py has the formula."""

    phi: MLP
    encoder: Encoder | None
    spec: modules.GCMetricValue = eqx.field(static=True)

    def __init__(self, spec: modules.GCMetricValue):
        self.phi, self.encoder, self.spec = MLP(spec.phi), _encoder(spec.encoder), spec

    def __call__(self, observations: Array, goals: Array) -> Float[Array, "members batch"]:
        return self.distance(self.encode(observations), self.encode(goals))

    def encode(self, observations: Array) -> Float[Array, "members batch latent"]:
        """phi, (members, batch, latent)."""
        return self.phi(_coded(self.encoder, observations))

    def distance(
        self, states: Float[Array, "members batch latent"], goals: Float[Array, "members batch latent"]
    ) -> Float[Array, "members batch"]:
        """-sqrt(max(|states - goals|^2, 1e-12)) of representations, (members, batch)."""
        return -jnp.sqrt(jnp.maximum(jnp.square(states - goals).sum(-1), 1e-12))


class IntentionEncoder(eqx.Module):
    """Mean and log std of a latent, given observations and actions."""

    trunk_net: MLP
    mean_net: _Linear
    log_std_net: _Linear
    encoder: Encoder | None
    spec: modules.IntentionEncoder = eqx.field(static=True)

    def __init__(self, spec: modules.IntentionEncoder):
        self.trunk_net, self.encoder = MLP(spec.trunk_net), _encoder(spec.encoder)
        self.mean_net, self.log_std_net = (_Linear(spec.widths[-1], spec.latent) for _ in range(2))
        self.spec = spec

    def __call__(
        self, observations: Array, actions: Float[Array, "batch action"]
    ) -> tuple[Float[Array, "batch latent"], Float[Array, "batch latent"]]:
        features = self.trunk_net(_joined(_coded(self.encoder, observations), actions))
        return self.mean_net(features), self.log_std_net(features)


class VectorField(eqx.Module):
    """The velocity of a flow at x and time t, given observations, actions and latents."""

    vector_field_net: MLP
    spec: modules.VectorField = eqx.field(static=True)

    def __init__(self, spec: modules.VectorField):
        self.vector_field_net = MLP(spec.vector_field_net)
        self.spec = spec

    def __call__(
        self,
        x: Float[Array, "*batch vector"],
        t: Float[Array, "*batch"],
        observations: Float[Array, "*batch observation"],
        actions: Float[Array, "*batch action"],
        latents: Float[Array, "*batch latent"],
    ) -> Float[Array, "*batch vector"]:
        return self.vector_field_net(_joined(x, t[..., None], observations, actions, latents))


class Coder(eqx.Module):
    """An encoder as a module of its own."""

    encoder: Encoder
    spec: modules.Coder = eqx.field(static=True)

    def __init__(self, spec: modules.Coder):
        self.encoder = _made(spec.encoder)
        self.spec = spec

    def __call__(self, observations: Array) -> Float[Array, "batch code"]:
        return self.encoder(observations)


class Param(eqx.Module):
    """An array by itself."""

    array: Float[Array, "..."]
    spec: modules.Param = eqx.field(static=True)

    def __init__(self, spec: modules.Param):
        self.array = jnp.zeros(spec.shape)
        self.spec = spec

    def __call__(self) -> Float[Array, "..."]:
        return self.array


_CLASSES: dict[type, type[eqx.Module]] = {
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
    empty = {name: eqx.filter_eval_shape(_CLASSES[type(spec)], spec) for name, spec in specs.items()}
    return filled(empty, parameters, dtype)


def _made(spec: encoders.Encoder) -> Encoder:
    from .encoders_jax import make_encoder  # which has MLPs of this file

    return make_encoder(spec)


def _encoder(spec: encoders.Encoder | None) -> Encoder | None:
    return None if spec is None else _made(spec)


def _coded(encoder: Encoder | None, observations: Array) -> Float[Array, "*batch code"]:
    """What a network reads of observations."""
    return observations if encoder is None else encoder(observations)


def _joined(*parts: Float[Array, "*batch _"] | None) -> Float[Array, "*batch inputs"]:
    """The parts that there are, one behind the other."""
    return jnp.concatenate([part for part in parts if part is not None], -1)


def _actor_parts(
    spec: modules.Actor | modules.GCActor,
) -> tuple[MLP, _Linear, _Linear | None, Array | None, Encoder | None]:
    """actor_net, mean_net, log_std_net, log_stds, encoder."""
    head = lambda: _Linear(spec.widths[-1], spec.actions)
    dependent = spec.state_dependent_std and not spec.const_std
    free = not spec.const_std and not spec.state_dependent_std
    log_stds = jnp.zeros((spec.actions,)) if free else None
    return MLP(spec.actor_net), head(), head() if dependent else None, log_stds, _encoder(spec.encoder)


def _normal(actor: Actor | GCActor, x: Float[Array, "*batch inputs"]) -> Normal:
    features = actor.actor_net(x)
    mean = actor.mean_net(features)
    log_std = jnp.zeros_like(mean)
    if actor.log_std_net is not None:
        log_std = actor.log_std_net(features)
    elif actor.log_stds is not None:
        log_std = jnp.broadcast_to(actor.log_stds, mean.shape)
    return Normal(mean, jnp.clip(log_std, *modules.LOG_STD), actor.spec.tanh_squash)
