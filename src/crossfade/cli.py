"""The command line. Parsing imports no framework; each verb loads what it needs when it runs."""

import io
import os
import sys
from tempfile import gettempdir
from typing import Any

import tyro

from .errors import CrossfadeError, UsageError, nearest
from .failing import in_words, unforeseen
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
    given = words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    _print_anything()
    _share_compilations()
    try:
        if odd := [word for word in words if "\0" in word]:
            raise UsageError(f"expected words without NUL characters, got {odd[0]!r}.")
        verbs = _verbs(words)
        if words[0] not in verbs and not words[0].startswith("-"):
            raise UsageError(f"unknown verb {words[0]!r}.{nearest(words[0], verbs)} Known: {', '.join(verbs)}.")
        if words[0] not in verbs:  # --help and the like
            help = tyro.extras.subcommand_cli_from_dict(verbs, args=words, prog="crossfade", description=DESCRIPTION)
            return help.run()
        verb = verbs[words[0]]
        return tyro.cli(verb, args=arrange(verb, words[1:]), prog=f"crossfade {words[0]}").run()
    except CrossfadeError as error:
        print(f"crossfade: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except BrokenPipeError:  # `crossfade ... | head`: whoever read has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        print(f"crossfade: stopped{f'; {stop}' if stop.args else ''}", file=sys.stderr)
        return 130
    except Exception as error:  # the one place that may: a user is told, and the traceback is kept
        print(f"crossfade: {in_words(error) or unforeseen(error, given)}", file=sys.stderr)
        return 1


def _verbs(words: list[str]) -> dict[str, type[Any]]:
    """The general verbs, `eval` with the options of the run that is named, and the verbs of the systems."""
    own = {name: load_attribute(item.target) for record in systems().values() for name, item in record.verbs.items()}
    return GENERAL | ({"eval": eval_verb.for_run(words[1:])} if words[0] == "eval" else {}) | own


def _share_compilations() -> None:
    """Compiled JAX programs are kept between runs unless the user has chosen otherwise; set before jax is imported."""
    home = os.path.expanduser("~")  # as it is for a user without a home
    cache = os.environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home != "~" else gettempdir())
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.join(cache, "crossfade", "jax"))


def _print_anything() -> None:
    """Names of files need not be text, and terminals need not know all letters: such characters are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
