"""Whether `torch.compile` can work here."""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

COMPILERS = ("g++", "clang++")  # those that torch.compile looks for by itself
PROGRAM = "#include <cmath>\nint main() { return static_cast<int>(std::floor(0.5)); }\n"


@functools.cache
def missing_compiler() -> str:
    """Why no C++ program can be compiled, in words; empty where one can. The compiler is tried, not only looked for."""
    named = os.environ.get("CXX")
    found = [name for name in ((named,) if named else COMPILERS) if shutil.which(name)]
    if not found:
        return f"no C++ compiler ({named or ' or '.join(COMPILERS)}) is installed"
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "probe.cpp"), Path(folder, "probe")
        source.write_text(PROGRAM)
        tried = subprocess.run([found[0], str(source), "-o", str(out)], capture_output=True, text=True)
    reason = tried.stderr.strip().splitlines()
    return "" if tried.returncode == 0 else f"{found[0]} does not work ({reason[0] if reason else tried.returncode})"
