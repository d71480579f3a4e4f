"""A JAX function of arrays as a torch function that autograd can differentiate, any number of times.

torch never differentiates the torch calls. JAX is asked for the derivative of the function, as `jax.vjp` gives it, and
that is imported too: so custom rules, stopped gradients and every convention at a kink are JAX's own. The forward
program returns, beside the outputs, what the backward one needs. A derivative of the derivative starts again from
the arguments: it is the derivative of the imported function (arguments, cotangents) -> gradients.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.extend.core import ClosedJaxpr, Literal
from torch import Tensor

from ...errors import NoCounterpart, UsageError
from ..jaxprs import closed_jaxpr, inlined
from .programs import Program


class Flat:
    """`function(*arrays) -> list of arrays` at arguments of the types `types`, on carried tensors (dtypes.py).

    wide: whether JAX traces it with its 64-bit types on.
    """

    def __init__(self, function: Callable[..., Sequence[Any]], types: Sequence[Any], wide: bool) -> None:
        self.function, self.types, self.wide = function, tuple(types), wide
        self._moving: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._derivatives: dict[tuple[int, ...], Derivative] = {}

    def traced(self, function: Callable[..., Any], *types: Any) -> ClosedJaxpr:
        """The jaxpr of another function under the same settings."""
        with jax.enable_x64(self.wide):
            return closed_jaxpr(function, *types)

    @cached_property
    def closed(self) -> ClosedJaxpr:
        return self.traced(self.function, *self.types)

    @cached_property
    def program(self) -> Program:
        return Program(self.closed)

    def moving(self, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """The outputs that depend on the arguments `wanted`, other than through integers and stopped gradients."""
        if wanted not in self._moving:
            self._moving[wanted] = _depending(self.closed, wanted)
        return self._moving[wanted]

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        tracked = torch.is_grad_enabled()
        wanted = tuple(i for i, x in enumerate(tensors) if tracked and x.requires_grad and x.is_floating_point())
        if not wanted or not (moving := self.moving(wanted)):
            with torch.no_grad():
                return owned(self.program(*tensors), tensors)
        if wanted not in self._derivatives:
            self._derivatives[wanted] = Derivative(self, wanted, moving)
        results = _Differentiable.apply(self._derivatives[wanted], *tensors)
        return list(results[: len(self.closed.out_avals)])


class Derivative:
    """The derivative of the outputs `moving` of a flat function by the arguments `wanted`, as two programs."""

    def __init__(self, flat: Flat, wanted: tuple[int, ...], moving: tuple[int, ...]) -> None:
        self.flat, self.wanted, self.moving = flat, wanted, moving
        self.outputs = len(flat.closed.out_avals)
        residual_tree: list[Any] = []

        def forward(*args):
            outputs, pullback, others = self._vjp(args)
            residuals, tree = jax.tree.flatten(pullback)
            residual_tree.append(tree)
            return self._merged(outputs, others), residuals

        closed = self._traced(forward, *flat.types)
        arguments, results = closed.jaxpr.invars, closed.jaxpr.outvars
        unique = [v for v in dict.fromkeys(v for v in results[self.outputs :] if not isinstance(v, Literal))]
        unique = [v for v in unique if v not in arguments]
        found = {v: i for i, v in enumerate([*arguments, *unique])}
        self._places = [None if isinstance(v, Literal) else found[v] for v in results[self.outputs :]]
        self._literals = [v.val if isinstance(v, Literal) else None for v in results[self.outputs :]]
        self.forward = Program(closed, [*results[: self.outputs], *unique])
        self._tree, self._residuals = residual_tree[-1], closed.out_avals[self.outputs :]

    def _traced(self, function: Callable[..., Any], *types: Any) -> ClosedJaxpr:
        try:
            return self.flat.traced(function, *types)
        except ValueError as error:  # JAX's word for loops whose length is not known
            raise UsageError(
                f"JAX cannot differentiate this function: {str(error).splitlines()[0]} Write the loop as a scan, or "
                f"call the function under torch.no_grad()."
            ) from error

    def _vjp(self, args: Sequence[Any]) -> Any:
        """`jax.vjp` of the moving outputs as functions of the wanted arguments, with the other outputs."""

        def of_wanted(*values):
            given = dict(zip(self.wanted, values, strict=True))
            outputs = self.flat.function(*(given.get(i, x) for i, x in enumerate(args)))
            return [outputs[i] for i in self.moving], [x for i, x in enumerate(outputs) if i not in self.moving]

        return jax.vjp(of_wanted, *(args[i] for i in self.wanted), has_aux=True)

    def _merged(self, moving: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        first, second = iter(moving), iter(others)
        return [next(first) if i in self.moving else next(second) for i in range(self.outputs)]

    @cached_property
    def _cotangents(self) -> list[jax.ShapeDtypeStruct]:
        avals = [self.flat.closed.out_avals[i] for i in self.moving]
        return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]

    @cached_property
    def backward(self) -> Program:
        """(what the forward program kept, cotangents) -> gradients."""
        kept = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in self._residuals]
        given = [i for i, place in enumerate(self._places) if place is not None]

        def backward(*args):
            residuals = list(self._literals)
            for i, value in zip(given, args, strict=False):
                residuals[i] = value
            return jax.tree.unflatten(self._tree, residuals)(list(args[len(given) :]))

        return Program(self._traced(backward, *(kept[i] for i in given), *self._cotangents))

    def residuals(self, saved: Sequence[Tensor]) -> list[Tensor]:
        """What the backward program is given of the arguments and of what the forward program kept."""
        return [saved[place] for place in self._places if place is not None]

    @cached_property
    def again(self) -> Flat:
        """(arguments, cotangents) -> gradients, for autograd to differentiate."""
        count = len(self.flat.types)

        def gradients(*args):
            _, pullback, _ = self._vjp(args[:count])
            return list(pullback(list(args[count:])))

        return Flat(gradients, [*self.flat.types, *self._cotangents], self.flat.wide)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(derivative: Derivative, *tensors: Tensor) -> tuple[Tensor, ...]:
        results = derivative.forward(*tensors)
        outputs = owned(results[: derivative.outputs], tensors)
        return (*outputs, *_apart(results[derivative.outputs :], [*tensors, *outputs]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.derivative, *tensors = inputs
        ctx.mark_non_differentiable(*(x for i, x in enumerate(output) if i not in ctx.derivative.moving))
        ctx.save_for_backward(*tensors, *output[ctx.derivative.outputs :])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        derivative: Derivative = ctx.derivative
        given = [cotangents[i] for i in derivative.moving]
        arguments = len(derivative.flat.types)
        if torch.is_grad_enabled():  # create_graph=True
            gradients = derivative.again([*ctx.saved_tensors[:arguments], *given])
        else:
            gradients = derivative.backward(*derivative.residuals(ctx.saved_tensors), *given)
        found = dict(zip(derivative.wanted, gradients, strict=True))
        return None, *(found.get(i) for i in range(arguments))


def _depending(closed: ClosedJaxpr, wanted: tuple[int, ...]) -> tuple[int, ...]:
    flat = inlined(closed).jaxpr
    moving = {flat.invars[i] for i in wanted}
    for eqn in flat.eqns:
        if eqn.primitive.name != "stop_gradient" and any(v in moving for v in eqn.invars if not isinstance(v, Literal)):
            moving.update(v for v in eqn.outvars if jnp.issubdtype(v.aval.dtype, jnp.inexact))
    found = [i for i, v in enumerate(flat.outvars) if not isinstance(v, Literal) and v in moving]
    if any(jnp.issubdtype(flat.outvars[i].aval.dtype, jnp.complexfloating) for i in found):
        raise NoCounterpart(
            "torch and JAX define gradients of complex numbers differently. Return real and imaginary parts, or call "
            "the function under torch.no_grad()."
        )
    return tuple(found)


def _apart(kept: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    """The same values as objects of their own: autograd takes an object that is returned twice for one output."""
    seen, result = {id(x) for x in others}, []
    for x in kept:
        result.append(x.detach() if id(x) in seen else x)
        seen.add(id(x))
    return result


def owned(outputs: Sequence[Tensor], arguments: Sequence[Tensor]) -> list[Tensor]:
    """The outputs in memory of their own, so that writing to one changes nothing else."""
    seen, result = {x.untyped_storage().data_ptr() for x in arguments}, []
    for x in outputs:
        place = x.untyped_storage().data_ptr()
        result.append(x.clone(memory_format=torch.contiguous_format) if place in seen else x.contiguous())
        seen.add(place)
    return result
