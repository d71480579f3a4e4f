"""A torch module and a JAX model side by side, in float64 and with random weights, ready to be traced and run.

Nothing here touches the caller's objects: the torch module is a copy in eval mode on the CPU, the JAX model is taken
apart and put together again.
"""

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping as Named
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from ...errors import UsageError
from ..libraries import open_model
from ..meant_numbers import Meant
from ..transfer import tensor_to_numpy
from ..widening import Wide, widen_hidden_buffers
from .dataflow_jax import JaxTrace, trace_jax
from .dataflow_torch import TorchTrace, trace_torch
from .draws import first_draw, is_continuous
from .examples import check_rows, scaled, to_arrays, to_tensors
from .outputs import Outputs, difference, pair_outputs, torch_outputs
from .waiting import Waiting

Apply = Callable[[Any, Any], Any]  # (model, x) -> outputs
TORCH_RAN = "the torch module"

EXACT, SINGLE = 1e-9, 1e-4  # what two correct ports may differ by, relative, in float64 and in float32


class BothModels:
    """A torch module and a JAX model with the example each is run on. Use in a `with` block."""

    def __init__(
        self,
        module: nn.Module,
        jax_model: Any,
        example: Any,
        jax_example: Any = None,
        jax_apply: Apply | None = None,
        torch_apply: Apply | None = None,
        training: bool = False,
    ):
        self.module = unwrap(module)
        if torch_apply is None:
            _reject_no_forward(self.module)
        opened = open_model(jax_model)
        self.opened = open_model(opened.complete(jax_model))
        self.apply: Apply = jax_apply or self.opened.call
        self.torch_apply: Apply = torch_apply or (lambda module, x: module(*x) if isinstance(x, tuple) else module(x))
        self.training = training
        self.example = example
        self.jax_example = example if jax_example is None else jax_example
        self.channels_last = jax_example is not None  # another layout was asked for, so outputs may have it too
        self.progress = Waiting("bridge.match: parameters placed")
        check_rows(self.example)
        state = {n: t for n, t in self.module.state_dict(keep_vars=True).items() if isinstance(t, torch.Tensor)}
        self.shapes = {n: tuple(t.shape) for n, t in state.items()}
        self.tied = _tied(state)
        self.parameters = {n for n, _ in self.module.named_parameters(remove_duplicate=False)} - set(self.tied)
        self.buffers = {n: t for n, t in state.items() if n not in self.parameters and n not in self.tied}

    def __enter__(self) -> "BothModels":
        """Turns JAX's float64 on for the `with` block, makes copies, traces both sides.

        Torch runs on one thread meanwhile: on small arrays and busy cores its threads mostly wait for each other.
        """
        with ExitStack() as stack:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
            stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
            torch.backends.mha.set_fastpath_enabled(False)  # one operation that reads all parameters of a layer
            if any(hasattr(child, "_orig_mod") for child in self.module.modules()):
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.callback(self.progress.close)
            stack.enter_context(jax.enable_x64(True))
            stack.enter_context(jax.default_device(jax.devices("cpu")[0]))
            self._open()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def _open(self) -> None:
        leaves = self.opened.leaves()
        self.floats = {p: _widen(leaf) for p, leaf in leaves.items() if _is_float(leaf)}
        self.dtype, self.single = torch.float64, ""
        self.torch_meant, self.wide_torch, self.casts = Meant(), True, False
        try:
            self.draw_first()
        except RuntimeError as error:
            self.dtype = torch.float32
            try:
                self.draw_first()
            except RuntimeError:
                raise error from None
            self.single = f"the torch module does not run in float64: {str(error).splitlines()[0]}"
        self._trace_jax()
        self.torch_meant, before = Meant(self.jax.numbers), self.torch_meant
        if before.changed:
            self.draw_first()
        if not self.single and self.jax.single:
            self.single = "the JAX model casts to less than float32, or to float32 where that cannot be undone"
        self.tolerance = SINGLE if self.single else EXACT

    @property
    def precision(self) -> str:
        """The precision in which outputs are compared."""
        return "float32" if self.single else "float64"

    @property
    def widened(self) -> tuple[str, ...]:
        """The halves whose code says float32, and that are compared in float64 nevertheless."""
        if self.single:
            return ()
        return ("torch",) * self.casts + ("JAX",) * self.jax.widened

    def warn(self, who: str, stacklevel: int) -> None:
        """Warns when the outputs can only be compared in float32."""
        if self.single:
            warnings.warn(
                f"{who}: the outputs are compared in float32, to a relative {SINGLE:.0e}, which proves less than "
                f"float64: {self.single}",
                stacklevel=stacklevel,
            )

    # The torch side

    def draw_first(self, constants: Iterable[str] = (), meant: bool = False) -> None:
        """Gives the torch copy random weights and traces it. Buffers named `constants` keep the module's values, with
        `meant` as the float64 numbers that these stand for."""
        torch.set_default_dtype(self.dtype)  # for constants created in forward(), and for quotients of integers
        self.copy = copy.deepcopy(self.module).cpu().to(self.dtype).train(self.training)
        if self.dtype == torch.float64:
            widen_hidden_buffers(self.copy, self.torch_meant)
        state = self.copy.state_dict(keep_vars=True)
        self.tensors = {n: t for n, t in state.items() if n in self.parameters or n in self.buffers}
        self.own = {n: tensor_to_numpy(t) for n, t in self.tensors.items()}
        self.meant = meant
        if meant:
            self.own |= {n: self.torch_meant(tensor_to_numpy(self.buffers[n])) for n in self.statistics}
        rng, drawn = np.random.default_rng(0), self.drawn_names(self.statistics.difference(constants))
        self.weights = self.own | {n: first_draw(rng, self.shapes[n], n in self.positive) for n in drawn}
        for name, tensor in state.items():
            if (first := self.tied.get(name, name)) in drawn or first in self.statistics:
                tensor.data = torch.tensor(self.weights[first], dtype=self.dtype)
        self.args = to_tensors(self.example, self.dtype)
        with _running(TORCH_RAN), torch.random.fork_rng(devices=[]):
            self.trace: TorchTrace = self._trace_torch(self.args)

    def _trace_torch(self, args: Any) -> TorchTrace:
        return trace_torch(self.copy, self.tensors, lambda: self._apply(args))

    def _apply(self, args: Any) -> Any:
        """Runs the torch copy, in float64 whatever its code says."""
        if self.dtype != torch.float64 or not self.wide_torch:
            return self.torch_apply(self.copy, args)
        with Wide(self.torch_meant) as wide:
            result = self.torch_apply(self.copy, args)
        self.wide_torch, self.casts = wide.narrow, self.casts or wide.casts
        return result

    @cached_property
    def statistics(self) -> set[str]:
        """Floating-point buffers with finite values: those that can be drawn at random if JAX holds them too."""
        return {n for n, t in self.buffers.items() if t.is_floating_point() and bool(t.isfinite().all())}

    @property
    def positive(self) -> set[str]:
        """Buffers that hold only positive numbers, such as variances: they are drawn positive."""
        return {n for n in self.statistics if bool((self.own[n] > 0).all())}

    def drawn_names(self, buffers: Iterable[str]) -> list[str]:
        """The parameters and these buffers, in the order of the state_dict."""
        wanted = self.parameters | set(buffers)
        return [n for n in self.shapes if n in wanted]

    def run_torch(self, weights: Named[str, np.ndarray], factor: float = 1.0, single: bool = False) -> Outputs:
        """The torch outputs with the named weights in place of the first draw's and inputs scaled by `factor`, in
        float32 if `single`."""
        args = scaled(self.args, factor)
        if not single:
            return self._with_weights(weights, lambda: torch_outputs(self._apply(args)))
        narrow = to_tensors(args, torch.float32)
        run = lambda: self.torch_apply(copy.deepcopy(self.copy).float(), narrow)
        try:
            torch.set_default_dtype(torch.float32)
            return self._with_weights(weights, lambda: torch_outputs(run()))
        finally:
            torch.set_default_dtype(self.dtype)

    def trace_with(self, weights: Named[str, np.ndarray], factor: float) -> TorchTrace:
        """The trace of the torch module with these weights and inputs scaled by `factor`."""
        args = scaled(self.args, factor)
        return self._with_weights(weights, lambda: self._trace_torch(args))

    def watch_with(self, weights: Named[str, np.ndarray], factor: float, watch: Callable[[Callable], Any]) -> Any:
        """What `watch` makes of a function that runs the torch module with these weights and scaled inputs."""
        args = scaled(self.args, factor)
        return self._with_weights(weights, lambda: watch(lambda: self._apply(args)))

    def _with_weights(self, weights: Named[str, np.ndarray], run: Callable[[], Any]) -> Any:
        try:
            self._put(weights)
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                return run()
        finally:
            self._put({n: self.weights[n] for n in weights})

    def _put(self, weights: Named[str, np.ndarray]) -> None:
        for name, value in weights.items():
            self.tensors[name].data.copy_(torch.tensor(value))

    # The JAX side

    def _trace_jax(self) -> None:
        self.wide: Any = np.float64
        try:
            self._trace_jax_as()
        except TypeError as error:  # types that do not fit, a scan that starts from float32 zeros for one
            self.wide = np.float32
            try:
                self._trace_jax_as()
            except TypeError:
                raise error from None
            self.single = f"the JAX model does not run in float64: {str(error).splitlines()[0]}"
        keyed = self.trace.keyed or self.jax.keyed
        self.names = pair_outputs(self.trace.outputs, self.jax.outputs, keyed, self.channels_last)

    def _trace_jax_as(self) -> None:
        self.jax_meant = Meant(self.trace.numbers)
        leaves, form = jax.tree.flatten(to_arrays(self.jax_example))
        leaves = [leaf.astype(self.wide) if _is_float(leaf) else leaf for leaf in leaves]
        moving = [i for i, leaf in enumerate(leaves) if leaf.ndim and _is_float(leaf)]
        self.inputs = [np.asarray(leaves[i]) for i in moving]

        def forward(arrays: dict[str, Any], inputs: list) -> Any:
            given = [inputs[moving.index(i)] if i in moving else leaf for i, leaf in enumerate(leaves)]
            model = self.opened.replace(arrays)
            model = model if self.training else self.opened.inference(model)
            return self.apply(model, jax.tree.unflatten(form, given))

        with _running("the JAX model"):
            self.jax: JaxTrace = trace_jax(forward, self._all_leaves({}), self.inputs, self.jax_meant)

    def run_jax(self, leaves: Named[str, Any], factor: float = 1.0) -> Outputs:
        """The JAX outputs by torch's names, with the named leaves in place of the model's own and inputs scaled by
        `factor`."""
        outputs = self.jax.run(self._all_leaves(leaves), self._scaled_inputs(factor))
        return {ours: outputs[theirs] for ours, theirs in self.names.items()}

    def values_jax(self, leaves: Named[str, Any], factor: float = 1.0) -> list[np.ndarray]:
        """Every value that JAX computes on the way, as in `run_jax`."""
        wave = self.jax.program.begin(self._scaled_inputs(factor))
        return self.jax.program.advance(wave, self._all_leaves(leaves))[0].values()

    def _all_leaves(self, leaves: Named[str, Any]) -> dict[str, np.ndarray]:
        return {path: np.asarray(leaves.get(path, own), self.wide) for path, own in self.floats.items()}

    def _scaled_inputs(self, factor: float) -> list[np.ndarray]:
        return [self.wide(factor) * a if factor != 1.0 and is_continuous(a) else a for a in self.inputs]

    def difference(self, ours: Outputs, theirs: Outputs, left_out: Literal["none", "torch", "both"] = "none") -> float:
        """The largest relative difference between a torch result and a JAX result."""
        return difference(ours, theirs, self.channels_last, left_out)


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside `torch.compile` and `DistributedDataParallel`."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if inner is None and isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = module.module
        if inner is None:
            return module
        module = inner


def _reject_no_forward(module: nn.Module) -> None:
    """An agent of several networks often has methods of its own in place of one `forward`."""
    kind = type(module)
    if kind.forward is nn.Module.forward and "forward" not in vars(module):
        own = [n for n, value in vars(kind).items() if callable(value) and not n.startswith("_")]
        call = own[0] if own else next((n for n, _ in module.named_children()), "forward")
        raise UsageError(
            f"expected a module with forward(), got {kind.__name__} with {', '.join(own) or 'no method of its own'}. "
            f"Say what to run, torch_apply=lambda module, x: module.{call}(x), or name a module whose forward() does."
        )


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


@contextmanager
def _running(what: str):
    """Lets an error of the user's model through as it is, saying which side was running."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised while bridge.match was running {what} on the example")
        raise
