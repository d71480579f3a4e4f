"""The first place where two halves part, found by pairing what both compute and by changing one thing at a time."""

from .divergence import Divergence, Place
from .searching import bisect

__all__ = ["Divergence", "Place", "bisect"]
