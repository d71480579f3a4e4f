"""The verb tune: how the models are best trained side by side on this machine."""

from dataclasses import dataclass

from ....errors import UsageError
from ....ranges import Count
from ....verbs.common import Common, print_json, status
from ....verbs.configured import Words, read_config, read_system


@dataclass(kw_only=True)
class Tune(Common):
    """Time every way to train the agents' models side by side, and name the fastest on this machine.

    The ways are equal but for rounding, so that any of them may be chosen; a run keeps the one it began with.

    crossfade tune treasurehunt batch_size=256
    """

    words: Words = ()
    """The system, then settings."""
    preset: str | None = None
    """Named settings, see `crossfade list treasurehunt`."""
    rounds: Count = 5
    """Rounds in which the ways take turns."""

    def run(self) -> int:
        from .. import RECORD
        from ..autotune_jax import measure, settings

        system, words = read_system(self.words)
        if system.name != RECORD.name:
            raise UsageError(f"expected {RECORD.name}, whose agents have models of their own, got {system.name}.")
        config = read_config(system, words, None, self.preset)
        with status("timing", self):
            found = measure(config, self.rounds)
        best = min(found, key=lambda axis: found[axis]["ms"])
        words = " ".join(f"{name}={value}" for name, value in settings(config.devices)[best].items() if value != 1)
        if self.json:
            print_json({"ways": found, "best": best, "words": words})
            return 0
        print("way     ms per update (least to most)   compile s")
        for axis, row in sorted(found.items(), key=lambda item: item[1]["ms"]):
            spread = f"{row['ms']:.1f} ({row['least_ms']:.1f} to {row['most_ms']:.1f})"
            print(f"{axis:<8}{spread:<32}{row['compile_s']:.1f}")
        print(f"fastest here: {words}")
        return 0
