"""The learner as one function of tensors, for mode `torch_pure`: gradient and Adam in one `torch.compile`d step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from . import losses_torch
from .config import GFlowNetConfig
from .learner_torch import Objective

Tensors = dict[str, Tensor]
BETA_1, BETA_2, EPS = 0.9, 0.999, 1e-8


class State(NamedTuple):
    """Everything that learning changes."""

    params: Tensors
    exp_avg: Tensors
    exp_avg_sq: Tensors
    step: Tensor  # updates made; of float64: bias corrections are powers of it


class _Loss(nn.Module):
    """The loss as a module around the policy, so that `functional_call` can run it on other parameters."""

    def __init__(self, policy: nn.Module, config: GFlowNetConfig, objective: Objective):
        super().__init__()
        self.policy, self.config, self.objective = policy, config, objective

    def forward(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return self.objective(self.policy, batch, self.config)


def init(policy: nn.Module, optimizer: torch.optim.Adam) -> State:
    """The state in which a torch policy and its optimiser stand."""
    params = {name: p.detach().clone() for name, p in policy.named_parameters()}
    slots = {name: optimizer.state.get(p, {}) for name, p in policy.named_parameters()}
    moment = lambda slot: {n: slots[n][slot].clone() if slots[n] else torch.zeros_like(p) for n, p in params.items()}
    step = slots["log_z"].get("step", torch.zeros(()))
    return State(params, moment("exp_avg"), moment("exp_avg_sq"), step.double())


def make_update(
    policy: nn.Module, config: GFlowNetConfig, objective: Objective = losses_torch.loss
) -> Callable[[State, Any], tuple[State, dict[str, Tensor]]]:
    """`update(state, batch) -> (state, info)`, not yet compiled."""
    module = _Loss(policy, config, objective)

    def loss(params: Tensors, batch: Any):
        return functional_call(module, {f"policy.{name}": p for name, p in params.items()}, (batch,))

    def update(state: State, batch: Any) -> tuple[State, dict[str, Tensor]]:
        grads, (_, info) = grad_and_value(loss, has_aux=True)(state.params, batch)
        if config.clip_norm is not None:
            squares = [g.square().sum() * _times(name, config) for name, g in grads.items() if name != "log_z"]
            factor = (config.clip_norm / (torch.stack(squares).sum().sqrt() + 1e-6)).clamp(max=1.0)
            grads = {n: g if n == "log_z" else g * factor ** _times(n, config) for n, g in grads.items()}
        decay = config.lr_gamma ** torch.floor(state.step / config.lr_period)
        params, exp_avg, exp_avg_sq = dict(state.params), dict(state.exp_avg), dict(state.exp_avg_sq)
        for name, g in grads.items():
            lr = decay * (config.lr_z if name == "log_z" else config.lr)
            times = _times(name, config)
            for step in (times * state.step + i for i in range(1, times + 1)):
                exp_avg[name] = torch.lerp(exp_avg[name], g, 1 - BETA_1)
                exp_avg_sq[name] = BETA_2 * exp_avg_sq[name] + (1 - BETA_2) * g.square()
                size = (lr / (1 - BETA_1**step)).to(g.dtype)
                denominator = exp_avg_sq[name].sqrt() / (1 - BETA_2**step).sqrt().to(g.dtype) + EPS
                params[name] = params[name] - size * exp_avg[name] / denominator
        info = {name: quantity.detach() for name, quantity in info.items()}
        return State(params, exp_avg, exp_avg_sq, state.step + 1), info

    return update


def _times(name: str, config: GFlowNetConfig) -> int:
    """How often an update steps a parameter: once, but for the fault of a trunk that stands in the optimiser twice."""
    return 2 if config.legacy_double_step and name.startswith("trunk.") else 1
