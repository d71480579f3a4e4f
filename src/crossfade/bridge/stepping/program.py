"""The pure half of `bridge.Step`: one training step as a function of flat vectors, to be compiled by XLA.

Parameters keep torch's layout: each group of the optimiser is one flat vector, cut into leaves and carried through the
mapping's rules inside the compiled function, where a transposition costs nothing. Only numbers that change from step to
step, the learning rates and the counts of updates, are arguments; every other hyper-parameter is a constant.

Three details decide the speed, all measured (docs/step_speed.md):

- Gradients are taken with respect to the leaves. Through the slices of one vector XLA pads and adds vector by vector.
- Leaves are written one by one over a copy of the parameters. A `concatenate` gets fused with the sums that make the
  bias gradients, and the fused kernel issues masked loads far behind its inputs: free where those pages are present,
  127 ns each where they are not. In some processes a 1 ms step then takes 6 ms. Zeros to write over become a `pad`,
  which does the same.
- Large parameters stay apart where there are several cores: one is updated while the gradient of another is computed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import Literal
from jaxtyping import Array, Float, PyTree

from ...errors import NoCounterpart, UsageError
from ...optim.state import OptimizerState, slots
from ..libraries import JaxModel, open_model
from ..mapping import Mapping
from ..optimizers.clipping import clipping
from ..optimizers.transforms import map_slots, read_slots, transformation

Named = dict[str, Any]  # arrays by name
State = tuple[tuple[Any, Named], ...]  # of each group, in its form: parameters, and moments by torch slot
Numbers = Float[Array, " numbers"]  # of each group: its learning rate, and how many updates it has had

ALIGNED = 16  # elements: where a parameter may start, so that XLA can read it in place
COUNTS = ("step", "started")  # slots of optax that follow from the count of updates


@dataclass(frozen=True)
class Group:
    """Parameters that share hyper-parameters, laid end to end."""

    shapes: dict[str, tuple[int, ...]]
    hyper: dict[str, Any]  # torch's, as in OptimizerState.groups
    apart: bool = False  # the program has its parameters apart, not as one vector

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """Start and end of each parameter in the flat vector."""
        sizes = [prod(shape) for shape in self.shapes.values()]
        starts = accumulate((-(-size // ALIGNED) * ALIGNED for size in sizes), initial=0)
        return {n: (start, start + size) for n, size, start in zip(self.shapes, sizes, starts, strict=False)}

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return max(end for _, end in self.places.values())

    @property
    def form(self) -> Any:
        """How the program has it: one vector, or an array for each parameter."""
        return dict.fromkeys(self.shapes, 0) if self.apart else 0

    def cut(self, flat: Any) -> Named:
        """The leaves of a flat vector; those of parameters that are apart are there already."""
        if isinstance(flat, dict):
            return flat
        return {n: flat[a:b].reshape(self.shapes[n]) for n, (a, b) in self.places.items()}

    def as_formed(self, flat: Any) -> Any:
        """A flat vector as the program has it."""
        return self.cut(flat) if self.apart else flat

    def lay(self, named: Named) -> np.ndarray:
        """The flat vector of some leaves, in NumPy."""
        flat = np.zeros(self.size, np.asarray(named[next(iter(self.shapes))]).dtype)
        for name, leaf in self.cut(flat).items():
            leaf[...] = named[name]
        return flat

    def lay_traced(self, named: Named, over: Any) -> Any:
        """Some leaves as the program has them, inside a compiled function; a flat vector is laid over another one."""
        if self.apart:
            return {name: named[name] for name in self.shapes}
        ends = [end for _, end in self.places.values()]
        starts = [start for start, _ in self.places.values()]
        for name, start in zip(self.places, starts, strict=True):
            over = jax.lax.dynamic_update_slice(over, named[name].reshape(-1), (start,))
        for end, start in zip(ends, starts[1:], strict=False):
            if end < start:
                over = jax.lax.dynamic_update_slice(over, jnp.zeros(start - end, over.dtype), (end,))
        return over


@dataclass(frozen=True)
class Program:
    """What one step computes: the loss of the mapped model, its gradient, clipping, and torch's optimiser."""

    mapping: Mapping
    jax_loss: Callable[[Any, Any], Any]
    kind: str  # of the optimiser, as in OptimizerState
    groups: tuple[Group, ...]
    buffers: frozenset[str]  # names among the fixed arrays that a returned model may update
    clip_norm: float | None = None
    clip_value: float | None = None
    set_to_none: bool = True  # whether what the loss does not use has no gradient, or one of zeros

    @cached_property
    def opened(self) -> JaxModel:
        return self.mapping.opened

    def loss(self, trained: Named, fixed: Named, batch: PyTree) -> tuple[Float[Array, ""], tuple[Any, Named]]:
        """The loss, and beside it the user's info (None when not given) and the updated buffers."""
        dtype = next(iter(trained.values())).dtype
        kept = self.opened.leaves()
        leaves = {path: _as_float(kept[path], dtype) for path in self.mapping.jax_only}
        leaves |= self.mapping.leaves_to_jax(trained | fixed)
        loss, info, model = _parts(self.jax_loss(self.opened.replace(leaves), batch))
        updated = {}
        if model is not None:
            returned = {p: a for p, a in open_model(model).leaves().items() if p not in self.mapping.jax_only}
            named = self.mapping.leaves_to_torch(returned)
            updated = {name: named[name].astype(fixed[name].dtype) for name in self.buffers if name in named}
        return loss, (info, updated)

    def update(self, state: State, fixed: Named, numbers: Numbers, batch: PyTree):
        """One step: the new state and fixed arrays, the loss, the info and the gradients before clipping."""
        trained = self.cut(state)
        (loss, (info, updated)), grads = jax.value_and_grad(self.loss, has_aux=True)(trained, fixed, batch)
        flats: Any = [group.lay_traced(grads, flat) for group, (flat, _) in zip(self.groups, state, strict=True)]
        if (clip := clipping(self.clip_norm, self.clip_value)) is not None:
            flats, _ = clip.update(flats, clip.init(flats))
        new = []
        for i, (group, grad, (flat, moments)) in enumerate(zip(self.groups, flats, state, strict=True)):
            rate, count = numbers[2 * i], numbers[2 * i + 1].astype(jnp.int32)
            chain = transformation(self.kind, group.hyper, lambda _, rate=rate: rate)
            known = {**moments, "step": count, "started": count > 0}
            before = map_slots(lambda slot, _, known=known: known[slot], chain.init(flat))
            change, after = chain.update(grad, before, flat)
            kept = {slot: value for slot, value in read_slots(after) if slot not in COUNTS}
            new.append((optax.apply_updates(flat, change), kept))
        return tuple(new), fixed | updated, loss, info, grads

    def step(self, state: State, fixed: Named, numbers: Numbers, batch: PyTree):
        """`update` without the gradients, giving back only the fixed arrays that changed."""
        state, after, loss, info, _ = self.update(state, fixed, numbers, batch)
        return state, {n: a for n, a in after.items() if a is not fixed[n]}, loss, info

    def epoch(self, state: State, fixed: Named, numbers: Numbers, batches: PyTree):
        """Steps over the leading axis of `batches`; losses and infos come back with that axis."""
        one_more = jnp.array([0, 1] * len(self.groups), numbers.dtype)

        def body(carry, batch):
            state, fixed, numbers = carry
            state, fixed, loss, info, _ = self.update(state, fixed, numbers, batch)
            return (state, fixed, numbers + one_more), (loss, info)

        (state, after, _), (losses, infos) = jax.lax.scan(body, (state, fixed, numbers), batches)
        return state, {n: after[n] for n in self.buffers}, losses, infos

    def on_arrays(self, method: Callable, batch: Callable[[Any], PyTree], fixed: Iterable[str]) -> Callable:
        """`step` or `epoch` as a function of arrays, which compiled functions take quicker than trees.

        They are: spare ones, moments, parameters, fixed ones, numbers, those of the batch. Spare ones, if any, are like
        the moments and parameters; nobody needs them, and the new ones go where they were.
        """
        parameters, slots, names = self.structure, self.moments_structure, tuple(fixed)
        counts = (self.spares, slots.num_leaves, parameters.num_leaves, len(names), 1)
        *starts, last = accumulate(counts, initial=0)

        def function(*arrays: Any):
            _, moments, flats, fixed, (numbers,) = (arrays[a : a + n] for a, n in zip(starts, counts, strict=True))
            state = tuple(zip(parameters.unflatten(flats), slots.unflatten(moments), strict=True))
            named = dict(zip(names, fixed, strict=True))
            state, buffers, loss, info = method(state, named, numbers, batch(arrays[last:]))
            flats, moments = (jax.tree.leaves([half[i] for half in state]) for i in range(2))
            return moments, flats, buffers, loss, info

        return function

    @property
    def spares(self) -> int:
        """How many spare arrays a program is given: for all moments and parameters where they are large, or none."""
        large = any(group.apart for group in self.groups)
        return self.moments_structure.num_leaves + self.structure.num_leaves if large else 0

    @property
    def structure(self) -> PyTree:
        """The parameters by group, as a tree."""
        return jax.tree.structure([group.form for group in self.groups])

    @property
    def trained(self) -> list[str]:
        """The parameters it trains."""
        return [name for group in self.groups for name in group.shapes]

    @property
    def moments_structure(self) -> PyTree:
        """The moments by group and slot, as a tree."""
        return jax.tree.structure([dict.fromkeys(slots(self.kind, g.hyper), g.form) for g in self.groups])

    def cut(self, state: Iterable[tuple[Any, Any]]) -> Named:
        """All trained parameters by torch name."""
        return {
            n: leaf for group, (flat, _) in zip(self.groups, state, strict=True) for n, leaf in group.cut(flat).items()
        }

    def with_hyper(self, hypers: list[dict[str, Any]]) -> "Program":
        """The same program with other hyper-parameters."""
        return replace(self, groups=tuple(replace(g, hyper=h) for g, h in zip(self.groups, hypers, strict=True)))

    # The optimiser's state on its way in and out

    def state(self, named: Named, optimizer: OptimizerState) -> State:
        """The state on the JAX side, from parameters by name and the torch optimiser's moments."""
        flats = [jax.tree.map(jnp.array, group.as_formed(group.lay(named))) for group in self.groups]
        return tuple(zip(flats, self.moments_to_jax(optimizer), strict=True))

    def moments_to_jax(self, optimizer: OptimizerState) -> list[Named]:
        """The torch optimiser's moments, by group and slot."""
        laid = [
            {
                slot: group.as_formed(group.lay({n: optimizer.moments[n][slot] for n in group.shapes}))
                for slot in slots(self.kind, group.hyper)
            }
            for group in self.groups
        ]
        return jax.tree.map(jnp.array, laid)

    def steps(self, optimizer: OptimizerState) -> list[int]:
        """How many updates each group has had."""
        counts = []
        for group in self.groups:
            steps = {name: int(optimizer.moments[name]["step"]) for name in group.shapes}
            if len(set(steps.values())) > 1:
                raise NoCounterpart(
                    f"expected the parameters of a group at one step, got {steps}. torch had no gradient for some of "
                    f"them at times: give these a parameter group of their own."
                )
            counts.append(next(iter(steps.values())))
        return counts

    def moments_to_torch(self, laid: Iterable[Named], steps: list[int]) -> dict[str, dict[str, np.ndarray]]:
        """Torch's moments by name and slot, of groups that have had `steps` updates."""
        named: dict[str, dict[str, np.ndarray]] = {}
        for group, moments, updates in zip(self.groups, laid, steps, strict=True):
            count = {"step": np.asarray(updates, np.float32)}
            named |= {n: dict(count) for n in group.shapes}
            for slot, flat in moments.items():
                for name, leaf in group.cut(jax.tree.map(np.asarray, flat)).items():
                    named[name][slot] = leaf.copy()
        return named


def idle(program: Program, trained: Named, fixed: Named, batch: PyTree) -> list[str]:
    """Parameters the loss does not depend on: their gradient is zero and computed from nothing. torch skips them."""
    grad = lambda *arguments: jax.grad(program.loss, has_aux=True)(*arguments)[0]
    jaxpr, shapes = jax.make_jaxpr(grad, return_shape=True)(trained, fixed, batch)
    source = {out: eqn for eqn in jaxpr.jaxpr.eqns for out in eqn.outvars}
    inputs = set(jaxpr.jaxpr.invars) | set(jaxpr.jaxpr.constvars)

    def constant(variable: Any) -> bool:
        todo, seen = [variable], set()
        while todo:
            variable = todo.pop()
            if isinstance(variable, Literal) or variable in seen:
                continue
            if variable in inputs:
                return False
            seen.add(variable)
            todo += source[variable].invars
        return True

    names = jax.tree.leaves({name: name for name in shapes})
    constants = [n for n, out in zip(names, jaxpr.jaxpr.outvars, strict=True) if constant(out)]
    if not constants:
        return []
    values = jax.jit(grad)(trained, fixed, batch)
    return [name for name in constants if not np.any(np.asarray(values[name]))]


def _parts(returned: Any) -> tuple[Any, Any, Any]:
    match returned:
        case (loss, info, model):
            return loss, info, model
        case (loss, info):
            return loss, info, None
        case tuple():
            raise UsageError(f"expected jax_loss to return loss, (loss, info) or (loss, info, model); got {returned!r}")
        case loss:
            return loss, None, None


def _as_float(leaf: Any, dtype: Any) -> Any:
    return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
