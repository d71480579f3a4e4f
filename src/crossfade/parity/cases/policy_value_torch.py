"""PPO's loss on a small policy/value net, in torch. Twin: policy_value_jax.py."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

CLIP, VALUE_COEF, ENTROPY_COEF = 0.2, 0.5, 0.01


class PolicyValue(nn.Module):
    """A Gaussian policy with a state-independent standard deviation, and a value, on a shared trunk."""

    def __init__(self, obs_size: int = 4, action_size: int = 2, width: int = 32):
        super().__init__()
        self.fc1 = nn.Linear(obs_size, width)
        self.norm = nn.LayerNorm(width)
        self.fc2 = nn.Linear(width, width)
        self.mean = nn.Linear(width, action_size)
        self.value = nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.full((action_size,), -0.5))

    def forward(
        self, obs: Float[Tensor, "batch obs"]
    ) -> tuple[Float[Tensor, "batch action"], Float[Tensor, "batch action"], Float[Tensor, " batch"]]:
        h = torch.tanh(self.norm(self.fc1(obs)))
        h = torch.tanh(self.fc2(h))
        mean = self.mean(h)
        return mean, self.log_std.exp().expand_as(mean), self.value(h).squeeze(-1)


def ppo_loss(net: PolicyValue, batch: dict[str, Tensor]) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
    """The clipped surrogate, a squared value error and an entropy bonus (Schulman et al., 2017)."""
    mean, std, value = net(batch["obs"])
    policy = torch.distributions.Normal(mean, std)
    ratio = torch.exp(policy.log_prob(batch["action"]).sum(-1) - batch["log_prob"])

    advantage = batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)

    policy_loss = -surrogate.mean()
    value_loss = (value - batch["value_target"]).square().mean()
    entropy = policy.entropy().sum(-1).mean()
    loss = policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * entropy
    return loss, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
