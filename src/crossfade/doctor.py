"""Is everything here that crossfade needs, do the user's own two models match, does their environment keep its word?"""

import importlib.metadata
import platform
import re
import warnings
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

from .errors import CrossfadeError, MappingError, UsageError

if TYPE_CHECKING:
    from .bridge import Mapping
    from .parity import Report, Twin

EXTRAS = {
    "torch": ("torch",),
    "jax": ("jax", "jaxlib", "equinox", "optax"),
    "flax": ("flax",),
    "haiku": ("dm-haiku",),
    "orbax": ("orbax-checkpoint",),
    "report": ("matplotlib", "tensorboard"),
}


def environment() -> dict[str, Any]:
    """Versions, devices, precision and missing extras."""
    versions = {name: _version(name) for name in ("crossfade", "numpy", "safetensors", *sum(EXTRAS.values(), ()))}
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "versions": versions,
        "missing_extras": [extra for extra, needs in EXTRAS.items() if not all(versions[n] for n in needs)],
    }
    if versions["torch"]:
        import torch

        devices = ["cpu"] + [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        found["torch"] = {
            "devices": devices,
            "threads": torch.get_num_threads(),
            "dtype": str(torch.get_default_dtype()),
        }
    if versions["jax"]:
        import jax

        found["jax"] = {
            "devices": [str(device) for device in jax.devices()],
            "x64": bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
            "compilation_cache": jax.config.jax_compilation_cache_dir,  # pyright: ignore[reportAttributeAccessIssue]
        }
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def print_environment(found: dict[str, Any]) -> int:
    """Prints what `environment` found; 1 when a framework is missing."""
    print(f"{'python':<22} {found['python']}")
    for name, version in found["versions"].items():
        print(f"{name:<22} {version or 'not installed'}")
    for framework in ("torch", "jax"):
        for what, value in found.get(framework, {}).items():
            print(f"{framework + ' ' + what:<22} {', '.join(value) if isinstance(value, list) else value}")
    for extra in found["missing_extras"]:
        print(f"missing extra          {extra}: pip install 'crossfade[{extra}]'")
    return 1 if {"torch", "jax"} & set(found["missing_extras"]) else 0


@dataclass(frozen=True)
class Examined:
    """What a system says of a world that a user named."""

    lines: list[str]
    """What it is, for the terminal."""
    problems: list[str]
    """Every promise it breaks, in words."""
    facts: dict[str, Any]
    """The same for JSON."""

    def text(self) -> str:
        """For the terminal."""
        broken = [f"  BROKEN  {problem}" for problem in self.problems]
        return "\n".join([*self.lines, *(broken or ["  well: both twins keep the protocol, and they are equal"])])

    def json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**self.facts, "problems": self.problems}


def examine_worlds(targets: tuple[str, ...]) -> tuple[list[Examined], tuple[str, ...]]:
    """What the systems find in those of the targets that are worlds, and all other targets, which are models."""
    from .loading import load_attribute
    from .registry import systems

    examiners = [load_attribute(system.examine) for system in systems().values() if system.examine]
    found, models = [], []
    for target in targets:
        examined = next((seen for examine in examiners if (seen := examine(target)) is not None), None)
        if examined is None:
            models.append(target)
        else:
            found.append(examined)
    return found, tuple(models)


@dataclass(frozen=True)
class Failure:
    """What stands for the mapping and for the report of two models that could not be matched, or not even made."""

    name: str
    error: str
    verdict: str = "FAILED"  # or DIFFERENT, where both models were run and `match` refused them
    exit_code: int = 1

    def explain(self, notes: bool = True) -> str:
        """Which models failed."""
        return f"{self.name}: {self.verdict}"

    def text(self) -> str:
        """Why."""
        return self.error

    def json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"name": self.name, "verdict": self.verdict, "error": self.error}


@dataclass(frozen=True)
class Given:
    """What the command line says about one pair: inputs, and how the models are called on them."""

    input: str | None
    jax_input: str | None
    torch_apply: Any
    jax_apply: Any

    @classmethod
    def read(cls, x: str | None, jax_x: str | None, torch_apply: str | None, jax_apply: str | None) -> "Given":
        """From the words of the command line."""
        _check_inputs(x, jax_x)
        ours = _load_apply(torch_apply, "--torch-apply", "module")
        return cls(x, jax_x, ours, _load_apply(jax_apply, "--jax-apply", "model"))


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


def _examine_pair(torch_name: str, jax_name: str, given: Given) -> "tuple[Mapping | Failure, Report | Failure]":
    import torch

    from .loading import load_attribute, users_line
    from .parity import check
    from .verdict import Verdict

    name = f"{torch_name} = {jax_name}"
    try:
        module = load_attribute(torch_name, torch.nn.Module)
        model = _jax_model(load_attribute(jax_name))
        x = _example(given.input, module)
        mapping, refused = _match(module, model, x, _layouts(x, given.jax_input), given)
        report = check(_twin(name, module, mapping, x, given), levels="forward", bisect=True)
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


def _where_refused(
    name: str, module: Any, mapping: "Mapping", x: Any, given: Given, refused: MappingError
) -> "Report | None":
    """The report on the weights and inputs with which `match` saw the models differ, if it sees that too."""
    import copy

    import torch

    from .bridge.matching.both_models import unwrap
    from .parity import check
    from .verdict import Verdict

    if refused.draw is None:
        return None
    module = copy.deepcopy(unwrap(module))
    for key, tensor in module.state_dict().items():
        if key in refused.draw.weights:
            tensor.copy_(torch.tensor(refused.draw.weights[key]))
    twin = _twin(name, module, mapping, x, given, refused.draw.probe.inputs)
    report = check(twin, levels="forward", bisect=True)
    note = f"the models agree on their own weights and this input; they differ with {refused.draw.probe}."
    return replace(report, notes=(note, *report.notes)) if report.verdict is Verdict.DIFFERENT else None


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


def _notes(mapping: "Mapping", given: Given) -> list[str]:
    """What is to be known of the match: a layout that was not asked for, what it did not reach."""
    import jax
    import numpy as np

    notes = []
    jax_x = _origin(mapping)[1]
    if given.jax_input is None and jax_x is not None:
        shapes = ", ".join("x".join(map(str, np.shape(leaf))) for leaf in jax.tree.leaves(jax_x))
        notes.append(f"the JAX model was given the input with its channels last, {shapes}; --jax-input says otherwise.")
    return [*notes, *mapping.notes()]


def _origin(mapping: "Mapping") -> tuple[Any, Any]:
    """The torch input and the JAX input with which a mapping was found; None for the same."""
    return mapping.origin[1:3] if mapping.origin is not None else (None, None)


def _match(module: Any, model: Any, x: Any, layouts: list[Any], given: Given) -> "tuple[Mapping, MappingError | None]":
    """The mapping in the first layout in which the models match, or can at least be paired; and why it is refused."""
    from . import bridge

    errors, unproved = [], []
    how = {"torch_apply": given.torch_apply, "jax_apply": given.jax_apply}
    for jax_x in layouts:
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


def page(reports: "list[tuple[Mapping | Failure, Report | Failure]]") -> str:
    """All pairs as one HTML page, the conclusions first."""
    from .parity.html import several

    parts = [
        (conclusion(mapping, report), str(report.json()["verdict"]), whole, text)
        for mapping, report in reports
        for whole, text in ((None, report.text()) if isinstance(report, Failure) else (report, mapping.explain(False)),)
    ]
    return several("crossfade doctor", parts)


def conclusion(mapping: "Mapping | Failure", report: "Report | Failure") -> str:
    """What was found of a pair, and what was not looked at, in a sentence or two."""
    if isinstance(mapping, Failure) or isinstance(report, Failure):
        return f"{mapping.explain(notes=False)}: {report.text().splitlines()[0]}"
    start = f"{report.name}: {report.verdict}"
    if report.first is not None:
        found = report.first.divergence
        return f"{start}. {report.first if found is None else found.conclusion}"
    wide = [row.float64.size for row in report.rows if row.level == "forward" and row.float64 is not None]
    same = [f"{start}. The same forward pass, {max(wide):.1e} apart in float64."] if wide else []
    same += [] if wide else [f"{start}. The same forward pass in float32, which proves less; the notes say why."]
    if mapping.unproved:
        same.append(f"Not proved, for the outputs do not depend on them here: {', '.join(mapping.unproved)}.")
    return " ".join(same)


def details(mapping: "Mapping | Failure", report: "Report | Failure") -> str:
    """All that was found of a pair; nothing where the conclusion has said it all."""
    if isinstance(report, Failure):
        return "\n\n".join(["", report.explain(), report.text()]) if "\n" in report.text() else ""
    return "\n\n".join(["", mapping.explain(notes=False), report.text()])


def _twin(name: str, module: Any, mapping: "Mapping", x: Any, given: Given, factor: float = 1.0) -> "Twin":
    """Both models in evaluation mode, the outputs of the JAX model under torch's names and in torch's layout, inputs
    times a factor. Where the run is in float64 all is computed in float64, whatever the code of the models says."""
    import copy
    from contextlib import nullcontext

    import jax
    import torch

    from .bridge.libraries import named_leaves, open_model
    from .bridge.matching.both_models import unwrap
    from .bridge.matching.draws import is_continuous
    from .bridge.matching.outputs import in_torch_layout, output_tensors
    from .bridge.meant_numbers import Meant
    from .bridge.widening import Wide, widened
    from .parity import Twin
    from .parity.arrays import jax_tree, to_numpy, torch_tree

    module = copy.deepcopy(unwrap(module)).float().eval()
    jax_x = _origin(mapping)[1]
    batch = x if jax_x is None else {"torch": x, "jax": jax_x}
    of = lambda batch, half: batch if jax_x is None else batch[half]
    scaled = lambda leaf: factor * leaf if is_continuous(to_numpy(leaf)) else leaf
    batch = batch if factor == 1.0 else jax.tree.map(scaled, batch)
    jax_call = given.jax_apply or mapping.opened.call
    torch_call = given.torch_apply or (lambda module, x: module(*(x if isinstance(x, tuple) else (x,))))
    torch_meant, jax_meant = mapping.numbers or (Meant(), Meant())

    def forward(module: Any, x: Any) -> dict[str, Any]:
        wide = torch.get_default_dtype() == torch.float64
        with Wide(torch_meant) if wide else nullcontext():
            return output_tensors(torch_call(module, x))

    def call(model: Any, x: Any) -> Any:
        opened = open_model(model)
        run = lambda leaves, x: jax_call(opened.inference(opened.replace(leaves)), x)
        wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
        return (widened(run, jax_meant) if wide else run)(opened.leaves(), x)

    jax_result = call(mapping.to_jax(module.state_dict()), jax_tree(of(batch, "jax"), "float32"))
    same = in_torch_layout(forward(module, torch_tree(x, "float32")), jax_result)
    return Twin(
        name=name,
        torch=module,
        jax=mapping.jax_model,
        mapping=mapping,
        batch=batch,
        forward=(lambda m, b: forward(m, of(b, "torch")), lambda m, b: same(call(m, of(b, "jax")))),
        scaled=tuple(name for name, leaf in named_leaves(batch).items() if is_continuous(to_numpy(leaf))),
    )


def _load_apply(text: str | None, flag: str, model: str) -> Any:
    """The function that a flag names."""
    from .loading import load_attribute

    if text is None:
        return None
    if ":" not in text:
        raise UsageError(f"{flag}: expected MODULE:FUNCTION, got {text!r}.")
    function = load_attribute(text)
    if not callable(function):
        kind = type(function).__name__
        raise UsageError(f"{flag} {text}: expected a function ({model}, x) -> outputs, got a {kind}.")
    return function


def _one_each(values: tuple[str, ...], n: int, flag: str) -> list[str | None]:
    if len(values) not in (0, 1, n):
        raise UsageError(f"expected one {flag} for all pairs or one for each of {n}; got {len(values)}.")
    return list(values) if len(values) == n else [values[0] if values else None] * n


def _jax_model(value: Any) -> Any:
    """A model as it is, or what a class or function makes of no arguments."""
    from .bridge.libraries import open_model

    try:
        open_model(value)
    except UsageError:
        if not callable(value):
            raise
        return value()
    return value


def _check_inputs(text: str | None, jax_text: str | None) -> None:
    """Raises unless the two inputs can hold the same numbers."""
    for given in filter(None, (text, jax_text)):
        if ":" not in given and not re.fullmatch(r"\d+(x\d+)*", given):
            raise UsageError(f"expected a shape such as 4x8 or MODULE:ATTR, got {given!r}.")
    if jax_text and ":" in jax_text and not (text and ":" in text):
        raise UsageError(
            f"--jax-input {jax_text} has numbers of its own: expected --input MODULE:ATTR with the same numbers in "
            f"torch's layout, got {text!r}."
        )
    if text and jax_text and ":" not in text + jax_text:
        _orders(_shape(text), _shape(jax_text))


def _example(text: str | None, module: Any) -> Any:
    """The torch input: drawn for a shape such as 4x8, loaded from MODULE:ATTR, or guessed from the first layer."""
    import torch

    if text and ":" in text:
        return _load(text)
    if text:
        shape = _shape(text)
    else:
        first = next((m for m in module.modules() if isinstance(m, torch.nn.Linear | torch.nn.Embedding)), None)
        if first is None or not isinstance(first, torch.nn.Linear) or first is not _first_layer(module):
            raise UsageError(
                "cannot tell the input from the model's first layer. Say it: --input 4x8, or --input MODULE:ATTR."
            )
        shape = (4, first.in_features)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _layouts(x: Any, jax_text: str | None) -> list[Any]:
    """The JAX input, the same numbers as `x`: None for the same layout, else every order of axes that gives the shape
    that was asked for, the likeliest first."""
    import torch

    if jax_text is None:
        return [None]
    if ":" in jax_text:
        return [_load(jax_text)]
    if not isinstance(x, torch.Tensor):
        raise UsageError(f"--jax-input {jax_text}: expected one torch input, got several. Say it as MODULE:ATTR.")
    return [x.permute(order).numpy() for order in _orders(tuple(x.shape), _shape(jax_text))]


def _orders(shape: tuple[int, ...], jax_shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The orders of the axes after the first that turn one shape into the other, those that move the fewest first."""
    orders = [(0, *rest) for rest in permutations(range(1, len(shape)))]
    found = [order for order in orders if tuple(shape[i] for i in order) == jax_shape]
    if not found:
        text, jax_text = ("x".join(map(str, numbers)) for numbers in (shape, jax_shape))
        raise UsageError(f"--jax-input {jax_text}: expected the axes of {text} in another order, the batch axis first.")
    return sorted(found, key=lambda order: sum(a > b for a, b in combinations(order, 2)))


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split("x"))


def _load(text: str) -> Any:
    from .loading import load_attribute

    value = load_attribute(text)
    return value() if callable(value) and not hasattr(value, "shape") else value


def _first_layer(module: Any) -> Any:
    """The first module with parameters that has no modules in it."""
    layers = (m for m in module.modules() if next(m.children(), None) is None)
    return next((m for m in layers if next(m.parameters(recurse=False), None) is not None), None)
