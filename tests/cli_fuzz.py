"""Bad command lines, drawn from a seed: every verb, what users mistype, and what files and modules can be like."""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from crossfade.cli import GENERAL
from crossfade.config import apply, describe
from crossfade.errors import UsageError
from crossfade.loading import load_attribute
from crossfade.registry import systems
from crossfade.verbs.arguments import options

MODULES = {
    "fz_raises": "raise ValueError('broken on import')",
    "fz_syntax": "def f(:\n    pass",
    "fz_exits": "import sys; sys.exit(3)",
    "fz_needs": "import no_such_module_anywhere",
    "fz_recursion": "def f(): return f()\nf()",
    "fz_bytes": b"# -*- coding: utf-8 -*-\nx = '\xff\xfe'\n",
    "fz_null": b"x = 1\0\n",
    "fz_things": """
from dataclasses import dataclass
class Plain: pass
@dataclass
class Loose:
    a: int = 1
@dataclass(frozen=True)
class NoParams:
    a: int = 1
@dataclass(frozen=True)
class Needs:
    a: int
@dataclass(frozen=True)
class Kind:
    kind: int = 1
@dataclass(frozen=True)
class Raises:
    a: int = 1
    def __post_init__(self): raise RuntimeError('never')
def maker(): raise OSError('no')
def nothing(): return None
number = 3
""",
}
ATTRIBUTES = (
    "Plain",
    "Loose",
    "NoParams",
    "Needs",
    "Kind",
    "Raises",
    "maker",
    "nothing",
    "number",
    "no",
    "a.b",
    "",
    "x y",
)
ODD = (
    "", " ", "-", "--", "---", "=", "=x", "x=", "--=", "--=x", "é", "💥", "\u202e", "é" * 300, "a" * 5000, "\udcff",
    "~", "*", "%s", "{0}", "[red]x[/red]", "[/red]", "none", "true", "nan", ":", "a:", ":b", "..x:y", "a\tb",
    "-1", "--1", "\n", "a=b=c", "env.", ".env=1", "env..x=1", "kind=1", "-h=1", "a\0b", "١٢", "x" * 300 + "=1",
)  # fmt: skip
NUMBERS = (
    "nan", "inf", "-inf", "-1", "0", "1e400", "1e-400", "1e999999999", "-1e999999999", "9" * 400, "9" * 5000, "0x10",
    "1_000", "１２", "", "1.5", "--1", "1,2,3", "-0", "1e10", "2147483648", "4294967296", "1e18", "1e-300", "1e300",
    "true", "none", "0..3", "[1,2", "((1))", ",,,", "1e", "+5", " 3 ", "3\n",
)  # fmt: skip


@dataclass(frozen=True)
class Fixtures:
    """What the words can name: a folder with modules in it, and paths of every bad kind."""

    folder: Path
    paths: tuple[str, ...]
    runs: tuple[str, ...]
    blocked: str
    """A file where a folder is needed."""


def prepare(folder: Path) -> Fixtures:
    """Writes the files."""
    for name, source in MODULES.items():
        path = folder / f"{name}.py"
        path.write_bytes(source) if isinstance(source, bytes) else path.write_text(source)
    files = {
        "empty": b"",
        "text.yaml": b"seed: 1\n",
        "binary.yaml": bytes(range(256)),
        "deep.yaml": b"[" * 100_000,
        "deeper.yaml": b"a: " + b"{a: " * 3000 + b"1" + b"}" * 3000,
        "list.yaml": b"- 1\n- 2\n",
        "twice.yaml": b"seed: 1\nseed: 2\n",
        "tag.yaml": b"seed: !!python/object/apply:os.system ['true']\n",
        "loop.yaml": b"env: &a\n  env: *a\n",
        "odd.yaml": b"? [1, 2]\n: 3\n",
        "long.yaml": b"seed: " + b"9" * 6000 + b"\n",
        "null.yaml": b'data: "a\\0b"\n',
        "types.yaml": b"seed: 2001-01-01\n1: 2\n",
        "keys.yaml": b"".join(b"k%d: 1\n" % i for i in range(3000)),
        "latin.csv": b"\xe9,1,2\n",
        "data.csv": b"a,b\n1\n",
        "not.pt": b"PK\x03\x04 no",
        "pickle.pt": b"\x80\x04K\x01.",
        "odd.npz": b"PK\x05\x06" + b"\0" * 18,
        "odd.safetensors": b"\xff" * 8 + b"{",
        "bars.parquet": b"PAR1",
        "bars.zip": b"PK\x03\x04",
        "bars.gz": b"\x1f\x8b\x08",
        "firms.yaml": b"firm: 3\n",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "dangling").symlink_to(folder / "nowhere")
    (folder / "circle").symlink_to(folder / "circle")
    (folder / "emptydir").mkdir()
    np.save(folder / "objects.npy", np.zeros((2, 2), int))
    np.save(folder / "pickled.npy", np.array([{}], object), allow_pickle=True)
    names = [*files, "dangling", "circle", "emptydir", "objects.npy", "pickled.npy", "missing", "empty/x", "b" * 300]
    paths = [str(folder / name) for name in names] + ["\udcff", "a\0b"]
    return Fixtures(folder, tuple(paths), tuple(_runs(folder / "runs")), str(folder / "empty"))


def _runs(root: Path) -> list[str]:
    """Folders that look like runs, none of them whole."""
    meta = {"system": "gflownet", "place": "", "seed": 0, "sessions": [{"started": "2020"}]}
    kinds: dict[str, tuple[str | bytes, str | bytes]] = {
        "bare": (json.dumps(meta), "seed: 0\n"),
        "trading": (json.dumps({**meta, "system": "trading"}), "seed: 0\n"),
        "unknown": (json.dumps({**meta, "system": "gflownt"}), "seed: 0\n"),
        "place": (json.dumps({**meta, "place": "fz_raises:RECORD"}), "seed: 0\n"),
        "config": (json.dumps(meta), "los: tb\n"),
        "binary": (json.dumps(meta), b"\xff\xfe\0"),
        "not_json": ("{", "seed: 0\n"),
        "not_text": (b"\xff\xfe", "seed: 0\n"),
        "empty": ("", ""),
    }
    for name, (facts, config) in kinds.items():
        path = root / "toy" / name
        (path / "checkpoints").mkdir(parents=True)
        (path / "meta.json").write_bytes(facts if isinstance(facts, bytes) else facts.encode())
        (path / "config.yaml").write_bytes(config if isinstance(config, bytes) else config.encode())
    (root / "toy" / "folder" / "meta.json").mkdir(parents=True)
    (root / "toy" / "bare" / "metrics.jsonl").write_bytes(b"\xff{\n")
    (root / "toy" / "bare" / "done").write_bytes(b"xx")
    return [str(root / "toy" / name) for name in (*kinds, "folder")]


class Lines:
    """Draws command lines; none of them gets as far as training."""

    def __init__(self, fixtures: Fixtures, seed: int):
        self.draw, self.at = random.Random(seed), fixtures
        own = {name: load_attribute(item.target) for r in systems().values() for name, item in r.verbs.items()}
        self.verbs: dict[str, Any] = {**GENERAL, **own}
        self.worlds = {name: _worlds(record) for name, record in systems().items()}
        self.keys = {name: sorted(set().union(*worlds.values())) for name, worlds in self.worlds.items()}

    def line(self) -> list[str]:
        """One command line."""
        if self.draw.random() < 0.03:
            return [self.word() for _ in range(self.draw.randint(0, 3))]
        verb = self.draw.choice(list(self.verbs))
        words = self.table.get(verb, self.unknown)()
        for _ in range(self.draw.choice((0, 0, 1, 1, 2))):
            words[self.draw.randint(0, len(words)) :] = self.option(verb)
        return [verb, *words, *self.end(verb)]

    def end(self, verb: str) -> list[str]:
        """What keeps a line that is well so far from work: a folder that cannot be made, or a key that is none."""
        if verb in ("climb", "sweep", "tune"):
            return ["--quiet", "no_such_key=1"]
        if verb in ("bench", "audit"):
            return {"bench": ["--quick=7"], "audit": ["--days", "-5"]}[verb]
        if verb == "generate":
            return ["--to", str(self.at.folder / "odd.npz")]  # which exists
        if verb not in self.table:
            return ["--no-such-option"]
        return ["--runs-dir", self.at.blocked] if verb in ("train", "walk", "parity", "report") else []

    # Words

    def word(self) -> str:
        return self.draw.choice([self.draw.choice(ODD), self.draw.choice(NUMBERS), self.path(), self.place()])

    def path(self) -> str:
        return self.draw.choice(self.at.paths + self.at.runs)

    def place(self) -> str:
        return f"{self.draw.choice([*MODULES, 'json', 'no_such'])}:{self.draw.choice(ATTRIBUTES)}"

    def setting(self, system: str) -> str:
        """A key of the system, at times misspelt, and a value that seldom fits."""
        key = self.draw.choice(self.keys.get(system, ["seed"]))
        if self.draw.random() < 0.15:
            i = self.draw.randrange(len(key) + 1)
            key = key[:i] + self.draw.choice(("", "x", ".", "=", "É")) + key[i + 1 :]
        values = (
            self.draw.choice(NUMBERS),
            self.draw.choice(NUMBERS),
            self.draw.choice(ODD),
            self.place(),
            self.path(),
        )
        return f"{key}={self.draw.choice(values)}"

    def option(self, verb: str) -> list[str]:
        """An option of the verb, at times misspelt, with a value or without."""
        name = self.draw.choice([name for name in options(self.verbs[verb]) if name not in ("-h", "--help")])
        if self.draw.random() < 0.1:
            name = name[:-1]
        if self.draw.random() < 0.2:
            return [name]
        value = self.draw.choice([self.word(), self.path(), self.draw.choice(NUMBERS)])
        return [f"{name}={value}"] if self.draw.random() < 0.3 else [name, value]

    # Verbs

    def configured(self) -> list[str]:
        system = self.draw.choice([*self.keys, *self.keys, self.word(), self.place()])
        return [system, *(self.setting(system) for _ in range(self.draw.choice((0, 1, 1, 1, 2, 3))))]

    def deep(self) -> list[str]:
        """A training of one update with a setting that need not fit; it may well succeed."""
        name = self.draw.choice(list(self.keys))
        setting = self.setting(name)
        key = setting.partition("=")[0]
        usual = [*systems()[name].tiny, "mode=torch", "steps=1", "chunk=1"]
        if key.startswith("env."):
            fitting = [choice for choice, keys in self.worlds[name].items() if choice and key in keys]
            usual = [word for word in usual if not word.startswith("env")]
            usual += [f"env={self.draw.choice(fitting)}"] if fitting else []
        words = {word.partition("=")[0]: word for word in usual} | {key: setting}
        return ["train", name, *words.values(), "--runs-dir", str(self.at.folder / "deep"), "--quiet"]

    def train(self) -> list[str]:
        words = self.configured()
        if self.draw.random() < 0.2:
            words = [*words[1:], "--resume", self.path()]
        elif self.draw.random() < 0.2:
            words += ["--weights", self.path()]
        elif self.draw.random() < 0.3:
            words += ["--config", self.path()]
        return words

    def unknown(self) -> list[str]:
        return [self.word() for _ in range(self.draw.randint(0, 2))]

    def sweep(self) -> list[str]:
        keys = ("seed", "lr", "epsilon", "hidden", "x")
        over = [f"{self.draw.choice(keys)}={self.draw.choice(NUMBERS)}" for _ in range(self.draw.randint(0, 2))]
        return [*self.configured(), "--over", *over]

    @property
    def table(self) -> dict[str, Callable[[], list[str]]]:
        return {
            "train": self.train,
            "climb": self.configured,
            "walk": self.configured,
            "sweep": self.sweep,
            "parity": lambda: [self.draw.choice([self.word(), self.place(), "policy_vale"])],
            "list": lambda: [self.draw.choice([self.word(), self.place(), "gflownet"])],
            "bench": lambda: [self.draw.choice([self.word(), self.place()])],
            "eval": lambda: [self.path()],
            "report": lambda: [self.path() for _ in range(self.draw.randint(0, 2))],
            "convert": lambda: [self.path(), "--to", self.draw.choice(["npz", "orbx", "bundle", "torch", self.word()])],
            "doctor": lambda: [self.draw.choice([self.place(), self.word()]) for _ in range(self.draw.randint(1, 3))],
            "audit": lambda: [self.word()],
            "explain": lambda: [self.draw.choice(NUMBERS)],
            "data": self.data,
            "describe": self.describe,
            "generate": self.generate,
            "tune": self.configured,
        }

    def describe(self) -> list[str]:
        shapes = [f"{key}={self.draw.choice(['24', '64x64x3', '8x8', *NUMBERS, *ODD])}" for key in ("obs", "act")]
        return [*self.configured(), *shapes[: self.draw.choice((1, 2, 2))]]

    def generate(self) -> list[str]:
        keys = ("env", "transitions", "seed", "task", "x")
        return ["offline", *(f"{self.draw.choice(keys)}={self.word()}" for _ in range(self.draw.randint(0, 3)))]

    def data(self) -> list[str]:
        do = self.draw.choice(("import", "check", "facts", "sample", self.word()))
        more = {
            "facts": lambda: [self.path()],
            "sample": lambda: [self.word()],
        }.get(do, lambda: [self.path(), "--contract", self.draw.choice(["ES", "EZ", self.word()])])
        return [do, *more()]


def _worlds(record: Any) -> dict[str, set[str]]:
    """Every setting of a system, by the choice of its world; under an empty name those that it has without one."""
    config = load_attribute(record.config)()
    found = {"": {row.key for row in describe(config)}}
    for field in fields(config):
        for name in field.metadata.get("choices", ()):
            with suppress(UsageError):  # a choice that needs more than its name
                found[name] = {row.key for row in describe(apply(config, [f"{field.name}={name}"]))}
    return found
