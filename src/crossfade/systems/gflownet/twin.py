"""A GFlowNet on a small environment as a twin: every level, from the parameters to the trajectories."""

from typing import Any

import numpy as np

from ...algos.gflownet.batch import Batch
from ...algos.gflownet.config import GFlowNetConfig
from ...config import apply
from ...parity.twin import Twin

SMALL = ("env=hypergrid", "hidden=16", "batch_size=32")


def gflownet(*words: str) -> Twin:
    """The system of a small config, `gflownet("loss=subtb", "env=toy")` for one; by default TB on a hypergrid."""
    import torch

    from ...algos.gflownet import losses_jax, losses_torch
    from ...bridge import Mapping
    from .discrete_jax import System as JaxSystem
    from .discrete_torch import System as TorchSystem

    config = apply(apply(GFlowNetConfig(), SMALL), words)
    ours, theirs = TorchSystem(config), JaxSystem(config)
    policy, model = ours.make_policy(ours.parameters()), theirs.make_policy(ours.parameters())

    def batch(i: int) -> Batch:
        return ours.collect(policy, ours.start_buffer(), i)[0]

    return Twin(
        "gflownet",
        torch=policy,
        jax=model,
        mapping=Mapping.by_name(policy, model),
        batches=batch,
        forward=(_forward, _forward),
        loss=(lambda p, b: losses_torch.loss(p, b, config), lambda p, b: losses_jax.loss(p, b, config)),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=config.lr),
        env=(_Stepper(ours.env, config.batch_size), _Stepper(theirs.env, config.batch_size)),
        actions=batch(0).action,
        rollout=(lambda p, key: ours.sample(p, key.numpy().astype(np.uint32)), theirs.sample),
    )


def _forward(policy: Any, batch: Batch) -> Any:
    return policy(batch.observation, batch.forward_mask, batch.backward_mask, batch.log_pb)


class _Stepper:
    """An environment as the level `env` steps it: what a policy sees is compared at every state."""

    def __init__(self, env: Any, batch_size: int):
        self.env, self.batch_size = env, batch_size

    def reset(self, key: Any) -> Any:
        return self.env.reset((self.batch_size,))

    def step(self, state: Any, action: Any) -> Any:
        after = self.env.step(state, action)
        return after, {
            "forward_mask": self.env.forward_mask(after),
            "backward_mask": self.env.backward_mask(after),
            "observation": self.env.observe(after),
            "log_reward": self.env.log_reward(after),
            "parent": self.env.parent_of(state, action),
        }
