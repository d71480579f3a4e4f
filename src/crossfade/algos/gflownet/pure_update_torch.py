"""The learner as one function of tensors, for mode `torch_pure`: gradient and Adam in one `torch.compile`d step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from ...optim import functional_torch
from ...optim.clipping_torch import EPS, clip_by_global_norm
from ...optim.functional_torch import Moments, Tensors
from . import losses_torch
from .config import GFlowNetConfig
from .learner_torch import Objective
from .optimizer import optimizer_record

Update = Callable[[Tensors, Moments, Any], tuple[Tensors, Moments, dict[str, Tensor]]]


class _Loss(nn.Module):
    """The loss as a module around the policy, so that `functional_call` can run it on other parameters."""

    def __init__(self, policy: nn.Module, config: GFlowNetConfig, objective: Objective):
        super().__init__()
        self.policy, self.config, self.objective = policy, config, objective

    def forward(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return self.objective(self.policy, batch, self.config)


def make_update(policy: nn.Module, config: GFlowNetConfig, objective: Objective = losses_torch.loss) -> Update:
    """`update(params, moments, batch) -> (params, moments, info)`, not yet compiled."""
    module = _Loss(policy, config, objective)
    record = optimizer_record(config, dict(policy.named_parameters()), 0)

    def loss(params: Tensors, batch: Any):
        return functional_call(module, {f"policy.{name}": p for name, p in params.items()}, (batch,))

    def update(params: Tensors, moments: Moments, batch: Any) -> tuple[Tensors, Moments, dict[str, Tensor]]:
        grads, (_, info) = grad_and_value(loss, has_aux=True)(params, batch)
        decay = config.lr_gamma ** torch.floor(moments.step / config.lr_period)
        rates = [decay * config.lr, decay * config.lr_z]
        info = {name: quantity.detach() for name, quantity in info.items()}
        if config.legacy_double_step:
            return *_double_step(config, params, grads, moments, rates), info
        if config.clip_norm is not None:
            networks = {name: g for name, g in grads.items() if name != "log_z"}
            grads = grads | clip_by_global_norm(config.clip_norm)(networks)
        return *functional_torch.update(record, params, grads, moments, rates), info

    def _double_step(
        config: GFlowNetConfig, params: Tensors, grads: Tensors, moments: Moments, rates: list[Tensor]
    ) -> tuple[Tensors, Moments]:
        """A published fault: the trunk stands in the optimiser twice, so it is clipped and stepped twice."""
        times = {name: 2 if name.startswith("trunk.") else 1 for name in grads}
        if config.clip_norm is not None:
            squares = [g.square().sum() * times[name] for name, g in grads.items() if name != "log_z"]
            factor = (config.clip_norm / (torch.stack(squares).sum().sqrt() + EPS)).clamp(max=1.0)
            grads = {name: g if name == "log_z" else g * factor ** times[name] for name, g in grads.items()}
        params, slots = dict(params), dict(moments.slots)
        for name, i in record.trained.items():
            for step in (times[name] * moments.step + k for k in range(1, times[name] + 1)):
                params[name], slots[name] = functional_torch.one(
                    "Adam", record.groups[i], params[name], grads[name], slots[name], step, rates[i]
                )
        return params, Moments(moments.step + 1, slots)

    return update
