"""Damage of every kind, by lot: a bundle loads as it was, or the error is ours."""

import hashlib
import json
import os
import random
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
import torch
from torch import nn

from crossfade import checkpoint
from crossfade.bridge.mapping import Entry, Mapping
from crossfade.bridge.rules import Rule, permute
from crossfade.checkpoint import manifest
from crossfade.errors import CrossfadeError

FORMATS = ("torch", "jax", "npz", "safetensors")
pytestmark = pytest.mark.filterwarnings("ignore:.*holds weights only")


class Net(eqx.Module):
    kernel: jax.Array
    bias: jax.Array


def make():
    torch.manual_seed(0)
    module = nn.Linear(2, 3)
    optimizer = torch.optim.Adam(module.named_parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return module, optimizer


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One bundle with everything a bundle can have, in a folder of its own."""
    module, optimizer = make()
    like = Net(jnp.zeros((2, 3)), jnp.zeros(3))
    entries = (Entry(("weight",), ("kernel",), Rule(permute(1, 0))), Entry(("bias",), ("bias",), Rule()))
    mapping = Mapping(entries, {"weight": (3, 2), "bias": (3,)}, like, torch_only={})
    return checkpoint.save(
        tmp_path_factory.mktemp("whole"),
        params=module,
        optimizer=optimizer,
        mapping=mapping,
        normalizer={"mean": torch.zeros(2), "count": (1, float("inf"))},
        replay={"obs": torch.zeros(2, 2), "next": 1},
        key=jax.random.key(0),
        meta={"a": [1, {"b": None}]},
        step=12,
    )


def use(path, into):
    """All that one does with a bundle. A bundle may be refused at any point, but only by an error of ours."""
    like = Net(jnp.zeros((2, 3)), jnp.zeros(3))
    for step in (
        lambda: checkpoint.load(path, side="numpy"),
        lambda: checkpoint.load(path).restore(*make()),
        lambda: checkpoint.load(path, side="jax", like=like),
        lambda: checkpoint.latest(path.parent),
        *(lambda to=to: checkpoint.convert(path, to, into / to) for to in FORMATS),
    ):
        try:
            step()
        except CrossfadeError as error:
            assert "expected" in str(error) or "does not fit" in str(error), error


def copied(whole, tmp_path, i):
    return shutil.copytree(whole, tmp_path / str(i) / whole.name)


# Damage to the files


def nested(levels):
    return b"[" * levels + b"]" * levels


DAMAGE = {
    "emptied": lambda file, rng: file.write_bytes(b""),
    "cut": lambda file, rng: os.truncate(file, rng.randrange(file.stat().st_size)),
    "filled with noise": lambda file, rng: file.write_bytes(rng.randbytes(rng.randrange(1, 200))),
    "zeros": lambda file, rng: file.write_bytes(bytes(file.stat().st_size)),
    "other JSON": lambda file, rng: file.write_bytes(
        rng.choice([b"null", b"3", b'"a"', b"[]", b"{}", b"true", b"NaN"])
    ),
    "deep JSON": lambda file, rng: file.write_bytes(nested(rng.choice([50, 500, 900, 990, 5000, 200_000]))),
    "another encoding": lambda file, rng: file.write_bytes(
        file.read_bytes().decode("latin-1").encode(rng.choice(["utf-16", "utf-32", "utf-8-sig", "utf-16-be"]))
    ),
    "a folder instead": lambda file, rng: (file.unlink(), file.mkdir()),
    "a link to itself": lambda file, rng: (file.unlink(), file.symlink_to(file.name)),
    "a link elsewhere": lambda file, rng: (file.unlink(), file.symlink_to("/etc/hostname")),
    "gone": lambda file, rng: file.unlink(),
    "unreadable": lambda file, rng: file.chmod(0),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_give_errors_of_ours(whole, tmp_path, name):
    rng = random.Random(name)
    for i, file in enumerate(sorted(os.listdir(whole))):
        bundle = copied(whole, tmp_path, i)
        DAMAGE[name](bundle / file, rng)
        use(bundle, tmp_path / str(i))


# Damage to the manifest, with a hash that fits


def values(rng):
    """What stands where something else should."""
    simple = [
        None,
        True,
        False,
        0,
        -1,
        2**31,
        2**63,
        10**300,
        1.5,
        -0.0,
        "",
        "weight",
        "$array",
        "../x",
        "\ud800",
        [],
        {},
    ]
    deep = []
    for _ in range(rng.choice([5, 60, 300])):
        deep = [deep] if rng.random() < 0.5 else {"a": deep}
    odd = [
        deep,
        {"$array": "nothing"},
        {"$tuple": 3},
        {"$float": 1},
        ["weight"] * 3,
        {"weight": "bias"},
        [[[]]],
        [None],
    ]
    return rng.choice(simple + odd)


def places(node, path=()):
    """Every place in a tree of JSON."""
    yield path
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in inner:
        yield from places(child, (*path, key))


def change(fields, rng):
    """Something replaced, removed, renamed or doubled, somewhere."""
    *path, last = rng.choice([p for p in places(fields) if p])
    node = fields
    for key in path:
        node = node[key]
    match rng.choice(["replace", "replace", "remove", "rename", "add"]):
        case "remove" if path:
            del node[last]
        case "rename" if path and isinstance(node, dict):
            node[rng.choice(["", "bias", "$tuple", "x" * 200])] = node.pop(last)
        case "add" if path and isinstance(node, list):
            node.append(values(rng))
        case _:
            node[last] = values(rng)


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 20))])
def test_changed_manifests_give_errors_of_ours(whole, tmp_path, seed):
    rng = random.Random(seed)
    for i in range(20):
        bundle = copied(whole, tmp_path, i)
        fields = json.loads((bundle / "manifest.json").read_text())
        for _ in range(rng.choice([1, 1, 2])):
            change(fields, rng)
        text = json.dumps(fields | {"sha256": "0" * 64}).encode()
        text = text.replace(b"0" * 64, hashlib.sha256(text).hexdigest().encode(), 1)
        (bundle / "manifest.json").write_bytes(text)
        use(bundle, tmp_path / str(i))


def test_the_tools_of_this_file_change_nothing_else(whole, tmp_path):
    """The guard: the same bundle with a manifest written as above loads, converts and is restored."""
    bundle = copied(whole, tmp_path, 0)
    fields = json.loads((bundle / "manifest.json").read_text())
    text = json.dumps(fields | {"sha256": "0" * 64}).encode()
    (bundle / "manifest.json").write_bytes(text.replace(b"0" * 64, hashlib.sha256(text).hexdigest().encode(), 1))
    assert checkpoint.load(bundle, side="numpy").step == 12
    checkpoint.load(bundle).restore(*make())
    model = checkpoint.load(bundle, side="jax", like=Net(jnp.zeros((2, 3)), jnp.zeros(3))).params
    assert isinstance(model, Net) and manifest.SCHEMA == 1
    with pytest.warns(UserWarning, match="left out"):
        assert checkpoint.convert(bundle, "npz", tmp_path / "out").exists()
