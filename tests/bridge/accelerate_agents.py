"""Four agents in the manner of one-file PyTorch code. `train` takes what makes an update of a loss: plain torch, or
`crossfade.accelerate`."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

OBS, ACT, ACTIONS, BATCH = 3, 2, 4, 6
GAMMA, TAU = 0.9, 0.1

Update = Callable[[Any], Any]
Make = Callable[..., Update]


def plain(loss, module, optimizer, clip_norm=None) -> Update:
    """The update as everybody writes it."""

    def update(batch):
        value = loss(batch)
        optimizer.zero_grad()
        value.backward()
        if clip_norm is not None:
            nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip_norm)
        optimizer.step()
        return value.detach()

    return update


def batches(count: int, dtype: torch.dtype = torch.float64) -> Iterator[dict[str, torch.Tensor]]:
    rng = np.random.default_rng(7)
    normal = lambda *shape: torch.tensor(rng.normal(size=shape), dtype=dtype)
    for _ in range(count):
        yield {
            "obs": normal(BATCH, OBS),
            "next_obs": normal(BATCH, OBS),
            "action": torch.tanh(normal(BATCH, ACT)),
            "chosen": torch.tensor(rng.integers(0, ACTIONS, BATCH)),
            "reward": normal(BATCH),
            "done": torch.tensor(rng.random(BATCH) < 0.3),
        }


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs)).double()


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(OBS + ACT, 1)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], 1)).view(-1)


class Actor(nn.Module):
    """A deterministic policy, or a squashed normal one."""

    def __init__(self):
        super().__init__()
        self.trunk, self.mean, self.log_std = mlp(OBS, 5), nn.Linear(5, ACT).double(), nn.Linear(5, ACT).double()
        self.register_buffer("scale", torch.tensor([1.0, 2.0], dtype=torch.float64))

    def forward(self, obs):
        return torch.tanh(self.mean(F.relu(self.trunk(obs)))) * self.scale

    def sample(self, obs):
        features = F.relu(self.trunk(obs))
        log_std = torch.tanh(self.log_std(features)) * 2 - 1
        normal = torch.distributions.Normal(self.mean(features), log_std.exp())
        raw = normal.rsample()
        squashed = torch.tanh(raw)
        log_prob = normal.log_prob(raw) - torch.log(self.scale * (1 - squashed.pow(2)) + 1e-6)
        return squashed * self.scale, log_prob.sum(1)


def follow(net: nn.Module, target: nn.Module) -> None:
    for new, old in zip(net.parameters(), target.parameters(), strict=True):
        old.data.copy_(TAU * new.data + (1 - TAU) * old.data)


def dqn(make: Make, updates: int) -> list[Any]:
    q_network = mlp(OBS, ACTIONS)
    target_network = copy.deepcopy(q_network)
    optimizer = torch.optim.Adam(q_network.parameters(), lr=1e-2)

    def loss(data):
        with torch.no_grad():
            target_max, _ = target_network(data["next_obs"]).max(dim=1)
            td_target = data["reward"] + GAMMA * target_max * (1 - data["done"].double())
        old_val = q_network(data["obs"]).gather(1, data["chosen"].unsqueeze(1)).squeeze()
        return F.mse_loss(td_target, old_val)

    update = make(loss, q_network, optimizer, clip_norm=1.0)
    for data in batches(updates):
        update(data)
        follow(q_network, target_network)
    return [*q_network.parameters(), *target_network.parameters()]


def ddpg(make: Make, updates: int) -> list[Any]:
    actor, qf1 = Actor(), Critic()
    target_actor, qf1_target = copy.deepcopy(actor), copy.deepcopy(qf1)
    q_optimizer = torch.optim.Adam(qf1.parameters(), lr=1e-2)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)

    def critic_loss(data):
        with torch.no_grad():
            next_q = qf1_target(data["next_obs"], target_actor(data["next_obs"]))
            target = data["reward"] + (1 - data["done"].double()) * GAMMA * next_q
        return F.mse_loss(qf1(data["obs"], data["action"]), target)

    def actor_loss(data):
        return -qf1(data["obs"], actor(data["obs"])).mean()

    update_critic = make(critic_loss, [qf1, qf1_target, target_actor], q_optimizer)
    update_actor = make(actor_loss, [actor, qf1], actor_optimizer)
    for data in batches(updates):
        update_critic(data)
        update_actor(data)
        follow(actor, target_actor)
        follow(qf1, qf1_target)
    return [p for net in (actor, qf1, target_actor, qf1_target) for p in net.parameters()]


def td3(make: Make, updates: int) -> list[Any]:
    actor, qf1, qf2 = Actor(), Critic(), Critic()
    target_actor, qf1_target, qf2_target = copy.deepcopy((actor, qf1, qf2))
    q_optimizer = torch.optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=1e-2)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)

    def critic_loss(data):
        with torch.no_grad():
            noise = (torch.randn_like(data["action"]) * 0.2).clamp(-0.5, 0.5) * target_actor.scale
            action = (target_actor(data["next_obs"]) + noise).clamp(-1, 1)
            next_q = torch.min(qf1_target(data["next_obs"], action), qf2_target(data["next_obs"], action))
            target = data["reward"] + (1 - data["done"].double()) * GAMMA * next_q
        q1, q2 = qf1(data["obs"], data["action"]), qf2(data["obs"], data["action"])
        return F.mse_loss(q1, target) + F.mse_loss(q2, target)

    def actor_loss(data):
        return -qf1(data["obs"], actor(data["obs"])).mean()

    update_critics, update_actor = make(critic_loss, qf1, q_optimizer), make(actor_loss, actor, actor_optimizer)
    for i, data in enumerate(batches(updates)):
        update_critics(data)
        if i % 2 == 0:
            update_actor(data)
            follow(actor, target_actor)
        follow(qf1, qf1_target)
        follow(qf2, qf2_target)
    return [p for net in (actor, qf1, qf2, target_actor, qf1_target, qf2_target) for p in net.parameters()]


def sac(make: Make, updates: int) -> list[Any]:
    actor, qf1, qf2 = Actor(), Critic(), Critic()
    qf1_target, qf2_target = copy.deepcopy((qf1, qf2))
    q_optimizer = torch.optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=1e-2)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
    log_alpha = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    a_optimizer = torch.optim.Adam([log_alpha], lr=1e-2)

    def critic_loss(data):
        with torch.no_grad():
            action, log_pi = actor.sample(data["next_obs"])
            next_q = torch.min(qf1_target(data["next_obs"], action), qf2_target(data["next_obs"], action))
            soft = next_q - log_alpha.exp() * log_pi
            target = data["reward"] + (1 - data["done"].double()) * GAMMA * soft
        q1, q2 = qf1(data["obs"], data["action"]), qf2(data["obs"], data["action"])
        return F.mse_loss(q1, target) + F.mse_loss(q2, target)

    def actor_loss(data):
        action, log_pi = actor.sample(data["obs"])
        q = torch.min(qf1(data["obs"], action), qf2(data["obs"], action))
        return (log_alpha.exp().detach() * log_pi - q).mean()

    def alpha_loss(data):
        with torch.no_grad():
            _, log_pi = actor.sample(data["obs"])
        return (-log_alpha.exp() * (log_pi - ACT)).mean()

    update_critics = make(critic_loss, {"qf1": qf1, "qf2": qf2, "actor": actor, "alpha": log_alpha}, q_optimizer)
    update_actor, update_alpha = make(actor_loss, actor, actor_optimizer), make(alpha_loss, log_alpha, a_optimizer)
    for data in batches(updates):
        update_critics(data)
        update_actor(data)
        update_alpha(data)
        follow(qf1, qf1_target)
        follow(qf2, qf2_target)
    nets = (actor, qf1, qf2, qf1_target, qf2_target)
    return [*(p for net in nets for p in net.parameters()), log_alpha]


AGENTS = {"DQN": dqn, "DDPG": ddpg, "TD3": td3, "SAC": sac}


def train(name: str, make: Make, updates: int) -> list[torch.Tensor]:
    """Everything an agent has learnt, from the same seed."""
    torch.manual_seed(0)
    return [parameter.detach().clone() for parameter in AGENTS[name](make, updates)]
