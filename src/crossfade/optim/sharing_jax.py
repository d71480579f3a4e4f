"""One program over several devices: each steps its own environments and learns from its own part of every minibatch.

`spread` makes such a program; within it the functions below cut up and bring together. With one device they do nothing.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Int32, PyTree, Shaped

from ..errors import UsageError

AXIS = "devices"
EVERYWHERE, SHARED = PartitionSpec(), PartitionSpec(AXIS)
Tree = TypeVar("Tree")


SMALL = 2**20
"""Bytes of an array that is not copied for the sake of one message less: each takes 50 us on a CPU, however short."""
MEETING = 10e6
"""Floating-point operations of a core in the time that devices take to meet."""


def pays(operations: int, devices: int) -> bool:
    """Whether sharing so much arithmetic saves more time than the meeting after it takes."""
    return (1 - 1 / devices) * operations > MEETING


def mesh(devices: int) -> jax.sharding.Mesh:
    """The first devices that JAX has. On a CPU it makes as many as it was told to when it was first used."""
    if devices > 1:
        with suppress(RuntimeError):  # in use already: then with enough of them, or not
            jax.config.update("jax_num_cpu_devices", devices)
    if devices > (found := jax.device_count()):
        raise UsageError(
            f"devices: expected at most {found}, which is what JAX has in this process, got {devices}. On a CPU set "
            f"JAX_NUM_CPU_DEVICES={devices}, or call jax.config.update('jax_num_cpu_devices', {devices}) first of all."
        )
    return jax.make_mesh((devices,), (AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])


def place(tree: Tree, devices: int, spec: PyTree = EVERYWHERE) -> Tree:
    """The arrays on the devices, where a program over so many will look for them."""
    if devices == 1:
        return jax.tree.map(jnp.asarray, tree)
    first = jax.tree.leaves(tree)[0]
    if isinstance(first, jax.Array) and len(first.sharding.device_set) == devices:
        return tree  # from the program itself
    there = mesh(devices)
    return jax.device_put(tree, jax.tree.map(lambda one: NamedSharding(there, one), spec))


def on_first_device(tree: Tree, devices: int) -> Tree:
    """What all devices hold, on the first of this host alone."""
    return tree if devices == 1 else jax.device_put(here(tree), jax.local_devices()[0])


def here(tree: Tree) -> Tree:
    """What all devices hold, and what is shared among hosts in one piece: as every host can read it by itself. All must
    ask for it."""

    def readable(x: Any) -> Any:
        if not isinstance(x, jax.Array) or x.is_fully_addressable:
            return x
        return x.addressable_data(0) if x.is_fully_replicated else multihost_utils.process_allgather(x, tiled=True)

    return jax.tree.map(readable, tree)


def spread(program: Callable[..., Any], devices: int, in_specs: PyTree, out_specs: PyTree) -> Callable[..., Any]:
    """The program as each device runs it, with its own part of what is `SHARED`."""
    if devices == 1:
        return program
    return jax.shard_map(program, mesh=mesh(devices), in_specs=in_specs, out_specs=out_specs, check_vma=False)


def number(devices: int) -> Int32[Array, ""] | int:
    """The number of the device that runs this."""
    return jax.lax.axis_index(AXIS) if devices > 1 else 0


def part(tree: Tree, devices: int, axis: int = 0) -> Tree:
    """This device's part of what all of them have."""
    if devices == 1:
        return tree

    def own(x: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        size = x.shape[axis] // devices
        return jax.lax.dynamic_slice_in_dim(x, number(devices) * size, size, axis)

    return jax.tree.map(own, tree)


def gather(tree: Tree, devices: int, axis: int = 0) -> Tree:
    """The parts of all devices, concatenated; small arrays of a dtype in one message."""
    if devices == 1:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    together: dict[Any, list[int]] = {}
    for i, leaf in enumerate(leaves):
        together.setdefault(leaf.dtype if leaf.nbytes <= SMALL else i, []).append(i)
    for places in together.values():
        found = jax.lax.all_gather(jnp.concatenate([leaves[i].ravel() for i in places]), AXIS)
        sizes = np.cumsum([leaves[i].size for i in places])
        for i, columns in zip(places, jnp.split(found, sizes[:-1], axis=1), strict=True):
            shape = leaves[i].shape
            beside = jnp.moveaxis(columns.reshape(devices, *shape), 0, axis)
            leaves[i] = beside.reshape(*shape[:axis], devices * shape[axis], *shape[axis + 1 :])
    return jax.tree.unflatten(structure, leaves)


def gather_list(tree: Tree, devices: int) -> list[Tree]:
    """The value of every device, in their order."""
    if devices == 1:
        return [tree]
    flat, back = ravel_pytree(tree)
    return [back(one) for one in jax.lax.all_gather(flat, AXIS)]


def total(tree: Tree, devices: int) -> Tree:
    """The sum over the devices, in one message: on a CPU each takes 50 us, however short it is."""
    if devices == 1:
        return tree
    flat, back = ravel_pytree(tree)
    return back(jax.lax.psum(flat, AXIS))


def total_of_large(tree: Tree, devices: int) -> Tree:
    """The sum over the devices, a message for every array: copying them into one takes longer if they are large."""
    return tree if devices == 1 else jax.lax.psum(tree, AXIS)


def largest(x: Shaped[Array, ""], devices: int) -> Shaped[Array, ""]:
    """The maximum over the devices."""
    return x if devices == 1 else jax.lax.pmax(x, AXIS)


def mean(tree: Tree, devices: int) -> Tree:
    """The mean over the devices."""
    return tree if devices == 1 else jax.tree.map(lambda x: x / devices, total(tree, devices))
