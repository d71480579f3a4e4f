"""Which line of a program is the user's own: not a library's, not Python's, not that of the tools that look."""

import os
import sysconfig
from functools import cache
from pathlib import Path

PACKAGE = str(Path(__file__).parent.parent) + os.sep
TOOLS = tuple(f"{PACKAGE}{part}" for part in (f"bridge{os.sep}", f"parity{os.sep}", f"doctor{os.sep}"))
STREAMS = f"{PACKAGE}random{os.sep}"
"""What jax.random is on the other side: a library."""
CASES = f"{PACKAGE}parity{os.sep}cases{os.sep}"
LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
PYTHON = sysconfig.get_paths()["stdlib"] + os.sep


@cache
def is_users(file_name: str) -> bool:
    """Whether a file is the user's code. The systems that ship count as such."""
    if file_name.startswith("<") or file_name.startswith(CASES):
        return file_name.startswith(CASES)
    if file_name.startswith(PACKAGE):
        return not file_name.startswith((*TOOLS, STREAMS))
    return not (file_name.startswith(PYTHON) or any(part in file_name for part in LIBRARIES))


def is_search(file_name: str) -> bool:
    """Whether a file is of the tools that call the user's code: what called them is of no interest."""
    return file_name.startswith(TOOLS[1:]) and not file_name.startswith(CASES)


def line_text(where: str) -> str:
    """The text of "file:line"; empty when the file cannot be read."""
    file_name, _, number = where.rpartition(":")
    try:
        lines = Path(file_name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[int(number) - 1].strip() if 0 < int(number) <= len(lines) else ""
