"""The smallest system: a contextual bandit with a linear policy. The reward of arm a in context x is (W x)[a]."""

from dataclasses import dataclass

import numpy as np

from crossfade.optim.state import OptimizerState, adam_group
from crossfade.random import random_numpy as random
from crossfade.registry import Measure, System
from crossfade.trainers.system import Evaluation, Objective, RunConfig

RECORD = System(
    name="bandit",
    help="a contextual bandit with a linear policy",
    config=f"{__name__}:BanditConfig",
    torch=f"{__name__}.bandit_torch:Bandit",
    jax=f"{__name__}.bandit_jax:Bandit",
    headline=(Measure("eval/regret", "regret", "lower"),),
    tiny=("batch_size=8", "steps=8", "chunk=4"),
)
ARMS, FEATURES = (W := random.uniform(random.key(7), (3, 4), np.float64, -1.0, 1.0)).shape


@dataclass(frozen=True)
class BanditConfig(RunConfig):
    batch_size: int = 32
    lr: float = 0.05


class Shared:
    def __init__(self, config: BanditConfig):
        self.config, self.world = config, W.astype(config.dtype)

    def parameters(self):
        return {"weight": np.zeros((ARMS, FEATURES), self.config.dtype), "bias": np.zeros(ARMS, self.config.dtype)}

    def optimizer_records(self, step):
        return {"policy": OptimizerState("Adam", (adam_group(["weight", "bias"], self.config.lr),), {})}

    def objectives(self):
        return {"policy": Objective(self.loss)}

    def start_buffer(self, saved=None):
        return None

    def collect(self, policy, buffer, step):
        n, dtype = self.config.batch_size, self.config.dtype
        first, second = random.split(random.fold_in(random.key(self.config.seed), step))
        context = random.uniform(first, (n, FEATURES), dtype)
        action = (self.logits(policy, context) + random.gumbel(second, (n, ARMS), dtype)).argmax(-1)
        return {"context": context, "action": action, "reward": (context * self.world[action]).sum(-1)}, buffer

    def evaluate(self, policy, effort=None, buffer=None):
        context = random.uniform(random.key(8), (100, FEATURES), self.config.dtype)
        rewards, chosen = context @ self.world.T, self.logits(policy, context).argmax(-1)
        return Evaluation({"eval/regret": float(np.mean(rewards.max(-1) - rewards[np.arange(100), chosen]))})
