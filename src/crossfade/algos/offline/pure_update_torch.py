"""The learner as a function of tensors, for mode `torch_pure`: gradient, Adam and targets in one compiled step."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.func import functional_call

from ...optim.ema_torch import ema
from ...optim.functional_torch import Moments, Tensors, descent
from .batch import Batch
from .config import OfflineConfig
from .dispatch_torch import functions, summed
from .networks_torch import Modules
from .parameters import optimizer_records
from .targets_torch import followed, specifications

Learned = tuple[Tensors, Moments, Tensors]


def pure_update(
    policy: Modules, config: OfflineConfig, compile: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[Tensors, Moments, Batch], Learned]:
    """`learner_torch.update` as a function `(params, moments, batch) -> (params, moments, info)`.

    `params` is a `state_dict` of the policy, which gives structure, not values. Pre-training, full updates and the
    others are compiled by themselves, each when it is first needed.
    """
    steps: dict[bool | None, Callable[..., Learned]] = {}

    def update(params: Tensors, moments: Moments, batch: Batch) -> Learned:
        full = None if batch.full is None else bool(batch.full)
        if full not in steps:
            steps[full] = compile(_step(policy, config))
        return steps[full](params, moments, batch._replace(full=full))

    return update


def _step(policy: Modules, config: OfflineConfig) -> Callable[[Tensors, Moments, Batch], Learned]:
    record = optimizer_records(specifications(policy), config.lr)["policy"]
    own = functions(config)
    descend = descent(policy, record, lambda policy, batch: summed(own, policy, batch, config))
    moves = _Moves(policy, config)

    def step(params: Tensors, moments: Moments, batch: Batch) -> Learned:
        names = followed(batch, config)
        before = {name: p for name, p in params.items() if name.split(".")[0] in names}
        targets = ema({name: params[f"target_{name}"] for name in before}, before, config.tau)
        moved = functional_call(moves, {f"policy.{name}": p for name, p in params.items()}, (batch,))
        params, moments, info = descend(params, moments, batch)
        return params | {f"target_{name}": p for name, p in targets.items()} | moved, moments, info

    return step


class _Moves(nn.Module):
    """What an agent moves besides, as a module around the policy, so that `functional_call` can run it."""

    def __init__(self, policy: Modules, config: OfflineConfig):
        super().__init__()
        self.policy, self.config = policy, config
        self.moved = getattr(functions(config), "moved", None)

    def forward(self, batch: Batch) -> Tensors:
        return {} if self.moved is None else self.moved(self.policy, batch, self.config)
