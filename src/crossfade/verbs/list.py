"""The verb list."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from .common import Common, print_json


@dataclass(kw_only=True)
class List(Common):
    """Systems, modes, proofs and benches that can be named; of one system, its settings.

    crossfade list

    crossfade list SYSTEM
    """

    system: Annotated[Positional[str | None], arg(metavar="SYSTEM")] = None
    """Show the settings and presets of this system."""

    def run(self) -> int:
        from ..registry import MODES, benches, systems, twins

        if self.system is not None:
            return self._settings(self.system)
        table = {
            "systems": {name: system.help for name, system in systems().items()},
            "modes": MODES,
            "parity": {name: item.help for name, item in twins().items()},
            "bench": {name: item.help for name, item in benches().items()},
        }
        if self.json:
            return print_json(table)
        for kind, rows in table.items():
            print(kind)
            for name, line in rows.items():
                print(f"  {name:<14} {line}")
        return 0

    def _settings(self, name: str) -> int:
        from ..config import describe
        from ..loading import load_attribute
        from ..registry import find

        system = find(name)
        rows = describe(load_attribute(system.config)())
        presets = {preset: " ".join(words) for preset, words in system.presets.items()}
        if self.json:
            return print_json({"settings": [row._asdict() for row in rows], "presets": presets})
        for row in rows:
            allowed = row.range or (row.type if "|" in row.type else "")
            print(f"{row.key + '=' + row.default:<28} {row.doc}{f' [{allowed}]' if allowed else ''}")
        for preset, words in presets.items():
            print(f"--preset {preset:<19} {words}")
        return 0
