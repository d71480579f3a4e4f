"""Integer codes and one-hot vectors of ONE object. The NumPy twin is encoding_numpy.py."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int


def ravel(digits: Int[Array, " d"], radix: int) -> Int[Array, ""]:
    """The number written by these digits, the first one the most significant."""
    return digits @ _powers(radix, len(digits))


def unravel(number: Int[Array, ""], radix: int, d: int) -> Int[Array, " d"]:
    """The d digits of a number, the first one the most significant."""
    return number.astype(jnp.int32) // _powers(radix, d) % radix


def one_hot(digits: Int[Array, " d"], radix: int) -> Bool[Array, " d_radix"]:
    """For each digit a row of `radix` flags, laid end to end; a negative digit has none."""
    return (digits[:, None] == jnp.arange(radix)[None, :]).reshape(-1)


def ravel_string(letters: Int[Array, " d"], radix: int) -> Int[Array, ""]:
    """The number of a string among all, by length and then alphabetically; after its letters, -1 to the end."""
    number = jnp.zeros((), jnp.int32)
    for letter in letters:
        number = jnp.where(letter >= 0, number * radix + letter + 1, number)
    return number


def unravel_string(number: Int[Array, ""], radix: int, d: int) -> Int[Array, " d"]:
    """The string of that number, filled up with -1 to length d."""
    number, letters = number.astype(jnp.int32), jnp.full(d, -1, jnp.int32)
    for _ in range(d):  # the last letter is found first: push it in from the left
        pushed = jnp.concatenate([((number - 1) % radix)[None], letters[:-1]])
        letters = jnp.where(number > 0, pushed, letters)
        number = jnp.where(number > 0, (number - 1) // radix, 0)
    return letters


def _powers(radix: int, d: int) -> Int[np.ndarray, " d"]:
    return (radix ** np.arange(d - 1, -1, -1)).astype(np.int32)
