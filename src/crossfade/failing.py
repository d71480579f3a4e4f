"""What the command line says of errors that crossfade did not raise itself: the world's in words, its own in a file."""

import errno
import os
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

AGAIN = "A run that was under way goes on from its last checkpoint with --resume."
OS_ADVICE = {
    errno.EACCES: "Choose another place, or change its permissions.",
    errno.EPERM: "Choose another place, or change its permissions.",
    errno.EROFS: "Choose another place, for example with --runs-dir.",
    errno.ENOSPC: f"Free some space on that disk. {AGAIN}",
    errno.EDQUOT: f"Free some space within the quota. {AGAIN}",
    errno.EFBIG: f"Write to a disk that takes larger files. {AGAIN}",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EISDIR: "Name a file, not a folder.",
    errno.ENOTDIR: "Name a folder: a part of that path is a file.",
    errno.EEXIST: "Choose another name, or remove what is there.",
    errno.ENOENT: "Look at the path: nothing is there.",
    errno.ELOOP: "The symbolic links of that path lead in a circle; name the place itself.",
    errno.EMFILE: "Close some files, or raise the limit (ulimit -n).",
    errno.ENFILE: "Close some files, or raise the limit (ulimit -n).",
    errno.EIO: f"The disk fails; try another place. {AGAIN}",
    errno.ENXIO: "Name an ordinary file.",
    errno.EINVAL: "Name an ordinary file or folder.",
    errno.ENOTEMPTY: "Choose another name, or remove what is there.",
    errno.ESTALE: f"The network disk has gone; mount it again. {AGAIN}",
}
EXTRAS = {
    "torch": "torch",
    "jax": "jax",
    "jaxlib": "jax",
    "equinox": "jax",
    "optax": "jax",
    "flax": "flax",
    "haiku": "haiku",
    "orbax": "orbax",
    "matplotlib": "report",
    "tensorboard": "report",
    "gymnasium": "gymnasium",
    "pettingzoo": "pettingzoo",
    "h5py": "offline",
    "mujoco": "mujoco",
    "brax": "brax",
    "pandas": "bench",
}
"""The extra that brings a module along."""
NO_ROOM = ("RESOURCE_EXHAUSTED", "DefaultCPUAllocator", "out of memory", "dimension exceeded", "array is too big")
"""What JAX, torch and NumPy say when there is no room for an array."""


def in_words(error: Exception) -> str | None:
    """What happened and what to do, of an error whose cause is the world: disk, memory, installation. Else None."""
    if isinstance(error, OSError) and error.errno in OS_ADVICE:
        place = "a file" if error.filename is None else repr(os.fsdecode(error.filename))
        return f"expected to use {place}, got: {error.strerror}. {OS_ADVICE[error.errno]}"
    if isinstance(error, ModuleNotFoundError) and (extra := EXTRAS.get((error.name or "").partition(".")[0])):
        return f"expected {error.name} to be installed, found it missing. Install it: pip install 'crossfade[{extra}]'"
    if isinstance(error, MemoryError) or any(words in str(error) for words in NO_ROOM):
        detail = " ".join(str(error).split())[:200] or "no more memory"
        return f"expected to fit into memory, got: {detail}. Make the batch, the networks or the world smaller. {AGAIN}"
    return None


def unforeseen(error: Exception, words: Sequence[str]) -> str:
    """A paragraph on an error that nobody foresaw; its traceback is kept in a file, which the paragraph names."""
    detail = " ".join(str(error).split())[:300]
    file = _keep("".join(traceback.format_exception(error)), words)
    where = (
        f"The traceback is in {file}; please report it with the command."
        if file is not None
        else "Its traceback could be written nowhere; set TMPDIR to a folder that can be written, and try again."
    )
    return f"unforeseen error in `crossfade {' '.join(words)[:200]}`: {type(error).__name__}: {detail}. {where}"


def _keep(text: str, words: Sequence[str]) -> Path | None:
    """Writes a traceback under the runs' folder if there is one, else among temporary files; None if neither works."""
    name = f"crossfade-error-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    head = f"crossfade {' '.join(map(repr, words))}\n\n"
    given = [after for word, after in zip(words, words[1:], strict=False) if word == "--runs-dir"]
    given += [word.partition("=")[2] for word in words if word.startswith("--runs-dir=")]
    for folder in (given[-1] if given else "runs", tempfile.gettempdir()):
        try:
            if os.path.isdir(folder):
                path = Path(folder, name).absolute()
                path.write_text(head + text, encoding="utf-8", errors="backslashreplace")
                return path
        except OSError:
            continue
    return None
