"""The networks of a GFlowNet, in Equinox. Twin: policy_torch.py, with the same parameter names."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

MASKED = -1e30  # a logit that no softmax notices; finite, so that rows without a valid entry hold no NaN


class PolicyOutput(NamedTuple):
    """Everything a loss reads of a node."""

    log_pf: Float[Array, "*nodes actions"]
    log_pb: Float[Array, "*nodes parents"]
    log_flow: Float[Array, "*nodes"]
    """log F; zero without a flow head."""
    logits: Float[Array, "*nodes actions"]
    """Those of P_F before the softmax, masked: flow matching reads them as log edge flows."""
    log_pb_stop: Float[Array, "*nodes"] | None = None
    """log P_B of undoing stop where that is not certain, which is a fault."""


class Policy(eqx.Module):
    """P_F, P_B, the state flow and log Z. All parameters start at zero; `make_policy` fills them.

    With `layers=0` the heads read the observation, so on one-hot observations of the state the policy is a table.
    """

    trunk: tuple[eqx.nn.Linear, ...]
    forward_head: eqx.nn.Linear
    backward_trunk: tuple[eqx.nn.Linear, ...]
    backward_head: eqx.nn.Linear | None
    flow_head: eqx.nn.Linear | None
    log_z: Float[Array, " z_dim"]
    """log Z is the SUM of these."""
    backward: str = eqx.field(static=True)

    def __init__(
        self,
        observation_dim: int,
        n_actions: int,
        n_parents: int,
        hidden: int = 128,
        layers: int = 2,
        backward: Literal["shared", "learned", "uniform"] = "shared",
        flow: bool = False,
        z_dim: int = 1,
    ):
        widths = [observation_dim, *[hidden] * layers]
        self.trunk = _layers(widths)
        self.forward_head = _linear(widths[-1], n_actions)
        self.backward_trunk = _layers(widths) if backward == "learned" else ()
        self.backward_head = None if backward == "uniform" else _linear(widths[-1], n_parents)
        self.flow_head = _linear(widths[-1], 1) if flow else None
        self.log_z = jnp.zeros(z_dim)
        self.backward = backward

    def __call__(
        self,
        observation: Float[Array, "*nodes observation"],
        forward_mask: Bool[Array, "*nodes actions"],
        backward_mask: Bool[Array, "*nodes parents"],
        log_pb: Float[Array, "*nodes parents"] | None = None,
    ) -> PolicyOutput:
        """Log-probabilities, flows and logits of each node; `log_pb` is a backward policy given, not learned."""
        features = _features(self.trunk, observation)
        logits = _masked(_apply(self.forward_head, features), forward_mask)
        if self.backward_head is None:
            backward_logits = jnp.zeros(backward_mask.shape, logits.dtype)  # equal logits: 1 / number of parents
        else:
            own = _features(self.backward_trunk, observation) if self.backward == "learned" else features
            backward_logits = _apply(self.backward_head, own)
        return PolicyOutput(
            log_pf=jax.nn.log_softmax(logits),
            log_pb=jax.nn.log_softmax(_masked(backward_logits, backward_mask)) if log_pb is None else log_pb,
            log_flow=(
                jnp.zeros(logits.shape[:-1], logits.dtype)
                if self.flow_head is None
                else _apply(self.flow_head, features)[..., 0]
            ),
            logits=logits,
        )

    def forward_logits(self, observation: Float[Array, "*nodes observation"]) -> Float[Array, "*nodes actions"]:
        """The logits of P_F without a mask: all that acting needs."""
        return _apply(self.forward_head, _features(self.trunk, observation))


def _linear(fan_in: int, fan_out: int) -> eqx.nn.Linear:
    return jax.tree.map(jnp.zeros_like, eqx.nn.Linear(fan_in, fan_out, key=jax.random.key(0)))


def _layers(widths: list[int]) -> tuple[eqx.nn.Linear, ...]:
    return tuple(_linear(*pair) for pair in zip(widths[:-1], widths[1:], strict=True))


def _apply(layer: eqx.nn.Linear, x: Float[Array, "*nodes inputs"]) -> Float[Array, "*nodes outputs"]:
    """A linear layer over any leading axes, in the precision of its parameters."""
    assert layer.bias is not None
    y = x.astype(layer.weight.dtype) @ layer.weight.T
    return y + jnp.broadcast_to(layer.bias, y.shape)


def _features(
    trunk: tuple[eqx.nn.Linear, ...], observation: Float[Array, "*nodes observation"]
) -> Float[Array, "*nodes features"]:
    """The last hidden layer. LeakyReLU(0.01), with torch's slope 0.01 at 0."""
    x = observation
    for layer in trunk:
        y = _apply(layer, x)
        x = jnp.where(y > 0, y, 0.01 * y)
    return x


def _masked(logits: Float[Array, "*nodes choices"], mask: Bool[Array, "*nodes choices"]) -> Float[Array, "..."]:
    return jnp.where(mask, logits, MASKED)
