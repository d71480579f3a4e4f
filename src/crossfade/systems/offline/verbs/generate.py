"""The verb generate: data for offline agents, collected on the spot."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from ....errors import UsageError, nearest
from ....ranges import Count, Range, Seed, check_value
from ....verbs.common import Common, print_json, status
from ....verbs.configured import Words, read_system

KINDS: dict[str, Any] = {"transitions": Count, "seed": Seed, "task": Annotated[int, Range(1, 5)]}
KEYS = ("env", *KINDS)


@dataclass(kw_only=True)
class Generate(Common):
    """Collect data in OGBench's layout with its own scripted policies, and print the hash of the file.

    Needs pip install 'crossfade[ogbench]'.

    crossfade generate offline env=pointmaze-medium transitions=270000 --to pointmaze.npz
    """

    words: Words = ()
    """The system (offline), then env= (pointmaze-medium, pointmaze-large, cube-single), transitions=, and if need be
    seed= and task=, whose rewards the data get."""
    to: Annotated[Path | None, arg(metavar="FILE")] = None
    """The .npz to write; its hash is written beside it."""

    def run(self) -> int:
        from .. import RECORD
        from ..generate import generate, write

        system, words = read_system(self.words)
        if system.name != RECORD.name:
            raise UsageError(f"expected {RECORD.name}, whose data are generated here, got {system.name}.")
        if self.to is None:
            raise UsageError("--to: expected the .npz file to write, got none.")
        if self.to.suffix != ".npz":
            raise UsageError(f"--to: expected a name that ends in .npz, got {str(self.to)!r}.")
        if self.to.exists():
            raise UsageError(f"--to: expected a new name, got {str(self.to)!r}, which exists; remove it first.")
        given = _read(words)
        with status("collecting", self) as shown:
            tell = lambda steps: shown.update(f"collecting: {steps:,} of {given['transitions']:,} transitions")
            arrays = generate(given["env"], given["transitions"], given["seed"], given["task"], tell)
        digest = write(arrays, self.to)
        name = f"{given['env']}-singletask-task{given['task']}-v0"
        if self.json:
            return print_json({"written": str(self.to), "sha256": digest, "gym": name, **given})
        print(f"{self.to}\nsha256 {digest}")
        print(f"learn from it: crossfade train offline data={self.to} gym={name}")
        return 0


def _read(words: tuple[str, ...]) -> dict[str, Any]:
    """env=, transitions=, seed= and task= of the words."""
    found: dict[str, Any] = {"env": "pointmaze-medium", "transitions": 100_000, "seed": 0, "task": 1}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in KEYS:
            raise UsageError(f"unknown setting {word!r}.{nearest(key, KEYS)} Known: {', '.join(KEYS)}.")
        plain = value.replace("_", "")
        found[key] = int(plain) if key != "env" and plain.isascii() and plain.isdecimal() else value
        if key != "env":
            check_value(key, found[key], KINDS[key])
    return found
