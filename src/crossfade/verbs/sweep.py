"""The verb sweep: one system under many settings at once, in one compiled program."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from ..errors import UsageError, nearest
from ..registry import systems
from .common import Common, print_json
from .configured import Words, read_config, read_system

MOST = 10_000  # members


@dataclass(kw_only=True)
class Sweep(Common):
    """Every combination of some settings, trained side by side in one compiled program; one table, one HTML page.

    crossfade sweep SYSTEM steps=2000 --over seed=0..4 lr=1e-3,3e-4
    """

    words: Words = ()
    """The system, then any settings that all share."""
    over: Annotated[tuple[str, ...], arg(metavar="KEY=VALUE,VALUE ...")] = ()
    """What varies: values with commas between, or first..last of integers. All combinations are trained."""
    preset: str | None = None
    """A named setting to start from."""
    config: Path | None = None
    """A YAML file of settings; words on the command line go before it, a preset behind."""

    def run(self) -> int:
        from ..loading import load_attribute
        from ..run.files import write_json
        from ..run.memory import check_fits
        from ..trainers.making import precision
        from .sweep_report import record, show, write_page

        system, words = read_system(self.words)
        if not system.population:
            able = ", ".join(name for name, other in systems().items() if other.population)
            raise UsageError(f"sweep: expected a system that trains populations ({able}), got {system.name}.")
        population_class = load_attribute(system.population)
        base = read_config(system, words, self.config, self.preset)
        over = read_over(self.over, population_class.varying)
        check_fits(base.footprint(), copies=prod(map(len, over.values())))
        configs = combinations(base, over)
        silent = self.quiet or self.json
        with precision(base):
            history = train(population_class(configs), base, title=f"{system.name} x {len(configs)}", quiet=silent)
        found = record(system, base, over, configs, history)
        name = "-".join(("sweep", *base.parts[:2], datetime.now().strftime("%Y%m%d-%H%M%S")))
        folder = self.runs_dir / system.name / name
        write_json(folder / "sweep.json", found)
        page = write_page(folder / "sweep.html", system, found)
        if self.json:
            return print_json(found)
        show(system, found)
        print(f"report: {page}")
        return 0


def read_over(words: Sequence[str], varying: Sequence[str]) -> dict[str, list[str]]:
    """`("seed=0..2", "lr=1e-3,3e-4")` -> `{"seed": ["0", "1", "2"], "lr": ["1e-3", "3e-4"]}`."""
    can = f"What can vary inside one compiled program: {', '.join(varying)}"
    if not words:
        raise UsageError(f"expected --over with what varies, for example --over seed=0..4 lr=1e-3,3e-4. {can}.")
    over: dict[str, list[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not text:
            raise UsageError(f"--over: expected key=value,value, for example lr=1e-3,3e-4; got {word!r}.")
        if key not in varying:
            raise UsageError(
                f"--over: {key} cannot vary.{nearest(key, varying)} {can}. Give any other setting before --over, "
                f"and sweep once for each of its values."
            )
        values = [value for part in text.split(",") for value in _span(part)]
        if key in over or len(set(values)) < len(values):
            raise UsageError(f"--over: {key} is given twice, or one of its values is: {word!r}; leave one out.")
        over[key] = values
    if (members := prod(map(len, over.values()))) > MOST:
        raise UsageError(f"--over: expected at most {MOST} combinations, got {members}. Leave some values out.")
    return over


def combinations(base: Any, over: Mapping[str, Sequence[str]]) -> list[Any]:
    """The config of every combination, the last key varying fastest."""
    from ..config import apply

    return [
        apply(base, [f"{key}={value}" for key, value in zip(over, values, strict=True)])
        for values in product(*over.values())
    ]


def train(population: Any, config: Any, *, title: str, quiet: bool) -> dict[str, Any]:
    """Trains all members to `config.steps`, or until Ctrl-C; their rows of the log, how far they came, how fast."""
    from ..run import Progress, StopOnSignal, run_chunks
    from ..trainers.training import speed

    rows: list[tuple[int, dict[str, Any]]] = []
    seconds: list[tuple[int, float]] = []

    def body(step: int, n: int) -> dict[str, Any]:
        began = time.perf_counter()
        metrics = population.run(step, n)
        seconds.append((n, time.perf_counter() - began))
        return _by_member("train", metrics)

    def evaluate(step: int) -> dict[str, Any]:
        return _by_member("eval", population.evaluate())

    with Progress(config.steps, title=title, quiet=quiet) as bar, StopOnSignal(quiet=True) as stop:
        reached = run_chunks(
            config.steps,
            config.chunk,
            body,
            breaks=config.breaks,
            on_log=lambda step, row: rows.append((step, row)),
            log_every=config.log_every,
            on_eval=evaluate,
            eval_every=config.eval_every,
            on_progress=bar.update,
            stop=stop,
        )
    if reached < config.steps:
        rows.append((reached, evaluate(reached)))
    return {"step": reached, "rows": rows, **speed(seconds)}


def _by_member(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"loss": (members, ...)}` -> `{"0/train/loss": (...), "1/train/loss": (...)}`."""
    return {f"{i}/{kind}/{name}": value for name, column in values.items() for i, value in enumerate(column)}


def _span(text: str) -> list[str]:
    """`0..3` is 0, 1, 2, 3."""
    ends = re.fullmatch(r"([0-9]{1,15})\.\.([0-9]{1,15})", text)
    if ends is None:
        return [text]
    first, last = int(ends[1]), int(ends[2])
    if not 0 <= last - first < MOST:
        raise UsageError(f"--over: expected first..last, the first one first and at most {MOST} in all, got {text}.")
    return [str(i) for i in range(first, last + 1)]
