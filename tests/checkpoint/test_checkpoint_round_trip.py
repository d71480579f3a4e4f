"""What goes in comes out, bit for bit, on every side."""

import math

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.flax
import safetensors.torch
import torch
from bits import same
from torch import nn

from crossfade import checkpoint
from crossfade.errors import CheckpointError, TransferError, UsageError

DTYPES = [
    np.bool_,
    *(np.dtype(f"{sign}int{bits}") for sign in ("u", "") for bits in (8, 16, 32, 64)),
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
]


def to_numpy(value):
    """By another way than the one under test: NumPy's missing dtypes by way of float32, which holds them exactly."""
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize <= 2:
        return value.float().numpy().astype(getattr(ml_dtypes, str(value.dtype)[6:], np.float16))
    return np.asarray(value)


@pytest.mark.parametrize("side", ["torch", "jax", "numpy"])
def test_every_dtype_and_shape_comes_back_equal(tmp_path, side, x64):
    arrays = {
        f"{np.dtype(dtype).name} {shape}": np.arange(math.prod(shape)).reshape(shape).astype(dtype)
        for dtype in DTYPES
        for shape in [(), (0, 2), (3,), (2, 3)]
    }
    checkpoint.save(tmp_path, params=arrays)
    loaded = checkpoint.load(tmp_path, side=side).params
    assert list(loaded) == list(arrays)
    kind = {"torch": torch.Tensor, "jax": jax.Array, "numpy": np.ndarray}[side]
    for name, array in arrays.items():
        assert isinstance(loaded[name], kind)
        assert same(to_numpy(loaded[name]), array), name


def test_strided_and_big_endian_arrays_are_stored_by_value(tmp_path):
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    arrays = {"transposed": table.T, "sliced": table[:, ::2], "swapped": table.astype(">f4")}
    checkpoint.save(tmp_path, params=arrays)
    for name, array in checkpoint.load(tmp_path, side="numpy").params.items():
        np.testing.assert_array_equal(array, arrays[name])


def test_plain_safetensors_users_can_open_the_weights(bundle, arrays):
    file = bundle / "weights.safetensors"
    for load in (safetensors.torch.load_file, safetensors.flax.load_file):
        loaded = load(file)
        assert {n: same(a, arrays[n]) for n, a in loaded.items()} == dict.fromkeys(arrays, True)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.encoder = nn.Linear(3, 3, bias=False)
        self.decoder = nn.Linear(3, 3, bias=False)
        self.decoder.weight = self.encoder.weight
        self.low = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))


def test_a_module_is_restored_with_tied_weights_and_buffers(tmp_path):
    module, other = Tied(), Tied()
    module.norm(torch.randn(5, 3))
    checkpoint.save(tmp_path, params=module)
    bundle = checkpoint.load(tmp_path, like=module)
    assert bundle.manifest["aliases"] == {"decoder.weight": "encoder.weight"}
    assert "decoder.weight" not in safetensors.torch.load_file(checkpoint.latest(tmp_path) / "weights.safetensors")
    assert bundle.params["decoder.weight"] is bundle.params["encoder.weight"]
    bundle.restore(other)
    for name, tensor in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    assert other.decoder.weight is other.encoder.weight


def test_parameters_that_are_views_of_one_tensor_are_not_mistaken_for_tied_ones(tmp_path):
    flat = torch.arange(8.0)
    checkpoint.save(tmp_path, params={"a": flat[:4], "b": flat[4:], "c": flat[:4].view(2, 2)})
    loaded = checkpoint.load(tmp_path)
    assert loaded.manifest["aliases"] == {}
    assert torch.equal(loaded.params["b"], flat[4:])


def test_loaded_arrays_are_private_and_writable(bundle):
    first, second = (checkpoint.load(bundle).params["body.0.weight"] for _ in range(2))
    first.zero_()
    assert second.abs().sum() > 0


TREE = {
    "obs": {"mean": np.arange(3.0, dtype=np.float32), "a/b": [np.ones(2, bool), (1, 2.5, None)]},
    "a": {"b": np.zeros(1, np.float32), "": np.ones(1, np.float32)},
    "flags": [True, -3, "text", -math.inf, 0.1],
    "empty": [{}, [], ()],
    "": np.full(2, 7, np.int32),
    "~1": np.full(1, 8, np.int32),
}


@pytest.mark.parametrize("part", ["normalizer", "replay"])
@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy, jnp.array])
def test_trees_of_arrays_and_scalars_come_back_equal(tmp_path, arrays, part, make):
    given = jax.tree.map(lambda x: make(x) if isinstance(x, np.ndarray) else x, TREE)
    checkpoint.save(tmp_path, params=arrays, **{part: given})
    loaded = getattr(checkpoint.load(tmp_path, side="numpy"), part)
    leaves, form = jax.tree.flatten(TREE)
    loaded_leaves, loaded_form = jax.tree.flatten(loaded)
    assert form == loaded_form
    for a, b in zip(leaves, loaded_leaves, strict=True):
        assert type(a) is type(b) and same(a, b)


def test_nan_and_numpy_numbers_are_allowed_in_meta(tmp_path, arrays):
    checkpoint.save(tmp_path, params=arrays, meta={"loss": math.nan, "best": np.float32(0.5), "betas": (0.9, 0.999)})
    meta = checkpoint.load(tmp_path, side="numpy").meta
    assert math.isnan(meta["loss"]) and meta["best"] == 0.5 and meta["betas"] == (0.9, 0.999)


@pytest.mark.parametrize(
    "key",
    [
        np.array([1, 2**32 - 1], np.uint32),
        torch.tensor([1, 2**32 - 1]),
        jnp.array([1, 2**32 - 1], jnp.uint32),
        jax.random.wrap_key_data(jnp.array([1, 2**32 - 1], jnp.uint32)),
    ],
    ids=["numpy", "torch", "raw", "typed"],
)
def test_a_key_of_any_side_continues_on_every_side(tmp_path, arrays, key):
    checkpoint.save(tmp_path, params=arrays, key=key)
    words, draws = [1, 2**32 - 1], jax.random.bits(jax.random.wrap_key_data(jnp.array([1, 2**32 - 1], jnp.uint32)), 3)
    loaded = {side: checkpoint.load(tmp_path, side=side).key for side in ("torch", "jax", "numpy")}
    assert loaded["numpy"].dtype == np.uint32 and loaded["numpy"].tolist() == words
    assert loaded["torch"].tolist() == words
    assert same(jax.random.bits(loaded["jax"], 3), draws)


def test_batched_and_other_generators_keys_keep_shape_and_kind(tmp_path, arrays):
    for key in (jax.random.split(jax.random.key(3), (2, 4)), jax.random.key(3, impl="rbg")):
        checkpoint.save(tmp_path, params=arrays, key=key)
        loaded = checkpoint.load(tmp_path, side="jax").key
        assert loaded.dtype == key.dtype and same(jax.random.key_data(loaded), jax.random.key_data(key))


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
@pytest.mark.parametrize("part", ["params", "normalizer"])
def test_64_bit_arrays_are_never_narrowed(tmp_path, arrays, dtype, part):
    wide = {"wide": np.array([2**40 + 1], dtype)}
    checkpoint.save(tmp_path, **({"params": arrays} | {part: wide}))
    with pytest.raises(TransferError, match=r"wide: expected to keep .*64.*enable_x64"):
        checkpoint.load(tmp_path, side="jax")
    with jax.enable_x64(True):
        assert same(getattr(checkpoint.load(tmp_path, side="jax"), part)["wide"], wide["wide"])


def test_buffers_given_apart_come_back_apart(tmp_path):
    module, other = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    module(torch.randn(4, 2))
    checkpoint.save(tmp_path, params=dict(module.named_parameters()), buffers=dict(module.named_buffers()))
    bundle = checkpoint.load(tmp_path, like=module)
    assert list(bundle.params) == ["weight", "bias"]
    assert set(bundle.buffers) == {"running_mean", "running_var", "num_batches_tracked"}
    bundle.restore(other)
    assert torch.equal(other.running_var, module.running_var)


def test_the_manifest_tells_what_is_inside(bundle):
    manifest = checkpoint.load(bundle, side="numpy").manifest
    assert manifest["schema"] == 1 and manifest["step"] == 7
    assert manifest["versions"].keys() == {"crossfade", "numpy", "torch", "jax"}
    assert manifest["files"]["weights"]["arrays"]["body.0.weight"] == {"dtype": "F32", "shape": [4, 3]}


LIKES = {
    "missing": (lambda a: a | {"extra": np.zeros(1, np.float32)}, "extra: missing in the bundle"),
    "unexpected": (lambda a: {n: a[n] for n in list(a)[1:]}, "body.0.weight: not in the model"),
    "shape": (lambda a: a | {"scale": np.zeros(2, np.float32)}, r"scale: expected float32 \(2,\), got float32 \(\)"),
    "dtype": (lambda a: a | {"scale": np.zeros(())}, r"scale: expected float64 \(\), got float32 \(\)"),
}


@pytest.mark.parametrize("case", LIKES)
def test_a_model_of_another_form_is_refused_by_name(bundle, arrays, case):
    checkpoint.load(bundle, side="numpy", like=arrays)
    change, message = LIKES[case]
    with pytest.raises(CheckpointError, match=message):
        checkpoint.load(bundle, side="numpy", like=change(arrays))


def test_restore_changes_nothing_when_it_does_not_fit(bundle):
    module = nn.Linear(3, 4)
    before = {n: t.clone() for n, t in module.state_dict().items()}
    with pytest.raises(CheckpointError, match="does not fit the model"):
        checkpoint.load(bundle).restore(module)
    with pytest.raises(UsageError, match="side='torch'"):
        checkpoint.load(bundle, side="numpy").restore(module)
    assert all(torch.equal(before[n], t) for n, t in module.state_dict().items())


class Odd:
    pass


REFUSED = {
    "reserved name": ({"params": {"__metadata__": np.zeros(1)}}, "reserves"),
    "name not text": ({"params": {1: np.zeros(1)}}, "names that are text"),
    "objects": ({"params": {"x": np.array([None])}}, "dtypes"),
    "complex128": ({"params": {"x": np.zeros(1, complex)}}, "x: expected one of the dtypes.*complex128"),
    "sparse": ({"params": {"x": torch.eye(2).to_sparse()}}, "x: expected a dense tensor"),
    "meta device": ({"params": {"x": torch.empty(2, device="meta")}}, "x: expected a dense tensor"),
    "random key among numbers": ({"replay": [jax.random.key(0)]}, r"replay\['0'\].*key_data"),
    "unknown object": ({"replay": {"a": [Odd()]}}, r"replay\['a'\]\['0'\].*Odd"),
    "array in meta": ({"meta": {"a": np.zeros(1)}}, r"meta\['a'\].*ndarray"),
    "dollar name": ({"replay": {"$array": 1}}, "not starting with"),
    "two of one name": ({"buffers": {"w": np.zeros(1)}}, "w in both"),
    "key of three words": ({"key": np.zeros(3, np.uint32)}, "key: expected"),
    "negative key": ({"key": np.array([-1, 0])}, "key: expected words"),
    "float key": ({"key": np.zeros(2)}, "key: expected"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_bundle_cannot_hold_is_refused_before_anything_is_written(tmp_path, case):
    given, message = REFUSED[case]
    with pytest.raises(CheckpointError, match=message):
        checkpoint.save(tmp_path / "new", **({"params": {"w": np.zeros(1)}} | given))
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


USAGE = {
    "model without mapping": {"params": nn.Linear},
    "nested dict": {"params": {"a": {"b": np.zeros(1)}}},
    "negative step": {"step": -1},
    "keep nothing": {"keep": 0},
    "optax without mapping": {"optimizer": (1, 2)},
    "torch optimiser without its module": {"optimizer": torch.optim.SGD([torch.zeros(1, requires_grad=True)])},
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_told(tmp_path, case):
    with pytest.raises(UsageError, match="expected"):
        checkpoint.save(tmp_path, **({"params": {"w": np.zeros(1)}} | USAGE[case]))
    with pytest.raises(UsageError, match="torch, jax, numpy"):
        checkpoint.load(tmp_path, side="tensorflow")
