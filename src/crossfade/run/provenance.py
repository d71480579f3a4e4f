"""Under which circumstances a run was made: enough to judge and repeat its figures, nothing about who made it."""

import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .files import reading

PACKAGES = ("crossfade", "numpy", "torch", "jax", "jaxlib", "equinox", "optax", "safetensors")


def session(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """The facts of this process, as meta.json keeps them."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "argv": [without_folders(word) for word in (sys.argv if argv is None else argv)],
        "git": git_commit(),
        "python": platform.python_version(),
        "versions": versions(),
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def digests(files: Sequence[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its name."""
    found = {}
    for path in files:
        with reading(path, "a file the run depends on") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def versions() -> dict[str, str]:
    """Installed versions, read from their metadata: nothing is imported."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_commit(folder: Path | None = None) -> str | None:
    """The commit of the current folder, marked `-dirty` if files differ from it; None outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def without_folders(word: str) -> str:
    """`--config=/home/someone/a.yaml` -> `--config=a.yaml`: folders of a machine say who, not what."""
    return re.sub(r"(?<![\w.~])[~/][^\s=:,]*/", "", word)
