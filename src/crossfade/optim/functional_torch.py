"""torch's optimisers as pure functions of tensors: what `torch_pure` compiles into its step.

Each is the formula of `torch.optim` for one parameter. Learning rates come as tensors, so that a schedule compiles
nothing anew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from ..errors import NoCounterpart
from .clipping_torch import clip_by_global_norm
from .eager_torch import Loss
from .state import OptimizerState

Tensors = dict[str, Tensor]


class Moments(NamedTuple):
    """What an optimiser remembers."""

    step: Tensor
    """Updates made; of float64, because bias corrections are powers of it."""
    slots: dict[str, Tensors]
    """Parameter -> slot -> tensor, as `torch.optim` names them."""


def init(state: OptimizerState, device: torch.device | None = None) -> Moments:
    """The moments of an optimiser that stands at `state`."""
    tensors = lambda kept: {s: torch.tensor(a, device=device) for s, a in kept.items() if s != "step"}
    held = {name: tensors(state.moments[name]) for name in state.trained}
    return Moments(torch.tensor(float(state.step), dtype=torch.float64, device=device), held)


def read(moments: Moments, record: OptimizerState) -> OptimizerState:
    """The neutral state: kind and groups of `record`, these moments."""
    step = moments.step.float().cpu().numpy()
    arrays = lambda kept: {slot: tensor.detach().cpu().numpy().copy() for slot, tensor in kept.items()}
    return replace(record, moments={name: {"step": step, **arrays(kept)} for name, kept in moments.slots.items()})


def update(
    record: OptimizerState, params: Tensors, grads: Mapping[str, Tensor], moments: Moments, rates: Sequence[Tensor]
) -> tuple[Tensors, Moments]:
    """One update of every parameter of the record that moves, with one learning rate for each of its groups."""
    step = moments.step + 1
    moved, held = dict(params), dict(moments.slots)
    for name, i in record.trained.items():
        moved[name], held[name] = one(
            record.kind, record.groups[i], params[name], grads[name], moments.slots[name], step, rates[i]
        )
    return moved, Moments(step, held)


def descent(
    policy: nn.Module, record: OptimizerState, loss: Loss, clip_norm: float | None = None
) -> Callable[..., tuple[Tensors, Moments, dict[str, Any]]]:
    """`step(params, moments, batch, rates) -> (params, moments, info)`: `eager_torch.update` as a pure function.

    `params` is a `state_dict` of the policy, which gives structure, not values; only the record's parameters move.
    `rates` are the learning rates of the record's groups, by default those that stand in it.
    """
    module = _Loss(policy, loss)
    constant = [torch.tensor(group["lr"], dtype=torch.float64) for group in record.groups]

    def step(
        params: Tensors, moments: Moments, batch: Any, rates: Sequence[Tensor] = constant
    ) -> tuple[Tensors, Moments, dict[str, Any]]:
        def value(owned: Tensors) -> tuple[Tensor, Mapping[str, Any]]:
            return functional_call(module, {f"policy.{name}": p for name, p in (params | owned).items()}, (batch,))

        grads, (_, info) = grad_and_value(value, has_aux=True)({name: params[name] for name in record.trained})
        if clip_norm is not None:
            grads = clip_by_global_norm(clip_norm)(grads)
        return *update(record, params, grads, moments, rates), {name: told.detach() for name, told in info.items()}

    return step


class _Loss(nn.Module):
    """The loss as a module around the policy, so that `functional_call` can run it on other parameters."""

    def __init__(self, policy: nn.Module, loss: Loss):
        super().__init__()
        self.policy, self.loss = policy, loss

    def forward(self, batch: Any) -> tuple[Tensor, Mapping[str, Any]]:
        return self.loss(self.policy, batch)


def one(
    kind: str, group: Mapping[str, Any], p: Tensor, g: Tensor, kept: Tensors, step: Tensor, rate: Tensor
) -> tuple[Tensor, Tensors]:
    """The parameter and its moments after an update, the `step`-th, by the formula of `torch.optim.<kind>`."""
    decay, decoupled = group["weight_decay"], group.get("decoupled_weight_decay", kind == "AdamW")
    lr = rate.to(p.dtype)
    g = -g if group["maximize"] else g
    if decay and decoupled:
        p = p * (1 - lr * decay)
    elif decay:
        g = g + decay * p
    match kind:
        case "Adam" | "AdamW":
            return _adam(group, p, g, kept, step, rate)
        case "SGD":
            direction, kept = _sgd(group, g, kept, step)
        case "RMSprop":
            direction, kept = _rmsprop(group, g, kept)
        case "Adagrad":
            total = kept["sum"] + g.square()
            direction, kept = g / (total.sqrt() + group["eps"]), {"sum": total}
            lr = (rate / (1 + (step - 1) * group["lr_decay"])).to(p.dtype)
        case _:
            raise NoCounterpart(f"expected an optimiser that crossfade.optim has, got {kind!r}.")
    return p - lr * direction, kept


def _adam(
    group: Mapping[str, Any], p: Tensor, g: Tensor, kept: Tensors, step: Tensor, rate: Tensor
) -> tuple[Tensor, Tensors]:
    beta_1, beta_2 = group["betas"]
    average = torch.lerp(kept["exp_avg"], g, 1 - beta_1)
    square = beta_2 * kept["exp_avg_sq"] + (1 - beta_2) * g.square()
    now = {"exp_avg": average, "exp_avg_sq": square}
    if group["amsgrad"]:
        square = now["max_exp_avg_sq"] = torch.maximum(kept["max_exp_avg_sq"], square)
    size = (rate / (1 - beta_1**step)).to(g.dtype)
    denominator = square.sqrt() / (1 - beta_2**step).sqrt().to(g.dtype) + group["eps"]
    return p - size * average / denominator, now


def _sgd(group: Mapping[str, Any], g: Tensor, kept: Tensors, step: Tensor) -> tuple[Tensor, Tensors]:
    if not group["momentum"]:
        return g, kept
    later = group["momentum"] * kept["momentum_buffer"] + (1 - group["dampening"]) * g
    momentum = torch.where(step > 1, later, g)  # the first gradient is taken whole
    return g + group["momentum"] * momentum if group["nesterov"] else momentum, {"momentum_buffer": momentum}


def _rmsprop(group: Mapping[str, Any], g: Tensor, kept: Tensors) -> tuple[Tensor, Tensors]:
    square = group["alpha"] * kept["square_avg"] + (1 - group["alpha"]) * g.square()
    now, variance = {"square_avg": square}, square
    if group["centered"]:
        now["grad_avg"] = torch.lerp(kept["grad_avg"], g, 1 - group["alpha"])
        variance = square - now["grad_avg"].square()
    direction = g / (variance.sqrt() + group["eps"])
    if group["momentum"]:
        direction = now["momentum_buffer"] = group["momentum"] * kept["momentum_buffer"] + direction
    return direction, now
