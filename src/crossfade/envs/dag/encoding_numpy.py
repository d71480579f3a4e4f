"""Integer codes and one-hot vectors, for any leading batch axes. The JAX twin is encoding_jax.py."""

import numpy as np
from jaxtyping import Bool, Int

from .base_numpy import Array


def ravel(digits: Int[Array, "*batch d"], radix: int) -> Int[Array, "*batch"]:
    """The number written by these digits, the first one the most significant."""
    return digits @ radix ** np.arange(digits.shape[-1] - 1, -1, -1)


def unravel(number: Int[Array, "*batch"], radix: int, d: int) -> Int[Array, "*batch d"]:
    """The d digits of a number, the first one the most significant."""
    return (number[..., None] // radix ** np.arange(d - 1, -1, -1) % radix).astype(np.int32)


def one_hot(digits: Int[Array, "*batch d"], radix: int) -> Bool[Array, "*batch d_radix"]:
    """For each digit a row of `radix` flags, laid end to end; a negative digit has none."""
    flags = digits[..., None] == np.arange(radix)
    return flags.reshape(*digits.shape[:-1], -1)


def ravel_string(letters: Int[Array, "*batch d"], radix: int) -> Int[Array, "*batch"]:
    """The number of a string among all, by length and then alphabetically; after its letters, -1 to the end."""
    number = np.zeros(letters.shape[:-1], np.int64)
    for letter in np.moveaxis(letters, -1, 0):
        number = np.where(letter >= 0, number * radix + letter + 1, number)
    return number


def unravel_string(number: Int[Array, "*batch"], radix: int, d: int) -> Int[Array, "*batch d"]:
    """The string of that number, filled up with -1 to length d."""
    letters = np.full((*number.shape, d), -1, np.int32)
    for _ in range(d):  # the last letter is found first: push it in from the left
        some = (number > 0)[..., None]
        pushed = np.concatenate([((number - 1) % radix)[..., None], letters[..., :-1]], axis=-1).astype(np.int32)
        letters = np.where(some, pushed, letters)
        number = np.where(number > 0, (number - 1) // radix, 0)
    return letters
