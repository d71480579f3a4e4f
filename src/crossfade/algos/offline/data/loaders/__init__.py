"""Files of offline data, of four kinds: OGBench's rows, D4RL's transitions, Minari's and ExORL's episodes."""

from .loading import load as load
