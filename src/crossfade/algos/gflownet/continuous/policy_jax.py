"""The networks of a continuous GFlowNet, in Equinox. Twin: policy_torch.py, with the same parameter names."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ....nn.layers_jax import apply, features, linear, trunk
from .batch import Kind
from .initial_parameters import n_outputs


class Choice(NamedTuple):
    """The output of a head: how to move, and whether to jump instead."""

    raw: Float[Array, "*nodes d c 3"]
    """For each dimension and component: logit of the weight, raw a, raw b (see density_jax.py)."""
    jump: Float[Array, "*nodes"]
    """Logit of a jump."""


class PolicyOutput(NamedTuple):
    """What the networks compute for every node."""

    forward: Choice
    backward: Choice | None
    """None where P_B is fixed: every ratio uniform, a jump as likely as a move."""
    log_flow: Float[Array, "*nodes"]
    """log F; zero without a flow head."""


class Policy(eqx.Module):
    """P_F, P_B, the state flow F and log Z: linear heads on a trunk of LeakyReLU layers. `make_policy` fills it.

    P_B is a head on the trunk (`backward="shared"`), a network of its own ("learned"), or "fixed": every ratio uniform,
    a jump as likely as a move. log Z is the sum of the `z_dim` entries of `log_z`.
    """

    trunk: tuple[eqx.nn.Linear, ...]
    forward_head: eqx.nn.Linear
    backward_trunk: tuple[eqx.nn.Linear, ...]
    backward_head: eqx.nn.Linear | None
    flow_head: eqx.nn.Linear | None
    log_z: Float[Array, " z_dim"]
    kind: Kind = eqx.field(static=True)
    n_dim: int = eqx.field(static=True)
    components: int = eqx.field(static=True)

    def __init__(
        self,
        kind: Kind,
        observation_dim: int,
        n_dim: int,
        components: int = 5,
        hidden: int = 128,
        layers: int = 2,
        backward: str = "shared",
        flow: bool = False,
        z_dim: int = 1,
    ):
        widths = [observation_dim, *[hidden] * layers]
        outputs = n_outputs(n_dim, components)
        self.trunk = trunk(widths)
        self.forward_head = linear(widths[-1], outputs)
        self.backward_trunk = trunk(widths) if backward == "learned" else ()
        self.backward_head = None if backward == "fixed" else linear(widths[-1], outputs)
        self.flow_head = linear(widths[-1], 1) if flow else None
        self.log_z = jnp.zeros(z_dim)
        self.kind, self.n_dim, self.components = kind, n_dim, components

    def __call__(self, observation: Float[Array, "*nodes observation"]) -> PolicyOutput:
        """The outputs of all heads for every node."""
        hidden = features(self.trunk, observation)
        return PolicyOutput(
            forward=self._choice(self.forward_head, hidden),
            backward=self._backward(observation, hidden),
            log_flow=(
                jnp.zeros(hidden.shape[:-1], self.log_z.dtype)
                if self.flow_head is None
                else apply(self.flow_head, hidden)[..., 0]
            ),
        )

    def forward_choice(self, observation: Float[Array, "*nodes observation"]) -> Choice:
        """The forward head alone: all that acting needs."""
        return self._choice(self.forward_head, features(self.trunk, observation))

    def backward_choice(self, observation: Float[Array, "*nodes observation"]) -> Choice | None:
        """The backward head alone: all that sampling backwards needs."""
        return self._backward(observation, features(self.trunk, observation))

    def _backward(
        self, observation: Float[Array, "*nodes observation"], hidden: Float[Array, "*nodes features"]
    ) -> Choice | None:
        if self.backward_head is None:
            return None
        own = features(self.backward_trunk, observation) if self.backward_trunk else hidden
        return self._choice(self.backward_head, own)

    def _choice(self, head: eqx.nn.Linear, hidden: Float[Array, "*nodes features"]) -> Choice:
        y = apply(head, hidden)
        return Choice(y[..., :-1].reshape(*y.shape[:-1], self.n_dim, self.components, 3), y[..., -1])
