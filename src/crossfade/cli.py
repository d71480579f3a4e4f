"""The command line. Parsing imports no framework; each verb loads what it needs when it runs."""

import os
import re
import sys
from pathlib import Path

import tyro

from .errors import CrossfadeError, UsageError, nearest
from .systems.trading.verbs.audit import Audit
from .systems.trading.verbs.data import Data
from .systems.trading.verbs.walk import Walk
from .verbs.evaluating import Eval
from .verbs.proving import Convert, Doctor, List, Parity
from .verbs.sweep import Sweep
from .verbs.training import Bench, Climb, Report, Train

DESCRIPTION = "Move reinforcement-learning systems between PyTorch and JAX one component at a time, with proof."

VERBS = {
    "list": List,
    "train": Train,
    "climb": Climb,
    "sweep": Sweep,
    "walk": Walk,
    "parity": Parity,
    "bench": Bench,
    "audit": Audit,
    "data": Data,
    "eval": Eval,
    "report": Report,
    "convert": Convert,
    "doctor": Doctor,
}
SETTING = re.compile(r"[A-Za-z][\w.-]*=")
FLAGS = ("--json", "--quiet", "--quick")  # options without a value
CONFIGURED = ("train", "climb", "sweep", "walk")  # their key=value words are settings, read by the system's config


def main(argv: list[str] | None = None) -> int:
    """Runs one verb; 0 well, 1 failed (a broken proof too), 2 wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    words = _settings_first(words) if words[0] in CONFIGURED else _options(words)
    _share_compilations()
    try:
        if words[0] not in VERBS and not words[0].startswith("-"):
            raise UsageError(f"unknown verb {words[0]!r}.{nearest(words[0], VERBS)} Known: {', '.join(VERBS)}.")
        verb = tyro.extras.subcommand_cli_from_dict(VERBS, args=words, prog="crossfade", description=DESCRIPTION)
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


def _settings_first(words: list[str]) -> list[str]:
    """`train trading --preset demo mode=torch` is accepted for `train trading mode=torch --preset demo`."""
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
