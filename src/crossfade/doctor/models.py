"""Pairs of models that a user names: matched, proved as far as the models alone allow, bisected where they differ."""

import functools
import inspect
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import CrossfadeError, MappingError, UsageError
from .inputs import Given, example, layouts
from .twin import forward_twin, origin
from .wording import Failure

if TYPE_CHECKING:
    from ..bridge import Mapping
    from ..parity import Report


def examine(
    models: tuple[str, ...],
    inputs: tuple[str, ...] = (),
    jax_inputs: tuple[str, ...] = (),
    torch_apply: tuple[str, ...] = (),
    jax_apply: tuple[str, ...] = (),
) -> "list[tuple[Mapping | Failure, Report | Failure]]":
    """Matches each torch/JAX pair and proves the match as far as the models alone allow. A pair that fails leaves the
    others as they are."""
    if len(models) % 2:
        raise UsageError(
            f"expected pairs of MODULE:ATTR, torch then JAX; got {len(models)}: {', '.join(models)}. "
            f"An environment is named by its params."
        )
    n = len(models) // 2
    flags = {"--input": inputs, "--jax-input": jax_inputs, "--torch-apply": torch_apply, "--jax-apply": jax_apply}
    rows = zip(*(_one_each(values, n, flag) for flag, values in flags.items()), strict=True)
    given = [Given.read(*row) for row in rows]
    return [_examine_pair(*pair) for pair in zip(models[::2], models[1::2], given, strict=True)]


def _one_each(values: tuple[str, ...], n: int, flag: str) -> list[str | None]:
    if len(values) not in (0, 1, n):
        raise UsageError(f"expected one {flag} for all pairs or one for each of {n}; got {len(values)}.")
    return list(values) if len(values) == n else [values[0] if values else None] * n


def _examine_pair(torch_name: str, jax_name: str, given: Given) -> "tuple[Mapping | Failure, Report | Failure]":
    import torch

    from ..loading import load_attribute, users_line
    from ..parity import check
    from ..verdict import Verdict

    name = f"{torch_name} = {jax_name}"
    try:
        module = load_attribute(torch_name, torch.nn.Module)
        model = _jax_model(load_attribute(jax_name))
        x = example(given.input, module)
        mapping, refused = _match(module, model, x, layouts(x, given.jax_input), given)
        report = check(forward_twin(name, module, mapping, x, given), levels="forward", bisect=True)
        if refused is not None and report.verdict is not Verdict.DIFFERENT:
            if (report := _where_refused(name, module, mapping, x, given, refused)) is None:
                failure = Failure(name, str(refused), "DIFFERENT")  # what `match` saw and the report did not
                return failure, failure
        return mapping, replace(report, notes=(*_notes(mapping, given), *report.notes))
    except Exception as error:  # the user's code may raise anything; it is reported, and the next pair examined
        told = isinstance(error, CrossfadeError)
        words = str(error) if told else f"{type(error).__name__}: {error}{users_line(error)}"
        failure = Failure(name, "\n".join([words, *getattr(error, "__notes__", ()), *_flags_for(words)]))
        return failure, failure


def _jax_model(value: Any) -> Any:
    """A model as it is, or what a class or function makes of no arguments."""
    if inspect.isclass(value) or inspect.isroutine(value) or isinstance(value, functools.partial):
        return value()
    return value


def _match(
    module: Any, model: Any, x: Any, jax_inputs: list[Any], given: Given
) -> "tuple[Mapping, MappingError | None]":
    """The mapping in the first layout in which the models match, or can at least be paired; and why it is refused."""
    from .. import bridge

    errors, unproved = [], []
    how = {"torch_apply": given.torch_apply, "jax_apply": given.jax_apply}
    for jax_x in jax_inputs:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "bridge.match")  # what it warns of is among the notes
                return bridge.match(module, model, x, jax_example=jax_x, **how), None
        except Exception as error:  # a model may raise anything in a wrong layout; the first error is told
            errors.append(error)
            if isinstance(error, MappingError) and isinstance(error.found, bridge.Mapping):
                unproved.append((error.found, error))  # all parameters have their counterparts, the functions differ
    if unproved:
        return unproved[0]
    raise errors[0]


def _where_refused(
    name: str, module: Any, mapping: "Mapping", x: Any, given: Given, refused: MappingError
) -> "Report | None":
    """The report on the weights and inputs with which `match` saw the models differ, if it sees that too."""
    import copy

    import torch

    from ..bridge.matching.both_models import unwrap
    from ..parity import check
    from ..verdict import Verdict

    if refused.draw is None:
        return None
    module = copy.deepcopy(unwrap(module))
    for key, tensor in module.state_dict().items():
        if key in refused.draw.weights:
            tensor.copy_(torch.tensor(refused.draw.weights[key]))
    twin = forward_twin(name, module, mapping, x, given, refused.draw.probe.inputs)
    report = check(twin, levels="forward", bisect=True)
    note = f"the models agree on their own weights and this input; they differ with {refused.draw.probe}."
    return replace(report, notes=(note, *report.notes)) if report.verdict is Verdict.DIFFERENT else None


def _notes(mapping: "Mapping", given: Given) -> list[str]:
    """What is to be known of the match: a layout that was not asked for, what it did not reach."""
    import jax
    import numpy as np

    notes = []
    jax_x = origin(mapping)[1]
    if given.jax_input is None and jax_x is not None:
        shapes = ", ".join("x".join(map(str, np.shape(leaf))) for leaf in jax.tree.leaves(jax_x))
        notes.append(f"the JAX model was given the input with its channels last, {shapes}; --jax-input says otherwise.")
    return [*notes, *mapping.notes()]


FLAGS = {
    "torch_apply": "--torch-apply MODULE:FUNCTION, a function (module, x) -> outputs",
    "jax_apply": "--jax-apply MODULE:FUNCTION, a function (model, x) -> outputs",
    "jax_example": "--jax-input SHAPE or MODULE:ATTR",
}


def _flags_for(words: str) -> list[str]:
    """What arguments of `match` that a message speaks of are called on the command line."""
    flags = [f"On the command line {name} is {flag}." for name, flag in FLAGS.items() if name in words]
    if "required positional argument" in words:
        flags.append("Give all arguments: --input MODULE:ATTR, a tuple of tensors or a function that makes one.")
    return flags
