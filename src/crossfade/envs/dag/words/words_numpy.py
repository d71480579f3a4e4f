"""Building word by word in NumPy; `WordsParams` is the specification, words_jax.py the twin."""

from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Int

from .. import encoding_numpy as encoding
from ..base_numpy import Array, Env
from .base_params import WordsParams

_W = TypeVar("_W", bound=WordsParams)


class Words(Env[_W]):
    """See `WordsParams`."""

    def grow(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        place, word = np.divmod(action[..., None].astype(np.int32), self.params.n_symbols)
        position = np.arange(self.params.n_words)
        if self.params.order == "free":
            return np.where(position == place, word, x)
        appended = np.where(position == _size(x), word, x)
        prepended = np.concatenate([word, x[..., :-1]], axis=-1)
        return np.where(place == 0, appended, prepended)

    def shrink(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        position, nothing = np.arange(self.params.n_words), np.int32(-1)
        if self.params.order == "free":
            return np.where(position == parent[..., None], nothing, x)
        without_last = np.where(position == _size(x) - 1, nothing, x)
        without_first = np.concatenate([x[..., 1:], np.full_like(x[..., :1], nothing)], axis=-1)
        return np.where(parent[..., None] == 0, without_last, without_first)

    def can_grow(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch moves"]:
        if self.params.order == "free":
            return np.repeat(x < 0, self.params.n_symbols, axis=-1)
        size = _size(x)
        can_append = size < self.params.n_words
        ends = np.concatenate([can_append, can_append & (size > 0)], axis=-1)[..., : self.params.n_parents]
        return np.repeat(ends, self.params.n_symbols, axis=-1)

    def can_shrink(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch parents"]:
        if self.params.order == "free":
            return x >= 0
        size = _size(x)
        return np.concatenate([size > 0, size > 1], axis=-1)[..., : self.params.n_parents]

    def can_stop(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        return x.min(-1) >= 0

    def undo(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        return action // self.params.n_symbols

    def redo(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        if self.params.order == "free":
            place = parent[..., None]
        else:
            place = np.where(parent[..., None] == 0, _size(x) - 1, 0)
        return parent * self.params.n_symbols + np.take_along_axis(x, place, axis=-1)[..., 0]

    def features(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch observation"]:
        return encoding.one_hot(x, self.params.n_symbols)

    def encode(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch"]:
        if self.params.order == "free":
            return encoding.ravel(x + 1, self.params.n_symbols + 1)
        return encoding.ravel_string(x, self.params.n_symbols)

    def decode(self, index: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        if self.params.order == "free":
            return encoding.unravel(index, self.params.n_symbols + 1, self.params.n_words) - 1
        return encoding.unravel_string(index, self.params.n_symbols, self.params.n_words)


def _size(x: Int[Array, "*batch d"]) -> Int[Array, "*batch 1"]:
    """Words written so far."""
    return (x >= 0).sum(-1, keepdims=True)
