"""An environment of Brax or MuJoCo Playground as parameters: its name, and what it is made with. Framework-free.

**Episodes** begin where the environment's `reset` puts them, with a key made of the two numbers that `begin` is given:
24 bits of each. An episode is `terminated` where the environment says `done`, and `truncated` after `limit` steps.

**Actions** are numbers from -1 to 1, as Brax has them. **Observations** are one array.
"""

from dataclasses import dataclass
from typing import ClassVar

from ...ranges import Count, check


@dataclass(frozen=True)
class BraxParams:
    """An environment of Brax or of MuJoCo Playground, or any other with their face."""

    env: str = "inverted_pendulum"
    """A name that Brax or Playground knows, or MODULE:ATTR of an environment or of a function that makes one."""
    backend: str = "generalized"
    """Brax's physics, for environments that Brax knows by name; `playground` for those of MuJoCo Playground, by MJX."""
    limit: Count = 1000
    """Steps of an episode at most."""

    numpy: ClassVar[str] = "crossfade.envs.brax.world_jax:HostBrax"
    jax: ClassVar[str] = "crossfade.envs.brax.world_jax:Brax"

    def __post_init__(self) -> None:
        check(self)

    def __str__(self) -> str:
        return f"brax {self.env}, limit={self.limit}"
