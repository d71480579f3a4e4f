"""The rules of the house: light imports, twins that mirror each other, frameworks that meet in few rooms."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "crossfade"
SOURCES = sorted(SRC.rglob("*.py"))
MEETING_ROOMS = {"bridge", "parity", "checkpoint", "trainers", "bench"}
TWIN_SUFFIXES = ("_numpy", "_torch", "_jax")
INNER = {"bridge/dataflow", "parity/side", "random/threefry"}  # two sides of a mechanism, each with its own business
OWN_ARGUMENTS = {
    "update",
    "update_epochs",
    "collect",
}  # in torch an optimiser is changed in place, in JAX its state goes in and comes out


def twins() -> dict[Path, list[Path]]:
    """Files that share a stem and differ in the framework they end with."""
    groups: dict[Path, list[Path]] = {}
    for path in SOURCES:
        for suffix in TWIN_SUFFIXES:
            if path.stem.endswith(suffix):
                groups.setdefault(path.with_name(path.stem.removesuffix(suffix)), []).append(path)
    return {s: files for s, files in groups.items() if len(files) > 1 and str(s.relative_to(SRC)) not in INNER}


def imported(path: Path) -> set[str]:
    """Top-level packages named by any import statement of a file, wherever it stands."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_importing_crossfade_imports_no_framework():
    code = "import crossfade, sys; assert not {'torch', 'jax', 'numpy', 'tyro', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_imports_no_framework():
    code = (
        "import sys, contextlib, crossfade.cli as c\n"
        "with contextlib.suppress(SystemExit): c.main(['parity', '--help'])\n"
        "assert not {'torch', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def face(path: Path) -> dict[str, list[str] | None]:
    """Public names of a module; for functions their arguments, but for what only one framework can mean."""
    module = import_module(".".join(("crossfade", *path.relative_to(SRC).with_suffix("").parts)))
    public = {n: v for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__}
    return {
        name: [p for p in inspect.signature(value).parameters if p not in ("key", "device")]
        if inspect.isfunction(value) and name not in OWN_ARGUMENTS
        else None
        for name, value in public.items()
        if not name.startswith("_")
    }


@pytest.mark.parametrize("files", twins().values(), ids=[str(stem.relative_to(SRC)) for stem in twins()])
def test_twins_have_the_same_names_and_arguments(files):
    faces = [face(path) for path in files]
    assert faces[0], "a twin exports nothing"
    for other in faces[1:]:
        assert other == faces[0]


def test_there_are_twins_to_compare():
    assert twins()


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(SRC)))
def test_frameworks_meet_only_in_the_meeting_rooms(path):
    both = {"torch", "jax"} <= imported(path)
    assert not both or path.relative_to(SRC).parts[0] in MEETING_ROOMS | {"doctor.py"}


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.parent.name not in ("bridge", "parity")], ids=lambda p: str(p.relative_to(SRC))
)
def test_a_twin_imports_only_its_own_framework(path):
    if path.stem.endswith("_torch"):
        assert not {"jax", "equinox", "optax", "flax"} & imported(path)
    if path.stem.endswith("_jax"):
        assert "torch" not in imported(path)
    if path.stem.endswith("_numpy"):
        assert not {"torch", "jax"} & imported(path)


def test_nothing_unpickles():
    words = ("import pickle", "allow_pickle=True", "weights_only=False", "torch.load(")
    lines = [line for path in SOURCES for line in path.read_text().splitlines() if any(w in line for w in words)]
    assert all("weights_only=True" in line for line in lines)
