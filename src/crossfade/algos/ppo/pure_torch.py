"""The gradient step of PPO as a function of tensors, for mode `torch_pure`: gradient, clipping and Adam, compiled."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from ...nn.distribution import Distribution
from ...optim import functional_torch
from ...optim.clipping_torch import clip_by_global_norm
from ...optim.functional_torch import Moments, Tensors
from .batch import Minibatch
from .config import PPOConfig
from .losses_torch import loss as ppo_loss
from .optimizer import optimizer_record


class _Loss(nn.Module):
    """The loss as a module around the network, so that `functional_call` can run it on other parameters."""

    def __init__(self, policy: nn.Module, actions: Distribution, config: PPOConfig):
        super().__init__()
        self.policy, self.actions, self.config = policy, actions, config

    def forward(self, batch: Minibatch) -> tuple[Tensor, Tensors]:
        return ppo_loss(self.policy, batch, self.actions, self.config)


def make_update(
    policy: nn.Module, actions: Distribution, config: PPOConfig
) -> Callable[[Tensors, Moments, Minibatch, Tensor], tuple[Tensors, Moments, Tensors]]:
    """`update(params, moments, minibatch, learning_rate) -> (params, moments, info)`, not yet compiled."""
    module = _Loss(policy, actions, config)
    record = optimizer_record(config, dict(policy.named_parameters()), 0)

    def loss(params: Tensors, batch: Minibatch) -> tuple[Tensor, Tensors]:
        return functional_call(module, {f"policy.{name}": p for name, p in params.items()}, (batch,))

    def update(
        params: Tensors, moments: Moments, batch: Minibatch, learning_rate: Tensor
    ) -> tuple[Tensors, Moments, Tensors]:
        grads, (_, info) = grad_and_value(loss, has_aux=True)(params, batch)
        if config.clip_norm is not None:
            grads = clip_by_global_norm(config.clip_norm)(grads)
        params, moments = functional_torch.update(record, params, grads, moments, [learning_rate])
        return params, moments, {name: quantity.detach() for name, quantity in info.items()}

    return update
