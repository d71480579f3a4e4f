"""The command line. Parsing imports no framework; each verb loads what it needs when it runs."""

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional, arg

from .errors import CrossfadeError, UsageError, nearest

DESCRIPTION = "Move reinforcement-learning systems between PyTorch and JAX one component at a time, with proof."


@dataclass(kw_only=True)
class Common:
    runs_dir: Path = Path("runs")
    """Where reports and runs are written."""
    quiet: bool = False
    """Print nothing but errors and the result."""
    json: bool = False
    """Print the result as JSON on standard output, and nothing else there."""


@dataclass(kw_only=True)
class List(Common):
    """Systems, modes and benches that can be named.

    crossfade list
    """

    def run(self) -> int:
        from .registry import BENCHES, MODES, TWINS

        table = {
            "parity": {name: item.help for name, item in TWINS.items()},
            "bench": {name: item.help for name, item in BENCHES.items()},
            "modes": MODES,
        }
        if self.json:
            return _print_json(table)
        for kind, rows in table.items():
            print(kind)
            for name, line in rows.items():
                print(f"  {name:<14} {line}")
        return 0


@dataclass(kw_only=True)
class Parity(Common):
    """Prove that the two sides of a system are the same. Exit code 1 when DIFFERENT.

    crossfade parity policy_value --level grad

    crossfade parity my_package.twins:my_twin
    """

    system: Annotated[Positional[str], arg(metavar="SYSTEM|MODULE:TWIN")]
    """A name from `crossfade list`, or your own Twin (or a function that makes one)."""
    level: Literal["all", "map", "forward", "loss", "grad", "update", "updates", "env", "rollout"] = "all"
    """Climb up to this level."""
    dtype: Literal["both", "float64", "float32"] = "both"
    """Precisions to compare in."""

    def run(self) -> int:
        from .loading import load_attribute
        from .registry import TWINS, lookup

        target = self.system if ":" in self.system else lookup("system", TWINS, self.system).target
        from . import parity

        twin = load_attribute(target, parity.Twin)
        with _status(f"proving {twin.name}", self):
            report = parity.check(twin, levels=self.level, dtype=self.dtype)
        page = report.save(self.runs_dir / "parity" / f"{twin.name}.html")
        if self.json:
            _print_json(report.json())
        else:
            print(report.text())
            print(f"report: {page}")
        return report.exit_code


@dataclass(kw_only=True)
class Convert(Common):
    """Turn a checkpoint into another format. Nothing is ever unpickled.

    crossfade convert policy.pt --to orbax

    crossfade convert runs/x/checkpoints --to torch --out policy.pt
    """

    checkpoint: Annotated[Positional[Path], arg(metavar="CKPT")]
    """A bundle or folder of bundles, .pt/.pth, .safetensors, .npz, or an orbax folder; recognised by content."""
    to: Literal["torch", "jax", "orbax", "npz", "safetensors", "bundle"] = "torch"
    """The format to write."""
    out: Path | None = None
    """Where to write it; by default beside the source."""

    def run(self) -> int:
        from . import checkpoint

        written = checkpoint.convert(self.checkpoint, self.to, self.out)
        if self.json:
            return _print_json({"written": str(written)})
        print(written)
        return 0


@dataclass(kw_only=True)
class Bench(Common):
    """Measure throughput, compile time apart, torch baselines beside.

    crossfade bench bridge --quick
    """

    system: Annotated[Positional[str], arg(metavar="SYSTEM")] = "bridge"
    """A name from `crossfade list`."""
    quick: bool = False
    """Fewer rounds and processes: a first look, not a figure to quote."""

    def run(self) -> int:
        from .loading import load_attribute
        from .registry import BENCHES, lookup

        return load_attribute(lookup("bench", BENCHES, self.system).target)(
            quick=self.quick, as_json=self.json, quiet=self.quiet
        )


@dataclass(kw_only=True)
class Doctor(Common):
    """Versions, devices and missing extras; with models of your own: match them and prove the match.

    crossfade doctor

    crossfade doctor my_models:TorchNet my_models:make_jax_net --input 4x8
    """

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="TORCH JAX ...")] = ()
    """Pairs of MODULE:ATTR, torch first: a model, or a class or function that makes one without arguments."""
    input: Annotated[tuple[str, ...], arg(metavar="SHAPE|MODULE:ATTR")] = ()
    """The torch input: a shape with its batch axis such as 4x8, or MODULE:ATTR. One per pair, or one for all."""
    jax_input: Annotated[tuple[str, ...], arg(metavar="SHAPE|MODULE:ATTR")] = ()
    """The JAX input where its layout differs (NHWC)."""

    def run(self) -> int:
        from . import doctor

        if not self.models:
            health = doctor.environment()
            return _print_json(health) if self.json else doctor.print_environment(health)
        with _status("matching", self):
            reports = doctor.examine(self.models, self.input, self.jax_input)
        if self.json:
            _print_json([report.json() for _, report in reports])
        for mapping, report in () if self.json else reports:
            print(mapping.explain(), report.text(), sep="\n\n")
        return max(report.exit_code for _, report in reports)


VERBS = {"list": List, "parity": Parity, "bench": Bench, "convert": Convert, "doctor": Doctor}


def main(argv: list[str] | None = None) -> int:
    """Runs one verb; 0 well, 1 failed (a broken proof too), 2 wrong usage."""
    words = [_option(word) for word in (sys.argv[1:] if argv is None else argv)] or ["--help"]
    _share_compilations()
    try:
        if words[0] not in VERBS and not words[0].startswith("-"):
            raise UsageError(f"unknown verb {words[0]!r}.{nearest(words[0], VERBS)} Known: {', '.join(VERBS)}.")
        verb = tyro.extras.subcommand_cli_from_dict(VERBS, args=words, prog="crossfade", description=DESCRIPTION)
        return verb.run()
    except CrossfadeError as error:
        print(f"crossfade: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("crossfade: stopped", file=sys.stderr)
        return 130


def _option(word: str) -> str:
    """`level=grad` is accepted for `--level=grad`."""
    return f"--{word}" if re.match(r"[A-Za-z][\w.-]*=", word) else word


def _share_compilations() -> None:
    """Compiled JAX programs are kept between runs unless the user has chosen otherwise; set before jax is imported."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "crossfade" / "jax"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))


def _status(text: str, common: Common):
    """A spinner on standard error while something takes its time."""
    from rich.console import Console

    return Console(stderr=True, quiet=common.quiet or common.json).status(text)


def _print_json(value: Any) -> int:
    print(json.dumps(value, indent=1))
    return 0
