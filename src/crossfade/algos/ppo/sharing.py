"""The environments of a compiled program shared among devices: every device steps its own and learns from its own share
of every minibatch. Within `spread` the functions below talk between the devices; with one device they do nothing.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Int32, PyTree, Shaped

from ...errors import UsageError

AXIS = "devices"
EVERYWHERE, SHARED = PartitionSpec(), PartitionSpec(AXIS)
Tree = TypeVar("Tree")


def mesh(devices: int) -> jax.sharding.Mesh:
    """The first devices of the machine. On a CPU they are made of its cores, when JAX is first used."""
    if devices > 1:
        with suppress(RuntimeError):  # it is in use; there may be enough of them
            jax.config.update("jax_num_cpu_devices", devices)
    if devices > (found := jax.device_count()):
        raise UsageError(
            f"devices: expected at most {found}, which is what JAX has in this process, got {devices}. On a CPU begin "
            f"with jax.config.update('jax_num_cpu_devices', {devices}), or set JAX_NUM_CPU_DEVICES={devices}."
        )
    return jax.make_mesh((devices,), (AXIS,), devices=jax.devices()[:devices])


def place(tree: Tree, devices: int, spec: PyTree = EVERYWHERE) -> Tree:
    """The arrays on the devices, where a program over so many will look for them."""
    if devices == 1:
        return jax.tree.map(jnp.asarray, tree)
    return jax.device_put(tree, jax.tree.map(lambda one: NamedSharding(mesh(devices), one), spec))


def spread(program: Callable[..., Any], devices: int, in_specs: PyTree, out_specs: PyTree) -> Callable[..., Any]:
    """A program that runs on every device on its own part of what is shared."""
    if devices == 1:
        return program
    return jax.shard_map(program, mesh=mesh(devices), in_specs=in_specs, out_specs=out_specs, check_vma=False)


def number(devices: int) -> Int32[Array, ""] | int:
    """Of the device that runs this."""
    return jax.lax.axis_index(AXIS) if devices > 1 else 0


def part(tree: Tree, devices: int, axis: int = 0) -> Tree:
    """This device's part of what all have."""
    if devices == 1:
        return tree

    def own(x: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        size = x.shape[axis] // devices
        return jax.lax.dynamic_slice_in_dim(x, number(devices) * size, size, axis)

    return jax.tree.map(own, tree)


def whole(tree: Tree, devices: int, axis: int = 0) -> Tree:
    """The parts of all devices, on each."""
    if devices == 1:
        return tree
    return jax.tree.map(lambda x: jax.lax.all_gather(x, AXIS, axis=axis, tiled=True), tree)


def each(tree: Tree, devices: int) -> Tree:
    """The trees of all devices, stacked."""
    if devices == 1:
        return jax.tree.map(lambda x: x[None], tree)
    flat, back = ravel_pytree(tree)
    return jax.vmap(back)(jax.lax.all_gather(flat, AXIS))


def total(tree: Tree, devices: int) -> Tree:
    """The sum over the devices."""
    if devices == 1:
        return tree
    flat, back = ravel_pytree(tree)
    return back(jax.lax.psum(flat, AXIS))


def mean(tree: Tree, devices: int) -> Tree:
    """The mean over the devices."""
    return jax.tree.map(lambda x: x / devices, total(tree, devices)) if devices > 1 else tree
