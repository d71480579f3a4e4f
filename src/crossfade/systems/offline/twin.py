"""The offline agents as a twin: every network, losses and gradients, updates of both phases with their one Adam."""

import math
from functools import cache, partial
from typing import Any

import numpy as np

from ...algos.offline import modules
from ...algos.offline.batch import Batch
from ...algos.offline.config import AGENTS
from ...algos.offline.memory import Memory
from ...algos.offline.parameters import EPS, online_names
from ...config import apply
from ...loading import load_attribute
from ...parity.twin import Twin
from ...random import random_numpy as random
from .config import OfflineDataConfig

SMALL = (
    "env.map=umaze",
    "episodes=6",
    "length=20",
    "hidden=8,8",
    "encoder_hidden=8,6",
    "batch_size=8",
    "latent_samples=32",
    "lr=1e-3",
    "tau=0.05",
    "gamma=0.9",
    "actor_every=2",
    "pretrain=0",
    "steps=2000",
)
SMALL_AGENT = {
    "latent_dim": 3,
    "flow_goals": 3,
    "flow_steps": 3,
    "rollouts": 6,
    "model_buffer": 20,
    "alpha_actor": 0.3,
    "alpha_critic": 0.7,
}
"""Settings of agents that have them: sizes, and weights that are 0 by default."""
MOVED = 0.3
"""Scale of the numbers by which parameters differ from those of a start."""
INPUTS = 16
"""Layers of more inputs are moved by less: where gelu is all but 0, so is the gradient, and rounding leads Adam."""


def offline(*words: str) -> Twin:
    """An agent of a small config on the maze's data, `offline("agent=infom", "pretrain=1000")` for one.

    Update 0 trains the actor, and is one of pre-training if `pretrain` is at least `actor_every`; the phases change
    where `pretrain` says. Parameters are moved from those of a start, so that no bias is 0, no norm 1, and no target
    equal to its module. Batches are drawn, latents inferred and transitions imagined by the torch half with the policy
    of before all updates.
    """
    from ...algos.offline import losses_jax, losses_torch
    from ...bridge import Mapping
    from ...trainers.system import Scheduled
    from .system_jax import System as JaxSystem
    from .system_torch import System as TorchSystem

    config = settings(*words)
    ours, theirs = TorchSystem(config), JaxSystem(config)
    parameters = _moved(ours.parameters())
    policy, model = ours.make_policy(parameters), theirs.make_policy(parameters)

    @cache
    def collected(step: int) -> tuple[Batch, Memory]:
        """The batch of update `step` of a run, and what is remembered after it."""
        return ours.collect(policy, collected(step - 1)[1] if step else ours.start_buffer(), step)

    def torch_update(policy: Any, adam: Any, batch: Batch) -> Any:
        return ours.update(policy, {"policy": Scheduled(adam)}, batch)

    def jax_update(policy: Any, tx: Any, opt_state: Any, batch: Batch) -> Any:
        policy, opt_states, info = theirs.update(policy, {"policy": tx}, {"policy": opt_state}, batch)
        return policy, opt_states["policy"], info

    loss = lambda half: lambda policy, batch: half.loss(policy, batch, config)
    return Twin(
        "offline",
        torch=policy,
        jax=model,
        mapping=Mapping.by_name(policy, model),
        batches=lambda i: collected(config.actor_every - 1 + i)[0],
        forward=(partial(_forward, ours), partial(_forward, theirs)),
        loss=(loss(losses_torch), loss(losses_jax)),
        optimizer=(partial(_adam, ours, policy), theirs.make_optimizers(model)["policy"]),
        update=(torch_update, jax_update),
    )


def settings(*words: str) -> OfflineDataConfig:
    """A small config, changed by words."""
    name = next((word.removeprefix("agent=") for word in words if word.startswith("agent=")), "iql")
    agent = load_attribute(AGENTS[name])
    small = [f"agent={name}", *(f"agent.{k}={v}" for k, v in SMALL_AGENT.items() if k in agent.__dataclass_fields__)]
    small += ["encoder=mlp"] if agent.needs_encoder else []
    return apply(apply(apply(OfflineDataConfig(), SMALL), small), [w for w in words if not w.startswith("agent=")])


def _moved(parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    key = random.key(0)
    normal = lambda i, array: random.normal(random.fold_in(key, i), array.shape, array.dtype.name)
    inputs = lambda shape: math.prod(shape[1:]) if len(shape) == 4 else shape[-1] if len(shape) > 1 else 1
    scale = lambda array: np.float32(MOVED * min(1.0, math.sqrt(INPUTS / inputs(array.shape))))
    return {name: array + scale(array) * normal(i, array) for i, (name, array) in enumerate(parameters.items())}


def _forward(system: Any, policy: Any, batch: Batch) -> dict[str, Any]:
    """Every module on the numbers of a batch."""
    prepared = system.functions.prepare(policy, batch, system.config)
    coder = next((name for name, spec in system.modules.items() if isinstance(spec, modules.Coder)), None)
    codes = batch.observations if coder is None else policy[coder](batch.observations)
    return {name: _output(spec, policy[name], codes, batch, prepared.latents) for name, spec in system.modules.items()}


def _output(spec: modules.Module, module: Any, codes: Any, batch: Batch, latents: Any) -> Any:
    """What a module gives. `codes` are for those that have no encoder of their own."""
    seen = codes if getattr(spec, "encoder", None) is None else batch.observations
    actions = batch.actions if getattr(spec, "actions", 0) else None
    match spec:
        case modules.Value():
            return module(seen, actions)
        case modules.GCValue():
            return module(seen, latents if spec.goals else None, actions)
        case modules.Actor() | modules.GCActor():
            found = module(seen, latents) if isinstance(spec, modules.GCActor) and spec.goals else module(seen)
            return {"mean": found.mean, "log_std": found.log_std, "mode": found.mode()}
        case modules.GCBilinearValue():
            return module(seen, batch.value_goals, batch.actions)
        case modules.GCMetricValue():
            return module(seen, batch.value_goals)
        case modules.IntentionEncoder():
            return module(seen, batch.actions)
        case modules.VectorField():
            return module(codes, batch.noise["time"], codes, batch.actions, batch.noise["latent"])
        case modules.Coder():
            return module(batch.observations)
        case modules.Param():
            return module()


def _adam(system: Any, policy: Any, parameters: list[Any]) -> Any:
    """The one Adam. Of what trains in torch it owns all but what cancels."""
    import torch

    names = [name for name, parameter in policy.named_parameters() if parameter.requires_grad]
    owned = set(online_names(system.modules))
    chosen = [parameter for name, parameter in zip(names, parameters, strict=True) if name in owned]
    return torch.optim.Adam(chosen, lr=system.config.lr, eps=EPS)
