"""`import_jax`: a JAX function as a torch function, with its trees of arguments and results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import PyTree
from torch import Tensor

from ...errors import TransferError, UsageError
from ..transfer_torch import numpy_to_tensor
from .derivatives import Flat
from .dtypes import CARRIERS, NAMES, TORCH, entered, left, name_of
from .modules import ArgumentModule

NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
Kind = tuple[Any, ...]  # what a leaf is to a trace: its shape and dtype, or the constant itself


def import_jax(fn: Callable[..., Any], *example: PyTree, **keywords: PyTree) -> "TorchFunction":
    """The torch function that computes what the JAX function `fn` computes, with JAX's gradients.

        loss = import_jax(jax_loss, params, batch)
        loss(params, batch).backward()

    `example` and `keywords` are arguments of `fn`: trees of arrays of either framework or NumPy, Equinox modules,
    states of NNX. The torch function takes the same trees with tensors for arrays (arrays are taken too) and gives
    `fn`'s tree with tensors; typed keys become the words of `crossfade.random` keys. Floats are traced; integers,
    booleans and what is no number are constants of a trace, so give a number that changes as a tensor. Any other
    shape, dtype, tree or constant traces `fn` anew: `traces` counts.

    64-bit types are on in JAX while `fn` is traced if they were when it was imported, or if a tensor is float64.
    """
    return TorchFunction(fn, example, keywords)


@dataclass
class Traced:
    """One trace: the function of arrays, and the tree that its results are leaves of."""

    flat: Flat
    tree: Any = None
    rest: list[Any] = field(default_factory=list)  # the leaves of the result; NotImplemented where an array stands
    names: list[str] = field(default_factory=list)  # dtypes of the arrays


class TorchFunction:
    """A JAX function that runs in torch; made by `import_jax`."""

    def __init__(self, fn: Callable[..., Any], example: Sequence[PyTree], keywords: dict[str, PyTree]) -> None:
        self._fn, self.example, self.keywords = fn, tuple(example), dict(keywords)
        self.wide = jnp.result_type(float) == jnp.float64
        leaves, self._tree = jax.tree.flatten((self.example, self.keywords))
        self._keys = {i for i, leaf in enumerate(leaves) if _is_key(leaf)}
        self._traces: dict[Any, Traced] = {}
        kinds, _, wide = self._read(leaves, self._tree)
        self._trace(kinds, self._tree, wide)

    @property
    def traces(self) -> int:
        """How often the function has been traced: once for each shape, dtype, tree and constant."""
        return len(self._traces)

    def __call__(self, *args: PyTree, **keywords: PyTree) -> PyTree:
        leaves, tree = jax.tree.flatten((args, keywords))
        kinds, tensors, wide = self._read(leaves, tree)
        traced = self._traces.get((tree, kinds, wide)) or self._trace(kinds, tree, wide)
        results = iter(left(x, name) for x, name in zip(traced.flat(tensors), traced.names, strict=True))
        leaves = [next(results) if leaf is NotImplemented else leaf for leaf in traced.rest]
        return jax.tree.unflatten(traced.tree, leaves)

    def module(self, argument: int | str = 0) -> ArgumentModule:
        """An argument of the example, such as a model or its parameters, as an `nn.Module`.

        Its parameters are the floating leaves, under their dotted paths; other arrays are buffers. It is called with
        the other arguments: `module(*others)` is `torch_fn(module's argument, *others)`.
        """
        if isinstance(argument, str) and argument in self.keywords:
            return ArgumentModule(self, argument, self.keywords[argument])
        if isinstance(argument, int) and -len(self.example) <= argument < len(self.example):
            place = argument % len(self.example)
            return ArgumentModule(self, place, self.example[place])
        raise UsageError(
            f"module: expected the number of one of {len(self.example)} arguments of the example or one of its "
            f"keywords {sorted(self.keywords)}, got {argument!r}. Give import_jax an example of that argument."
        )

    def _read(self, leaves: list[Any], tree: Any) -> tuple[tuple[Kind, ...], list[Tensor], bool]:
        """What each leaf is to a trace, the tensors among them as carried, and whether 64-bit types are on."""
        wide = self.wide or any(_dtype_name(leaf) in ("float64", "complex128") for leaf in leaves if _claims(leaf))
        keys = self._keys if tree == self._tree else set()
        device = next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), torch.device("cpu"))
        kinds, tensors = [], []
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, float):
                kinds.append(("number",))
                tensors.append(torch.tensor(leaf, dtype=torch.float64 if wide else torch.float32, device=device))
            elif isinstance(leaf, Tensor | jax.Array | np.ndarray | np.generic):
                name, tensor = _carried(leaf, wide, i in keys)
                kinds.append((name, tuple(tensor.shape)))
                tensors.append(tensor.to(device))
            else:
                kinds.append(("constant", _constant(leaf)))
        return tuple(kinds), tensors, wide

    def _trace(self, kinds: tuple[Kind, ...], tree: Any, wide: bool) -> Traced:
        types = [_type(kind) for kind in kinds if kind[0] != "constant"]

        def function(*arrays: Any) -> list[Any]:
            given = iter(arrays)
            leaves = [kind[1].value if kind[0] == "constant" else next(given) for kind in kinds]
            args, keywords = jax.tree.unflatten(tree, leaves)
            leaves, traced.tree = jax.tree.flatten(self._fn(*args, **keywords))
            number = lambda leaf: isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float | complex)
            traced.rest = [NotImplemented if number(leaf) else leaf for leaf in leaves]
            return [jnp.asarray(leaf) for leaf in leaves if number(leaf)]

        traced = Traced(Flat(function, types, wide))
        traced.names = [name_of(aval) for aval in traced.flat.closed.out_avals]
        traced.flat.program  # noqa: B018 - an operation torch has not is named here
        self._traces[tree, kinds, wide] = traced
        return traced


@dataclass(frozen=True)
class Constant:
    """A leaf that is no array: equal leaves share a trace; what cannot be hashed is equal to itself only."""

    value: Any

    def __hash__(self) -> int:
        return hash((type(self.value), _hashed(self.value)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or (_hashed(self.value) == _hashed(other.value) and self.value == other.value)


def _hashed(value: Any) -> int:
    try:
        return hash(value)
    except TypeError:
        return id(value)


def _constant(leaf: Any) -> Constant:
    return Constant(leaf)


def _type(kind: Kind) -> Any:
    name, *shape = kind
    if name == "number":
        return 0.0
    return jax.ShapeDtypeStruct(shape[0], jax.random.key(0).dtype if name == "key" else jnp.dtype(name))


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _claims(leaf: Any) -> bool:
    """Whether a leaf's dtype was chosen: NumPy's arrays are float64 unless told otherwise, and JAX narrows them."""
    return isinstance(leaf, Tensor) or (isinstance(leaf, jax.Array) and not _is_key(leaf))


def _dtype_name(leaf: Any) -> str | None:
    return NAMES.get(leaf.dtype) if isinstance(leaf, Tensor) else np.dtype(leaf.dtype).name


def _carried(leaf: Any, wide: bool, as_key: bool) -> tuple[str, Tensor]:
    """The name of a leaf's dtype in JAX, and the leaf as the program takes it."""
    if _is_key(leaf):
        name_of(leaf)
        return "key", entered(numpy_to_tensor(np.asarray(jax.random.key_data(leaf)).astype(np.int64)), "key")
    tensor = leaf if isinstance(leaf, Tensor) else numpy_to_tensor(leaf)
    name = NAMES.get(tensor.dtype)
    if name is None:
        raise TransferError(f"expected tensors of a dtype JAX computes with, got {tensor.dtype}. Cast them first.")
    if as_key and name in ("int64", "uint32"):
        if tensor.shape[-1:] != (2,):
            raise UsageError(f"expected the words of a crossfade.random key, last axis 2, got {tuple(tensor.shape)}.")
        return "key", entered(tensor, "key")
    if wide or name not in NARROW:
        return name, entered(tensor, name)
    narrow = NARROW[name]
    if narrow in ("int32", "uint32") and tensor.numel():
        info = torch.iinfo(TORCH[narrow])
        carried = entered(tensor, name)
        low, high = int(carried.min()), int(carried.max())
        if low < info.min or high > info.max:
            raise TransferError(
                f"expected integers that fit {narrow}, got {low} to {high}: JAX's 64-bit types are off. Import the "
                f"function inside `with jax.enable_x64(True):`, or give float64 tensors."
            )
    return narrow, tensor.to(CARRIERS[narrow])
