"""An agent as tables, before anything is trained: modules, shapes, parameters, who learns from what.

Framework-free.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...algos.offline.agent import Draw, Sizes, online
from ...algos.offline.batch import PHASES, Phase
from ...algos.offline.config import Quirk
from ...algos.offline.modules import (
    Actor,
    Coder,
    GCActor,
    GCBilinearValue,
    GCMetricValue,
    GCValue,
    IntentionEncoder,
    Module,
    Param,
    Value,
    VectorField,
    constants,
)
from ...nn.initial import Shape
from .config import OfflineDataConfig
from .history import CHANGES, FAULTS, Change, concerning

Shapes = dict[str, tuple[str | int, ...]]
"""Arrays by name; an axis of a batch is called `batch`."""
WORDS: dict[Phase, str] = {"pretraining": "pre-training", "finetuning": "fine-tuning"}


class ModuleRow(NamedTuple):
    """A module."""

    name: str
    kind: str
    reads: Shapes
    gives: Shapes
    parameters: int
    constant: int
    """Of these, how many cancel in every loss and stay as they are."""


class TermRow(NamedTuple):
    """A term of the loss of a phase."""

    phase: Phase
    term: str
    teaches: tuple[str, ...]
    """The modules that its gradient reaches: all others are detached."""
    full_only: bool
    """Whether only full updates have it."""


class Description(NamedTuple):
    """All of it."""

    agent: str
    spec: str
    observation: Shape
    action: int
    encoder: str | None
    hidden: tuple[int, ...]
    batch_size: int
    modules: tuple[ModuleRow, ...]
    parameters: int
    targets: int
    """Of these, how many are of targets."""
    terms: tuple[TermRow, ...]
    actor_every: int
    follow: dict[Phase, tuple[str, ...]]
    """Modules whose targets follow them."""
    follow_full_only: bool
    """Whether they follow in full updates only, in fine-tuning."""
    reset: tuple[str, ...]
    """Modules whose targets are set to them between the phases."""
    draws: dict[Phase, dict[str, Draw]]
    changes: tuple[Change, ...]
    """What r2025-06 has otherwise."""
    faults: dict[Quirk, bool]
    """The published faults that concern the agent, and whether they are kept."""


def describe(config: OfflineDataConfig, observation: Shape, action: int) -> Description:
    """The agent of a config on data of these shapes."""
    agent, sizes, encoded = config.agent, config.sizes(observation, action), config.encoding is not None
    modules = agent.modules(sizes)
    rows = tuple(_row(name, module, sizes) for name, module in modules.items())
    learning = online(modules)
    reached = agent.reached(config.spec, encoded)
    terms = tuple(
        TermRow(phase, term, teaches, phase == "finetuning" and term in agent.when_full)
        for phase in PHASES
        for term, teaches in reached[phase].items()
    )
    return Description(
        config.agent_name,
        config.spec,
        observation,
        action,
        config.encoding,
        config.hidden,
        config.batch_size,
        rows,
        sum(row.parameters for row in rows),
        sum(row.parameters for row in rows if row.name not in learning),
        terms,
        config.actor_every,
        {phase: agent.followed(phase, encoded) for phase in PHASES},
        agent.averages_when_full,
        agent.reset(encoded),
        {phase: agent.draws(sizes, phase) for phase in PHASES},
        CHANGES.get(config.agent_name, ()),
        {quirk: config.has(quirk) for quirk in concerning(config.agent_name)},
    )


def as_json(found: Description) -> dict[str, object]:
    """The same, by names alone."""
    faults = [{"number": FAULTS[quirk].number, "name": quirk, "kept": kept} for quirk, kept in found.faults.items()]
    draws = {phase: {name: draw._asdict() for name, draw in of.items()} for phase, of in found.draws.items()}
    return {
        **found._asdict(),
        "modules": [row._asdict() for row in found.modules],
        "terms": [row._asdict() for row in found.terms],
        "draws": draws,
        "changes": [change._asdict() for change in found.changes],
        "faults": faults,
    }


def lines(found: Description) -> list[str]:
    """The same for a terminal."""
    encoder = f", encoder {found.encoder}" if found.encoder else ""
    widths = ",".join(map(str, found.hidden))
    said = [
        f"{found.agent}, {found.spec}: observations {_shape(found.observation)}, actions ({found.action}), hidden "
        f"{widths}{encoder}, batch {found.batch_size}",
        "",
        *_table(
            ("module", "kind", "reads", "gives", "parameters"),
            [(r.name, r.kind, _inputs(r.reads), _outputs(r.gives), f"{r.parameters:,}") for r in found.modules],
        ),
        f"{found.parameters:,} parameters, of which targets {found.targets:,}",
    ]
    if still := {row.name: row.constant for row in found.modules if row.constant and not row.name.startswith("target")}:
        each = ", ".join(f"{count:,} of {name}" for name, count in still.items())
        said.append(f"constant, because they cancel in every loss: {each}")
    for phase in PHASES:
        when = f"every {found.actor_every} updates" if found.actor_every > 1 else ""
        terms = [
            (row.term, ", ".join(row.teaches), when if row.full_only else "")
            for row in found.terms
            if row.phase == phase
        ]
        follow = ", ".join(found.follow[phase]) or "none"
        full = ", when the actor learns" if found.follow_full_only and phase == "finetuning" else ""
        draws = ", ".join(f"{name} {draw.kind} {_shape(draw.shape)}" for name, draw in found.draws[phase].items())
        said += [
            "",
            *_table((WORDS[phase], "teaches", ""), terms),
            f"targets that follow: {follow}{full if found.follow[phase] else ''}",
            f"random numbers: {draws or 'none'}",
        ]
    said += ["", f"between the phases: targets set to {', '.join(found.reset) or 'nothing'}"]
    said += ["", "since r2025-06:" if found.changes else "the same in r2025-06 and r2026-05"]
    said += [f"  {change.date}  {change.says}" for change in found.changes]
    states = [f"{FAULTS[q].number} {q} ({'kept' if kept else 'corrected'})" for q, kept in found.faults.items()]
    return [*said, "", "published faults: " + ", ".join(states)]


# Modules


def _row(name: str, module: Module, sizes: Sizes) -> ModuleRow:
    shapes = {parameter: shape for parameter, (_, shape) in module.laws.items()}
    count = lambda names: sum(math.prod(shapes[n]) for n in names)
    members = getattr(module, "members", 1)
    kind = type(module).__name__ + (f" x {members}" if members > 1 else "")
    return ModuleRow(name, kind, _reads(module, sizes), _gives(module), count(shapes), count(constants(module)))


def _reads(module: Module, sizes: Sizes) -> Shapes:
    """The inputs of a module, in their order."""
    seen = _seen(module, sizes)
    match module:
        case Param():
            return {}
        case Coder():
            return seen
        case VectorField():
            return {"x": ("batch", module.vector), "t": ("batch",), **seen, **_actions(module), **_latent(module)}
        case GCBilinearValue():
            goal = {"goal": next(iter(seen.values()))}
            return {**seen, **goal, **_actions(module)}
        case GCMetricValue():
            return {**seen, "goal": next(iter(seen.values()))}
        case GCValue():
            return {**seen, **_goals(module), **_actions(module)}
        case GCActor():
            return {**seen, **_goals(module)}
        case Actor():
            return seen
        case Value() | IntentionEncoder():
            return {**seen, **_actions(module)}


def _gives(module: Module) -> Shapes:
    """The outputs of a module."""
    match module:
        case Param():
            return {"value": module.shape}
        case Coder():
            return {"code": ("batch", module.encoder.outputs)}
        case VectorField():
            return {"velocity": ("batch", module.vector)}
        case Actor() | GCActor():
            return {"mean": ("batch", module.actions), "log_std": ("batch", module.actions)}
        case IntentionEncoder():
            return {"mean": ("batch", module.latent), "log_std": ("batch", module.latent)}
        case GCBilinearValue():
            return {"value": (module.members, "batch", "batch")}
        case GCMetricValue():
            return {"value": (module.members, "batch")}
        case Value() | GCValue():
            front = (module.members,) if module.members > 1 else ()
            return {"value": (*front, "batch", *((module.outputs,) if module.outputs > 1 else ()))}


def _seen(module: Module, sizes: Sizes) -> Shapes:
    """What it reads of an observation: the observation, or the code that another module has made of it."""
    encoder = getattr(module, "encoder", None)
    if encoder is None and sizes.encoding is not None:
        return {"code": ("batch", sizes.code)}
    return {"observation": ("batch", *sizes.observation)}


def _actions(module: Value | GCValue | GCBilinearValue | IntentionEncoder | VectorField) -> Shapes:
    return {"action": ("batch", module.actions)} if module.actions else {}


def _latent(module: VectorField) -> Shapes:
    return {"latent": ("batch", module.latent)}


def _goals(module: GCValue | GCActor) -> Shapes:
    return {"latent": ("batch", module.goals)} if module.goals else {}


# Text


def _inputs(shapes: Shapes) -> str:
    """Names with what stands behind the axis of a batch."""
    each = (f"{name} {'x'.join(map(str, shape[1:]))}".rstrip() for name, shape in shapes.items())
    return ", ".join(each) or "nothing"


def _outputs(shapes: Shapes) -> str:
    return ", ".join(f"{name} {_shape(shape)}" for name, shape in shapes.items())


def _shape(shape: Sequence[str | int]) -> str:
    return f"({', '.join(map(str, shape))})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
