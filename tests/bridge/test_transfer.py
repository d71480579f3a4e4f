"""Trees cross as private copies, in the same dtype or with an error that names the leaf."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import crossfade.random as cf_random
from crossfade import bridge
from crossfade.bridge.transfer import key_to_jax
from crossfade.errors import NoCounterpart, TransferError

SIZE = 1 << 20  # large enough for a computation to run on after its call returned


class Pair(NamedTuple):
    left: object
    right: object


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Sample:
    obs: object
    reward: object


@jax.jit
def slow_sum(x):
    """Reads its argument late and often."""
    return jax.lax.fori_loop(0, 20, lambda i, total: total + jnp.sum(x * (1 + i * 0)), 0.0)


SOURCES = {
    "tensor": lambda: torch.zeros(SIZE),
    "numpy": lambda: np.zeros(SIZE, np.float32),
    "unaligned slice": lambda: torch.zeros(SIZE + 1)[1:],
    "strided": lambda: torch.zeros(SIZE, 2)[:, 1],
}


@pytest.mark.parametrize("name", SOURCES)
def test_writing_to_the_source_after_the_call_changes_nothing(name):
    for _ in range(5):
        source = SOURCES[name]()
        array = bridge.to_jax({"x": source})["x"]
        running = slow_sum(array)
        source[...] = 1.0
        assert float(running) == 0.0
        assert not np.asarray(array).any()


def test_the_race_is_real_where_copy_is_refused():
    """The guard of the test above: with `copy=False` the same write does reach the JAX array."""
    source = torch.zeros(SIZE)
    array = bridge.to_jax(source, copy=False)
    source[...] = 1.0
    assert np.asarray(array).all()


@pytest.mark.parametrize("make", [lambda: jnp.zeros(1000), lambda: np.zeros(1000, np.float32)], ids=["jax", "numpy"])
def test_writing_in_place_into_the_torch_result_changes_nothing(make):
    array = make()
    tensor = bridge.to_torch(array)
    tensor.add_(1.0)
    assert not np.asarray(array).any()


def test_without_copy_torch_sees_the_same_memory():
    array = np.zeros(4, np.float32)
    bridge.to_torch(array, copy=False).add_(1.0)
    assert array.all()
    assert bridge.to_torch(jnp.ones(3), copy=False).tolist() == [1.0, 1.0, 1.0]


DTYPES = ["float32", "float16", "bfloat16", "float8_e5m2", "bool", "uint8", "int8", "int16", "int32", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_survive_both_ways(dtype):
    tensor = torch.tensor([[0, 1, 0], [1, 1, 0]]).to(getattr(torch, dtype))
    array = bridge.to_jax(tensor)
    assert array.dtype.name == dtype
    back = bridge.to_torch(array)
    assert back.dtype == tensor.dtype
    np.testing.assert_array_equal(np.asarray(bridge.to_jax(back)), np.asarray(array))


LAYOUTS = {
    "transposed": lambda t: t.T,
    "strided": lambda t: t[:, ::2],
    "expanded": lambda t: t[:, :1].expand(4, 6),
    "scalar": lambda t: t[0, 0],
    "empty": lambda t: t[:0],
    "needs grad": lambda t: t.clone().requires_grad_(),
    "conjugate": lambda t: torch.complex(t, t).conj(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_crosses(layout):
    tensor = LAYOUTS[layout](torch.arange(24.0).reshape(4, 6))
    np.testing.assert_array_equal(np.asarray(bridge.to_jax(tensor)), tensor.detach().resolve_conj().numpy())


def test_trees_keep_their_shape():
    tree = {"a": [torch.ones(2), 3], "b": Pair(np.ones(3, np.float32), None), "c": Sample(torch.ones(1), 0.5)}
    there = bridge.to_jax(tree)
    assert jax.tree.structure(there) == jax.tree.structure(tree)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(there))
    back = bridge.to_torch(there)
    assert isinstance(back["b"], Pair) and isinstance(back["c"], Sample)
    assert all(isinstance(leaf, torch.Tensor) for leaf in jax.tree.leaves(back))


WIDE = {
    "float64": torch.ones(2, dtype=torch.float64),
    "int64": torch.ones(2, dtype=torch.int64),
    "numpy float64": np.ones(2),
    "complex128": np.ones(2, np.complex128),
}


@pytest.mark.parametrize("name", WIDE)
def test_64_bits_are_never_narrowed_unasked(name):
    with pytest.raises(TransferError, match=r"deep\.0\.leaf: expected to keep"):
        bridge.to_jax({"deep": [{"leaf": WIDE[name]}]})
    with jax.enable_x64(True):
        assert bridge.to_jax(WIDE[name]).dtype.itemsize >= 8


def test_narrowing_on_request_checks_integers():
    assert bridge.to_jax(torch.tensor([5, -7]), narrow=True).dtype == jnp.int32
    assert bridge.to_jax(np.ones(2), narrow=True).dtype == jnp.float32
    with pytest.raises(TransferError, match="n: expected integers that fit int32, got values from 0 to 1099511627776"):
        bridge.to_jax({"n": torch.tensor([0, 2**40])}, narrow=True)
    with pytest.raises(TransferError, match="fit uint32"):
        bridge.to_jax(np.array([2**32], np.uint64), narrow=True)


def test_python_numbers_claim_no_width():
    assert bridge.to_jax([True, 3, 0.5])[1].dtype == jnp.int32
    with pytest.raises(TransferError, match="fit int32"):
        bridge.to_jax(2**40)


def test_keys_cross_and_draw_the_same_numbers():
    keys = jax.random.split(jax.random.key(7), 3)
    words = bridge.to_torch({"keys": keys})["keys"]
    assert words.shape == (3, 2) and words.dtype == torch.int64
    np.testing.assert_array_equal(cf_random.uniform(words[0], (5,)).numpy(), jax.random.uniform(keys[0], (5,)))
    assert (jax.random.key_data(key_to_jax(words)) == jax.random.key_data(keys)).all()
    assert bridge.to_jax(keys) is keys


def test_other_keys_and_wrong_words_are_refused():
    with pytest.raises(NoCounterpart, match="threefry2x32"):
        bridge.to_torch(jax.random.key(0, impl="rbg"))
    for words in (torch.zeros(3, dtype=torch.int64), torch.tensor([-1, 0]), torch.zeros(2)):
        with pytest.raises(TransferError, match="words of a crossfade.random key"):
            key_to_jax(words)


@pytest.mark.parametrize(
    "leaf",
    ["text", object(), np.array(["text"]), torch.ones(2).to_sparse()],
    ids=["text", "object", "array of text", "sparse"],
)
def test_what_is_no_array_is_named(leaf):
    with pytest.raises(TransferError, match="leaf: "):
        bridge.to_jax({"leaf": leaf})


def test_what_torch_cannot_hold_is_named():
    for leaf in ("text", np.array(["text"])):
        with pytest.raises(TransferError, match="leaf: "):
            bridge.to_torch({"leaf": leaf})
