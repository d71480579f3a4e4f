"""The cosine of crossfade.nn against NumPy's in float64, value and gradient, in both precisions."""

import jax
import jax.numpy as jnp
import numpy as np

from crossfade.nn.cosine_jax import cos_pi


def test_it_is_the_cosine(x64):
    x = np.concatenate([np.random.default_rng(0).uniform(-70, 70, 10_000), np.arange(-9, 9.5, 0.5)])
    turns = x - 2 * np.round(x / 2)  # exact, so that the product with pi is rounded at a small number
    np.testing.assert_allclose(cos_pi(jnp.asarray(x)), np.cos(np.pi * turns), rtol=0, atol=1e-15)
    whole = np.arange(-64.0, 65)
    assert np.array_equal(cos_pi(jnp.asarray(whole)), 1 - 2 * (whole % 2))


def test_its_gradient_is_minus_the_sine(x64):
    x = np.random.default_rng(1).uniform(-70, 70, 1000)
    found = jax.vmap(jax.grad(cos_pi))(jnp.asarray(x))
    np.testing.assert_allclose(found, -np.pi * np.sin(np.pi * (x - 2 * np.round(x / 2))), rtol=0, atol=1e-13)


def test_float32_errs_no_more_than_a_rounded_product():
    x = np.random.default_rng(2).uniform(0, 64, 10_000).astype(np.float32)
    found = cos_pi(jnp.asarray(x))
    exact = np.cos(np.pi * (x - 2 * np.round(x / 2)).astype(np.float64))
    assert found.dtype == jnp.float32
    assert np.abs(found - exact).max() < 3e-7 < np.abs(np.cos(np.float32(np.pi) * x) - exact).max()
