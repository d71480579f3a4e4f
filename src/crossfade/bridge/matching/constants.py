"""State that only one side holds: a buffer in torch that is a constant in JAX, or the other way round.

That is sound as long as the value stays what it was when the outputs were seen to agree. It proves nothing when the
value has no effect: a normaliser with mean 0 and variance 1 looks like no normaliser at all.
"""

from collections.abc import Callable

import numpy as np

from ...errors import NoCounterpart
from ..libraries import named_leaves
from ..mapping import Entry, leaves_of
from .both_models import BothModels
from .draws import disturbed, is_neutral
from .outputs import Outputs, difference

PROVES_NOTHING = "That the outputs agree proves nothing while its value, all zeros or all ones, has no effect."


def constants(both: BothModels, entries: tuple[Entry, ...], declared: set[str]) -> tuple[str, ...]:
    """The buffers on which torch's outputs depend and that JAX must hold as constants.

    Raises where one of them, or a leaf of JAX's state, has no effect at its present value; `declared` names buffers
    that the caller knows to be constants.
    """
    held = {name for entry in entries for name in entry.torch}
    alone = {name: both.own[name] for name in both.buffers if name not in held}
    found = _seen(alone, lambda changed: both.run_torch(alone | changed), both.tolerance)
    neutral = [name for name in found if is_neutral(alone[name]) and name not in declared]
    if neutral:
        names = ", ".join(f"{name} {both.shapes[name]}" for name in neutral)
        raise NoCounterpart(
            f"the outputs of the torch {type(both.module).__name__} depend on the buffers {names}, which the JAX model "
            f"does not hold. {PROVES_NOTHING} Hold them in the JAX model too, as state or parameters; or, if they "
            f"never change, pass overrides={dict.fromkeys(neutral)}."
        )
    _refuse_neutral_state(both, entries)
    return tuple(found)


def _refuse_neutral_state(both: BothModels, entries: tuple[Entry, ...]) -> None:
    """Raises where the JAX outputs depend on state that torch does not have and that has no effect at present."""
    base = leaves_of(entries, both.weights)
    trained = named_leaves(both.opened.params)
    alone = {p: a for p, a in both.floats.items() if p not in base and p not in trained and is_neutral(a)}
    if found := _seen(alone, lambda changed: both.run_jax(base | changed), both.tolerance):
        names = ", ".join(f"{path} {alone[path].shape}" for path in found)
        raise NoCounterpart(
            f"the outputs of the {both.opened.library} model depend on its state {names}, which the torch module does "
            f"not hold. {PROVES_NOTHING} Give the torch module a buffer for each, or take it out of the JAX model."
        )


def _seen(
    arrays: dict[str, np.ndarray], run: Callable[[dict[str, np.ndarray]], Outputs], tolerance: float
) -> list[str]:
    """The arrays on which the outputs depend: changing one changes the outputs or makes the model raise."""
    if not arrays:
        return []
    before, found = run({}), []
    for name, array in arrays.items():
        try:
            after = run({name: disturbed(array)})
        except Exception:  # the model reads the array, and cannot do with other numbers
            found.append(name)
            continue
        if difference(before, after) > tolerance:
            found.append(name)
    return found
