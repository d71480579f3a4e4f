"""Damaged and hostile bundles: always a clear error, quickly, and never other numbers."""

import hashlib
import json
import os
import pickle
import shutil
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from crossfade import checkpoint
from crossfade.checkpoint import manifest, tensorfile
from crossfade.errors import CheckpointError


def refused(bundle, match: str) -> str:
    """The error of a load, which must fit and cost less than a second of this process."""
    message, seconds = _refusal(bundle, match)
    if seconds >= 1:  # a garbage collection of the whole test process may fall into one load, not into two
        message, seconds = _refusal(bundle, match)
    assert seconds < 1
    return message


def _refusal(bundle, match: str) -> tuple[str, float]:
    start = time.process_time()
    with pytest.raises(CheckpointError, match=match) as caught:
        checkpoint.load(bundle, side="numpy")
    return str(caught.value), time.process_time() - start


def rewrite(bundle, **changes) -> None:
    """Edits the manifest and makes its hash right again, as someone hostile would."""
    fields = json.loads((bundle / "manifest.json").read_text())
    fields = {name: value for name, value in fields.items() if name != "sha256"}
    (bundle / "manifest.json").write_bytes(manifest.dump(fields | changes))


def plant(bundle, data: bytes, **entry) -> None:
    """Puts other bytes in place of the weights, with a manifest that vouches for them."""
    (bundle / "weights.safetensors").write_bytes(data)
    files = json.loads((bundle / "manifest.json").read_text())["files"]
    files["weights"] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} | entry
    rewrite(bundle, files=files)


def header(entries, tail: bytes = b"") -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + tail


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_no_byte_can_change_unnoticed(bundle, stride):
    """Every byte of every file or every seventh, one bit each, and the guard: put back, the bundle loads."""
    for file in sorted(bundle.iterdir()):
        good = file.read_bytes()
        for i in range(0, len(good), stride):
            file.write_bytes(good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :])
            refused(bundle, str(file.name))
        file.write_bytes(good)
    checkpoint.load(bundle, side="numpy")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_file_can_be_cut_overwritten_or_extended_unnoticed(bundle, data):
    file = data.draw(st.sampled_from(sorted(bundle.iterdir())))
    good = file.read_bytes()
    start = data.draw(st.integers(0, len(good)))
    stop = data.draw(st.integers(start, len(good)))
    bad = good[:start] + data.draw(st.binary(max_size=20)) + good[stop:]
    file.write_bytes(bad)
    try:
        if bad == good:
            checkpoint.load(bundle, side="numpy")
        else:
            refused(bundle, str(file.name))
    finally:
        file.write_bytes(good)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_safetensors_bytes_of_any_kind_give_arrays_or_a_clear_error(data):
    """The reader alone, with no hash in front of it: well-formed or near it, it never crashes."""
    entry = st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "BF16", "BOOL", "X", 3]),
            "shape": st.one_of(st.lists(st.integers(-1, 3), max_size=3), st.just([2**62, 2**62]), st.none()),
            "data_offsets": st.one_of(st.lists(st.integers(-1, 12), min_size=1, max_size=3), st.just([0, 2**70])),
        }
    )
    entries = data.draw(st.one_of(st.binary(max_size=30), st.dictionaries(st.text(max_size=3), entry, max_size=3)))
    raw = header(entries, data.draw(st.binary(max_size=16)))
    try:
        arrays = tensorfile.read(np.frombuffer(raw, np.uint8), "x")
    except CheckpointError:
        return
    assert sum(array.nbytes for array in arrays.values()) <= len(raw)


F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HOSTILE_WEIGHTS = {
    "absurd header length": ((2**63).to_bytes(8, "little") + b"{}", "claims 9,223,372,036,854,775,808"),
    "header longer than the file": ((100).to_bytes(8, "little") + b"{}", "header of at most 2 bytes"),
    "empty file": (b"", "only 0 bytes"),
    "pickle": (pickle.dumps({"w": [1.0]}), "no safetensors file"),
    "header is no JSON": (header(b"{'a'"), "valid JSON"),
    "header is no text": (header(b"\xff\xfe"), "valid JSON"),
    "header is a list": (header([]), "JSON object"),
    "deeply nested header": (header(b"[" * 100_000), "valid JSON"),
    "one name twice": (header(b'{"a": 1, "a": 2}'), "'a' occurs twice"),
    "no entry": (header({"a": 1}), "dtype.*shape and data_offsets"),
    "unknown dtype": (header({"a": F32 | {"dtype": "O"}}, bytes(4)), "dtype.*shape and data_offsets"),
    "negative shape": (header({"a": F32 | {"shape": [-1]}}, bytes(4)), "dtype.*shape and data_offsets"),
    "absurd shape": (header({"a": F32 | {"shape": [2**62, 4]}}, bytes(4)), "damaged or hostile"),
    "too many axes": (header({"a": F32 | {"shape": [1] * 100}}, bytes(4)), "a shape NumPy can hold"),
    "empty and absurd": (
        header({"a": F32 | {"shape": [0, 2**62, 4], "data_offsets": [0, 0]}}),
        "a shape NumPy can hold",
    ),
    "shape and size disagree": (header({"a": F32 | {"shape": [2]}}, bytes(4)), "damaged or hostile"),
    "arrays overlap": (header({"a": F32, "b": F32}, bytes(4)), "damaged or hostile"),
    "a gap": (header({"a": F32 | {"data_offsets": [4, 8]}}, bytes(8)), "damaged or hostile"),
    "data missing": (header({"a": F32}), "truncated"),
    "data appended": (header({"a": F32}, bytes(5)), "truncated or"),
    "other arrays than listed": (header({"a": F32}, bytes(4)), "the manifest lists; these disagree: a, body"),
}


@pytest.mark.parametrize("case", HOSTILE_WEIGHTS)
def test_hostile_weights_with_matching_hashes_are_refused(bundle, case):
    data, message = HOSTILE_WEIGHTS[case]
    plant(bundle, data)
    assert "weights.safetensors" in refused(bundle, message)


def replaced(change):
    """A change of the manifest's `files`."""
    return lambda fields: {"files": change(fields["files"])}


GROUP = {
    "names": ["scale"],
    "frozen": [],
    "lr": 0.1,
    "betas": [0.9, 0.99],
    "eps": 1e-8,
    "weight_decay": 0.0,
    "amsgrad": False,
    "maximize": False,
    "decoupled_weight_decay": False,
}


def key(**changes):
    return lambda fields: {"key": {"impl": "threefry2x32", "shape": [2], "words": [0, 42]} | changes}


def optimizer(**changes):
    return lambda fields: {"optimizer": {"kind": "Adam", "groups": [GROUP], "moments": {}} | changes}


HOSTILE_MANIFESTS = {
    "newer schema": (
        lambda f: {"schema": 2, "versions": {"crossfade": "9.9"}},
        "schema 1.*got schema '2' written by crossfade 9.9",
    ),
    "unknown writer": (lambda f: {"schema": "x", "versions": 3}, "written by crossfade unknown"),
    "path traversal": (replaced(lambda f: {"../../secret": f["weights"]}), "files among weights"),
    "absolute path": (replaced(lambda f: f | {"/etc/passwd": f["weights"]}), "files among weights"),
    "no weights": (replaced(lambda f: {"replay": f["replay"]}), "weights.safetensors"),
    "entry of the wrong kind": (replaced(lambda f: {"weights": 3}), "files among weights"),
    "wrong shape listed": (
        replaced(lambda f: f | {"weights": f["weights"] | {"arrays": {"scale": {"dtype": "F32", "shape": [9]}}}}),
        "these disagree: .*scale",
    ),
    "wrong size listed": (replaced(lambda f: f | {"weights": f["weights"] | {"bytes": 2**60}}), "expected 1,152,9"),
    "step is text": (lambda f: {"step": "7"}, "expected a step from 0 .*, got '7'"),
    "step is true": (lambda f: {"step": True}, "expected a step from 0 .*, got True"),
    "step below 0": (lambda f: {"step": -1}, "expected a step from 0 .*, got -1"),
    "step of a float": (lambda f: {"step": 7.0}, "expected a step from 0 .*, got 7.0"),
    "step of 400 digits": (lambda f: {"step": 10**400}, "expected a step from 0 .*, got 1000"),
    "step of another folder": (lambda f: {"step": 8}, "0000000007/manifest.json: expected step 7.*got step 8"),
    "alias over a weight": (
        lambda f: {"aliases": {"scale": "body.0.bias"}},
        "alias 'scale'.*stored under that name too",
    ),
    "alias of an alias": (lambda f: {"aliases": {"a": "b", "b": "scale"}}, "an array 'b' among"),
    "alias is a number": (lambda f: {"aliases": {"a": 3}}, "an array '3' among"),
    "buffer is a number": (lambda f: {"buffers": [3]}, "an array '3' among"),
    "buffer twice": (lambda f: {"buffers": ["scale", "scale"]}, "buffers: expected every name once, got 'scale'"),
    "schema is true": (lambda f: {"schema": True}, "expected bundle schema 1"),
    "alias of nothing": (lambda f: {"aliases": {"a": "nothing"}}, "an array 'nothing'"),
    "alias of a list": (lambda f: {"aliases": {"a": []}}, "among the weights"),
    "buffer of nothing": (lambda f: {"buffers": ["nothing"]}, "an array 'nothing'"),
    "tree of nothing": (lambda f: {"replay": {"$array": "nothing"}}, "replay: expected a tree"),
    "tree of a list": (lambda f: {"replay": {"$array": []}}, "replay: expected a tree"),
    "broken tuple": (lambda f: {"normalizer": {"$tuple": 3}}, "normalizer: expected a tree"),
    "broken float": (lambda f: {"meta": {"a": {"$float": "big"}}}, "meta: expected a tree"),
    "tuple of text": (lambda f: {"normalizer": {"$tuple": "ab"}}, "normalizer: expected a tree"),
    "float that JSON has": (lambda f: {"meta": {"a": {"$float": "1e3"}}}, "meta: expected a tree"),
    "mark of nothing": (lambda f: {"meta": {"a": {"$set": [1]}}}, "meta: expected a tree"),
    "key too large": (key(words=[0, 2**32]), "words of a random key"),
    "key below 0": (key(words=[0, -1]), "words of a random key"),
    "key of floats": (key(words=[0.5, 1.5]), "words of a random key"),
    "key of booleans": (key(words=[True, False]), "words of a random key"),
    "key of text": (key(words="ab"), "words of a random key"),
    "key of the wrong shape": (key(shape=[3]), "words of a random key"),
    "key of an open shape": (key(shape=[-1]), "words of a random key"),
    "key of three words": (key(shape=[3], words=[1, 2, 3]), "words of a random key"),
    "key of a strange shape": (key(shape=[True, 2]), "words of a random key"),
    "key of an unknown generator": (key(impl="mersenne"), "threefry2x32.*got .*mersenne"),
    "key of a generator that is no name": (key(impl=3), "words of a random key"),
    "key with more": (key(more=1), "words of a random key"),
    "key of nothing": (lambda f: {"key": {}}, "words of a random key"),
    "optimiser of an unknown kind": (optimizer(kind="Adamm"), "optimizer: expected one of .*Adam.*got 'Adamm'"),
    "groups are numbers": (optimizer(groups=[3]), "optimizer: expected groups"),
    "group without names": (optimizer(groups=[{"lr": 0.1}]), "optimizer: expected groups"),
    "group of numbers": (optimizer(groups=[{**GROUP, "names": [3]}]), "optimizer: expected groups"),
    "group without a rate": (optimizer(groups=[{k: v for k, v in GROUP.items() if k != "lr"}]), "missing lr"),
    "a rate of text": (optimizer(groups=[{**GROUP, "lr": "0.1"}]), "lr: expected a number, got '0.1'"),
    "betas of one": (optimizer(groups=[{**GROUP, "betas": [0.9]}]), "betas: expected two numbers"),
    "a flag of text": (optimizer(groups=[{**GROUP, "amsgrad": "no"}]), "amsgrad: expected true or false, got 'no'"),
    "one name in two groups": (optimizer(groups=[GROUP, GROUP]), "'scale' once, got it in two groups"),
    "frozen that is no name": (optimizer(groups=[{**GROUP, "frozen": ["a"]}]), "optimizer: expected groups"),
    "no moments": (optimizer(moments={}), "optimizer: expected the moments .*exp_avg.* of 'scale'"),
    "optimiser of nothing": (lambda f: {"optimizer": {}}, "kind, groups and moments"),
    "moments of nothing": (
        optimizer(groups=[], moments={"a": ["b"]}),
        "every optimiser moment",
    ),
}


@pytest.mark.parametrize("case", HOSTILE_MANIFESTS)
def test_hostile_manifests_with_a_matching_hash_are_refused(bundle, case):
    change, message = HOSTILE_MANIFESTS[case]
    rewrite(bundle, **change(json.loads((bundle / "manifest.json").read_text())))
    refused(bundle, message)


def test_rewriting_the_manifest_as_it_was_is_accepted(bundle):
    """The guard of the table above: the tool that plants the changes plants nothing else."""
    rewrite(bundle)
    checkpoint.load(bundle, side="numpy")


MANIFESTS = {
    "no JSON": (b"{", "valid JSON"),
    "a list": (b"[]", "JSON object"),
    "deeply nested": (b"[" * 100_000, "valid JSON"),
    "not a number": (b'{"schema": NaN}', "NaN is not JSON"),
    "huge number": (b'{"schema": ' + b"9" * 10_000 + b"}", "valid JSON"),
    "one name twice": (b'{"schema": 1, "schema": 1}', "'schema' occurs twice"),
    "no hash": (b'{"schema": 1}', "damaged or edited"),
    "unknown schema, nothing else": (b"{}", "schema 'None' written by crossfade unknown"),
    "pickle": (pickle.dumps({"schema": 1}), "valid JSON"),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_what_is_no_manifest_is_refused(bundle, case):
    data, message = MANIFESTS[case]
    (bundle / "manifest.json").write_bytes(data)
    assert "manifest.json" in refused(bundle, message)


def test_unknown_fields_are_refused(bundle):
    text = (bundle / "manifest.json").read_text().replace(' "step"', ' "extra": 1,\n "step"')
    stated = json.loads(text)["sha256"]
    blank = text.replace(stated, "0" * 64)
    (bundle / "manifest.json").write_text(text.replace(stated, hashlib.sha256(blank.encode()).hexdigest()))
    refused(bundle, r"unknown: \['extra'\]")


def test_a_manifest_of_absurd_size_is_refused_unread(bundle):
    os.truncate(bundle / "manifest.json", 1 << 40)
    refused(bundle, "at most 67,108,864 bytes, got 1,099,511,627,776")


@pytest.mark.parametrize("name", ["weights.safetensors", "manifest.json"])
@pytest.mark.parametrize("kind", ["symlink", "pipe", "folder", "missing"])
def test_only_regular_files_are_opened(bundle, tmp_path, name, kind):
    file = bundle / name
    file.rename(tmp_path / "aside")
    match kind:
        case "symlink":
            file.symlink_to(tmp_path / "aside")
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
    expected = {"symlink": "a symbolic link", "missing": "No such file"}.get(kind, "something else")
    refused(bundle, f"{name}: expected a regular file, got .*{expected}")


def test_names_are_never_paths(tmp_path):
    """Arrays may be called anything; files may not."""
    names = ["../../evil", "/etc/passwd", "a/b\\c", "", "nul\0", "weights.safetensors"]
    arrays = {name: np.full(2, i) for i, name in enumerate(names)}
    bundle = checkpoint.save(tmp_path / "in" / "side", params=arrays, replay=arrays)
    assert sorted(os.listdir(bundle)) == ["manifest.json", "replay.safetensors", "weights.safetensors"]
    loaded = checkpoint.load(bundle, side="numpy")
    assert all(np.array_equal(part[n], arrays[n]) for n in names for part in (loaded.params, loaded.replay))
    assert os.listdir(tmp_path) == ["in"] and os.listdir(tmp_path / "in") == ["side"]


def test_a_swapped_file_of_another_bundle_is_noticed(tmp_path, bundle):
    other = checkpoint.save(tmp_path / "other", params={"w": np.zeros(1)}, replay={"x": np.zeros(1)})
    shutil.copy(other / "replay.safetensors", bundle / "replay.safetensors")
    refused(bundle, "replay.safetensors: expected .* bytes")
