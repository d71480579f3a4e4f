"""Both models side by side, in float64 and with random weights, ready to be traced and run.

Nothing here touches the caller's objects: the torch module is a copy in eval mode on the CPU, the JAX model is taken
apart and put together again. Random weights matter: at initialisation scales are one and biases zero, and a swap of
two of them would show nowhere.
"""

import copy
from collections.abc import Callable, Mapping as Named
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_map_only

from .dataflow_jax import JaxTrace, trace_jax
from .dataflow_torch import TorchTrace, trace_torch
from .libraries import open_model
from .outputs import check_shapes, difference, torch_outputs
from .transfer import tensor_to_numpy

EXACT, SINGLE = 1e-9, 1e-4  # what two correct ports may differ by, relative, in float64 and in float32


class Pair:
    """A torch module and a JAX model with the example each is run on."""

    def __init__(self, module: nn.Module, jax_model: Any, example: Any, jax_example: Any = None, jax_apply: Any = None):
        self.module = unwrap(module)
        opened = open_model(jax_model)
        self.opened = open_model(opened.complete(jax_model))
        self.apply: Callable[[Any, Any], Any] = jax_apply or self.opened.call
        self.example = example if isinstance(example, tuple) else (example,)
        self.jax_example = example if jax_example is None else jax_example
        self.channels_last = jax_example is not None  # another layout was asked for, so outputs may have it too
        state = {n: t for n, t in self.module.state_dict(keep_vars=True).items() if isinstance(t, torch.Tensor)}
        self.shapes = {n: tuple(t.shape) for n, t in state.items()}
        self.tied = _tied(state)
        self.parameters = {n for n, _ in self.module.named_parameters(remove_duplicate=False)} - set(self.tied)
        self.buffers = {n: t for n, t in state.items() if n not in self.parameters and n not in self.tied}

    def __enter__(self) -> "Pair":
        """Opens the pair: float64 in JAX for the `with` block, copies made, both sides traced.

        Torch runs on one thread meanwhile: on small arrays and busy cores its threads mostly wait for each other.
        """
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
            stack.enter_context(jax.enable_x64(True))
            stack.enter_context(jax.default_device(jax.devices("cpu")[0]))
            self._open()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def _open(self) -> None:
        self.dtype = torch.float64
        try:
            self.trace = self._trace_torch()
        except RuntimeError as error:
            self.dtype = torch.float32  # a module that asks for float32 by name can only be proved in it
            try:
                self.trace = self._trace_torch()
            except RuntimeError:
                raise error from None
        leaves = self.opened.leaves()
        self.floats = {p: _widen(leaf) for p, leaf in leaves.items() if _is_float(leaf)}
        self.others = tuple(p for p in leaves if p not in self.floats)
        x = jax.tree.map(_to_jax, self.jax_example, is_leaf=lambda v: isinstance(v, torch.Tensor))
        with _running("the JAX model"):
            forward = lambda leaves: self.apply(self.opened.inference(self.opened.replace(leaves)), x)
            self.jax: JaxTrace = trace_jax(forward, self.floats)
        check_shapes(self.trace.outputs, self.jax.outputs, self.channels_last)
        self.tolerance = SINGLE if self.jax.single or self.dtype == torch.float32 else EXACT

    def _trace_torch(self) -> TorchTrace:
        self.copy = copy.deepcopy(self.module).cpu().to(self.dtype).eval()
        tensors = self.copy.state_dict(keep_vars=True)
        rng = np.random.default_rng(0)
        self.weights = {n: random_weights(rng, self.shapes[n]) for n in self._random_names()}
        for name, tensor in tensors.items():
            value = self.weights.get(self.tied.get(name, name))
            if value is not None:
                tensor.data = torch.tensor(value, dtype=self.dtype)
        self.tensors = {n: t for n, t in tensors.items() if n in self.parameters or n in self.buffers}
        for name in self.tensors.keys() - self.weights.keys():
            self.weights[name] = tensor_to_numpy(self.tensors[name])
        self.args = tuple(_tensors(a, self.dtype) for a in self.example)
        with _running("the torch module"), torch.random.fork_rng(devices=[]):
            return trace_torch(self.copy, self.tensors, self.args)

    def _random_names(self) -> list[str]:
        statistics = {
            f"{path}.{name}".lstrip(".")
            for path, child in self.module.named_modules()
            if isinstance(child, _NormBase)
            for name in ("running_mean", "running_var")
        }
        return [n for n in self.shapes if n in self.parameters or n in statistics - set(self.tied)]

    def run_torch(self, weights: Named[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The torch outputs with the named weights in place of the random ones."""
        try:
            for name, value in weights.items():
                self.tensors[name].data.copy_(torch.tensor(value, dtype=self.dtype))
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                return torch_outputs(self.copy(*self.args))
        finally:
            for name in weights:
                self.tensors[name].data.copy_(torch.tensor(self.weights[name]))

    def run_jax(self, leaves: Named[str, Any]) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """The JAX outputs and every intermediate value, with the named leaves in place of the model's own."""
        return self.jax.run({**self.floats, **{p: np.asarray(a, np.float64) for p, a in leaves.items()}})

    def gap(self, leaves: Named[str, Any]) -> float:
        """How far the two outputs are apart when torch has the random weights and JAX the given leaves."""
        return self.difference(self.trace.outputs, self.run_jax(leaves)[0])

    def difference(self, ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
        """How far a torch result and a JAX result are apart, relative."""
        return difference(ours, theirs, self.channels_last)


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside `torch.compile` and `DistributedDataParallel`."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = module.module
        if inner is None:
            return module
        module = inner


def random_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Matrices that keep the size of what they act on; vectors and scalars near one, fit for a variance as well."""
    if len(shape) < 2:
        return rng.uniform(0.5, 1.5, shape)
    return rng.normal(size=shape) / np.sqrt(max(1, np.prod(shape[1:])))


def _tied(state: dict[str, torch.Tensor]) -> dict[str, str]:
    """For each further name of a tensor, the first one."""
    first: dict[tuple, str] = {}
    tied = {}
    for name, tensor in state.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else (name,)
        if first.setdefault(key, name) != name:
            tied[name] = first[key]
    return tied


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def _widen(leaf: Any) -> np.ndarray:
    return np.asarray(leaf).astype(np.float64)


def _to_jax(leaf: Any) -> Any:
    array = tensor_to_numpy(leaf) if isinstance(leaf, torch.Tensor) else np.asarray(leaf)
    return jnp.asarray(array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array)


def _tensors(value: Any, dtype: torch.dtype) -> Any:
    move = lambda t: t.detach().cpu().to(dtype) if t.is_floating_point() else t.detach().cpu().clone()
    return tree_map_only(torch.Tensor, move, value)


@contextmanager
def _running(what: str):
    """Lets an error of the user's model through as it is, saying which side was running."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised while bridge.match was running {what} on the example")
        raise
