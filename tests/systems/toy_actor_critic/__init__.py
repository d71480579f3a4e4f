"""What trainers must be ready for: an actor-critic that learns from a fixed dataset.

Its critic is under SGD with momentum and a schedule, its actor under clipped Adam and stepped every second update; it
has target networks that follow by averaging, and buffers of floats and of integers.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from crossfade.optim.state import OptimizerState, adam_group
from crossfade.random import random_numpy as random
from crossfade.registry import Measure, System
from crossfade.run.evaluation import Effort, Evaluation
from crossfade.run.settings import RunConfig

RECORD = System(
    name="actor_critic",
    help="an actor-critic that learns from a fixed dataset",
    config=f"{__name__}:ActorCriticConfig",
    torch=f"{__name__}.system_torch:ActorCritic",
    jax=f"{__name__}.system_jax:ActorCritic",
    effort=f"{__name__}:StatesEffort",
    headline=(Measure("eval/value", "value", "higher"), Measure("train/critic_loss", "critic loss", "lower")),
    score="eval/value",
    tiny=("batch_size=8", "steps=8", "chunk=4"),
)
STATES, ACTIONS, HIDDEN, TRANSITIONS = 4, 2, 8, 64
NETWORKS = {"actor": (STATES, HIDDEN, ACTIONS), "critic": (STATES + ACTIONS, HIDDEN, 1)}
GAMMA, RATE, MOMENTUM, DECAY, PERIOD, CLIP_NORM = 0.9, 0.1, 0.9, 0.5, 3, 0.02


@dataclass(frozen=True)
class ActorCriticConfig(RunConfig):
    batch_size: int = 16
    """Transitions per update."""
    lr: float = 0.05
    """Learning rate of the critic at the start, and a fifth of it that of the actor."""


@dataclass(frozen=True)
class StatesEffort(Effort):
    states: int = 32
    """States to be judged by."""


class Batch(NamedTuple):
    state: Any  # (n, states)
    action: Any  # (n, actions)
    reward: Any  # (n,)
    after: Any  # (n, states)
    update: Any  # its number: () int32


class Shared:
    """What both halves have in common."""

    def __init__(self, config: ActorCriticConfig):
        self.config, self.key = config, random.key(config.seed)
        keys = random.split(random.key(3), 4)
        draw = lambda key, *shape: random.uniform(key, shape, np.float64, -1.0, 1.0).astype(config.dtype)
        state, action = draw(keys[0], TRANSITIONS, STATES), draw(keys[1], TRANSITIONS, ACTIONS)
        reward = -np.square(action - state[:, :ACTIONS]).sum(-1)
        self.dataset = state, action, reward, state + 0.1 * draw(keys[2], TRANSITIONS, STATES)
        self.judged = draw(keys[3], TRANSITIONS, STATES)

    def parameters(self) -> dict[str, np.ndarray]:
        found, key = {}, random.fold_in(self.key, 2**31)
        for network, widths in NETWORKS.items():
            for i, (fan_in, fan_out) in enumerate(zip(widths[:-1], widths[1:], strict=True)):
                key, own = random.split(key)
                bound = fan_in**-0.5
                weight = random.uniform(own, (fan_out, fan_in), np.float64, -bound, bound).astype(self.config.dtype)
                found |= {f"{network}.{i}.weight": weight, f"{network}.{i}.bias": np.zeros_like(weight[:, 0])}
        targets = {f"target_{name}": array.copy() for name, array in found.items()}
        statistics = {"updates": np.zeros((), np.int64), "mean": np.zeros(STATES, self.config.dtype)}
        return {**statistics, **found, **targets}

    def owned(self, network: str) -> list[str]:
        return [name for name in self.parameters() if name.startswith(f"{network}.")]

    def optimizer_records(self, step: int) -> dict[str, OptimizerState]:
        lr = self.config.lr
        critic = {
            "names": self.owned("critic"),
            "frozen": [],
            "lr": lr * DECAY ** (step // PERIOD),
            "momentum": MOMENTUM,
            "dampening": 0,
            "weight_decay": 0,
            "nesterov": False,
            "maximize": False,
            "initial_lr": lr,
        }
        return {
            "critic": OptimizerState("SGD", (critic,), {}),
            "actor": OptimizerState("Adam", (adam_group(self.owned("actor"), lr / 5),), {}),
        }

    def start_buffer(self, saved: None = None) -> None:
        return None

    def collect(self, policy: Any, buffer: None, step: int) -> tuple[Batch, None]:
        index = random.randint(random.fold_in(self.key, step), (self.config.batch_size,), 0, TRANSITIONS)
        return Batch(*(column[index] for column in self.dataset), np.asarray(step, np.int32)), buffer

    def evaluate(self, policy: Any, effort: StatesEffort | None = None, buffer: None = None) -> Evaluation:
        """The reward of what the actor does in some states."""
        state = self.judged[: (effort or StatesEffort()).states]
        reward = -np.square(self.act(policy, state) - state[:, :ACTIONS]).sum(-1)
        return Evaluation({"eval/value": float(reward.mean())}, {"reward": reward})

    def act(self, policy: Any, state: np.ndarray) -> np.ndarray:
        raise NotImplementedError
