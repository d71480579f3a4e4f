"""The command line. Parsing imports no framework; each verb loads what it needs when it runs."""

import os
import sys
from pathlib import Path
from typing import Any

import tyro

from .errors import CrossfadeError, UsageError, nearest
from .loading import load_attribute
from .registry import systems
from .verbs import eval as eval_verb
from .verbs.arguments import arrange
from .verbs.bench import Bench
from .verbs.climb import Climb
from .verbs.convert import Convert
from .verbs.doctor import Doctor
from .verbs.list import List
from .verbs.parity import Parity
from .verbs.report import Report
from .verbs.sweep import Sweep
from .verbs.train import Train

DESCRIPTION = "Move reinforcement-learning systems between PyTorch and JAX one component at a time, with proof."

GENERAL: dict[str, type[Any]] = {
    "list": List,
    "train": Train,
    "climb": Climb,
    "sweep": Sweep,
    "parity": Parity,
    "bench": Bench,
    "eval": eval_verb.Eval,
    "report": Report,
    "convert": Convert,
    "doctor": Doctor,
}


def main(argv: list[str] | None = None) -> int:
    """Runs one verb; 0 well, 1 failed (a broken proof too), 2 wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    _share_compilations()
    try:
        verbs = _verbs(words)
        if words[0] not in verbs and not words[0].startswith("-"):
            raise UsageError(f"unknown verb {words[0]!r}.{nearest(words[0], verbs)} Known: {', '.join(verbs)}.")
        if words[0] in verbs:
            words = [words[0], *arrange(verbs[words[0]], words[1:])]
        verb = tyro.extras.subcommand_cli_from_dict(verbs, args=words, prog="crossfade", description=DESCRIPTION)
        return verb.run()
    except CrossfadeError as error:
        print(f"crossfade: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except BrokenPipeError:  # `crossfade ... | head`: whoever read has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("crossfade: stopped", file=sys.stderr)
        return 130


def _verbs(words: list[str]) -> dict[str, type[Any]]:
    """The general verbs, `eval` with the options of the run that is named, and the verbs of the systems."""
    own = {name: load_attribute(item.target) for record in systems().values() for name, item in record.verbs.items()}
    return GENERAL | ({"eval": eval_verb.for_run(words[1:])} if words[0] == "eval" else {}) | own


def _share_compilations() -> None:
    """Compiled JAX programs are kept between runs unless the user has chosen otherwise; set before jax is imported."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "crossfade" / "jax"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
