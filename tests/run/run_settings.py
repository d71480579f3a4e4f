"""A small config for the tests of this folder."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    steps: int = 40
    mode: str = "torch"
    seed: int = 0
