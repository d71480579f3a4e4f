"""Twins for the tests: a torch module, and a pure JAX function of the same arrays under the same names."""

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from crossfade.bridge.mapping import Mapping
from crossfade.parity import Twin

Params = dict[str, Any]


def functional(module: nn.Module, apply: Callable[..., Any]) -> tuple[hk.Transformed, Params]:
    """What a Haiku user holds: an apply function, and a nested dict with the module's own weights."""
    params: Params = {}
    for name, tensor in module.state_dict().items():
        *path, leaf = name.split(".")
        node = params
        for word in path:
            node = node.setdefault(word, {})
        node[leaf] = jnp.asarray(tensor.numpy())
    return hk.Transformed(lambda rng: params, apply), params


def make_twin(name: str, module: nn.Module, apply: Callable[..., Any] | None = None, **fields: Any) -> Twin:
    """A twin whose JAX callables take the dict of parameters; `loss`, `forward` and `update` are pairs as in Twin."""
    model = functional(module, apply or (lambda params, x: x))
    for field in ("loss", "forward"):
        if field in fields:
            fields[field] = (fields[field][0], _on_params(fields[field][1]))
    if "update" in fields:
        fields["update"] = (fields["update"][0], _update_on_params(fields["update"][1]))
    return Twin(name, torch=module, jax=model, mapping=Mapping.by_name(module, model), **fields)


def _on_params(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda model, batch: function(model[1], batch)


def _update_on_params(function: Callable[..., Any]) -> Callable[..., Any]:
    def update(model, tx, opt_state, batch):
        params, opt_state, metrics = function(model[1], tx, opt_state, batch)
        return (model[0], params), opt_state, metrics

    return update


def linear(p: Params, x: jax.Array) -> jax.Array:
    return x @ p["weight"].T + p["bias"][None]


def layer_norm(p: Params, x: jax.Array, eps: float = 1e-5) -> jax.Array:
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + eps) * p["weight"][None] + p["bias"][None]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A module whose weights are all random: norms and biases too, or half of the bugs would be invisible."""
    torch.manual_seed(0)
    module = make()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module
