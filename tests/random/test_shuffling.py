"""Random orders: the same in NumPy and in JAX, and evenly spread."""

import jax
import numpy as np
import pytest

from crossfade.random import random_numpy as random
from crossfade.random.shuffling_jax import shuffled as shuffled_jax
from crossfade.random.shuffling_numpy import shuffled


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 1000, 1024, 1025, 32768])
def test_an_order_is_a_permutation_and_the_same_in_both(n, x64):
    key = random.fold_in(random.key(5), n)
    with jax.enable_x64(x64):
        found = jax.jit(shuffled_jax, static_argnums=1)(jax.random.wrap_key_data(key), n)
    order = shuffled(key, n)
    np.testing.assert_array_equal(found, order)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert found.dtype == np.int32 and (n < 3 or not np.array_equal(order, np.arange(n)))


def test_every_order_of_four_comes_equally_often():
    orders = [tuple(shuffled(key, 4)) for key in random.split(random.key(0), 24 * 500)]
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    chi_square = ((counts - 500) ** 2 / 500).sum()
    assert chi_square < 49.7  # of 23 degrees of freedom, passed once in a thousand times


def test_the_words_sort_by_their_random_bits():
    """Were the numbers above the random bits, every order would be 0, 1, 2 ..."""
    key = random.key(9)
    words = random.bits(key, (100,), np.uint64) >> np.uint64(7)
    np.testing.assert_array_equal(shuffled(key, 100), np.argsort(words, kind="stable"))
