"""A torch function run on other tensors than those it reads.

A loss gets at its parameters in many ways: it is given a module, closes over one, finds it in a global, an object, a
list. Stand-ins go by the tensors themselves: whichever way one is read, torch sees its stand-in.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import jaxtyping
import torch
import torch.func  # so that its transformations are loaded
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from ...errors import UsageError
from ..from_torch.own_derivatives import apply_replaced

WIDER = {torch.float32: torch.float64}
ESCAPES = {
    Tensor.tolist: "tolist()",
    Tensor.numpy: "numpy()",
    Tensor.__array__: "numpy()",
    Tensor.__bool__: "if, while, and, or, not",
    Tensor.__float__: "float()",
    Tensor.__int__: "int()",
    Tensor.__index__: "an index",
    Tensor.__repr__: "print",
    Tensor.__format__: "print, an f-string",
}
"""Ways out of torch: a compiled program would keep the number it was traced with."""
TRANSFORMS = {"torch._functorch.vmap": "_add_batch_dim", "torch._functorch.eager_transforms": "_wrap_for_grad"} | {
    f"tensordict.{module}": "_add_batch_dim" for module in ("_td", "_lazy", "nn.functional_modules")
}
"""The functions by which vmap and grad take a tensor, and vmap one of a TensorDict."""
TORCH = str(Path(torch.__file__).parent)
_BETWEEN = tuple(str(Path(TORCH) / name) for name in ("overrides.py", "_tensor.py"))
SKIPPED = (__file__, str(Path(jaxtyping.__file__).parent), *_BETWEEN, "<@beartype")


class StandIns(TorchFunctionMode):
    """While it is entered, torch functions see the second tensor of each pair in place of the first.

    wide: float32 that the code asks for by name becomes float64, so that code written for float32 runs in float64.

    `x.item()` is x without its gradient, as a tensor still: a number to be logged or to multiply by, not yet known.
    """

    def __init__(self, pairs: Iterable[tuple[Tensor, Tensor]], wide: bool = False):
        super().__init__()
        self._pairs = list(pairs)  # held: an id is only good while its tensor lives
        self._others = {id(one): other for one, other in self._pairs}
        self._wide = wide
        self._replaced = ExitStack()

    def __enter__(self) -> "StandIns":
        self._replaced.enter_context(apply_replaced(self._apply))
        self._replaced.enter_context(_transforms_replaced(self._transform))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._replaced.close()

    def _apply(self, function: Any, apply: Callable[..., Any], args: tuple) -> Any:
        """An autograd.Function, whose arguments torch does not show to a mode."""
        return apply(*tree_map_only(Tensor, self.of, args))

    def _transform(self, take: Callable[..., Tensor], tensor: Tensor, *rest: Any) -> Tensor:
        """An argument of vmap or grad, which torch does not show to a mode either."""
        return take(self.of(tensor), *rest)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(Tensor, self.of, (args, kwargs or {}))
        if func is Tensor.item and _caller():
            return number(args[0])
        if self._wide:
            func = Tensor.double if func is Tensor.float else func
            args, kwargs = tree_map_only(torch.dtype, lambda dtype: WIDER.get(dtype, dtype), (args, kwargs))
        return func(*args, **kwargs)

    def of(self, tensor: Tensor) -> Tensor:
        """The stand-in of a tensor, or the tensor itself."""
        return self._others.get(id(tensor), tensor)


def number(tensor: Tensor) -> Tensor:
    """What `item()` gives where values are not known yet."""
    return tensor.detach().reshape(())


class Watching(StandIns):
    """Stand-ins that also note which tensors a function reads that are neither given nor made by itself.

    A function that takes numbers out of tensors is refused: what it does with them cannot be followed.
    """

    def __init__(self, pairs: Iterable[tuple[Tensor, Tensor]], given: Iterable[Tensor]):
        super().__init__(pairs)
        self.outside: list[Tensor] = []
        self._known = {id(tensor): tensor for tensor in (*given, *(other for _, other in self._pairs))}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.backward and (place := _caller()):
            raise UsageError(
                f"{place}: the loss calls backward(), which the step does. Return the loss; zero_grad, backward, "
                f"clipping and the optimiser's step are left out."
            )
        if func in ESCAPES and (place := _caller()):
            raise UsageError(
                f"{place}: the loss takes a number out of a tensor ({ESCAPES[func]}), and what follows from it would "
                f"be compiled in. Use torch.where for a choice, return what is to be logged as info, or compute it "
                f"outside of the loss and pass it in the batch."
            )
        self._note((args, kwargs or {}))
        return self._made(super().__torch_function__(func, types, args, kwargs))

    def _apply(self, function: Any, apply: Callable[..., Any], args: tuple) -> Any:
        return self._made(super()._apply(function, apply, args))

    def _transform(self, take: Callable[..., Tensor], tensor: Tensor, *rest: Any) -> Tensor:
        self._note(tensor)
        return self._made(super()._transform(take, tensor, *rest))

    def _note(self, args: Any) -> None:
        for tensor in tree_leaves(args):
            if isinstance(tensor, Tensor) and id(tensor) not in self._known and id(tensor) not in self._others:
                self.outside.append(tensor)
                self._known[id(tensor)] = tensor

    def _made(self, out: Any) -> Any:
        self._known.update({id(tensor): tensor for tensor in tree_leaves(out) if isinstance(tensor, Tensor)})
        return out


@contextmanager
def _transforms_replaced(replacement: Callable[..., Tensor]) -> Iterator[None]:
    """Where vmap or grad would `take(tensor, ...)`, it is `replacement(take, tensor, ...)` for a while."""
    modules = [(sys.modules[module], name) for module, name in TRANSFORMS.items() if module in sys.modules]
    before = [(module, name, getattr(module, name)) for module, name in modules if hasattr(module, name)]
    for module, name, take in before:
        setattr(module, name, lambda tensor, *rest, take=take: replacement(take, tensor, *rest))
    try:
        yield
    finally:
        for module, name, take in before:
            setattr(module, name, take)


def _caller() -> str | None:
    """The line that called torch; None if that was torch itself, which checks its arguments."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(SKIPPED):
        frame = frame.f_back
    if frame.f_code.co_filename.startswith(TORCH):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
