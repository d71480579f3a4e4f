"""Small offline agents for the tests in torch, and their networks in NumPy float64, written out by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from crossfade.algos.offline.agent import Agent
from crossfade.algos.offline.batch import Batch
from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.networks_torch import Modules, make_policy
from crossfade.algos.offline.parameters import draw_parameters
from crossfade.random import random_numpy as random

OBSERVATION, ACTION, BATCH, LATENT = 3, 2, 4, 3
Arrays = dict[str, np.ndarray]


def config(agent: Agent, **settings: Any) -> OfflineConfig:
    small: dict[str, Any] = dict(
        dtype="float64", hidden=(5, 4), batch_size=BATCH, gamma=0.9, tau=0.1, lr=0.01, encoder_hidden=(6, 5)
    )
    if agent.needs_encoder:
        small["encoder"] = "mlp"
    return OfflineConfig(agent=agent, **{**small, **settings})


def sizes(chosen: OfflineConfig):
    return chosen.sizes((OBSERVATION,), ACTION)


def parameters(chosen: OfflineConfig, seed: int = 3) -> Arrays:
    """Of every module, none of them as it starts: biases, norms and targets have numbers of their own."""
    found = draw_parameters(chosen.agent, sizes(chosen), random.key(seed), "float64")
    rng = np.random.default_rng(seed)
    return {name: array + 0.3 * rng.normal(size=array.shape) for name, array in found.items()}


def made(chosen: OfflineConfig, seed: int = 3) -> Modules:
    return make_policy(chosen.agent.modules(sizes(chosen)), parameters(chosen, seed), chosen.dtype)


def arrays(policy: torch.nn.Module) -> Arrays:
    return {name: tensor.detach().numpy().copy() for name, tensor in policy.state_dict().items()}


def transitions(
    chosen: OfflineConfig, full: bool | None = None, seed: int = 0, shape: tuple[int, ...] = (OBSERVATION,)
) -> Batch:
    """A batch of NumPy arrays with all that the agent asks for; `full` None is pre-training, `shape` sizes noise."""
    rng, agent = np.random.default_rng(seed), chosen.agent
    normal = lambda *shape: rng.normal(size=shape)
    drawn = {
        "normal": lambda shape: rng.normal(size=shape),
        "uniform": lambda shape: rng.random(shape),
        "permutation": lambda shape: rng.permutation(shape[0]),
    }
    phase = "pretraining" if full is None else "finetuning"
    draws = agent.draws(chosen.sizes(shape, ACTION), phase)
    return Batch(
        normal(BATCH, OBSERVATION),
        rng.uniform(-0.9, 0.9, (BATCH, ACTION)),
        normal(BATCH, OBSERVATION),
        normal(BATCH),
        np.array([1.0, 0.0, 1.0, 1.0]),
        next_actions=rng.uniform(-0.9, 0.9, (BATCH, ACTION)),
        value_goals=normal(BATCH, OBSERVATION),
        actor_goals=normal(BATCH, OBSERVATION),
        relabeled_rewards=np.array([-1.0, -1.0, 0.0, -1.0]),
        relabeled_masks=np.array([1.0, 1.0, 0.0, 1.0]),
        noise={name: drawn[draw.kind](draw.shape) for name, draw in draws.items()},
        latent=normal(LATENT),
        bounds=np.stack([-0.8 - rng.random(OBSERVATION), 0.8 + rng.random(OBSERVATION)]),
        full=full,
    )


def tensors(batch: Batch) -> Batch:
    """The same in torch."""

    def tensor(part: Any) -> Any:
        if isinstance(part, Batch):
            return tensors(part)
        if isinstance(part, dict):
            return {name: tensor(array) for name, array in part.items()}
        return torch.from_numpy(part) if isinstance(part, np.ndarray) else part

    return Batch(*(tensor(part) for part in batch))


def assert_told(result: tuple[torch.Tensor, dict[str, torch.Tensor]], value: float, info: dict[str, float]) -> None:
    """A term and what it tells are these numbers, and nothing else is told."""
    got, told = result
    assert got.item() == pytest.approx(value, rel=1e-12)
    assert {name: quantity.item() for name, quantity in told.items()} == pytest.approx(info, rel=1e-12)


# Networks by hand


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps) * weight + bias


def mlp(p: Arrays, name: str, x: np.ndarray, final: bool = False, member: int | None = None) -> np.ndarray:
    """One member of the MLP called `name`; norms are where there are parameters of them."""
    of = lambda key: p[key] if member is None else p[key][member]
    depth = sum(key.startswith(f"{name}.layers.") and key.endswith("weight") for key in p)
    for i in range(depth):
        x = x @ of(f"{name}.layers.{i}.weight").T + of(f"{name}.layers.{i}.bias")
        if i < depth - 1 or final:
            x = gelu(x)
            if f"{name}.norms.{i}.weight" in p:
                x = norm(x, of(f"{name}.norms.{i}.weight"), of(f"{name}.norms.{i}.bias"))
    return x


def both(p: Arrays, name: str, x: np.ndarray) -> np.ndarray:
    """Two members, (2, batch, outputs)."""
    return np.stack([mlp(p, name, x, member=member) for member in range(2)])


def joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts, -1)


def q(p: Arrays, name: str, *inputs: np.ndarray) -> np.ndarray:
    """Values of two members, (2, batch)."""
    return both(p, f"{name}.value_net", joined(*inputs))[..., 0]


def v(p: Arrays, name: str, *inputs: np.ndarray) -> np.ndarray:
    """Values, (batch,)."""
    return mlp(p, f"{name}.value_net", joined(*inputs))[..., 0]


def mean(p: Arrays, name: str, *inputs: np.ndarray) -> np.ndarray:
    """Means of an actor."""
    h = mlp(p, f"{name}.actor_net", joined(*inputs), final=True)
    return h @ p[f"{name}.mean_net.weight"].T + p[f"{name}.mean_net.bias"]


def log_prob(mean: np.ndarray, action: np.ndarray, log_std: float | np.ndarray = 0.0) -> np.ndarray:
    std = np.exp(log_std)
    return (-(((action - mean) / std) ** 2) / 2 - log_std - math.log(2 * math.pi) / 2).sum(-1)


def squashed_log_prob(mean: np.ndarray, action: np.ndarray) -> np.ndarray:
    return log_prob(mean, np.arctanh(action)) - np.log(1 - action**2).sum(-1)


def expectile(advantage: np.ndarray, difference: np.ndarray, k: float) -> np.ndarray:
    return np.abs(k - (advantage < 0)) * difference**2


def clip(x: np.ndarray) -> np.ndarray:
    return np.clip(x, -1, 1)


def sphere(x: np.ndarray) -> np.ndarray:
    return math.sqrt(x.shape[-1]) * x / np.linalg.norm(x, axis=-1, keepdims=True)


def logsumexp(x: np.ndarray) -> np.ndarray:
    return np.log(np.exp(x).sum(-1))


def diagonal(x: np.ndarray) -> np.ndarray:
    return np.diagonal(x, axis1=-2, axis2=-1)
