"""An argument of an imported JAX function, such as a model or its parameters, as an `nn.Module`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import PyTree
from torch import Tensor, nn

from ...errors import UsageError
from ..libraries import leaf_names
from ..transfer import key_to_jax
from ..transfer_torch import numpy_to_tensor, tensor_to_numpy

if TYPE_CHECKING:
    from .importing import TorchFunction

ROOT = "value"  # the name of an argument that is one array


@dataclass(frozen=True, eq=False)
class Form:
    """What an argument is besides its arrays: shared by all copies of its module."""

    function: "TorchFunction"
    place: int | str
    tree: Any
    leaves: list[Any]
    names: list[str | None]  # None: no array

    def __deepcopy__(self, memo: dict[int, Any]) -> "Form":
        return self


class ArgumentModule(nn.Module):
    """A tree of arrays whose floating leaves are parameters; the other arrays are buffers.

    A leaf's name is its dotted path, as in `bridge.match`: the parts are nested modules.
    """

    def __init__(self, function: "TorchFunction", place: int | str, argument: PyTree) -> None:
        super().__init__()
        leaves, tree = jax.tree.flatten(argument)
        paths = [path or ROOT for path in jax.tree.leaves(leaf_names(argument))]
        names: list[str | None] = [None] * len(leaves)
        for i, (path, leaf) in enumerate(zip(paths, leaves, strict=True)):
            if isinstance(leaf, Tensor | jax.Array | np.ndarray | np.generic):
                names[i] = self._register(path, _tensor(leaf))
        self.form = Form(function, place, tree, leaves, names)

    def forward(self, *args: PyTree, **keywords: PyTree) -> PyTree:
        """The function at the current values; `args` are its other arguments."""
        function, place = self.form.function, self.form.place
        if isinstance(place, str):
            return function(*args, **keywords, **{place: self.argument()})
        if len(args) < place:
            raise UsageError(f"expected the {place} arguments that come before this one, got {len(args)}.")
        return function(*args[:place], self.argument(), *args[place:], **keywords)

    def argument(self) -> PyTree:
        """The argument with the current tensors in place of its arrays."""
        current = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        pairs = zip(self.form.leaves, self.form.names, strict=True)
        return jax.tree.unflatten(self.form.tree, [leaf if name is None else current[name] for leaf, name in pairs])

    def to_jax(self) -> PyTree:
        """The argument with the current values in JAX arrays, as JAX code takes it."""
        current = jax.tree.leaves(self.argument())
        with jax.enable_x64(self.form.function.wide or any(_is_double(leaf) for leaf in current)):
            pairs = zip(current, self.form.leaves, strict=True)
            leaves = [_array(leaf, old) if isinstance(leaf, Tensor) else leaf for leaf, old in pairs]
        return jax.tree.unflatten(self.form.tree, leaves)

    def _register(self, name: str, tensor: Tensor) -> str:
        """Puts a tensor under its dotted name, a module for each part; the name it got."""
        parts = [_attribute(part) for part in name.split(".")]
        holder: nn.Module = self
        for part in parts[:-1]:
            if part not in holder._modules:
                holder.add_module(part, nn.Module())
            holder = holder._modules[part] or holder
        if parts[-1] in {**holder._parameters, **holder._buffers, **holder._modules}:
            raise UsageError(f"expected leaves of different names, got {name!r} twice. Rename one of them.")
        if tensor.is_floating_point():
            holder.register_parameter(parts[-1], nn.Parameter(tensor))
        else:
            holder.register_buffer(parts[-1], tensor)
        return ".".join(parts)


TAKEN = {*dir(nn.Module()), *dir(ArgumentModule), "form"}


def _attribute(part: str) -> str:
    """A part of a path as torch takes it: a name that `nn.Module` uses itself gets an underscore."""
    return f"{part}_" if not part or part in TAKEN else part


def _tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf.detach().clone()
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return numpy_to_tensor(np.asarray(jax.random.key_data(leaf)).astype(np.int64))
    return numpy_to_tensor(leaf)


def _array(tensor: Tensor, old: Any) -> jax.Array:
    if isinstance(old, jax.Array) and jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
        return key_to_jax(tensor)
    return jnp.asarray(tensor_to_numpy(tensor))


def _is_double(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype == torch.float64
