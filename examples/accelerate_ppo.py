"""PPO on Gymnasium's CartPole in ordinary PyTorch, and the same accelerated by JAX: three lines more.

    python examples/accelerate_ppo.py                    plain torch
    python examples/accelerate_ppo.py --accelerate       the updates compiled by JAX
    python examples/accelerate_ppo.py --compare 3        both, for three seeds: returns, and how much faster

Rollouts, advantages, minibatches and annealing stay in torch, untouched; both draw actions from torch's generator.
In float64 (--float64) they take the same ones, step for step; in float32 rounding parts them after some thousand steps.
"""

import argparse
import time
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

ENVS, STEPS, EPOCHS, MINIBATCHES = 4, 128, 10, 8
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, CLIP_NORM, LEARNING_RATE = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5, 1e-3


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    def act(self, obs: torch.Tensor, action: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        probs = Categorical(logits=self.actor(obs))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(obs).squeeze(-1)


class Run(NamedTuple):
    """What a run did: every action, the return of every episode, and the seconds it took."""

    actions: np.ndarray
    returns: list[float]
    seconds: float


def train(total_steps: int, seed: int, accelerate: bool) -> Run:
    began = time.perf_counter()
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * ENVS)
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)

    def loss(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        _, log_prob, entropy, value = agent.act(batch["obs"], batch["action"])
        ratio = (log_prob - batch["log_prob"]).exp()
        advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
        policy_loss = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        value_loss = 0.5 * (value - batch["return"]).pow(2).mean()
        return policy_loss - ENTROPY * entropy.mean() + VALUE * value_loss

    def update(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(batch)
        value.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), CLIP_NORM)
        optimizer.step()
        return value

    if accelerate:
        import crossfade as cf

        update = cf.accelerate(loss, agent, optimizer, clip_norm=CLIP_NORM)

    as_tensor = lambda array: torch.as_tensor(array, dtype=torch.get_default_dtype())
    obs, done = as_tensor(envs.reset(seed=seed)[0]), torch.zeros(ENVS)
    running, returns, actions = np.zeros(ENVS), [], []
    iterations = max(1, total_steps // (ENVS * STEPS))
    for iteration in range(iterations):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - iteration / iterations)
        kept: dict[str, list[torch.Tensor]] = {n: [] for n in ("obs", "action", "log_prob", "value", "reward", "done")}
        for _ in range(STEPS):
            with torch.no_grad():
                action, log_prob, _, value = agent.act(obs)
            after, reward, terminated, truncated, _ = envs.step(action.numpy())
            for name, item in zip(kept, (obs, action, log_prob, value, as_tensor(reward), done), strict=True):
                kept[name].append(item)
            obs, done = as_tensor(after), as_tensor(terminated | truncated)
            running += reward
            returns += running[done.bool().numpy()].tolist()
            running[done.bool().numpy()] = 0
            actions.append(action.numpy())
        rollout = {name: torch.stack(items) for name, items in kept.items()}
        with torch.no_grad():
            last = agent.act(obs)[3]
        rollout["advantage"] = advantages(rollout, last, done)
        rollout["return"] = rollout["advantage"] + rollout["value"]
        flat = {name: items.flatten(0, 1) for name, items in rollout.items()}
        for _ in range(EPOCHS):
            for rows in np.split(rng.permutation(ENVS * STEPS), MINIBATCHES):
                update({name: items[rows] for name, items in flat.items()})
    envs.close()
    return Run(np.array(actions), returns, time.perf_counter() - began)


def advantages(rollout: dict[str, torch.Tensor], last: torch.Tensor, last_done: torch.Tensor) -> torch.Tensor:
    """Generalised advantage estimation; `done` says that an observation begins a new episode."""
    found, advantage = torch.zeros_like(rollout["reward"]), torch.zeros(ENVS)
    following, over = last, last_done
    for t in reversed(range(STEPS)):
        delta = rollout["reward"][t] + GAMMA * following * (1 - over) - rollout["value"][t]
        advantage = delta + GAMMA * LAMBDA * (1 - over) * advantage
        found[t], following, over = advantage, rollout["value"][t], rollout["done"][t]
    return found


def compare(total_steps: int, seeds: int) -> None:
    """Both versions, seed by seed. The first call, which compiles and proves, is in the seconds."""
    for seed in range(seeds):
        plain, fast = train(total_steps, seed, accelerate=False), train(total_steps, seed, accelerate=True)
        alike = int(np.argmin([*(plain.actions == fast.actions).all(1), False]))
        print(
            f"seed {seed}: return {np.mean(plain.returns[-20:]):.1f} in {plain.seconds:.1f} s, accelerated "
            f"{np.mean(fast.returns[-20:]):.1f} in {fast.seconds:.1f} s ({plain.seconds / fast.seconds:.2f}x); "
            f"the same actions for {alike * ENVS} of {plain.actions.size} steps"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50_000, help="of the environment, all copies together")
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
    print(f"return of the last 20 episodes: {np.mean(run.returns[-20:]):.1f}, {run.seconds:.1f} s")


if __name__ == "__main__":
    main()
