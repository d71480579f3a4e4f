"""Optimisers across the border: a torch optimiser becomes an optax transformation with its state, and back.

Both ways lead through `OptimizerState`, the neutral record under torch's names that checkpoints keep as well:

    torch.optim  -- read_torch -->   OptimizerState  -- build_optax -->  optax
    torch.optim  <-- write_torch --  OptimizerState  <-- read_optax --   optax
"""

from collections.abc import Callable, Iterable, Mapping as Named
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from jaxtyping import PyTree
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from ..errors import MappingError, NoCounterpart, TransferError, UsageError, nearest
from .libraries import leaf_names, named_leaves
from .mapping import Mapping
from .schedules import advance, to_schedule
from .transfer import numpy_to_jax, numpy_to_tensor, tensor_to_numpy
from .transforms import HYPERPARAMETERS, SLOTS, clip_by_global_norm, slots, transformation

Parameters = nn.Module | Named[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]


@dataclass(frozen=True)
class OptimizerState:
    """A torch optimiser as plain data: hyper-parameters by group and moments by parameter.

    Each group has its hyper-parameters as JSON values, `names` of its parameters, and which of these are `frozen`
    (`requires_grad=False`, skipped by torch). Moments are complete: before the first step they are zero and `step` is
    0. SGD gets a `step` too, which torch does not keep: 1 stands for "momentum has begun" when no one has counted.
    """

    kind: str  # "SGD", "Adam", "AdamW", "RMSprop" or "Adagrad"
    groups: tuple[dict[str, Any], ...]
    moments: dict[str, dict[str, np.ndarray]]  # torch name -> slot -> array; `step` is 0-d

    @property
    def trained(self) -> dict[str, int]:
        """Every parameter that moves, with the index of its group."""
        return {n: i for i, group in enumerate(self.groups) for n in group["names"] if n not in group["frozen"]}

    @property
    def step(self) -> int:
        """How many updates the parameters have had; one number, as optax counts."""
        steps: dict[int, list[str]] = {}
        for name in self.trained:
            steps.setdefault(int(self.moments[name]["step"]), []).append(name)
        if len(steps) > 1:
            counts = "; ".join(f"step {step}: {', '.join(names)}" for step, names in sorted(steps.items()))
            raise NoCounterpart(
                f"expected every parameter of {self.kind} at the same step, because optax counts once for all; got "
                f"{counts}. torch skips parameters without a gradient: give these an optimiser of their own, or "
                f"freeze the ones that never get a gradient with requires_grad_(False)."
            )
        return next(iter(steps), 0)

    def at_step(self, step: int) -> "OptimizerState":
        """The same state with every moving parameter's count set."""
        count = {"step": np.asarray(step, np.float32)}
        return replace(self, moments={n: s | count if n in self.trained else s for n, s in self.moments.items()})


class OptaxOptimizer(NamedTuple):
    """What `optax` needs to go on: `updates, opt_state = tx.update(grads, opt_state, params)`.

    `schedule(count)` gives the learning rate of each group after `count` updates, as torch's `get_last_lr()` does.
    """

    tx: optax.GradientTransformation
    opt_state: PyTree
    schedule: Callable[[Any], tuple[Any, ...]]


def to_optax(
    torch_optimizer: torch.optim.Optimizer,
    mapping: Mapping,
    *,
    scheduler: LRScheduler | None = None,
    schedule_every: int = 1,
    horizon: int | None = None,
    clip_norm: float | None = None,
    named_parameters: Parameters | None = None,
) -> OptaxOptimizer:
    """The optax twin of a torch optimiser, standing where the torch one stands.

    `scheduler` is stepped every `schedule_every` updates; a LambdaLR whose function JAX cannot trace is tabulated for
    `horizon` scheduler steps, and gives NaN beyond. `clip_norm` is that of a `clip_grad_norm_` over the optimiser's
    parameters before each step. Parameters in no group, or with `requires_grad=False`, stay fixed. torch's SGD keeps
    no count: with `schedule_every > 1` hand it over when the scheduler has just stepped.
    """
    state = read_torch(torch_optimizer, _parameters(torch_optimizer, mapping, named_parameters))
    if scheduler is None:
        return build_optax(state, mapping, clip_norm=clip_norm)
    _check_scheduler(scheduler, torch_optimizer)
    state = state.at_step(_updates(state, scheduler, schedule_every))
    schedule = to_schedule(scheduler, count=state.step, every=schedule_every, horizon=horizon)
    return build_optax(state, mapping, schedule=schedule, clip_norm=clip_norm)


def to_torch_optimizer(
    opt_state: PyTree,
    mapping: Mapping,
    torch_optimizer: torch.optim.Optimizer,
    *,
    scheduler: LRScheduler | None = None,
    schedule_every: int = 1,
    named_parameters: Parameters | None = None,
) -> None:
    """Writes an optax state into `torch_optimizer`, as if torch had made the updates.

    A `scheduler` is stepped as often as torch would have stepped it since `torch_optimizer` was last current; without
    one the learning rates stay as they are.
    """
    named = _parameters(torch_optimizer, mapping, named_parameters)
    before = read_torch(torch_optimizer, named)
    after = read_optax(opt_state, before, mapping)
    write_torch(after, torch_optimizer, named)
    if scheduler is not None:
        _check_scheduler(scheduler, torch_optimizer)
        done = _updates(before, scheduler, schedule_every)
        advance(scheduler, after.step // schedule_every - done // schedule_every)


def _parameters(optimizer: torch.optim.Optimizer, mapping: Mapping, given: Parameters | None) -> Parameters:
    if given is not None:
        return given
    if all("param_names" in group for group in optimizer.param_groups):
        return [pair for g in optimizer.param_groups for pair in zip(g["param_names"], g["params"], strict=True)]
    raise UsageError(
        "a torch optimiser does not know the names of its parameters: build it from module.named_parameters(), or "
        "pass named_parameters=module."
    )


def _check_scheduler(scheduler: LRScheduler, optimizer: torch.optim.Optimizer) -> None:
    if scheduler.optimizer is not optimizer:
        raise UsageError("expected the scheduler of this very optimiser, got one that drives another.")


def _updates(state: OptimizerState, scheduler: LRScheduler, every: int) -> int:
    """Updates made so far; of SGD only the scheduler knows."""
    return max(state.step, scheduler.last_epoch * every) if state.kind == "SGD" else state.step


# torch <-> OptimizerState


def read_torch(optimizer: torch.optim.Optimizer, named_parameters: Parameters) -> OptimizerState:
    """The state of a torch optimiser under the names of `named_parameters` (a module, pairs or a dict)."""
    kind = _kind(optimizer)
    names = _names(optimizer, named_parameters)
    groups, moments = [], {}
    for group in optimizer.param_groups:
        hyper = {key: _plain(key, group[key]) for key in (*HYPERPARAMETERS[kind], "initial_lr") if key in group}
        named = {names[id(p)]: p for p in group["params"]}
        frozen = [name for name, p in named.items() if not p.requires_grad]
        groups.append({"names": list(named), "frozen": frozen, **hyper})
        for name, parameter in named.items():
            if parameter.grad is not None and parameter.grad.is_sparse:
                raise NoCounterpart(f"{name}: optax has no sparse gradients; make the layer with sparse=False.")
            kept = optimizer.state.get(parameter, {})
            if kept or name not in frozen:
                moments[name] = _moments(kind, hyper, name, parameter, kept)
    return OptimizerState(kind, tuple(groups), moments)


def write_torch(state: OptimizerState, optimizer: torch.optim.Optimizer, named_parameters: Parameters) -> None:
    """Puts moments and hyper-parameters into a torch optimiser of the same kind and groups, in place."""
    if (kind := _kind(optimizer)) != state.kind:
        raise UsageError(f"expected a torch optimiser of kind {state.kind}, got {kind}.")
    names = _names(optimizer, named_parameters)
    grouped = [{names[id(p)]: p for p in group["params"]} for group in optimizer.param_groups]
    if (got := [sorted(named) for named in grouped]) != (expected := [sorted(g["names"]) for g in state.groups]):
        raise UsageError(f"expected parameter groups {expected}, got {got}. Build the optimiser with the same groups.")
    record = optimizer.state_dict()
    record["state"] = {}
    for target, group, named in zip(record["param_groups"], state.groups, grouped, strict=True):
        target.update({k: tuple(v) if k == "betas" else v for k, v in group.items() if k not in ("names", "frozen")})
        for index, (name, parameter) in zip(target["params"], named.items(), strict=True):
            if kept := _torch_slots(state, group, name, parameter):
                record["state"][index] = kept
    optimizer.load_state_dict(record)


def _kind(optimizer: torch.optim.Optimizer) -> str:
    kind = type(optimizer).__name__
    if type(optimizer) is not getattr(torch.optim, kind, None) or kind not in HYPERPARAMETERS:
        raise NoCounterpart(
            f"expected one of torch.optim's {', '.join(HYPERPARAMETERS)}, got {type(optimizer).__module__}.{kind}, "
            f"which has no exact optax counterpart here. Keep that optimiser in torch, or change to one of these."
        )
    return kind


def _names(optimizer: torch.optim.Optimizer, named_parameters: Parameters) -> dict[int, str]:
    if isinstance(named_parameters, nn.Module):
        named_parameters = named_parameters.named_parameters()
    pairs = named_parameters.items() if isinstance(named_parameters, Named) else named_parameters
    names = {id(parameter): name for name, parameter in pairs}
    nameless = [tuple(p.shape) for g in optimizer.param_groups for p in g["params"] if id(p) not in names]
    if nameless:
        raise UsageError(
            f"expected the named parameters this optimiser updates, got none for those of shape {nameless}. Pass the "
            f"module the optimiser was built for, not a copy of it or its state_dict."
        )
    return names


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor) or (isinstance(value, tuple) and any(map(torch.is_tensor, value))):
        raise NoCounterpart(f"{key} is a tensor, which optax would take as a constant; give torch a Python float.")
    return list(value) if isinstance(value, tuple) else value


def _moments(kind: str, hyper: dict, name: str, parameter: torch.Tensor, kept: dict) -> dict[str, np.ndarray]:
    expected = slots(kind, hyper)
    kept = {slot: value for slot, value in kept.items() if value is not None}
    if not kept:
        zeros = tensor_to_numpy(torch.zeros_like(parameter))
        return {"step": np.asarray(0, np.float32)} | {slot: zeros.copy() for slot in expected}
    if missing := [slot for slot in expected if slot not in kept]:
        raise NoCounterpart(
            f"{name}: expected the moments {', '.join(expected)} of {kind}, missing {', '.join(missing)}. A flag of "
            f"the group was changed after the first step: set it back, or start the optimiser anew."
        )
    step = tensor_to_numpy(kept["step"]) if "step" in kept else np.asarray(1, np.float32)
    return {"step": step} | {slot: tensor_to_numpy(kept[slot]) for slot in expected}


def _torch_slots(state: OptimizerState, group: dict, name: str, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    """What torch itself would hold for one parameter: nothing before the first step, save for Adagrad's sum."""
    moments = state.moments.get(name)
    if moments is None or (not moments["step"] and state.kind != "Adagrad"):
        return {}
    kept = {slot: numpy_to_tensor(moments[slot]) for slot in slots(state.kind, group)}
    for slot, value in kept.items():
        if (value.dtype, value.shape) != (parameter.dtype, parameter.shape):
            raise TransferError(
                f"{name}.{slot}: expected {parameter.dtype} of shape {tuple(parameter.shape)} like the parameter, got "
                f"{value.dtype} of shape {tuple(value.shape)}. Use an optimiser of the module the state belongs to."
            )
    if state.kind == "SGD":
        return kept
    count = torch.float64 if torch.get_default_dtype() == torch.float64 else torch.float32  # as torch chooses
    return {"step": torch.tensor(float(moments["step"]), dtype=count), **kept}


# OptimizerState <-> optax


def build_optax(
    state: OptimizerState,
    mapping: Mapping,
    *,
    schedule: Callable[[Any], Any] | None = None,
    clip_norm: float | None = None,
) -> OptaxOptimizer:
    """The optax transformation of a neutral state, and the optax state that continues it.

    `schedule(count)` gives one learning rate, or a tuple with one for each group; by default each group's `lr` is kept.
    """
    schedule = _per_group(schedule, state)
    groups = _leaf_groups(state, mapping)
    params = mapping.opened.params
    chains = [
        transformation(state.kind, group, lambda count, i=i: schedule(count)[i]) for i, group in enumerate(state.groups)
    ]
    if len(chains) == 1 and all(path in groups for path in named_leaves(params)):
        links = chains
    else:
        labels = lambda tree: jax.tree.map(lambda path: groups.get(path, "frozen"), leaf_names(tree))
        named = {f"group_{i}": chain for i, chain in enumerate(chains)}
        links = [optax.partition({**named, "frozen": optax.set_to_zero()}, labels(params))]
    if clip_norm is not None:
        trained = jax.tree.map(lambda path: path in groups, leaf_names(params))
        links.insert(0, optax.masked(clip_by_global_norm(clip_norm), trained))
    tx = optax.chain(*links) if len(links) > 1 else links[0]
    return OptaxOptimizer(tx, _fill(tx.init(params), state, mapping), schedule)


def read_optax(opt_state: PyTree, template: OptimizerState, mapping: Mapping) -> OptimizerState:
    """The neutral form of an optax state; `template` gives the kind, the groups, and the moments of frozen parameters.

    Reads states made by `build_optax`, and of optax's own optimisers those that count their updates.
    """
    found: dict[str, dict[str, Any]] = {}
    steps = set()
    for node in jax.tree.leaves(opt_state, is_leaf=_has_slots):
        for field, slot in SLOTS.get(type(node), {}).items():
            value = getattr(node, field)
            if slot == "step":
                steps.add(int(value))
            elif slot != "started":
                found.setdefault(slot, {}).update({p: np.asarray(a) for p, a in named_leaves(value).items()})
    if len(steps) != 1:
        raise UsageError(
            f"expected an optax state with one count of updates, got {sorted(steps)}. Use the state made by to_optax."
        )
    named = {slot: mapping.leaves_to_torch(leaves) for slot, leaves in found.items()}
    step = np.asarray(steps.pop(), np.float32)
    moments = dict(template.moments)
    for name, i in template.trained.items():
        expected = slots(template.kind, template.groups[i])
        if missing := [slot for slot in expected if name not in named.get(slot, {})]:
            raise UsageError(
                f"expected the optax state of {template.kind} with {', '.join(expected)} for {name}, missing "
                f"{', '.join(missing)}. Use the state made by to_optax for this optimiser."
            )
        moments[name] = {"step": step} | {slot: np.array(named[slot][name]) for slot in expected}
    return replace(template, moments=moments)


def _has_slots(node: Any) -> bool:
    return type(node) in SLOTS


def _per_group(schedule: Callable[[Any], Any] | None, state: OptimizerState) -> Callable[[Any], tuple[Any, ...]]:
    if schedule is None:
        rates = tuple(group["lr"] for group in state.groups)
        return lambda count: rates

    def rates_at(count):
        rates = schedule(count)
        return rates if isinstance(rates, tuple) else (rates,) * len(state.groups)

    return rates_at


def _leaf_groups(state: OptimizerState, mapping: Mapping) -> dict[str, str]:
    """The group of every JAX leaf that moves; refuses what one optax update cannot do as torch does."""
    trained = state.trained
    params = named_leaves(mapping.opened.params)
    groups: dict[str, str] = {}
    known = {name for entry in mapping.entries for name in entry.torch}
    if unknown := [name + nearest(name, known) for name in trained if name not in known]:
        raise MappingError(f"the optimiser updates parameters the mapping does not know: {', '.join(unknown)}.")
    for entry in mapping.entries:
        labels = {trained.get(name) for name in entry.torch}
        if labels == {None}:
            continue
        if entry.rule.lossy:
            raise NoCounterpart(
                f"{entry}: torch trains {len(entry.torch)} arrays where JAX has {len(entry.jax)}, so their optimiser "
                f"states differ. Freeze one with requires_grad_(False), or use a layer with the same parameters."
            )
        if len(labels) > 1:
            raise NoCounterpart(f"{entry}: JAX holds these as one, so they must sit in one parameter group together.")
        if outside := [path for path in entry.jax if path not in params]:
            raise MappingError(
                f"{entry}: {', '.join(outside)} is not trainable on the JAX side, so optax cannot move it."
            )
        groups.update(dict.fromkeys(entry.jax, f"group_{labels.pop()}"))
    return groups


def _fill(opt_state: PyTree, state: OptimizerState, mapping: Mapping) -> PyTree:
    """`opt_state` with the moments and counts of `state` in place."""
    step = state.step
    leaves: dict[str, dict[str, jax.Array]] = {}
    for slot in {slot for moments in state.moments.values() for slot in moments} - {"step"}:
        arrays = {n: state.moments[n][slot] for n in state.trained if slot in state.moments[n]}
        leaves[slot] = {p: numpy_to_jax(a, f"{slot} of {p}") for p, a in mapping.leaves_to_jax(arrays).items()}

    def value(slot: str, old: PyTree) -> PyTree:
        if slot == "step":
            return jnp.asarray(step, jnp.int32)
        if slot == "started":
            return jnp.asarray(step > 0)
        return jax.tree.map(lambda path: leaves[slot][path], leaf_names(old))

    def fill(node: Any) -> Any:
        if not _has_slots(node):
            return node
        return node._replace(**{field: value(slot, getattr(node, field)) for field, slot in SLOTS[type(node)].items()})

    return jax.tree.map(fill, opt_state, is_leaf=_has_slots)
