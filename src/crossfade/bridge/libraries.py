"""One view of a JAX model, whichever library wrote it: Equinox, Flax NNX, Flax linen, Haiku, or none.

`open_model` takes what users of that library hold in their hands and gives the trainable tree that optax is given,
the rest of the arrays, and the way back:

    Equinox   module, {name: module}        or (module, eqx.nn.State)
    NNX       module
    linen     (module, variables)
    Haiku     (transformed, params)         or (transformed_with_state, (params, state))
    none      NamedArrays: arrays by torch name, the model of an imported loss
    Flax      TrainState
    none      (apply_fn, params)            or any pytree of arrays, called by what is passed as `jax_apply`

Equinox and Haiku keep batch statistics as sums that still have to be divided by a count of steps; torch keeps plain
averages. `JaxModel.complete` gives the equal model whose sums are plain averages, as after very many steps: that is
the only form in which statistics cross, and from which training goes on as torch would.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..errors import UsageError

MANY = 2**30  # steps after which a running average has forgotten its start, with room to count on in 32 bits


class NamedArrays(dict[str, Any]):
    """Arrays by torch name, in torch's layout."""


@dataclass(frozen=True)
class JaxModel:
    """A model taken apart: `build(params, state)` gives back the same kind of thing that was opened."""

    library: str
    params: PyTree  # trainable; the tree given to `optax`'s init and update
    state: PyTree  # every other array: batch statistics, counters, random keys
    build: Callable[[PyTree, PyTree], Any]
    call: Callable[[Any, Any], Any]  # (model, x) -> y, as this library's users write it for a batch
    inference: Callable[[Any], Any] = lambda model: model  # the model with dropout off and running statistics in use
    complete: Callable[[Any], Any] = lambda model: model  # the model with running averages that need no correction

    def leaves(self) -> dict[str, Any]:
        """Every array by its dotted path, parameters first."""
        return {**named_leaves(self.params), **named_leaves(self.state)}

    def replace(self, leaves: dict[str, Any]) -> Any:
        """The model with the named leaves put in place; leaves not named stay as they are."""
        swap = lambda tree: jax.tree.map(lambda name, leaf: leaves.get(name, leaf), leaf_names(tree), tree)
        return self.build(swap(self.params), swap(self.state))


def leaf_names(tree: PyTree) -> PyTree:
    """The same tree with each leaf replaced by its dotted path."""
    return jax.tree_util.tree_map_with_path(lambda path, _: _dotted(path), tree)


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Leaves by dotted path."""
    return {_dotted(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _dotted(path) -> str:
    words = [str(getattr(k, "name", getattr(k, "key", getattr(k, "idx", None)))) for k in path]
    if len(words) > 1 and words[-1] == "value" and hasattr(path[-1], "name"):  # inside an NNX Variable
        words = words[:-1]
    return ".".join(words)


def open_model(model: Any) -> JaxModel:
    """Takes a JAX model apart; the library is recognised from the object itself."""
    if isinstance(model, NamedArrays):
        return _named_arrays(model)
    for module, opener in OPENERS.items():
        if module in sys.modules and (opened := opener(model)) is not None:
            return opened
    raise UsageError(
        f"expected a JAX model: an Equinox or NNX module, (linen_module, variables), (haiku_transformed, params), a "
        f"TrainState, (apply_fn, params) or a pytree of arrays; got {type(model).__module__}."
        f"{type(model).__qualname__}. Give a bare function together with its parameters."
    )


def _named_arrays(model: NamedArrays) -> JaxModel:
    def call(model: Any, x: Any) -> Any:
        raise UsageError("expected a model that can be called, got arrays by name. Pass jax_apply.")

    return JaxModel("no library", dict(model), {}, lambda params, _: NamedArrays(params), call)


def initialised(model: Any, x: Any) -> Any:
    """A linen module or Haiku function together with variables, initialised on `x`; anything else as it is."""
    args = x if isinstance(x, tuple) else (x,)
    if "flax.linen" in sys.modules:
        from flax import linen

        if isinstance(model, linen.Module):
            return model.unbind() if model.scope is not None else (model, model.init(jax.random.key(0), *args))
    if "haiku" in sys.modules:
        import haiku as hk

        if isinstance(model, hk.Transformed | hk.TransformedWithState):
            return model, model.init(jax.random.key(0), *args)
    return model


def is_equinox(model: Any) -> bool:
    """Whether a model is an Equinox module, a dict of them, or one with its state."""
    if "equinox" not in sys.modules:
        return False
    import equinox as eqx

    stateful = isinstance(model, tuple) and len(model) == 2 and isinstance(model[1], eqx.nn.State)
    module = model[0] if stateful else model
    several = isinstance(module, dict) and module and all(isinstance(part, eqx.Module) for part in module.values())
    return bool(several or isinstance(module, eqx.Module))


def _equinox(model: Any) -> JaxModel | None:
    import equinox as eqx

    if not is_equinox(model):
        return None
    stateful = isinstance(model, tuple)
    module, state = model if stateful else (model, None)
    params, rest = eqx.partition(module, eqx.is_inexact_array)
    arrays, static = eqx.partition(rest, eqx.is_array)

    def build(params, others):
        if not stateful:
            return eqx.combine(params, others, static)
        return eqx.combine(params, others["module"], static), others["state"]

    def call(model, x):
        args = x if isinstance(x, tuple) else (x,)
        if not stateful:
            return jax.vmap(model)(*args)
        module, state = model
        in_axes = (0,) * len(args) + (None,)
        return jax.vmap(module, axis_name="batch", in_axes=in_axes, out_axes=(0, None))(*args, state)[0]

    def inference(model):
        return (eqx.nn.inference_mode(model[0]), model[1]) if stateful else eqx.nn.inference_mode(model)

    def complete(model):
        if not stateful:
            return model
        module, state = model
        state = jax.tree.map(lambda leaf: leaf, state)  # `State.set` uses up the object it is called on
        norms = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, eqx.nn.BatchNorm))
        for norm in (node for node in norms if isinstance(node, eqx.nn.BatchNorm)):
            if norm.ema_first_time_index is not None:
                state = state.set(norm.ema_first_time_index, jnp.array(False))
            if norm.batch_counter is not None and norm.batch_state_index is not None:
                count = state.get(norm.batch_counter)
                share = jnp.where(count == 0, 1.0, 1 - norm.momentum**count)
                averages = tuple((sums / share).astype(sums.dtype) for sums in state.get(norm.batch_state_index))
                state = state.set(norm.batch_state_index, averages)
                state = state.set(norm.batch_counter, jnp.full_like(count, MANY))
        return module, state

    others = {"module": arrays, "state": state} if stateful else arrays  # a stateless module's leaves keep their names
    return JaxModel("equinox", params, others, build, call, inference, complete)


def _nnx(model: Any) -> JaxModel | None:
    from flax import nnx

    if not isinstance(model, nnx.Module):
        return None
    graph, params, rest = nnx.split(model, nnx.Param, ...)

    def call(model, x):
        return model(*x) if isinstance(x, tuple) else model(x)

    def inference(model):
        model = nnx.clone(model)
        model.eval()
        return model

    return JaxModel("nnx", params, rest, lambda params, rest: nnx.merge(graph, params, rest), call, inference)


def _linen(model: Any) -> JaxModel | None:
    from flax import linen

    if not (isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], linen.Module)):
        return None
    module, variables = model
    params = variables["params"]
    rest = {name: collection for name, collection in variables.items() if name != "params"}

    def wide_carry(run, args, kwargs, context):
        """A recurrent layer starts from float32 zeros whatever its inputs: here they get the type of the inputs."""
        layer = context.module
        if isinstance(layer, linen.RNN) and context.method_name == "__call__" and kwargs.get("initial_carry") is None:
            inputs = args[0]
            time = inputs.ndim - 1 - layer.cell.num_feature_axes if not layer.time_major else 0
            start = layer.cell.initialize_carry(jax.random.key(0), inputs.shape[:time] + inputs.shape[time + 1 :])
            kwargs = kwargs | {"initial_carry": jax.tree.map(lambda leaf: leaf.astype(inputs.dtype), start)}
        return run(*args, **kwargs)

    def call(model, x):
        module, variables = model
        with linen.intercept_methods(wide_carry):
            return module.apply(variables, *(x if isinstance(x, tuple) else (x,)))

    return JaxModel("linen", params, rest, lambda params, rest: (module, {"params": params, **rest}), call)


def _haiku(model: Any) -> JaxModel | None:
    import haiku as hk

    if not (isinstance(model, tuple) and len(model) == 2):
        return None
    transformed, arrays = model
    if not isinstance(transformed, hk.Transformed | hk.TransformedWithState):
        return None
    stateful = isinstance(transformed, hk.TransformedWithState)
    params, state = arrays if stateful else (arrays, None)
    rng = (None,) if "rng" in inspect.signature(transformed.apply).parameters else ()

    def build(params, others):
        return (transformed, (params, others["state"]) if stateful else params)

    def call(model, x):
        transformed, arrays = model
        out = transformed.apply(*(arrays if stateful else (arrays,)), *rng, *(x if isinstance(x, tuple) else (x,)))
        return out[0] if stateful else out

    def complete(model):
        if not stateful:
            return model
        transformed, (params, state) = model
        whole = lambda part: (
            {"average": part["average"], "hidden": part["average"], "counter": jnp.full_like(part["counter"], MANY)}
            if part.keys() == {"average", "hidden", "counter"}
            else part
        )
        return transformed, (params, {name: whole(part) for name, part in state.items()})

    return JaxModel("haiku", params, {"state": state}, build, call, complete=complete)


def _train_state(model: Any) -> JaxModel | None:
    """Users give `create` either all variables or those named "params"; further fields hold other collections."""
    from flax.training.train_state import TrainState

    if not isinstance(model, TrainState):
        return None
    known = {field.name for field in dataclasses.fields(TrainState)}
    others = {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if f.name not in known}
    others = {name: value for name, value in others.items() if jax.tree.leaves(value) and _has_arrays(value)}
    whole = isinstance(model.params, Mapping) and "params" in model.params
    params, rest = _collections(model.params) if whole else (model.params, others)

    def build(params, rest):
        return model.replace(params={"params": params, **rest}) if whole else model.replace(params=params, **rest)

    def call(model, x):
        variables = model.params if whole else {"params": model.params, **{n: getattr(model, n) for n in others}}
        return model.apply_fn(variables, *(x if isinstance(x, tuple) else (x,)))

    return JaxModel("TrainState", params, rest, build, call)


def _function(model: Any) -> JaxModel | None:
    if not (isinstance(model, tuple) and len(model) == 2 and callable(model[0]) and _has_arrays(model[1])):
        return None
    apply, arrays = model
    whole = isinstance(arrays, Mapping) and "params" in arrays
    params, rest = _collections(arrays) if whole else _floating(arrays)

    def build(params, rest):
        return apply, {"params": params, **rest} if whole else _combined(params, rest)

    def call(model, x):
        return model[0](model[1], *(x if isinstance(x, tuple) else (x,)))

    return JaxModel("function", params, rest, build, call)


def _pytree(model: Any) -> JaxModel | None:
    if not _has_arrays(model):
        return None

    def call(model, x):
        raise UsageError(
            f"expected jax_apply(model, x), which calls the JAX model: a {type(model).__name__} of arrays says nothing "
            f"about what is computed with them. Pass jax_apply, or (apply_fn, params) as the model."
        )

    return JaxModel("pytree", *_floating(model), _combined, call)


def _has_arrays(tree: Any) -> bool:
    """Whether a tree holds arrays and nothing else."""
    leaves = jax.tree.leaves(tree)
    return bool(leaves) and all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves)


def _collections(variables: Mapping[str, Any]) -> tuple[PyTree, dict[str, Any]]:
    return variables["params"], {name: variables[name] for name in variables if name != "params"}


def _floating(tree: PyTree) -> tuple[PyTree, PyTree]:
    """The floating arrays of a tree and the others, each with None in the place of the rest."""
    is_float = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)
    keep = lambda wanted: jax.tree.map(lambda leaf: leaf if is_float(leaf) == wanted else None, tree)
    return keep(True), keep(False)


def _combined(params: PyTree, rest: PyTree) -> PyTree:
    return jax.tree.map(lambda p, r: r if p is None else p, params, rest, is_leaf=lambda leaf: leaf is None)


OPENERS: dict[str, Callable[[Any], JaxModel | None]] = {  # by the module that has to be there
    "equinox": _equinox,
    "flax.nnx": _nnx,
    "flax.linen": _linen,
    "haiku": _haiku,
    "flax.training.train_state": _train_state,
    "builtins": _function,
    "sys": _pytree,
}
