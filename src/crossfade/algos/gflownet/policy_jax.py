"""The networks of a GFlowNet, in Equinox. Twin: policy_torch.py, with the same parameter names."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...nn import layers_jax
from .batch import MASKED


class PolicyOutput(NamedTuple):
    """What the networks compute for every node."""

    log_pf: Float[Array, "*nodes actions"]
    log_pb: Float[Array, "*nodes parents"]
    log_flow: Float[Array, "*nodes"]
    """log F; zero without a flow head."""
    logits: Float[Array, "*nodes actions"]
    """The logits of P_F, masked: flow matching reads them as log edge flows."""
    log_pb_stop: Float[Array, "*nodes"] | None = None
    """log P_B of undoing stop where that is not certain, which is a fault."""


class Policy(eqx.Module):
    """P_F, P_B, the state flow F and log Z: linear heads on a trunk of LeakyReLU layers. `make_policy` fills it.

    P_B is a head on the trunk (`backward="shared"`), a network of its own ("learned"), or has no parameters: "uniform",
    "fixed" by `backward_logits`, one for each backward action, or "maxent", which is given with the nodes. log Z is the
    sum of the `z_dim` entries of `log_z`. With `layers=0` the heads read the observation, so on one-hot observations of
    the state the policy is a table. `finished_mask` is a published fault: P_B has one more output, to undo stop, and at
    a finished object the others stay valid beside it.
    """

    trunk: tuple[eqx.nn.Linear, ...]
    forward_head: eqx.nn.Linear
    backward_trunk: tuple[eqx.nn.Linear, ...]
    backward_head: eqx.nn.Linear | None
    flow_head: eqx.nn.Linear | None
    log_z: Float[Array, " z_dim"]
    backward: str = eqx.field(static=True)
    backward_logits: tuple[float, ...] = eqx.field(static=True)
    """The logits of a P_B without a network, one for each backward action."""
    finished_mask: bool = eqx.field(static=True)

    def __init__(
        self,
        observation_dim: int,
        n_actions: int,
        n_parents: int,
        hidden: int = 128,
        layers: int = 2,
        backward: Literal["shared", "learned", "uniform", "maxent", "fixed"] = "shared",
        flow: bool = False,
        z_dim: int = 1,
        backward_logits: tuple[float, ...] = (),
        finished_mask: bool = False,
    ):
        widths = [observation_dim, *[hidden] * layers]
        learned = backward in ("shared", "learned")
        self.trunk = layers_jax.trunk(widths)
        self.forward_head = layers_jax.linear(widths[-1], n_actions)
        self.backward_trunk = layers_jax.trunk(widths) if backward == "learned" else ()
        self.backward_head = layers_jax.linear(widths[-1], n_parents + finished_mask) if learned else None
        self.flow_head = layers_jax.linear(widths[-1], 1) if flow else None
        self.log_z = jnp.zeros(z_dim)
        self.backward = backward
        self.backward_logits = backward_logits or (0.0,) * n_parents
        self.finished_mask = finished_mask

    def __call__(
        self,
        observation: Float[Array, "*nodes observation"],
        forward_mask: Bool[Array, "*nodes actions"],
        backward_mask: Bool[Array, "*nodes parents"],
        log_pb: Float[Array, "*nodes parents"] | None = None,
    ) -> PolicyOutput:
        """log P_F, log P_B, log F and logits of every node; `log_pb` is a backward policy given, not learned."""
        features = layers_jax.features(self.trunk, observation)
        logits = _masked(layers_jax.apply(self.forward_head, features), forward_mask)
        backward_logits = self._backward_logits(observation, features)
        return PolicyOutput(
            log_pf=jax.nn.log_softmax(logits),
            log_pb=self._log_pb(backward_logits, backward_mask) if log_pb is None else log_pb,
            log_flow=(
                jnp.zeros(logits.shape[:-1], logits.dtype)
                if self.flow_head is None
                else layers_jax.apply(self.flow_head, features)[..., 0]
            ),
            logits=logits,
            log_pb_stop=_log_undo_stop(backward_logits, backward_mask) if self.finished_mask else None,
        )

    def forward_logits(self, observation: Float[Array, "*nodes observation"]) -> Float[Array, "*nodes actions"]:
        """The logits of P_F without a mask: all that acting needs."""
        return layers_jax.apply(self.forward_head, layers_jax.features(self.trunk, observation))

    def log_pb(
        self, observation: Float[Array, "*nodes observation"], backward_mask: Bool[Array, "*nodes parents"]
    ) -> Float[Array, "*nodes parents"]:
        """log P_B alone: all that sampling backwards needs."""
        features = layers_jax.features(self.trunk, observation)
        return self._log_pb(self._backward_logits(observation, features), backward_mask)

    def _backward_logits(
        self, observation: Float[Array, "*nodes observation"], features: Float[Array, "*nodes features"]
    ) -> Float[Array, "*nodes outputs"]:
        if self.backward_head is not None:
            own = layers_jax.features(self.backward_trunk, observation) if self.backward == "learned" else features
            return layers_jax.apply(self.backward_head, own)
        constant = jnp.array(self.backward_logits, self.log_z.dtype)
        constant = jnp.broadcast_to(constant, (*observation.shape[:-1], len(constant)))
        return jnp.full_like(constant, jnp.nan) if self.backward == "maxent" else constant  # maxent: not known here

    def _log_pb(
        self, logits: Float[Array, "*nodes outputs"], backward_mask: Bool[Array, "*nodes parents"]
    ) -> Float[Array, "*nodes parents"]:
        return jax.nn.log_softmax(_masked(logits[..., :-1] if self.finished_mask else logits, backward_mask))


def _log_undo_stop(
    logits: Float[Array, "*nodes outputs"], backward_mask: Bool[Array, "*nodes parents"]
) -> Float[Array, "*nodes"]:
    """log P_B of the last output where the ordinary backward actions are valid too."""
    mask = jnp.concatenate([backward_mask, jnp.ones_like(backward_mask[..., :1])], axis=-1)
    return jax.nn.log_softmax(_masked(logits, mask))[..., -1]


def _masked(logits: Float[Array, "*nodes choices"], mask: Bool[Array, "*nodes choices"]) -> Float[Array, "..."]:
    return jnp.where(mask, logits, MASKED)
