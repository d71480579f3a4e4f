"""Optimiser state in a bundle: moments as arrays "<torch name>.<slot>", kind and groups in the manifest."""

import sys
from typing import Any

from ..errors import CheckpointError, UsageError
from ..optim.state import OptimizerState
from . import tree
from .optimizer_check import check_groups, check_moments
from .sides import to_numpy
from .weights import Arrays, is_module


def read(optimizer: Any, params: Any, mapping: Any, like: Any) -> Any:
    """The neutral `OptimizerState` of a torch optimiser, an optax state or an `OptimizerState`; None of None.

    `like` is the torch optimiser that an optax state continues, or its `OptimizerState`. Several optimisers come as a
    dict of `OptimizerState` by name.
    """
    if isinstance(optimizer, dict) and optimizer and all(map(_is_neutral, optimizer.values())):
        return optimizer
    if optimizer is None or _is_neutral(optimizer):
        return optimizer
    if _is_torch_optimizer(optimizer):
        if not is_module(params):
            raise UsageError(
                f"expected params to be the torch module whose parameters {type(optimizer).__name__} updates, because "
                f"a torch optimiser does not know their names; got {type(params).__name__}."
            )
        from ..bridge.optimizers.exchange import read_torch

        return read_torch(optimizer, params)  # pyright: ignore[reportArgumentType]
    if mapping is None or not (_is_neutral(like) or _is_torch_optimizer(like)):
        raise UsageError(
            f"expected an OptimizerState or a torch optimiser, or an optax state together with mapping= and "
            f"optimizer_like= (the torch optimiser or the OptimizerState it was made from); got "
            f"{type(optimizer).__qualname__}, mapping of {type(mapping).__qualname__} and optimizer_like of "
            f"{type(like).__qualname__}."
        )
    from ..bridge.optimizers.exchange import OptaxOptimizer, parameters_by_name, read_optax, read_torch

    if isinstance(optimizer, OptaxOptimizer):
        raise UsageError(
            "expected an optax state, got what to_optax gave, in which the state is the first one: pass the opt_state "
            "that tx.update returned last."
        )
    if _is_torch_optimizer(like):
        like = read_torch(like, parameters_by_name(like, mapping, params if is_module(params) else None))
    return read_optax(optimizer, like, mapping)


def _is_neutral(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("kind", "groups", "moments"))


def _is_torch_optimizer(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def pack(state: Any, arrays: Arrays) -> dict[str, Any]:
    """The manifest's part of `state`, or of several by name; its moments are added to `arrays`."""
    if isinstance(state, dict):
        return {"several": {name: pack(one, arrays) for name, one in state.items()}}
    for name, slots in state.moments.items():
        for slot, value in slots.items():
            if (stored := f"{name}.{slot}") in arrays:
                raise CheckpointError(f"optimizer: expected one array {stored!r}, got two; rename {name!r}.")
            arrays[stored] = to_numpy(value, stored)
    return {
        "kind": state.kind,
        "groups": tree.encode(list(state.groups), "optimizer groups"),
        "moments": {name: list(slots) for name, slots in state.moments.items()},
    }


def unpack(record: dict[str, Any] | None, arrays: Arrays, weights: Arrays, label: str) -> Any:
    """The `OptimizerState` that `pack` took apart, or several by name, for parameters of the shapes of `weights`."""
    if record is None:
        return None
    match record:
        case {"several": dict(several), **rest} if not rest:
            return {name: unpack(one, arrays, weights, f"{label}: {name!r}") for name, one in several.items()}
        case {"kind": str(kind), "groups": [*_] as groups, "moments": dict(moments)}:
            try:
                found = {n: {slot: arrays[f"{n}.{slot}"] for slot in slots} for n, slots in moments.items()}
            except (KeyError, TypeError) as error:
                raise CheckpointError(f"{label}: expected every optimiser moment listed, got {error!r}.") from error
            groups = tree.decode(groups, f"{label}: optimizer groups", arrays.__getitem__)
            check_groups(kind, groups, f"{label}: optimizer")
            check_moments(kind, groups, found, weights, f"{label}: optimizer")
            return OptimizerState(kind=kind, groups=tuple(groups), moments=found)
    raise CheckpointError(f"{label}: expected kind, groups and moments of an optimiser, got {str(record)[:200]}.")
