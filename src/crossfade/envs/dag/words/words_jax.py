"""Building word by word in JAX; `WordsParams` is the specification, words_numpy.py the twin."""

from typing import TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from .. import encoding_jax as encoding
from ..base_jax import Env
from .base_params import WordsParams

_W = TypeVar("_W", bound=WordsParams)


class Words(Env[_W]):
    """See `WordsParams`."""

    def grow(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, " d"]:
        place, word = jnp.divmod(action.astype(jnp.int32), self.params.n_symbols)
        position = jnp.arange(self.params.n_words)
        if self.params.order == "free":
            return jnp.where(position == place, word, x)
        appended = jnp.where(position == _size(x), word, x)
        prepended = jnp.concatenate([word[None], x[:-1]])
        return jnp.where(place == 0, appended, prepended)

    def shrink(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, " d"]:
        position = jnp.arange(self.params.n_words)
        if self.params.order == "free":
            return jnp.where(position == parent, -1, x)
        without_last = jnp.where(position == _size(x) - 1, -1, x)
        without_first = jnp.append(x[1:], -1)
        return jnp.where(parent == 0, without_last, without_first)

    def can_grow(self, x: Int[Array, " d"]) -> Bool[Array, " moves"]:
        if self.params.order == "free":
            return jnp.repeat(x < 0, self.params.n_symbols)
        size = _size(x)
        can_append = size < self.params.n_words
        ends = jnp.stack([can_append, can_append & (size > 0)])[: self.params.n_parents]
        return jnp.repeat(ends, self.params.n_symbols)

    def can_shrink(self, x: Int[Array, " d"]) -> Bool[Array, " parents"]:
        if self.params.order == "free":
            return x >= 0
        size = _size(x)
        return jnp.stack([size > 0, size > 1])[: self.params.n_parents]

    def can_stop(self, x: Int[Array, " d"]) -> Bool[Array, ""]:
        return x.min() >= 0

    def undo(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, ""]:
        return action // self.params.n_symbols

    def redo(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, ""]:
        if self.params.order == "free":
            place = parent
        else:
            place = jnp.where(parent == 0, _size(x) - 1, 0)
        return parent * self.params.n_symbols + x[place]

    def features(self, x: Int[Array, " d"]) -> Bool[Array, " observation"]:
        return encoding.one_hot(x, self.params.n_symbols)

    def encode(self, x: Int[Array, " d"]) -> Int[Array, ""]:
        if self.params.order == "free":
            return encoding.ravel(x + 1, self.params.n_symbols + 1)
        return encoding.ravel_string(x, self.params.n_symbols)

    def decode(self, index: Int[Array, ""]) -> Int[Array, " d"]:
        if self.params.order == "free":
            return encoding.unravel(index, self.params.n_symbols + 1, self.params.n_words) - 1
        return encoding.unravel_string(index, self.params.n_symbols, self.params.n_words)


def _size(x: Int[Array, " d"]) -> Int[Array, ""]:
    """Words written so far."""
    return (x >= 0).sum()
