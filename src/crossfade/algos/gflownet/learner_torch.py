"""The learner of a GFlowNet, in torch: its policy, its optimiser, one update. Twin: learner_jax.py."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

from ...errors import UsageError
from ...nn.parameters_torch import filled
from . import losses_torch
from .batch_torch import to_tensors
from .config import GFlowNetConfig, needs_flow
from .policy_torch import Policy
from .sampling import nodes_numpy

Objective = Callable[[Any, Any, GFlowNetConfig], tuple[Tensor, dict[str, Tensor]]]
"""`(policy, batch, config) -> (value to minimise, quantities to log)`."""


def make_policy(config: GFlowNetConfig, env: Any, parameters: Mapping[str, np.ndarray]) -> Policy:
    """The policy of a config for an environment, with the given parameters by name, in `config.dtype`."""
    if len(config.backward_logits) not in (0, env.n_parents):
        raise UsageError(
            f"backward_logits: expected {env.n_parents} numbers, one for each backward action of {env}, got "
            f"{len(config.backward_logits)}. Leave them out to make all alike."
        )
    policy = Policy(
        env.observation_dim,
        env.n_actions,
        env.n_parents,
        hidden=config.hidden,
        layers=config.layers,
        backward="learned" if config.legacy_untied_trunk else config.backward,
        flow=needs_flow(config.loss),
        z_dim=config.z_dim,
        backward_logits=config.backward_logits,
        finished_mask=config.legacy_finished_mask,
    )
    return filled(policy, parameters, config.dtype)


def make_optimizer(config: GFlowNetConfig, policy: nn.Module) -> tuple[torch.optim.Adam, StepLR]:
    """Adam with one learning rate for the networks and one for log Z, both cut by `lr_gamma` every `lr_period` updates.

    Only the gradient of the networks is clipped.
    """
    networks = dict(policy.named_parameters())
    log_z = networks.pop("log_z")
    groups = [{"params": list(networks.values()), "lr": config.lr}, {"params": [log_z], "lr": config.lr_z}]
    optimizer = torch.optim.Adam(groups)
    return optimizer, StepLR(optimizer, config.lr_period, config.lr_gamma)


def update(
    policy: nn.Module,
    optimizer: torch.optim.Adam,
    scheduler: StepLR,
    batch: Any,
    config: GFlowNetConfig,
    objective: Objective = losses_torch.loss,
) -> dict[str, Tensor]:
    """One gradient step on a batch; returns what `objective` reports beside its value."""
    value, info = objective(policy, batch, config)
    # A head that a loss does not read still gets a gradient, of zeros: otherwise torch would leave it out of the step
    # while optax moves every parameter on.
    for parameter in policy.parameters():
        parameter.grad = torch.zeros_like(parameter)
    value.backward()
    if config.clip_norm is not None:
        again = policy.get_submodule("trunk").parameters() if config.legacy_double_step else ()
        torch.nn.utils.clip_grad_norm_([*optimizer.param_groups[0]["params"], *again], config.clip_norm)
    if config.legacy_double_step:
        _step_trunk_twice(policy, optimizer)
    else:
        optimizer.step()
    scheduler.step()
    return {name: quantity.detach() for name, quantity in info.items()}


def _step_trunk_twice(policy: nn.Module, optimizer: torch.optim.Adam) -> None:
    """What Adam does when the trunk stands in its list twice: two steps with one gradient, by a count of its own.

    Between updates that count is kept at the number of updates, like every other, so that checkpoints and optax, which
    know one count, can hold it.
    """
    trunk = list(policy.get_submodule("trunk").parameters())
    for parameter in trunk:
        if parameter in optimizer.state:
            optimizer.state[parameter]["step"] *= 2
    optimizer.step()
    for name, parameter in policy.named_parameters():
        if not name.startswith("trunk."):
            parameter.grad = None
    optimizer.step()
    for parameter in trunk:
        optimizer.state[parameter]["step"] /= 2


@torch.no_grad()
def log_pf_table(policy: Policy, env: Any) -> Float[np.ndarray, "states actions"]:
    """log P_F of every state of an enumerable environment; about MASKED at invalid actions."""
    nodes = to_tensors(nodes_numpy.table(env), policy.log_z.dtype)
    return policy(nodes.observation, nodes.forward_mask, nodes.backward_mask).log_pf.double().numpy()


@torch.no_grad()
def log_z(policy: Policy, env: Any, config: GFlowNetConfig) -> float | None:
    """The estimate of log Z that the config's loss trains; None where it trains none."""
    source, dtype = env.reset(), policy.log_z.dtype
    arrays = (env.observe(source), env.forward_mask(source), env.backward_mask(source))
    observation, forward_mask, backward_mask = (torch.from_numpy(np.asarray(array)) for array in arrays)
    output = policy(observation.to(dtype), forward_mask, backward_mask)
    log_reward = torch.tensor(float(env.log_reward(source)), dtype=dtype)
    estimate = losses_torch.log_partition(output, policy.log_z, log_reward, config.loss)
    return None if estimate is None else float(estimate)
