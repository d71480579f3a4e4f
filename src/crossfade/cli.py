"""The command line. Parsing imports no framework; each verb loads what it needs when it runs."""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro

from .errors import CrossfadeError, UsageError, nearest
from .loading import load_attribute
from .registry import systems
from .verbs import eval as eval_verb
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

GENERAL: dict[str, Callable[..., Any]] = {
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
SETTING = re.compile(r"[A-Za-z][\w.-]*=")
FLAGS = ("--json", "--quiet", "--quick")  # options without a value


def main(argv: list[str] | None = None) -> int:
    """Runs one verb; 0 well, 1 failed (a broken proof too), 2 wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    _share_compilations()
    try:
        verbs = _verbs(words)
        if words[0] not in verbs and not words[0].startswith("-"):
            raise UsageError(f"unknown verb {words[0]!r}.{nearest(words[0], verbs)} Known: {', '.join(verbs)}.")
        words = _settings_first(words) if _configured(verbs.get(words[0])) else _options(words)
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


def _verbs(words: list[str]) -> dict[str, Callable[..., Any]]:
    """The general verbs, `eval` with the options of the run that is named, and the verbs of the systems."""
    own = {name: load_attribute(item.target) for record in systems().values() for name, item in record.verbs.items()}
    return GENERAL | ({"eval": eval_verb.for_run(words[1:])} if words[0] == "eval" else {}) | own


def _configured(verb: Any) -> bool:
    """Whether a verb's key=value words are settings, read by a system's config."""
    return "words" in getattr(verb, "__dataclass_fields__", {})


def _settings_first(words: list[str]) -> list[str]:
    """`train SYSTEM --preset demo mode=torch` is accepted for `train SYSTEM mode=torch --preset demo`."""
    first_option = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    before, after = words[:first_option], words[first_option:]
    return [*before, *filter(SETTING.match, after), *(word for word in after if not SETTING.match(word))]


def _options(words: list[str]) -> list[str]:
    """`level=grad` is accepted for `--level=grad`, unless a file is called so or an option waits for a value."""
    waits = [False, *(word.startswith("--") and "=" not in word and word not in FLAGS for word in words[:-1])]
    takes = lambda word, value: SETTING.match(word) and not value and not Path(word).exists()
    return [f"--{word}" if takes(word, value) else word for word, value in zip(words, waits, strict=True)]


def _share_compilations() -> None:
    """Compiled JAX programs are kept between runs unless the user has chosen otherwise; set before jax is imported."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "crossfade" / "jax"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
