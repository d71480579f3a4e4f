"""Whether `torch.compile` can work here: it needs a C++ compiler that works, with OpenMP and Python's headers."""

import functools
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

COMPILERS = ("g++", "clang++", "c++")
PROGRAM = "#include <Python.h>\n#include <cmath>\ndouble probe(double x) { return std::floor(x); }\n"


@functools.cache
def find_compiler() -> tuple[str, str]:
    """A compiler that works, or an empty name and why there is none. Each is tried, not only looked for.

    `$CXX` is the only candidate if it is set, as torch has it.
    """
    named = os.environ.get("CXX")
    reasons = [f"{named or ', '.join(COMPILERS)}: not installed"]
    for name in (named,) if named else COMPILERS:
        if shutil.which(name) is None:
            continue
        if not (reason := _failure(name)):
            return name, ""
        reasons.append(f"{name}: {reason}")
    return "", reasons[-1]


def _failure(compiler: str) -> str:
    """The first line of what a compiler complains about in a small program; empty if it compiles."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.cpp")
        source.write_text(PROGRAM)
        include = f"-I{sysconfig.get_path('include')}"
        command = [compiler, "-shared", "-fPIC", "-fopenmp", include, str(source), "-o", str(source.with_suffix(".so"))]
        try:
            tried = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if tried.returncode == 0:
        return ""
    return next(iter(tried.stderr.strip().splitlines()), f"exit code {tried.returncode}")
