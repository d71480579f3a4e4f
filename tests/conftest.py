"""Session-wide settings: strict shapes and a compilation cache that survives between runs."""

import gc
import os
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ["JAX_NUM_CPU_DEVICES"] = "4"  # for programs that are shared among devices; the others use the first

import jax  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from like_cases import faults, left_out  # noqa: E402

# The plugin users get by installing crossfade is loaded here instead of by its entry point (-p no:crossfade in
# pyproject.toml): jaxtyping must install its import hook before the package is imported.
pytest_plugins = ("crossfade.parity.pytest_plugin",)

jax.config.update("jax_numpy_rank_promotion", "raise")
torch.set_num_threads(1)
gc.set_threshold(100_000, 20, 20)  # traced programs are millions of objects: by default a twentieth of the time is gc's


QUICK_COMPILER = "--xla_backend_optimization_level=2"
"""LLVM's -O2 in place of XLA's -O3: the same bits (tests/random/test_exactness.py), compiled in less time."""


def pytest_configure(config):
    """The default run compiles quickly; the slow tests, and files run by themselves, as users do."""
    if config.option.markexpr == "not slow":
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK_COMPILER}".strip()


def pytest_collection_modifyitems(config, items):
    """Marks the cases of like_cases.txt as slow."""
    listed = left_out()
    if not any("::" in argument for argument in config.args):  # a test named by itself is not all of its file
        slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
        if wrong := faults((item.nodeid for item in items), slow):
            raise pytest.UsageError("tests/like_cases.txt: " + "; ".join(wrong[:5]))
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.slow)


MAPS = Path("/proc/self/maps")
MANY_MAPS = 30_000  # of the 65,530 that Linux gives a process by default; XLA crashes when there are no more


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """A compiled program holds memory maps for as long as JAX remembers it: forget them before they are too many."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()


@pytest.fixture
def x64():
    """Float64 on the JAX side for one test."""
    with jax.enable_x64(True):
        yield
