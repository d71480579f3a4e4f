"""Code that says float32, computed in float64; and float32 constants as the numbers that they stand for."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import linen, nnx
from torch import nn

from crossfade.bridge import Mapping, match
from crossfade.bridge.meant_numbers import Meant
from crossfade.bridge.widening import Wide, widened
from crossfade.errors import MappingError
from crossfade.parity import Twin, Verdict, check

X = np.random.default_rng(0).normal(size=(3, 4))
SINGLE = jnp.float32(0.1)


def summed(x):
    """The same in a loop."""
    return jax.lax.fori_loop(0, len(x), lambda i, s: s + x[i].astype(jnp.float32), jnp.zeros(4, jnp.float32))


def scanned(x):
    """A carry that starts from float32 zeros, so that it does not take float64 at all."""
    add = lambda carry, row: (carry + row * 0.3, jnp.tanh(carry))
    return jax.lax.scan(add, jnp.zeros(4, jnp.float32), x)


JAX = {
    "cast": (lambda x: jnp.tanh(x.astype(jnp.float32)) * 0.1, lambda x: np.tanh(x) * 0.1),
    "scan": (lambda x: scanned(x)[0], lambda x: 0.3 * x.sum(0)),
    "while": (summed, lambda x: x.sum(0)),
    "cond": (
        lambda x: jax.lax.cond(x.sum() > 99, lambda x: x, lambda x: x / 3, x.astype(jnp.float32)),
        lambda x: x / 3,
    ),
    "scatter": (
        lambda x: jnp.zeros(6, jnp.float32).at[jnp.array([1, 1, 4])].add(x[:, 0].astype(jnp.float32)),
        lambda x: np.array([0, x[0, 0] + x[1, 0], 0, 0, x[2, 0], 0]),
    ),
    "custom_jvp": (lambda x: jax.nn.relu(x.astype(jnp.float32)), lambda x: np.maximum(x, 0)),
    "jit": (lambda x: jax.jit(lambda x: x.astype(jnp.float32).sum(-1))(x), lambda x: x.sum(-1)),
    "constant": (lambda x: x * SINGLE, lambda x: x * 0.1),
}


@pytest.mark.parametrize("name", JAX)
def test_jax_code_that_says_float32_is_computed_in_float64(name):
    function, right = JAX[name]
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(widened(function, Meant()))(jnp.asarray(X)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, right(X), rtol=1e-15, atol=1e-15)


def test_bfloat16_and_random_bits_stay_what_they_are():
    def draws(x):
        noise = jax.random.uniform(jax.random.key(0), x.shape, jnp.float32)
        return noise, x.astype(jnp.bfloat16).astype(jnp.float32)

    noise, rounded = (np.asarray(a) for a in draws(jnp.asarray(X, jnp.float32)))
    with jax.enable_x64(True):
        wide_noise, wide_rounded = (np.asarray(a) for a in widened(draws, Meant())(jnp.asarray(X)))
    np.testing.assert_array_equal(wide_noise, noise)
    np.testing.assert_array_equal(wide_rounded, rounded)


TENTH, EYE = torch.tensor(0.1), torch.eye(4)
TORCH = {
    "float()": (lambda x: x.float().tanh(), lambda x: np.tanh(x)),
    "dtype=": (lambda x: torch.zeros(4, dtype=torch.float32) + x / 3, lambda x: x / 3),
    "tensor": (lambda x: x * TENTH, lambda x: x * 0.1),
    "matrix": (lambda x: x.float() @ EYE, lambda x: x),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch_code_that_says_float32_is_computed_in_float64(name):
    function, right = TORCH[name]
    with Wide(Meant()) as wide:
        found = function(torch.tensor(X))
    assert found.dtype == torch.float64 and wide.narrow
    np.testing.assert_allclose(found.numpy(), right(X), rtol=1e-15, atol=1e-15)


def test_a_constant_is_the_number_of_the_other_half_or_the_shortest_decimal():
    constants = np.array([0.1, 1 / 3, 2.0, np.inf], np.float32)
    meant = Meant([3.0, 0.7])
    np.testing.assert_array_equal(meant(constants), [0.1, 1 / 3, 2.0, np.inf])
    assert Meant()(np.float32(1 / 3)[None])[0] == 0.33333334
    assert meant.changed == {float(np.float32(0.1)): 0.1, float(np.float32(1 / 3)): 1 / 3}


@pytest.mark.parametrize("beside", [[], [100.0]])
def test_a_constant_is_moved_by_a_unit_in_its_last_place_at_most(beside):
    near, far = 0.1 * (1 + 1e-7), 0.1 * (1 + 2e-7)
    held = np.array([0.1, *beside], np.float32)
    assert Meant([near])(held)[0] == near and Meant([far])(held)[0] == 0.1


def test_a_number_beyond_float32_stays():
    assert Meant()(np.array([1e300, 0.5]))[0] == 1e300


def test_an_axis_of_numbers_computed_in_float32_is_that_computed_in_float64():
    atoms = torch.linspace(-10, 10, 51).numpy()  # some are wrong in the last place, and the middle is not zero
    exact = np.linspace(-10, 10, 51)
    np.testing.assert_allclose(Meant()(atoms), exact, rtol=0, atol=1e-14)
    uneven = atoms.copy()
    uneven[20] += 1e-4
    assert abs(Meant(exact)(uneven)[20] - exact[20]) > 9e-5


# In `match`


class Scaled(nn.Module):
    """One layer times a constant that torch holds in float32."""

    def __init__(self, scale, held="buffer"):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        if held == "attribute":
            self.scale = torch.tensor(scale)
        else:
            self.register_buffer("scale", torch.tensor(scale), persistent=held == "buffer")

    def forward(self, x):
        return torch.tanh(self.fc(x)) * self.scale


class JaxScaled(linen.Module):
    scale: object

    @linen.compact
    def __call__(self, x):
        return jnp.tanh(linen.Dense(2)(x)) * self.scale


HELD = ("buffer", "hidden buffer", "attribute")


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("scale", [0.1, 1 / 3])
def test_a_constant_that_torch_holds_in_float32_is_no_difference(scale, held):
    mapping = match(Scaled(scale, held), JaxScaled(scale), torch.tensor(X).float())
    assert mapping.precision == "float64" and mapping.verify().ok
    assert f"holds {float(np.float32(scale))!r} in float32, compared as {scale!r}" in mapping.explain()
    assert held != "buffer" or Mapping.from_json(mapping.to_json(), mapping.jax_model).meant["scale"] == scale


@pytest.mark.parametrize("held", [SINGLE, np.float32(0.1)])
def test_a_constant_that_jax_holds_in_float32_is_no_difference(held):
    mapping = match(nn.Sequential(nn.Linear(4, 2), nn.Tanh(), Times(0.1)), JaxScaled(held), torch.tensor(X).float())
    assert "the JAX half holds 0.10000000149011612 in float32" in mapping.explain()


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


@pytest.mark.parametrize("held", ["buffer", "hidden buffer"])
def test_parity_of_a_twin_takes_the_constant_for_what_it_stands_for(held):
    x = torch.tensor(X).float()
    twin = Twin("scaled", torch=Scaled(0.1, held), jax=JaxScaled(0.1), example=x.numpy())
    mapping = match(twin.torch, twin.jax, x)
    report = check(replace(twin, jax=mapping.jax_model, mapping=mapping), levels="forward")
    assert report.verdict is not Verdict.DIFFERENT, report.text()


@pytest.mark.parametrize("held", HELD)
def test_a_constant_that_is_another_one_is_a_difference(held):
    with pytest.raises(MappingError, match="functions differ at aten.mul"):
        match(Scaled(0.1, held), JaxScaled(0.1 * (1 + 1e-6)), torch.tensor(X).float())


def test_a_layer_made_for_float32_is_proved_in_float64():
    class Pinned(nnx.Module):
        def __init__(self):
            self.embed = nnx.Embed(6, 4, dtype=jnp.float32, rngs=nnx.Rngs(0))

        def __call__(self, x):
            return self.embed(x)

    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(6, 4)

        def forward(self, x):
            return self.table(x).float()

    mapping = match(Embedded(), Pinned(), torch.arange(6))
    assert mapping.precision == "float64" and mapping.widened == ("torch", "JAX")
    assert "the JAX half computes in float32" in mapping.explain()
