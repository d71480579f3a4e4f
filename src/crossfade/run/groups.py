"""Which runs are repeats of each other, by their settings, and what tells the others apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from .settings import RunConfig

REPEATED = ("seed", *RunConfig.bookkeeping)
"""Settings in which repeats of a run may differ: what they learn differs by chance alone."""

Flat = dict[str, Any]
"""Settings by dotted name."""


def flat(tree: Mapping[str, Any], prefix: str = "") -> Flat:
    """Nested settings as one table: `{"env": {"phase": 2}}` is `{"env.phase": 2}`."""
    found: Flat = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def differences(configs: Sequence[Flat], but: Sequence[str] = REPEATED) -> dict[str, list[Any]]:
    """The settings in which configs differ, those named in `but` left out: the value of each config, None without."""
    names = dict.fromkeys(name for config in configs for name in config if name not in but)
    values = {name: [config.get(name) for config in configs] for name in names}
    return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


def labels(names: Sequence[str], configs: Sequence[Flat]) -> list[str]:
    """A label for each run: its name, and what sets its config apart from others of that name. Repeats share one.

    Speed depends on the devices, so they are told apart; the mode is part of a name.
    """
    but = [name for name in REPEATED if name != "devices"]
    found = list(names)
    for name in dict.fromkeys(names):
        places = [place for place, other in enumerate(names) if other == name]
        apart = differences([configs[place] for place in places], but)
        for number, place in enumerate(places):
            found[place] = " ".join([name, *(f"{key}={shown(values[number])}" for key, values in apart.items())])
    return found


def together(labels: Sequence[str]) -> list[int]:
    """The places of runs in an order in which those of one label stand together, labels in order of appearance."""
    return sorted(range(len(labels)), key=lambda place: labels.index(labels[place]))


def shown(value: Any) -> str:
    """A setting's value as on the command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(shown, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
