"""`accelerate` on the policies of Stable-Baselines3 as they are."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import SACPolicy
from torch import Tensor, nn

import crossfade as cf

SEEN = gym.spaces.Box(-1, 1, (5,))
ACTIONS = {
    "box": gym.spaces.Box(-1, 1, (2,)),
    "discrete": gym.spaces.Discrete(4),
    "several": gym.spaces.MultiDiscrete([3, 2]),
}
SMALL = {"net_arch": [8, 8]}


def batch(seed: int, actions: gym.Space, n: int = 16) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    actions.seed(seed)
    column = lambda *shape: torch.randn(n, *shape, generator=generator)
    return {
        "obs": column(5),
        "next": column(5),
        "action": torch.as_tensor(np.stack([actions.sample() for _ in range(n)])),
        "advantage": column(),
        "log_prob": column(),
        "return": column(),
        "reward": column(1),
    }


def plainly(loss: Any, module: nn.Module, optimizer: torch.optim.Optimizer, clip: float | None = None) -> Any:
    """What `accelerate` stands for."""

    def step(batch):
        optimizer.zero_grad()
        loss(module, batch).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()

    return step


def ppo(fast: bool, actions: gym.Space, **settings: Any) -> nn.Module:
    def loss(policy, batch):
        value, log_prob, entropy = policy.evaluate_actions(batch["obs"], batch["action"])
        ratio = torch.exp(log_prob - batch["log_prob"])
        clipped = torch.min(ratio * batch["advantage"], ratio.clamp(0.8, 1.2) * batch["advantage"])
        entropy = -log_prob if entropy is None else entropy
        return -clipped.mean() + 0.5 * F.mse_loss(batch["return"], value.flatten()) - 0.01 * entropy.mean()

    policy = ActorCriticPolicy(SEEN, actions, lambda _: 3e-4, **SMALL, **settings)
    step = (
        cf.accelerate(loss, policy, policy.optimizer, clip_norm=0.5)
        if fast
        else plainly(loss, policy, policy.optimizer, 0.5)
    )
    for seed in range(3):
        with torch.no_grad():
            policy(torch.zeros(1, 5))  # a rollout between the updates
        step(batch(seed, actions))
    return policy


def dqn(fast: bool, actions: gym.Space) -> nn.Module:
    def loss(policy, batch):
        with torch.no_grad():
            target = batch["reward"] + 0.99 * policy.q_net_target(batch["next"]).max(1, keepdim=True)[0]
        return F.smooth_l1_loss(policy.q_net(batch["obs"]).gather(1, batch["action"].long()[:, None]), target)

    policy = DQNPolicy(SEEN, actions, lambda _: 1e-3, **SMALL)
    step = (cf.accelerate if fast else plainly)(loss, policy, policy.optimizer)
    for seed in range(3):
        step(batch(seed, actions))
        polyak_update(policy.q_net.parameters(), policy.q_net_target.parameters(), 0.5)
    return policy


def sac(fast: bool, actions: gym.Space) -> nn.Module:
    policy = SACPolicy(SEEN, actions, lambda _: 1e-3, **SMALL)

    def critic_loss(critic, batch):
        with torch.no_grad():
            action, log_prob = policy.actor.action_log_prob(batch["next"])
            least = torch.cat(policy.critic_target(batch["next"], action), 1).min(1, keepdim=True)[0]
            target = batch["reward"] + 0.99 * (least - 0.2 * log_prob[:, None])
        return 0.5 * sum(F.mse_loss(value, target) for value in critic(batch["obs"], batch["action"]))

    def actor_loss(actor, batch):
        action, log_prob = actor.action_log_prob(batch["obs"])
        least = torch.cat(policy.critic(batch["obs"], action), 1).min(1, keepdim=True)[0]
        return (0.2 * log_prob[:, None] - least).mean()

    make = cf.accelerate if fast else plainly
    critic = make(critic_loss, policy.critic, policy.critic.optimizer)
    actor = make(actor_loss, policy.actor, policy.actor.optimizer)
    for seed in range(3):
        for step in (critic, actor):
            step(batch(seed, actions))
        polyak_update(policy.critic.parameters(), policy.critic_target.parameters(), 0.5)
    return policy


CASES = {f"PPO, {name}": (ppo, space, {}) for name, space in ACTIONS.items()} | {
    "PPO, noise by state": (ppo, ACTIONS["box"], {"use_sde": True}),
    "DQN": (dqn, ACTIONS["discrete"], {}),
    "SAC": (sac, ACTIONS["box"], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_policies_train_as_in_torch(name):
    """In float32, which these policies cast observations to: 1e-5 is a thirtieth of a step, or less."""
    train, actions, settings = CASES[name]
    policies = []
    for fast in (True, False):
        torch.manual_seed(0)
        policies.append(train(fast, actions, **settings))
    for (name, ours), theirs in zip(policies[0].named_parameters(), policies[1].parameters(), strict=True):
        assert (ours - theirs).abs().max() <= 1e-5, name
