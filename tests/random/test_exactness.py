"""The parts under the streams: the cipher, XLA's float32 functions over every argument, and guards that see a fault."""

import inspect
import os
import subprocess
import sys

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax import lax
from sides import SIDES, Side, ulps

import crossfade as cf
from crossfade.errors import UsageError
from crossfade.random import random_numpy, random_torch, threefry_numpy, threefry_torch, xla_coefficients, xla_math

UNITS = (np.arange(2**23, dtype=np.uint32) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
LOW = np.nextafter(np.float32(-1), np.float32(0))
ROOT2 = np.float32(np.sqrt(2))
EXHAUSTIVE = {
    "normal": (UNITS * 2 + LOW, lambda u: ROOT2 * xla_math.erf_inv(u), lambda u: ROOT2 * lax.erf_inv(u)),
    "gumbel": (
        UNITS + np.finfo(np.float32).tiny,
        lambda u: -xla_math.log(-xla_math.log(u)),
        lambda u: -jnp.log(-jnp.log(u)),
    ),
    "exponential": (UNITS, lambda u: -xla_math.log1p(-u), lambda u: -lax.log1p(-u)),
}


@pytest.mark.parametrize("name", EXHAUSTIVE)
def test_every_float32_draw_has_the_bits_of_xla(name):
    u, ours, theirs = EXHAUSTIVE[name]
    wanted = np.asarray(jax.jit(theirs)(u))
    assert (ours(u) == wanted).all()
    some = slice(0, None, 61)  # the same source in torch
    assert (ours(torch.from_numpy(u[some])).numpy() == wanted[some]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fma_rounds_once(dtype):
    """Against XLA's own fused product, with operands chosen so that rounding twice would show."""
    rng = np.random.default_rng(0)
    x, y = rng.random(2**14).astype(dtype), rng.random(2**14).astype(dtype)
    x[: 2**13], y[: 2**13] = (x[: 2**13] * 4096).round() / 4096, np.asarray(3 * 2.0**-2, dtype)  # ties
    z = (np.exp2(rng.integers(-90, 3, 2**14)) * rng.choice([-1, 1], 2**14)).astype(dtype)
    with jax.enable_x64(True):
        wanted = np.asarray(jax.jit(lambda a, b, c: a * b + c)(x, y, z))
    assert (x * y + z != wanted).any()  # the compiler does fuse
    for array in (np.asarray, torch.from_numpy):
        assert (np.asarray(xla_math.fma(array(x), array(y), array(z))) == wanted).all()


@pytest.mark.parametrize("size", [1, 16, 17, 257, 5000])
def test_prefix_sums_add_in_xla_order(size):
    x = np.random.default_rng(size).random(size).astype(np.float32)
    wanted = np.asarray(jnp.cumsum(x))
    assert (xla_math.prefix_sum(x) == wanted).all()
    assert (xla_math.prefix_sum(torch.from_numpy(x)).numpy() == wanted).all()


def test_counters_beyond_32_bits_use_the_high_word():
    key, x0, x1 = random_numpy.key(2**40 + 3), np.uint32([1, 0, 2**32 - 1]), np.uint32([5, 2**32 - 1, 0])
    wanted = np.asarray(jax.extend.random.threefry_2x32(key, np.concatenate([x0, x1]))).reshape(2, 3)
    got = torch.stack(
        threefry_torch.encrypt(*torch.from_numpy(key.astype(np.int64)), *torch.from_numpy(np.int64([x0, x1])))
    )
    threefry_numpy.encrypt(key[:1], key[1:], x0, x1)
    assert (np.stack([x0, x1]) == wanted).all() and (got.numpy() == wanted).all()


def test_no_warning_when_scalar_words_overflow(monkeypatch):
    """Key words at the top of their range overflow in every addition; a NumPy scalar would warn."""
    for name in SIDES:
        with monkeypatch.context() as patch:
            side, top = Side(name, patch), np.full(2, 2**32 - 1, np.uint32)
            wanted = jax.random.fold_in(jax.random.wrap_key_data(top), np.uint32(2**32 - 1))
            assert (side.fold_in(top, 2**32 - 1) == np.asarray(jax.random.key_data(wanted))).all()


def test_chunks_do_not_show(monkeypatch):
    keys = random_numpy.split(random_numpy.key(0), 3)
    whole = [random_numpy.normal(keys, (n,)) for n in (5, 100)]
    monkeypatch.setattr(threefry_numpy, "CHUNK", 16)
    monkeypatch.setattr(xla_math, "CHUNK", 7)
    for n, wanted in zip((5, 100), whole, strict=True):
        assert (random_numpy.normal(keys, (n,)) == wanted).all()


@pytest.mark.parametrize("name", SIDES)
def test_guard_a_wrong_rotation_is_noticed(name, monkeypatch):
    side, key = Side(name, monkeypatch), random_numpy.key(0)
    wanted = np.asarray(jax.random.bits(jax.random.key(0), (8,)))
    assert (side.bits(key, (8,)) == wanted).all()
    for module in (threefry_numpy, threefry_torch):
        monkeypatch.setattr(module, "ROTATIONS", ((13, 15, 26, 17), (17, 29, 16, 24)))
    assert (side.bits(key, (8,)) != wanted).all()


def test_guard_one_ulp_in_one_coefficient_is_noticed(monkeypatch):
    u, ours, theirs = EXHAUSTIVE["normal"]
    u, first = u[::61], xla_coefficients.ERFINV32_CENTRE
    wanted = np.asarray(jax.jit(theirs)(u))
    nudged = (*first[:-1], float(np.nextafter(np.float32(first[-1]), np.float32(2))))
    monkeypatch.setattr(xla_coefficients, "ERFINV32_CENTRE", nudged)
    assert ulps(ours(u), wanted).max() >= 1


COMPILED = """
import torch
import crossfade as cf

def draw(key):
    a, b = cf.random.split(key).unbind(0)
    return cf.random.uniform(a, (4,), minval=-1.0), cf.random.categorical(b, torch.zeros(2, 3))

key = cf.random.key(0)
got, wanted = torch.compile(draw, backend="eager", fullgraph=True)(key), draw(key)
assert all(map(torch.equal, got, wanted))
"""


def test_compiled_draws_equal_eager_ones():
    """In a process of its own: torch.compile cannot trace the run-time checks of shapes that this suite runs with."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)


DRAWN = """
import hashlib, jax, jax.numpy as jnp, numpy as np
key, found = jax.random.key(7), []
for draw in (jax.random.uniform, jax.random.normal, jax.random.exponential, jax.random.gumbel):
    x = draw(key, (5000,))
    net = lambda x: jnp.tanh(x.reshape(50, 100) @ jnp.cos(x[:1000]).reshape(100, 10)) * jnp.exp(-x[:10])
    found += [x, jax.jit(net)(x), jax.jit(jax.grad(lambda x: net(x).mean()))(x)]
print(hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in found)).hexdigest())
"""


@pytest.mark.slow
def test_a_quicker_compiler_gives_the_same_bits():
    """The default run of the tests has LLVM at -O2 (tests/conftest.py), users have it at -O3; -O0 fuses no products."""
    own = {level: f"--xla_backend_optimization_level={level}" for level in (0, 2, 3)}
    run = lambda flags: (
        subprocess.run(
            [sys.executable, "-c", DRAWN],
            env=os.environ | {"XLA_FLAGS": flags, "JAX_ENABLE_COMPILATION_CACHE": "0"},
            check=True,
            capture_output=True,
        ).stdout
    )
    found = {level: run(flags) for level, flags in own.items()}
    assert found[2] == found[3] != found[0]


def test_keys_cross_from_jax_as_they_are():
    words = jax.random.key_data(jax.random.key(7))
    assert (random_numpy.key(7) == np.asarray(words)).all()
    crossed = torch.from_dlpack(words)  # uint32
    assert torch.equal(cf.random.uniform(crossed, (3,)), cf.random.uniform(cf.random.key(7), (3,)))


def test_draws_leave_their_arguments_alone_and_carry_no_gradient():
    key, x = cf.random.key(0), torch.zeros(3, requires_grad=True)
    assert not cf.random.uniform(key, (3,), minval=x, maxval=2.0).requires_grad
    assert cf.random.permutation(key, x).requires_grad  # a permutation is indexing, not a draw
    one = torch.arange(1)
    assert cf.random.permutation(key, one).data_ptr() != one.data_ptr()
    assert torch.equal(key, cf.random.key(0))


def test_twins_have_the_same_face():
    for name in cf.random.__all__:
        ours, theirs = (inspect.signature(getattr(m, name)).parameters for m in (random_torch, random_numpy))
        assert [p for p in ours if p != "device"] == list(theirs), name


def test_importing_the_package_imports_neither_framework():
    code = "import crossfade.random, sys; assert not {'torch', 'jax'} & set(sys.modules); crossfade.random.numpy.key(0)"
    code += "; assert not {'torch', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


KEY = random_numpy.key(0)
MISTAKES = {
    "a seed that is no integer": (lambda s: s.key(1.5), "integer seed"),
    "a seed of 65 bits": (lambda s: s.key(2**64), "64 signed bits"),
    "a key of three words": (lambda s: s.uniform(np.zeros(3, KEY.dtype), (2,)), "shape (..., 2)"),
    "a key of floats": (lambda s: s.uniform(np.zeros(2, np.float32), (2,)), "key(seed)"),
    "a negative size": (lambda s: s.uniform(KEY, (-1,)), "at least 0"),
    "a bare size": (lambda s: s.uniform(KEY, 3), "a shape such as"),
    "half precision": (lambda s: s.normal(KEY, (2,), dtype="float16"), "float32 or"),
    "bits of a signed dtype": (lambda s: s.bits(KEY, (2,), dtype="int32"), "unsigned"),
    "bounds of another shape": (lambda s: s.uniform(KEY, (2,), minval=np.zeros(3, np.float32)), "broadcast to shape"),
    "a bound of text": (lambda s: s.uniform(KEY, (2,), maxval="1"), "real numbers"),
    "integers between floats": (lambda s: s.randint(KEY, (2,), 0.0, 2), "integer"),
    "integers of a float dtype": (lambda s: s.randint(KEY, (2,), 0, 2, dtype="float32"), "integer dtype"),
    "a bound of 65 bits": (lambda s: s.randint(KEY, (2,), 0, 2**64), "integer"),
    "folding in a negative": (lambda s: s.fold_in(KEY, -1), "0 to 2**32 - 1"),
    "a probability above 1": (lambda s: s.bernoulli(KEY, 1.5), "0 to 1"),
    "an integer probability": (lambda s: s.bernoulli(KEY, 1), "floating-point"),
    "an axis too far": (lambda s: s.categorical(KEY, np.zeros((2, 3), np.float32), 2), "axis"),
    "shuffling a number with a comma": (lambda s: s.permutation(KEY, 2.5), "integer or"),
    "choosing from nothing": (lambda s: s.choice(KEY, 0, (2,)), "at least one item"),
    "choosing more than there is": (lambda s: s.choice(KEY, 2, (3,), replace=False), "at most 2"),
    "weights of another length": (lambda s: s.choice(KEY, 2, (3,), p=P3), "one probability per item"),
    "negative weights": (lambda s: s.choice(KEY, 3, (3,), p=-P3), "at least 0"),
}
P3 = np.full(3, 0.5, np.float32)


@pytest.mark.parametrize("name", ["numpy", "torch"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_explained(name, mistake, monkeypatch):
    call, message = MISTAKES[mistake]
    with pytest.raises(UsageError) as raised:
        call(Side(name, monkeypatch))
    assert message in str(raised.value)
