"""Every function of crossfade.random gives what jax.random gives, from any key, in both twins."""

import functools
from collections.abc import Callable

import jax
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from sides import Frozen, assert_same, reference, ulps

from crossfade.random import random_numpy
from default_run import few, few_of

SEEDS = st.integers(-(2**63), 2**63 - 1)
SHAPES = st.sampled_from([(), (3, 0), (2, 3)])
BATCHES = st.sampled_from([(), (3,), (2, 2)])
FLOATS = ("uniform", "normal", "gumbel", "exponential")

examples = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # `side` and `x64` hold nothing between examples
)
pytestmark = pytest.mark.usefixtures("x64")


@functools.cache
def between(name: str, shape: tuple[int, ...], dtype: str) -> Callable:
    """JAX's draw between two bounds that are arguments, compiled once."""
    return jax.jit(lambda key, low, high: getattr(jax.random, name)(key, shape, minval=low, maxval=high, dtype=dtype))


def keys_of(seed: int, batch: tuple[int, ...]) -> np.ndarray:
    return random_numpy.split(random_numpy.key(seed), batch) if batch else random_numpy.key(seed)


@examples
@given(seed=SEEDS, batch=BATCHES, num=st.sampled_from([1, (2, 3)]), data=st.integers(0, 2**32 - 1))
def test_keys_equal_jax(side, seed, batch, num, data):
    assert_same(side.key(seed), np.asarray(jax.random.key_data(jax.random.key(seed))))
    keys = keys_of(seed, batch)
    assert_same(side.split(keys, num), reference("split", num)(keys))
    wanted = jax.random.fold_in(jax.random.wrap_key_data(keys.reshape(-1, 2)[0]), np.uint32(data))
    assert_same(side.fold_in(keys, data).reshape(-1, 2)[0], np.asarray(jax.random.key_data(wanted)))


def test_fold_in_broadcasts_keys_with_data(side):
    key, data = random_numpy.key(1), np.arange(5)
    wanted = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(1), data)
    assert_same(side.fold_in(key, data), np.asarray(jax.random.key_data(wanted)))


@examples
@given(seed=SEEDS, batch=BATCHES, shape=SHAPES, width=st.sampled_from([8, 16, 32, 64]))
def test_bits_equal_jax(side, seed, batch, shape, width):
    keys, dtype = keys_of(seed, batch), f"uint{width}"
    got = side.bits(keys, shape, dtype=dtype)
    assert got.dtype == dtype
    assert_same(got, reference("bits", shape, dtype)(keys))


@pytest.mark.parametrize("name", FLOATS)
@examples
@given(seed=SEEDS, batch=BATCHES, shape=SHAPES, dtype=st.sampled_from(["float32", "float64"]))
def test_floats_equal_jax(side, name, seed, batch, shape, dtype):
    keys = keys_of(seed, batch)
    got = getattr(side, name)(keys, shape, dtype=dtype)
    wanted = reference(name, shape, dtype)(keys)
    assert got.dtype == dtype
    if dtype == "float64" and name in ("normal", "exponential"):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-14, atol=0)
    else:
        assert_same(got, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bounds", [(-2.0, 3.0), (1e-12, 0.7), (-1e6, 1e-3), (5.0, 5.0), (0.1, 0.3), (1000.0, 1000.5)])
def test_bounded_uniforms_equal_jax(side, dtype, bounds):
    wanted = between("uniform", (4096,), dtype)(jax.random.key(11), *bounds)
    got = side.uniform(random_numpy.key(11), (4096,), minval=bounds[0], maxval=bounds[1], dtype=dtype)
    assert_same(got, np.asarray(wanted))


def test_uniform_bounds_may_be_arrays(side):
    keys, low = keys_of(5, (3,)), np.linspace(-1, 1, 4, dtype=np.float32)[None]
    wanted = reference("uniform", (2, 4), "float32", Frozen(low), 2.0)(keys)
    assert_same(side.uniform(keys, (2, 4), minval=low, maxval=2.0, dtype="float32"), wanted)


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
RANGES = [(0, 10), (-5, 5), (3, 3), (7, 2), (-(2**31), 2**31), (0, 2**40), (-(2**63), 2**63 - 1), (-300, 300)]


@pytest.mark.parametrize("dtype", few(INTEGERS, "uint8", "int32", "int64"))
def test_randint_equals_jax(side, dtype):
    draw = between("randint", (50,), dtype)
    for seed, (low, high) in enumerate(RANGES):
        wanted = draw(jax.random.key(seed), low, high)
        got = side.randint(random_numpy.key(seed), (50,), low, high, dtype=dtype)
        assert got.dtype == dtype
        assert_same(got, np.asarray(wanted))


def test_randint_takes_arrays_of_bounds_and_batches_of_keys(side):
    keys, low, high = keys_of(2, (2, 2)), np.array([[0], [-9]]), np.array([[1, 100, 2**31]])
    wanted = reference("randint", (2, 3), Frozen(low), Frozen(high), "int32")(keys)
    assert_same(side.randint(keys, (2, 3), low, high, dtype="int32"), wanted)


PROBABILITIES = [Frozen(np.array([0.0, 0.3, 1.0], dtype)) for dtype in ("float32", "float64")]


@examples
@given(seed=SEEDS, batch=BATCHES, p=st.sampled_from(PROBABILITIES), shape=st.sampled_from([None, (3,), (5, 3)]))
def test_bernoulli_equals_jax(side, seed, batch, p, shape):
    keys = keys_of(seed, batch)
    with jax.numpy_rank_promotion("allow"):
        wanted = reference("bernoulli", p, shape)(keys)
    assert_same(side.bernoulli(keys, p, shape), wanted)


LOGITS = {d: Frozen(np.random.default_rng(0).normal(size=(2, 3, 4)).astype(d)) for d in ("float32", "float64")}
TIES = Frozen(np.random.default_rng(1).normal(size=(2**16, 6)).astype(np.float32) * 0.01)


CATEGORICAL = {
    f"{axis}-{shape and 'shape'}-{dtype}": (axis, shape, dtype)
    for axis, shape in ((-1, None), (0, None), (-2, (5, 2, 4)))
    for dtype in LOGITS
}


@pytest.mark.parametrize("axis, shape, dtype", few_of(CATEGORICAL, "-1-None-float32", "-2-shape-float64", many=True))
def test_categorical_equals_jax(side, dtype, axis, shape):
    for batch in ((), (2, 2)):
        keys = keys_of(9, batch)
        with jax.numpy_rank_promotion("allow"):
            wanted = reference("categorical", LOGITS[dtype], axis, shape)(keys)
        assert_same(side.categorical(keys, LOGITS[dtype], axis, shape), wanted)


def test_a_quarter_million_categorical_draws_near_ties_equal_jax(side):
    keys = keys_of(3, (4,))
    assert_same(side.categorical(keys, TIES), reference("categorical", TIES)(keys))


@pytest.mark.parametrize("n", few((0, 1, 33, 2000), 0, 1, 2000))  # 0, 1 and 2 rounds of sorting
def test_permutation_of_a_range_equals_jax(side, n):
    key = random_numpy.key(n)
    assert_same(side.permutation(key, n), reference("permutation", n)(key))


X = Frozen(np.arange(24, dtype=np.int32).reshape(4, 6))


SHUFFLED = {f"{axis}-{each}": (axis, each) for axis, each in ((0, False), (1, False), (-1, True), (0, True))}


@pytest.mark.parametrize("axis, independent", few_of(SHUFFLED, "1-False", "-1-True", many=True))
def test_permutation_of_an_array_equals_jax(side, axis, independent):
    for batch in ((), (2, 2)):
        keys = keys_of(4, batch)
        assert_same(side.permutation(keys, X, axis, independent), reference("permutation", X, axis, independent)(keys))


P = np.random.default_rng(1).random(6).astype(np.float32)
P[2] = 0
CHOICES = {
    "replace": {},
    "without": {"replace": False},
    "weighted": {"p": Frozen(P)},
    "weighted, without": {"p": Frozen(P), "replace": False},
    "weighted in float64": {"p": Frozen(P.astype(np.float64))},
}
MANY = Frozen(np.random.default_rng(2).random(1000).astype(np.float32))


@pytest.mark.parametrize("case", few(CHOICES, "replace", "weighted, without", "weighted in float64"))
@pytest.mark.parametrize("a", [6, X], ids=["range", "array"])
def test_choice_equals_jax(side, case, a):
    with jax.enable_x64("float64" in case):  # elsewhere x64 is off: JAX then draws the indices from the int32 stream
        for batch in ((), (2, 2)):
            keys, axis = keys_of(8, batch), 0 if a == 6 else -1
            wanted = reference("choice", a, (2, 2), axis=axis, **CHOICES[case])(keys)
            assert_same(side.choice(keys, a, (2, 2), axis=axis, **CHOICES[case]), wanted)


def test_scalars_equal_jax(side):
    """Shape () and one key: the smallest draw of each function that takes other arguments too."""
    key, logits = random_numpy.key(5), Frozen(np.zeros(4, np.float32))
    with jax.enable_x64(False):
        for name, args in {
            "randint": ((), 0, 100),
            "uniform": ((), "float32", 2.0, 3.0),
            "choice": (9,),
            "categorical": (logits,),
            "bernoulli": (0.5,),
        }.items():
            ours = [getattr(torch, a) if a == "float32" and side.name != "numpy" else a for a in args]
            got = getattr(side, name)(key, *ours)
            assert got.shape == ()
            assert_same(got, reference(name, *args)(key))


def test_weighted_choice_of_many_equals_jax(side):
    """XLA sums the probabilities in tiles: a plain cumulative sum would choose otherwise here and there."""
    key = random_numpy.key(6)
    assert_same(side.choice(key, 1000, (20000,), p=MANY), reference("choice", 1000, (20000,), p=MANY)(key))


@pytest.mark.slow
def test_the_equality_table(side):
    """Prints (with -s) how close each float function is to JAX, jitted and not, over 4 x 2**15 draws."""
    rows = []
    for name in FLOATS:
        for dtype in ("float32", "float64"):
            keys = keys_of(17, (4,))
            got = getattr(side, name)(keys, (2**15,), dtype=dtype)
            for jitted in (False, True):
                wanted = reference(name, (2**15,), dtype, jitted=jitted)(keys)
                apart = ulps(got, wanted)
                relative = np.abs(got - wanted) / np.abs(np.where(wanted == 0, 1, wanted))
                rows.append((name, dtype, side.name, jitted, (apart == 0).mean(), apart.max(), relative.max()))
    print(f"\n{'function':<12}{'dtype':<9}{'twin':<10}{'jitted':<8}{'bit-equal':>10}{'max ulp':>9}{'max rel':>10}")
    for name, dtype, twin, jitted, share, ulp, relative in rows:
        print(f"{name:<12}{dtype:<9}{twin:<10}{jitted!s:<8}{share:>10.4%}{ulp:>9}{relative:>10.1e}")
    for name, dtype, _, _, share, _, relative in rows:
        exact = dtype == "float32" or name in ("uniform", "gumbel")
        assert share == 1 if exact else relative <= 1e-14, (name, dtype)
