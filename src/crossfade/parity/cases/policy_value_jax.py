"""PPO's loss on a small policy/value net, in JAX. Twin: policy_value_torch.py."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray

CLIP, VALUE_COEF, ENTROPY_COEF = 0.2, 0.5, 0.01


class PolicyValue(eqx.Module):
    """A Gaussian policy with a state-independent standard deviation, and a value, on a shared trunk."""

    fc1: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    fc2: eqx.nn.Linear
    mean: eqx.nn.Linear
    value: eqx.nn.Linear
    log_std: Float[Array, " action"]

    def __init__(self, obs_size: int = 4, action_size: int = 2, width: int = 32, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 4)
        self.fc1 = eqx.nn.Linear(obs_size, width, key=keys[0])
        self.norm = eqx.nn.LayerNorm(width)
        self.fc2 = eqx.nn.Linear(width, width, key=keys[1])
        self.mean = eqx.nn.Linear(width, action_size, key=keys[2])
        self.value = eqx.nn.Linear(width, "scalar", key=keys[3])
        self.log_std = jnp.full((action_size,), -0.5)

    def __call__(
        self, obs: Float[Array, " obs"]
    ) -> tuple[Float[Array, " action"], Float[Array, " action"], Float[Array, ""]]:
        h = jnp.tanh(self.norm(self.fc1(obs)))
        h = jnp.tanh(self.fc2(h))
        return self.mean(h), jnp.exp(self.log_std), self.value(h)


def ppo_loss(net: PolicyValue, batch: dict[str, Array]) -> tuple[Float[Array, ""], dict[str, Array]]:
    """The clipped surrogate, a squared value error and an entropy bonus (Schulman et al., 2017)."""
    mean, std, value = jax.vmap(net)(batch["obs"])
    log_prob = norm.logpdf(batch["action"], mean, std).sum(-1)
    ratio = jnp.exp(log_prob - batch["log_prob"])

    advantage = batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)  # torch's std divides by n - 1
    surrogate = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)

    policy_loss = -surrogate.mean()
    value_loss = jnp.square(value - batch["value_target"]).mean()
    entropy = (0.5 * jnp.log(2 * jnp.pi * jnp.e) + jnp.log(std)).sum(-1).mean()
    loss = policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * entropy
    return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
