"""What the command line can name: strings only, so that listing it imports no framework.

A system is known by its record, the constant `RECORD` of its package. Those that ship with crossfade are named in
`SYSTEMS`; an installed package adds its own by an entry point of the group `crossfade.systems`, and any other is named
by its place: `crossfade train my_package.bandit:RECORD`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import entry_points
from typing import Literal, TypeVar

from .errors import UsageError, nearest
from .loading import load_attribute

SYSTEMS = ("gflownet", "trading", "treasurehunt", "offline", "robot")
ENTRY_POINTS = "crossfade.systems"


@dataclass(frozen=True)
class Item:
    """Something with a name, a line of help, and the place it is loaded from when asked for."""

    help: str
    target: str  # "module:attribute"


@dataclass(frozen=True)
class Measure:
    """A figure by which runs of a system are compared."""

    name: str
    """The metric's name as it is logged: `eval/tv`."""
    label: str
    """The metric's name in tables."""
    better: Literal["lower", "higher", ""] = ""
    """Which way is good; empty where neither is."""
    log: bool = False
    """Plotted on a logarithmic axis: a distance from 0."""


@dataclass(frozen=True)
class System:
    """The record of a learning system: every part that is called from outside, each named by its place."""

    name: str
    help: str
    config: str
    """A dataclass that extends `run.settings.RunConfig`."""
    torch: str
    """`(config) -> trainers.system.TorchSystem`."""
    jax: str
    """`(config) -> trainers.system.JaxSystem`."""
    pictures: str = ""
    """`(config, {label: run folder}) -> [(SVG or page.image, caption)]` for reports."""
    summary: str = ""
    """`(config, {label: run folder}) -> [run.Section]`, what evaluations left, with which a report begins."""
    twin: Item | None = None
    """A `parity.Twin`, for `crossfade parity`."""
    bench: Item | None = None
    """`(quick, as_json, quiet, only) -> exit code`, for `crossfade bench`."""
    effort: str = ""
    """A dataclass that extends `run.evaluation.Effort`; its fields are the options of `crossfade eval`."""
    judge: str = ""
    """`(RunDir, config, Evaluation, Effort) -> Judged`, what `crossfade eval` adds to an evaluation and prints."""
    population: str = ""
    """A class, `(configs) -> population`, for `crossfade sweep`: `varying` names what its members may differ in,
    `run(step, n)` trains them and gives metrics (members, n), `evaluate()` figures (members,)."""
    examine: str = ""
    """`(target) -> doctor.Examined | None`: what `crossfade doctor` finds in a world of the user's own, named as on the
    command line; None for what is no world of this system."""
    formats: str = ""
    """`{name: checkpoint format}` that `crossfade convert` reads and writes beside its own."""
    presets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Named settings: words, as on the command line."""
    headline: tuple[Measure, ...] = ()
    """The figures that tables of runs show, the deciding one first."""
    score: str = ""
    """The metric by which the ledger of trials judges a run; nothing where all is known."""
    verbs: Mapping[str, Item] = field(default_factory=dict)
    """Verbs of its own."""
    tiny: tuple[str, ...] = ()
    """Settings of a run of seconds, for the tests that every system has to pass."""

    place: str = ""
    """Where the record itself is, `module:RECORD`; `find` fills it in for one that has no name."""

    def targets(self) -> dict[str, str]:
        """Every place that the record names, by field."""
        items = {"twin": self.twin, "bench": self.bench, **{f"verbs.{name}": item for name, item in self.verbs.items()}}
        parts = ("config", "torch", "jax", "pictures", "summary", "effort", "judge", "population", "examine", "formats")
        named = {part: getattr(self, part) for part in parts if getattr(self, part)}
        return named | {part: item.target for part, item in items.items() if item is not None}


MODES = {
    "torch": "NumPy env, torch policy, torch eager learner, Python loop",
    "torch_pure": "one functional torch step, torch.func + torch.compile: the honest baseline",
    "jax_minimal": "torch policy, JAX learner, parameters synced back (bridge.Step)",
    "jax_policy": "NumPy env, JAX policy and learner, Python loop",
    "jax_full": "env, policy, learner, buffer and loop in one compiled JAX program",
}

TWINS = {
    "policy_value": Item(
        "PPO loss of a small policy/value net, Adam with clipping", "crossfade.parity.cases:policy_value"
    ),
    "critics": Item("TD loss of an ensemble of critics with target networks", "crossfade.parity.cases:critics"),
}
"""Proofs that belong to no system."""

BENCHES = {
    "bridge": Item(
        "one training step: eager, fused, compiled, hand-written JAX, bridge.Step", "crossfade.bench.bridge:main"
    ),
}
"""Benches that belong to no system."""


def systems() -> dict[str, System]:
    """The record of every system that has a name, installed ones behind those that ship."""
    own = {name: import_module(f"{__package__}.systems.{name}").RECORD for name in SYSTEMS}
    return own | {point.name: point.load() for point in entry_points(group=ENTRY_POINTS) if point.name not in own}


def find(name: str) -> System:
    """The record of a system, by its name or by its place `module:RECORD`."""
    if ":" in name:
        return replace(load_attribute(name, System), place=name)
    return lookup("system", systems(), name)


def twins() -> dict[str, Item]:
    """Everything that `crossfade parity` can name."""
    return {name: record.twin for name, record in systems().items() if record.twin is not None} | TWINS


def benches() -> dict[str, Item]:
    """Everything that `crossfade bench` can name."""
    return BENCHES | {name: record.bench for name, record in systems().items() if record.bench is not None}


T = TypeVar("T")


def lookup(kind: str, table: Mapping[str, T], name: str) -> T:
    """The named item, or an error with the nearest name."""
    if name not in table:
        raise UsageError(f"unknown {kind} {name!r}.{nearest(name, table)} Known: {', '.join(table)}.")
    return table[name]
