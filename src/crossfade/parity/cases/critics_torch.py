"""TD learning of an ensemble of critics with slow targets, in torch. Twin: critics_jax.py."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

DISCOUNT, TAU = 0.99, 0.005


class Critic(nn.Module):
    """Q(s, a) by two hidden layers."""

    def __init__(self, obs_size: int, action_size: int, width: int):
        super().__init__()
        self.fc1 = nn.Linear(obs_size + action_size, width)
        self.fc2 = nn.Linear(width, width)
        self.q = nn.Linear(width, 1)

    def forward(
        self, obs: Float[Tensor, "batch obs"], action: Float[Tensor, "batch action"]
    ) -> Float[Tensor, " batch"]:
        h = torch.relu(self.fc1(torch.cat([obs, action], -1)))
        return self.q(torch.relu(self.fc2(h))).squeeze(-1)


class Critics(nn.Module):
    """An ensemble of critics and their target networks, which are moved by an exponential average alone."""

    def __init__(self, obs_size: int = 3, action_size: int = 2, width: int = 16, n: int = 2):
        super().__init__()
        self.online = nn.ModuleList(Critic(obs_size, action_size, width) for _ in range(n))
        self.target = nn.ModuleList(Critic(obs_size, action_size, width) for _ in range(n))
        self.target.requires_grad_(False)

    def forward(
        self, obs: Float[Tensor, "batch obs"], action: Float[Tensor, "batch action"]
    ) -> tuple[Float[Tensor, "batch n"], Float[Tensor, "batch n"]]:
        return (
            torch.stack([critic(obs, action) for critic in self.online], -1),
            torch.stack([critic(obs, action) for critic in self.target], -1),
        )


def td_loss(critics: Critics, batch: dict[str, Tensor]) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
    """Squared distance of every critic from the reward plus the smallest discounted target value."""
    q, _ = critics(batch["obs"], batch["action"])
    with torch.no_grad():
        _, next_q = critics(batch["next_obs"], batch["next_action"])
        backup = batch["reward"] + DISCOUNT * (1 - batch["terminal"]) * next_q.amin(-1)
    loss = (q - backup[:, None]).square().mean()
    return loss, {"q": q.mean(), "backup": backup.mean()}


def update(critics: Critics, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """One step down the loss; then the targets follow the new critics."""
    loss, info = td_loss(critics, batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(critics.target.parameters(), critics.online.parameters(), strict=True):
            slow.lerp_(fast, TAU)
    return {"loss": loss, **info}
