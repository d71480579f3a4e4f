"""The fast streams are those of `jax.random`, also where a uniform number is 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.random import streams_jax
from default_run import few


@pytest.mark.parametrize("name", ["uniform", "gumbel", "normal"])
def test_compiled_streams_are_those_of_jax_random(name):
    draw = jax.jit(lambda key: getattr(streams_jax, name)(key, (257, 3), "float32"))
    key = jax.random.key(5)
    np.testing.assert_array_equal(draw(key), getattr(jax.random, name)(key, (257, 3)))


@pytest.mark.parametrize("name", few(["uniform", "gumbel", "normal"], "normal"))
def test_some_numbers_of_a_stream_are_drawn_alone(name):
    draw, key = getattr(streams_jax, name), jax.random.key(5)
    places = np.array([[200, 3], [0, 199]], np.uint32)
    np.testing.assert_array_equal(
        draw(key, (2, 2), "float32", jnp.asarray(places)), draw(key, (256,), "float32")[places]
    )


def test_a_uniform_of_zero_makes_a_finite_gumbel(monkeypatch):
    """It comes once in 2**23 draws: too seldom to be met by chance in a test."""
    monkeypatch.setattr(streams_jax, "bits", lambda key, size, width, at: jnp.zeros(size, jnp.uint32) + key[0])
    draw = jax.jit(lambda key: streams_jax.gumbel(key, (4,), "float32"))
    expected = -np.log(-np.log(np.finfo(np.float32).tiny))
    np.testing.assert_allclose(draw(jnp.zeros(2, jnp.uint32)), expected, rtol=1e-6)
