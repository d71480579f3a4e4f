"""The rules of the house: light imports, twins that mirror each other, rooms that know only the rooms below them."""

import ast
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from crossfade.loading import load_attribute
from crossfade.registry import SYSTEMS, systems
from crossfade.trainers.system import JaxSystem, TorchSystem

SRC = Path(__file__).parent.parent / "src" / "crossfade"
SOURCES = sorted(SRC.rglob("*.py"))
FRAMEWORKS = {
    "torch": {"torch"},
    "jax": {"jax", "jaxlib", "equinox", "optax", "flax", "haiku", "orbax"},
}
MEETING_ROOMS = {"bridge", "parity", "checkpoint", "trainers", "bench"}
BOTH = ("twin.py", "bench.py", "bench_worker.py")  # files of a system where the frameworks meet
TWIN_SUFFIXES = ("_numpy", "_torch", "_jax")
INNER = {  # two sides of a mechanism, each with its own business
    "bridge/matching/dataflow",
    "bridge/transfer",
    "parity/side",
    "random/threefry",
}
OWN_ARGUMENTS = {"key", "device", "optimizer", "optimizers", "tx", "opt_state", "opt_states", "scheduler"}
"""What only one framework can mean: keys and devices, and optimisers, which torch changes in place."""
OWN_METHODS = set(vars(TorchSystem)) ^ set(vars(JaxSystem))
"""What the seam asks of one half of a system only."""

CROWD = 40
"""Files side by side that one can still find one's way among."""

BASE = {"errors", "_lazy", "loading", "failing", "reading", "ranges", "config", "config_values", "__version__"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "_lazy": set(),
    "failing": {"errors"},
    "loading": {"errors", "failing"},
    "reading": {"errors"},
    "ranges": {"config_values", "errors"},
    "config_values": {"errors"},
    "config": {"config_values", "errors", "loading", "ranges", "reading"},
    "registry": BASE - {"config"},
    "random": BASE,
    "optim": BASE,
    "nn": BASE | {"random", "optim"},
    "run": BASE,
    "envs": BASE | {"random", "nn", "run"},
    "algos": BASE | {"random", "nn", "optim", "run", "envs"},
    "verdict": BASE,
    "bridge": BASE | {"random", "optim", "nn", "verdict"},
    "checkpoint": BASE | {"optim", "bridge"},
    "parity": BASE | {"random", "optim", "bridge", "verdict", "run"},
    "trainers": BASE | {"registry", "optim", "bridge", "checkpoint", "parity", "verdict", "run"},
    "bench": BASE | {"bridge", "run"},
    "doctor": BASE | {"registry", "bridge", "parity", "verdict"},
    "verbs": BASE | {"registry", "run", "checkpoint", "parity", "trainers", "doctor", "verdict"},
    "cli": BASE | {"registry", "verbs"},
    "__main__": {"cli"},
    "systems": BASE
    | {"registry", "random", "optim", "nn", "run", "envs", "algos", "bridge", "checkpoint", "parity", "verdict"}
    | {"trainers", "bench", "verbs", "doctor"},
}
"""Who may import whom: ARCHITECTURE.md in one table. A system's folder may not know another system's; files
beside the folders are shared by systems and know none."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path, *, lazy: bool = True) -> Iterator[tuple[str, ...]]:
    """Every module that a file imports, as a path from the package's root (or of another package).

    Imports for type checkers alone do not count; without `lazy` neither do those inside functions.
    """
    tree = parsed(path)
    skipped = {id(part) for node in ast.walk(tree) if _for_types(node) for part in ast.walk(node)}
    if not lazy:
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        skipped |= {id(part) for node in ast.walk(tree) if isinstance(node, kinds) for part in ast.walk(node)}
    package = ("crossfade", *path.relative_to(SRC).parent.parts)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = (*start, *(node.module.split(".") if node.module else ()))
            yield from ((*module, alias.name) for alias in node.names)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def frameworks(path: Path, *, lazy: bool = True) -> set[str]:
    """The frameworks that importing a file brings in, by itself or by a file that says so in its name."""
    found = set()
    for module in imports(path, lazy=lazy):
        found |= {name for name, packages in FRAMEWORKS.items() if module[0] in packages}
        if module[0] == "crossfade":
            found |= {name for name in FRAMEWORKS if any(part.endswith(f"_{name}") for part in module)}
    return found


def room(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def meets(path: Path) -> bool:
    """Whether both frameworks may be imported here."""
    return room(path) in MEETING_ROOMS | {"doctor"} or (room(path) == "systems" and path.name in BOTH)


# Imports


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


def test_a_file_that_imports_a_framework_ends_in_its_name():
    for path in SOURCES:
        if path.name == "__init__.py" or meets(path):
            continue
        found = frameworks(path, lazy=False)
        assert len(found) < 2, f"{path}: frameworks meet outside the meeting rooms"
        assert all(path.stem.endswith(f"_{name}") for name in found), path


def test_a_twin_imports_only_its_own_framework():
    for path in SOURCES:
        for name in FRAMEWORKS:
            if path.stem.endswith(f"_{name}") and not meets(path):
                assert frameworks(path) <= {name}, path
        if path.stem.endswith("_numpy"):
            assert not frameworks(path), path


def test_rooms_know_only_the_rooms_below_them():
    doors = ((path, module) for path in SOURCES if path != SRC / "__init__.py" for module in imports(path))
    for path, module in doors:
        own = room(path)
        if module[0] != "crossfade" or len(module) == 1 or module[1] == own == "systems" and len(module) == 2:
            continue
        assert module[1] == own or module[1] in MAY_IMPORT[own], f"{path} may not import {'.'.join(module)}"
        if own == "systems" and module[1] == "systems":
            shared = (SRC / "systems" / f"{module[2]}.py").is_file()
            known = shared or module[2] in (path.relative_to(SRC).parts[1], "RECORD")
            assert known, f"{path}: a system knows no other system"


def test_the_rooms_stand_on_each_other_without_two_way_doors():
    list(TopologicalSorter(MAY_IMPORT).static_order())
    assert set(MAY_IMPORT) >= {room(path) for path in SOURCES} - {"__init__"}


def test_no_room_is_crowded():
    counts = Counter(str(path.parent.relative_to(SRC)) for path in SOURCES)
    assert max(counts.values()) <= CROWD, counts.most_common(1)


def test_no_general_room_names_a_system():
    rooms = [
        SRC / name
        for name in ("trainers", "run", "verbs", "bench", "parity", "nn", "optim", "bridge", "checkpoint", "doctor")
    ]
    files = [*(path for folder in rooms for path in folder.rglob("*.py")), SRC / "cli.py"]
    named = [
        f"{path.relative_to(SRC)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if any(name in line.lower() for name in SYSTEMS)
    ]
    assert not named


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_target_of_a_record_loads(name):
    for place, target in systems()[name].targets().items():
        assert load_attribute(target) is not None, place


# Twins


def twins() -> dict[Path, list[Path]]:
    """Files that share a stem and differ in the framework they end with."""
    groups: dict[Path, list[Path]] = {}
    for path in SOURCES:
        for suffix in TWIN_SUFFIXES:
            if path.stem.endswith(suffix):
                groups.setdefault(path.with_name(path.stem.removesuffix(suffix)), []).append(path)
    return {s: files for s, files in groups.items() if len(files) > 1 and str(s.relative_to(SRC)) not in INNER}


def face(path: Path) -> dict[str, Any]:
    """What the twins of a file must have too: names, arguments with defaults, constants, docstrings."""
    module = import_module(".".join(("crossfade", *path.relative_to(SRC).with_suffix("").parts)))
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or isinstance(value, ModuleType):
            continue
        own = getattr(value, "__module__", None) == module.__name__
        if own and inspect.isclass(value):
            found[name] = {"doc": inspect.getdoc(value), **_methods(value)}
        elif own and inspect.isfunction(value):
            found[name] = {"doc": _doc(value), "arguments": _arguments(value)}
        elif name.isupper() and isinstance(value, str | int | float | tuple) and _defined(module, name):
            found[name] = value
    return found


def _methods(cls: type) -> dict[str, Any]:
    """Public methods; `forward` of a torch module is the call of an Equinox one."""
    shown = lambda name: name in ("__init__", "__call__") or not (name.startswith("_") or name in OWN_METHODS)
    methods = {n: v for n, v in vars(cls).items() if inspect.isfunction(v) and shown(n)}
    return {
        "__call__" if name == "forward" else name: {"doc": _doc(method), "arguments": _arguments(method)}
        for name, method in methods.items()
    }


def _doc(method: Any) -> str | None:
    """What stands there: docstrings are not inherited, and those of `__init__` are the dataclass's or the class's."""
    return None if method.__doc__ is None or method.__name__ == "__init__" else inspect.cleandoc(method.__doc__)


def _arguments(function: Any) -> list[tuple[str, Any]]:
    parameters = inspect.signature(function).parameters.values()
    plain = lambda p: p.default if isinstance(p.default, str | int | float | bool | None) else "other"
    return [(p.name, plain(p)) for p in parameters if p.name not in OWN_ARGUMENTS]


def _defined(module: ModuleType, name: str) -> bool:
    tree = ast.parse(Path(module.__file__ or "").read_text())
    targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


@pytest.mark.parametrize("files", twins().values(), ids=[str(stem.relative_to(SRC)) for stem in twins()])
def test_twins_have_the_same_face(files):
    faces = [face(path) for path in files]
    assert faces[0], "a twin exports nothing"
    for other in faces[1:]:
        assert set(other) == set(faces[0])
        for name, value in faces[0].items():
            assert other[name] == value, name


def test_there_are_twins_to_compare():
    assert len(twins()) > 20


def test_nothing_unpickles():
    words = ("import pickle", "allow_pickle=True", "weights_only=False", "torch.load(")
    lines = [line for path in SOURCES for line in path.read_text().splitlines() if any(w in line for w in words)]
    assert all("weights_only=True" in line for line in lines)
