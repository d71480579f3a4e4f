"""SAC on Gymnasium's Pendulum in ordinary PyTorch, and the same accelerated by JAX: five lines more.

    python examples/accelerate_sac.py                    plain torch
    python examples/accelerate_sac.py --accelerate       the three updates compiled by JAX
    python examples/accelerate_sac.py --compare 3        both, for three seeds: returns, and how much faster

Each optimiser has its step: critics, actor, temperature. Acting, replay and target networks stay in torch, untouched,
and see every update. Both draw the same noise from torch's generator, also inside of the losses; in float64 (--float64)
they take the same actions for thousands of steps.
"""

import argparse
import copy
import time
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn.functional import mse_loss

OBS, ACT, LIMIT = 3, 1, 2.0
BATCH, WARM_UP, GAMMA, TAU, LEARNING_RATE = 128, 500, 0.99, 0.005, 1e-3
LOG_STD_MIN, LOG_STD_MAX = -5, 2

Batch = dict[str, torch.Tensor]


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(OBS, 2 * ACT)

    def greedy(self, obs: torch.Tensor) -> torch.Tensor:
        return LIMIT * torch.tanh(self.net(obs)[..., :ACT])

    def sample(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        log_std = LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (torch.tanh(log_std) + 1)
        normal = Normal(mean, log_std.exp())
        raw = normal.rsample()
        action = torch.tanh(raw)
        log_prob = normal.log_prob(raw) - torch.log(LIMIT * (1 - action.pow(2)) + 1e-6)
        return LIMIT * action, log_prob.sum(-1)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(OBS + ACT, 1)

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([obs, action], -1)).squeeze(-1)


class Run(NamedTuple):
    """Every action, the return of every episode, the mean return of the final actor (`evaluate`), and the seconds."""

    actions: np.ndarray
    returns: list[float]
    score: float
    seconds: float


def train(total_steps: int, seed: int, accelerate: bool) -> Run:
    began = time.perf_counter()
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = gym.make("Pendulum-v1")
    actor, qf1, qf2 = Actor(), Critic(), Critic()
    qf1_target, qf2_target = copy.deepcopy((qf1, qf2))
    log_alpha = torch.zeros(1, requires_grad=True)
    q_optimizer = torch.optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=LEARNING_RATE)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=LEARNING_RATE)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=LEARNING_RATE)

    def critic_loss(batch: Batch) -> torch.Tensor:
        with torch.no_grad():
            action, log_prob = actor.sample(batch["next_obs"])
            next_q = torch.min(qf1_target(batch["next_obs"], action), qf2_target(batch["next_obs"], action))
            target = batch["reward"] + (1 - batch["done"]) * GAMMA * (next_q - log_alpha.exp() * log_prob)
        q1, q2 = qf1(batch["obs"], batch["action"]), qf2(batch["obs"], batch["action"])
        return mse_loss(q1, target) + mse_loss(q2, target)

    def actor_loss(batch: Batch) -> torch.Tensor:
        action, log_prob = actor.sample(batch["obs"])
        q = torch.min(qf1(batch["obs"], action), qf2(batch["obs"], action))
        return (log_alpha.exp().detach() * log_prob - q).mean()

    def alpha_loss(batch: Batch) -> torch.Tensor:
        with torch.no_grad():
            _, log_prob = actor.sample(batch["obs"])
        return (-log_alpha.exp() * (log_prob - ACT)).mean()

    update_critics = updating(critic_loss, q_optimizer)
    update_actor = updating(actor_loss, actor_optimizer)
    update_alpha = updating(alpha_loss, alpha_optimizer)
    if accelerate:
        import crossfade as cf

        update_critics = cf.accelerate(critic_loss, [qf1, qf2], q_optimizer)
        update_actor = cf.accelerate(actor_loss, actor, actor_optimizer)
        update_alpha = cf.accelerate(alpha_loss, log_alpha, alpha_optimizer)

    shapes = {"obs": (OBS,), "action": (ACT,), "next_obs": (OBS,), "reward": (), "done": ()}
    replay = {name: torch.zeros(total_steps, *shape) for name, shape in shapes.items()}
    as_tensor = lambda array: torch.as_tensor(array, dtype=torch.get_default_dtype())
    obs, _ = env.reset(seed=seed)
    returns, actions, running = [], [], 0.0
    for step in range(total_steps):
        if step < WARM_UP:
            action = rng.uniform(-LIMIT, LIMIT, ACT)
        else:
            with torch.no_grad():
                action = actor.sample(as_tensor(obs))[0].numpy()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        for name, item in zip(replay, (obs, action, next_obs, reward, terminated), strict=True):
            replay[name][step] = as_tensor(item)
        actions.append(action)
        running += float(reward)
        obs = next_obs
        if terminated or truncated:
            returns.append(running)
            obs, running = env.reset()[0], 0.0
        if step >= WARM_UP:
            rows = torch.from_numpy(rng.integers(0, step, BATCH))
            batch = {name: items[rows] for name, items in replay.items()}
            update_critics(batch)
            update_actor(batch)
            update_alpha(batch)
            for net, target in ((qf1, qf1_target), (qf2, qf2_target)):
                for new, old in zip(net.parameters(), target.parameters(), strict=True):
                    old.data.copy_(TAU * new.data + (1 - TAU) * old.data)
    env.close()
    seconds = time.perf_counter() - began
    return Run(np.array(actions), returns, evaluate(actor), seconds)


def evaluate(actor: Actor, episodes: int = 50) -> float:
    """Mean return of the actor without noise, from the same starts in every run: returns vary by hundreds with them."""
    envs = gym.make_vec("Pendulum-v1", episodes)
    obs, total = envs.reset(seed=1000)[0], np.zeros(episodes)
    for _ in range(200):
        with torch.no_grad():
            action = actor.greedy(torch.as_tensor(obs, dtype=torch.get_default_dtype())).numpy()
        obs, reward, *_ = envs.step(action)
        total += reward
    envs.close()
    return float(total.mean())


def updating(loss, optimizer: torch.optim.Optimizer):
    """The update as it is written in torch."""

    def update(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(batch)
        value.backward()
        optimizer.step()
        return value

    return update


def compare(total_steps: int, seeds: int) -> None:
    """Both versions, seed by seed. The first calls, which compile and prove, are in the seconds."""
    for seed in range(seeds):
        plain, fast = train(total_steps, seed, accelerate=False), train(total_steps, seed, accelerate=True)
        far = np.abs(plain.actions - fast.actions).max(1) > 1e-6
        alike = int(np.argmax([*far, True]))
        print(
            f"seed {seed}: return {plain.score:.1f} in {plain.seconds:.1f} s, accelerated "
            f"{fast.score:.1f} in {fast.seconds:.1f} s ({plain.seconds / fast.seconds:.2f}x); "
            f"the same actions for {alike} of {len(plain.actions)} steps"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--accelerate", action="store_true")
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--compare", type=int, default=0, metavar="SEEDS", help="both versions, for so many seeds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.float64:
        import jax

        jax.config.update("jax_enable_x64", True)
        torch.set_default_dtype(torch.float64)
    if args.compare:
        return compare(args.steps, args.compare)
    run = train(args.steps, args.seed, args.accelerate)
    print(f"mean return of the actor: {run.score:.1f}, {run.seconds:.1f} s")


if __name__ == "__main__":
    main()
