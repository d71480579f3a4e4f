"""The first place where two halves part, found by pairing what both compute and by changing one thing at a time."""

from typing import TYPE_CHECKING

from ..._lazy import lazy

if TYPE_CHECKING:
    from .divergence import Divergence as Divergence, Place as Place
    from .searching import bisect as bisect

__getattr__, __dir__, __all__ = lazy(
    __name__, {"Divergence": "divergence", "Place": "divergence", "bisect": "searching"}
)
