"""The verb describe: an offline agent on data of given shapes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import UsageError
from ....ranges import Count, check_value
from ....verbs.common import Common, print_json
from ....verbs.configured import Words, read_config, read_system

if TYPE_CHECKING:
    from ....nn.initial import Shape
    from ..config import OfflineDataConfig

MOST = 10**6
"""Numbers along an axis of an observation, and of an action."""


@dataclass(kw_only=True)
class Describe(Common):
    """Modules, shapes and parameter counts of an offline agent, the terms of its loss and which modules each teaches.

    crossfade describe offline agent=infom obs=24 act=6

    crossfade describe offline agent=iql encoder=impala_small obs=64x64x3 act=5
    """

    words: Words = ()
    """The system (offline), then settings, and obs= and act=: the shape of an observation and the numbers of an
    action. Without them, those of the data."""
    preset: str | None = None
    """Named settings, see `crossfade list offline`."""
    config: Path | None = None
    """A YAML file of settings; words on the command line go before it, a preset behind."""

    def run(self) -> int:
        from .. import RECORD, description

        system, words = read_system(self.words)
        if system.name != RECORD.name:
            raise UsageError(f"expected {RECORD.name}, whose agents are described here, got {system.name}.")
        own = {key: [word for word in words if word.startswith(f"{key}=")] for key in ("obs", "act")}
        rest = tuple(word for word in words if word not in (*own["obs"], *own["act"]))
        config = read_config(system, rest, self.config, self.preset)
        found = description.describe(config, *_shapes(config, own))
        if self.json:
            return print_json(description.as_json(found))
        print("\n".join(description.lines(found)))
        return 0


def _shapes(config: "OfflineDataConfig", own: dict[str, list[str]]) -> "tuple[Shape, int]":
    """Those of the words, or of the config's data."""
    from ..data import check_readable, load

    for key, given in own.items():
        if len(given) > 1:
            raise UsageError(f"{key}: expected it once, got {' '.join(given)}.")
    if not any(own.values()):
        data = load(config)
        return data.observation, data.action
    if missing := [key for key, given in own.items() if not given]:
        raise UsageError(f"{missing[0]}: expected it too, as obs=24 act=6, got only {own['obs'] + own['act']}.")
    observation = tuple(_number("obs", part) for part in own["obs"][0].removeprefix("obs=").split("x"))
    if len(observation) not in (1, 3):
        raise UsageError(f"obs: expected a number, or three for images as 64x64x3, got {own['obs'][0]}.")
    *shape, channels = observation
    stacked = (*shape, channels * config.frame_stack)
    check_readable(config, stacked)
    return stacked, _number("act", own["act"][0].removeprefix("act="))


def _number(key: str, text: str) -> int:
    number: Any = int(text) if text.isascii() and text.isdecimal() else text
    check_value(key, number, Count)
    if number > MOST:
        raise UsageError(f"{key}: expected at most {MOST:,} numbers, got {number:,}.")
    return number
