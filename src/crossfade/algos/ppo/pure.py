"""The learner as one function of tensors, for mode `torch_pure`: gradient, clipping and Adam in one compiled step."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from .batch import Minibatch
from .config import PPOConfig
from .losses_torch import loss as ppo_loss

Tensors = dict[str, Tensor]
BETA_1, BETA_2 = 0.9, 0.999


class State(NamedTuple):
    """Everything that learning changes."""

    params: Tensors
    exp_avg: Tensors
    exp_avg_sq: Tensors
    step: Tensor  # gradient steps made; of float64: bias corrections are powers of it


class _Loss(nn.Module):
    """The loss as a module around the network, so that `functional_call` can run it on other parameters."""

    def __init__(self, policy: nn.Module, config: PPOConfig):
        super().__init__()
        self.policy, self.config = policy, config

    def forward(self, batch: Minibatch) -> tuple[Tensor, Tensors]:
        return ppo_loss(self.policy, batch, self.config)


def init(policy: nn.Module, optimizer: torch.optim.Adam) -> State:
    """The state in which a torch network and its optimiser stand."""
    params = {name: p.detach().clone() for name, p in policy.named_parameters()}
    slots = [optimizer.state.get(p, {}) for p in policy.parameters()]
    step = slots[0].get("step", torch.zeros(())).double()
    average, square = (
        {
            name: slot.get(moment, torch.zeros_like(p)).clone()
            for (name, p), slot in zip(params.items(), slots, strict=True)
        }
        for moment in ("exp_avg", "exp_avg_sq")
    )
    return State(params, average, square, step)


def make_update(policy: nn.Module, config: PPOConfig) -> Callable[[State, Minibatch, Tensor], tuple[State, Tensors]]:
    """`update(state, minibatch, learning_rate) -> (state, info)`, not yet compiled."""
    module = _Loss(policy, config)

    def loss(params: Tensors, batch: Minibatch):
        return functional_call(module, {f"policy.{name}": p for name, p in params.items()}, (batch,))

    def update(state: State, batch: Minibatch, learning_rate: Tensor) -> tuple[State, Tensors]:
        grads, (_, info) = grad_and_value(loss, has_aux=True)(state.params, batch)
        if config.clip_norm is not None:
            norm = torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt()
            factor = (config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
            grads = {name: g * factor for name, g in grads.items()}
        step = state.step + 1
        size, spread = learning_rate / (1 - BETA_1**step), (1 - BETA_2**step).sqrt()
        params, average, square = {}, {}, {}
        for name, g in grads.items():
            average[name] = torch.lerp(state.exp_avg[name], g, 1 - BETA_1)
            square[name] = BETA_2 * state.exp_avg_sq[name] + (1 - BETA_2) * g.square()
            denominator = square[name].sqrt() / spread.to(g.dtype) + config.adam_eps
            params[name] = state.params[name] - size.to(g.dtype) * average[name] / denominator
        return State(params, average, square, step), {name: quantity.detach() for name, quantity in info.items()}

    return update
