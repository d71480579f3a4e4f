"""Other places to look: forward and loss again with weights and inputs of other sizes and signs.

On one draw of weights and one batch a clamp may never bite, a scale may always be positive, an error may always be
below a threshold. Floating weights and buffers are scaled, their signs mixed, and those inputs too that may take any
value: the arguments of the models, and what `Twin.scaled` names. All else in a batch (masks, log-probabilities,
indices) stays as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ..bridge.libraries import leaf_names, named_leaves
from ..bridge.mapping import Mapping
from ..verdict import NOISE_FACTOR, Comparison, Verdict, allow_float64, compare, distances
from .arrays import jitter_tree, precision, to_numpy
from .judging import RELATIVE, names
from .levels import Levels
from .side_torch import Quantities
from .twin import Twin
from .weights import Weights, jitter, retie

MARGIN = 100  # times the measured rounding: far from the usual sizes numbers cancel more


@dataclass(frozen=True)
class Scale:
    """Factors of weights and inputs; with `signs` every second weight, roughly, has the other sign."""

    weights: float
    inputs: float
    signs: bool = False

    def __str__(self) -> str:
        signs = " of both signs" if self.signs else ""
        return f"weights{signs} times {self.weights:g} and inputs times {self.inputs:g}"


SCALES = (Scale(1.0, -1.0, True), Scale(0.1, 0.1), Scale(3.0, 10.0), Scale(30.0, 30.0), Scale(30.0, -30.0, True))
LOOKED = ("forward", "loss")


def scaled_weights(mapping: Mapping, weights: Weights, parameters: set[str], scale: Scale) -> Weights:
    """Parameters by the factor; buffers, which may have to be positive, moved by a positive share of themselves, but
    not those that JAX has as constants."""
    found = {}
    for name, array in weights.items():
        if array.dtype.kind != "f" or name in mapping.constants:
            found[name] = array
        elif name in parameters:
            turn = np.where(np.cos(1.0 + 7.0 * np.arange(array.size)) > 0, 1.0, -1.0).reshape(array.shape)
            found[name] = array * scale.weights * (turn if scale.signs else 1.0)
        else:
            found[name] = array * (1 + 0.3 * abs(scale.weights) ** 0.5) + 0.1 * abs(scale.weights) * (array == 0)
    return retie(mapping, {name: _with_digits_of(weights[name], a) for name, a in found.items()})


def _with_digits_of(array: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Numbers of float32 stay such, so that a layer that holds them in float32 (`nnx.Embed`) loses nothing here too."""
    if array.dtype == np.float64 and np.array_equal(array.astype(np.float32), array, equal_nan=True):
        moved = np.asarray(moved, np.float32)
    return np.asarray(moved, array.dtype)


def scalable(twin: Twin) -> set[str]:
    """Leaves of the batch that may be scaled: those the twin names, else those that are arguments of the models."""
    if twin.scaled is not None:
        return set(twin.scaled)
    batch = twin.first_batch
    if twin.forward is None and twin.inputs is not None and twin.inputs is batch:
        return set(named_leaves(batch))
    given = [to_numpy(leaf) for leaf in jax.tree.leaves(twin.example)] if twin.example is not None else []
    found = {name: to_numpy(leaf) for name, leaf in named_leaves(batch).items()} if batch is not None else {}
    return {name for name, own in found.items() if any(own.shape == g.shape and np.array_equal(own, g) for g in given)}


def scaled_data(twin: Twin, scale: Scale) -> Twin:
    """The twin with scaled inputs."""
    own = scalable(twin)

    def move(tree: Any, chosen: set[str] | None) -> Any:
        def change(name: str, leaf: Any) -> Any:
            array = to_numpy(leaf)
            free = (chosen is None or name in chosen) and array.dtype.kind == "f"
            return _with_digits_of(array, array * scale.inputs) if free else leaf

        return jax.tree.map(change, leaf_names(tree), tree)

    example = None if twin.example is None or twin.forward is not None else move(twin.example, None)
    batch = None if twin.batch is None else move(twin.batch, own)
    batches = None if twin.batches is None else lambda i: move(twin.batch_at(i), own)
    return replace(twin, batch=batch, batches=batches, example=example if example is not None else twin.example)


def scaled_twin(twin: Twin, mapping: Mapping, scale: Scale) -> Twin:
    """A twin that stands where the scale leads: for a bisect there."""
    import copy

    from ..bridge.transfer import numpy_to_tensor

    weights = {name: to_numpy(value) for name, value in twin.torch.state_dict().items()}
    moved = scaled_weights(mapping, weights, parameters(twin), scale)
    module = copy.deepcopy(twin.torch)
    module.load_state_dict({name: numpy_to_tensor(array) for name, array in moved.items()})
    return replace(scaled_data(twin, scale), torch=module, mapping=mapping)


def parameters(twin: Twin) -> set[str]:
    """The names of what can be trained, tied ones too."""
    return {name for name, _ in twin.torch.named_parameters(remove_duplicate=False)}


@dataclass(frozen=True)
class Elsewhere:
    """A comparison at another scale."""

    scale: Scale
    comparisons: dict[str, Comparison]


def look(levels: Levels, level: str, note: Callable[[str], None], around: Callable[[], Any]) -> Iterator[Elsewhere]:
    """Both halves at each scale, in float64. `around` is a context in which the torch half runs."""
    for scale in SCALES if levels.twin.scales and level in LOOKED else ():
        weights = scaled_weights(levels.mapping, levels.weights, parameters(levels.twin), scale)
        try:
            found = _run(levels, level, weights, scale, around)
        except Exception as error:  # numbers far from the usual ones may make the user's code raise anything
            note(f"{level}: not compared with {scale}: {type(error).__name__}.")
            continue
        if not _finite(*found):
            note(f"{level}: not compared with {scale}: the numbers leave the finite ones.")
            continue
        yield Elsewhere(scale, _judge(levels, level, weights, scale, found))


def _run(
    levels: Levels, level: str, weights: Weights, scale: Scale, around: Callable[[], Any], move: Any = None
) -> tuple[Quantities, Quantities]:
    data = scaled_data(levels.twin, scale)
    with precision(levels.dtype), using(levels, data if move is None else data.with_data(move)):
        with around():
            torch = levels.call("torch", level, weights)
        return torch, levels.call("jax", level, weights)


@contextmanager
def using(levels: Levels, data: Twin) -> Iterator[None]:
    """Batches of another twin for a while."""
    try:
        levels.use_data(data)
        yield
    finally:
        levels.use_data(levels.twin)


def _finite(torch: Quantities, jax: Quantities) -> bool:
    """No NaN, and infinite only where both are: -inf for what is not allowed is a number like any other."""
    for quantity in torch.keys() & jax.keys():
        for leaf in torch[quantity].keys() & jax[quantity].keys():
            a, b = torch[quantity][leaf], jax[quantity][leaf]
            if a.dtype.kind == b.dtype.kind == "f" and a.shape == b.shape:
                infinite = np.isinf(a) | np.isinf(b)
                if np.isnan(a).any() or np.isnan(b).any() or np.any(a[infinite] != b[infinite]):
                    return False
    return True


def _judge(
    levels: Levels, level: str, weights: Weights, scale: Scale, found: tuple[Quantities, Quantities]
) -> dict[str, Comparison]:
    """As at the usual place; what seems to differ is held to the rounding that is measured here."""
    comparisons = _compare(level, *found, {})
    if all(c.verdict is not Verdict.DIFFERENT for c in comparisons.values()):
        return comparisons
    moved = _run(
        levels, level, jitter(levels.mapping, weights), scale, _nothing, lambda tree: jitter_tree(tree, levels.dtype)
    )
    rounding: dict[str, dict[str, float]] = {}
    for before, after in zip(found, moved, strict=True):
        for quantity, part in before.items():
            for leaf, d in distances(part, after.get(quantity, {})).items():
                own = rounding.setdefault(quantity, {})
                own[leaf] = max(own.get(leaf, 0.0), d)
    return _compare(level, *found, rounding)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _compare(
    level: str, torch: Quantities, jax: Quantities, rounding: dict[str, dict[str, float]]
) -> dict[str, Comparison]:
    comparisons = {}
    for quantity in names(torch, jax):
        a, b = torch.get(quantity, {}), jax.get(quantity, {})
        allowed = allow_float64(a, b, RELATIVE[level], 1e-12)
        for leaf, d in rounding.get(quantity, {}).items():
            if leaf in allowed:
                allowed[leaf] = max(allowed[leaf], MARGIN * NOISE_FACTOR * d)
        comparisons[quantity] = compare(a, b, allowed)
    return comparisons
