"""Files of offline data in the shapes that strangers have, and those that cannot be read."""

import errno
import io
import json
import os
import pickle
import sys
import zipfile

import h5py
import numpy as np
import pytest
from offline_data_cases import data, raw

from crossfade.algos.offline.data.dataset import Dataset
from crossfade.algos.offline.data.loaders import files, load
from crossfade.errors import DataError


def equal(found: Dataset, expected: Dataset) -> bool:
    none = lambda x: x is None
    return all(none(b) if none(a) else np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def refused(path, *words, **settings):
    with pytest.raises(DataError) as caught:
        load(path, **settings)
    message = str(caught.value)
    message.encode()  # it can be printed
    for word in words:
        assert word in message, message
    return message


# OGBench


@pytest.mark.parametrize("compact", [False, True])
def test_rows_of_ogbench(tmp_path, compact):
    assert equal(load(save(tmp_path / "a.npz", **raw()), compact=compact), data(compact=compact))


@pytest.mark.parametrize("form", [bool, np.float64, np.int32, "column"])
def test_rows_of_strangers(tmp_path, form):
    given = raw()
    given["terminals"] = given["terminals"][:, None] if form == "column" else given["terminals"].astype(form)
    given["observations"] = given["observations"].astype(np.float64)
    extra = {"qpos": np.zeros(3), "button_states": np.array(["x"]), "name": np.array("maze")}
    assert equal(load(save(tmp_path / "a.npz", **given, **extra)), data())


def test_rows_of_images_compressed(tmp_path):
    given = raw(image=True)
    np.savez_compressed(tmp_path / "a.npz", **given)
    assert equal(load(tmp_path / "a.npz", compact=True), data(image=True, compact=True))


def test_reward_free_rows(tmp_path):
    given = {name: raw()[name] for name in ("observations", "actions", "terminals")}
    assert load(save(tmp_path / "a.npz", **given)).rewards is None


def test_rows_that_do_not_end(tmp_path):
    given = {**raw(), "terminals": raw()["terminals"] * (np.arange(12) < 11)}
    path = save(tmp_path / "a.npz", **given)
    refused(path, str(path), "row 11 that does not", "drop_unfinished=True")
    assert load(path, drop_unfinished=True).steps == 4


def test_objects_are_not_unpickled(tmp_path):
    given = {**raw(), "actions": np.array([{"x": 1}] * 12, object)}
    refused(save(tmp_path / "a.npz", **given), "actions: expected an array, got pickled objects")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_npz_is_refused(tmp_path, share):
    whole = save(tmp_path / "a.npz", **raw()).read_bytes()
    (tmp_path / "b.npz").write_bytes(whole[: int(share * len(whole))])
    refused(tmp_path / "b.npz", "damaged file", "Get it anew")


def test_an_npz_with_wrong_bytes_is_refused(tmp_path):
    whole = bytearray(save(tmp_path / "a.npz", **raw()).read_bytes())
    place = whole.index(raw()["observations"][3].tobytes())
    whole[place] ^= 255
    (tmp_path / "a.npz").write_bytes(whole)
    refused(tmp_path / "a.npz", "damaged file")


def test_an_npz_with_a_wrong_header_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as bundle:
        for name, array in raw().items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            bundle.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00\x05" if name == "actions" else buffer.getvalue())
    refused(tmp_path / "a.npz", "actions: expected an array, got none")


def test_missing_arrays_are_named(tmp_path):
    given = {**raw(), "action": raw()["actions"]}
    del given["actions"]
    refused(save(tmp_path / "a.npz", **given), "expected actions among its arrays", "observations", "action")


def test_wrong_rows_name_the_file(tmp_path):
    given = raw()
    given["observations"][4, 1] = np.nan
    path = save(tmp_path / "a.npz", **given)
    refused(path, f"{path}: observations", "nan in row 4, number 1")


# D4RL


def d4rl(n=6):
    rng = np.random.default_rng(0)
    return {
        "observations": rng.normal(size=(n, 3)),
        "actions": rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        "rewards": rng.normal(size=n),
        "terminals": np.array([0, 0, 1, 0, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 0, 1], bool),
        "next_observations": rng.normal(size=(n, 3)),
    }


def write_hdf5(path, arrays, **words):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **words)
    return path


def test_transitions_of_d4rl(tmp_path):
    given = d4rl()
    infos = {"infos/qpos": np.zeros((6, 9)), "infos/goal": np.zeros((6, 2)), "metadata/algorithm": np.zeros(6)}
    found = load(write_hdf5(tmp_path / "a.hdf5", given | infos, compression="gzip"))
    assert found.observations.tolist() == given["observations"].astype(np.float32).tolist()
    assert found.next_observations.tolist() == given["next_observations"].astype(np.float32).tolist()
    assert found.rewards.tolist() == given["rewards"].astype(np.float32).tolist()
    assert found.masks.tolist() == [1, 1, 0, 1, 1, 1]
    assert found.last.tolist() == [2, 2, 2, 5, 5, 5]


def test_transitions_without_next_observations_or_timeouts(tmp_path):
    given = d4rl()
    del given["next_observations"]
    assert load(write_hdf5(tmp_path / "a.h5", given)).steps == 5  # that of the timeout is dropped
    del given["timeouts"]
    given["terminals"] = (given["terminals"] | (np.arange(6) == 5)).astype(np.float64)[:, None]
    assert load(write_hdf5(tmp_path / "a.h5", given)).last.tolist() == [2, 2, 2, 5, 5, 5]


def test_transitions_that_do_not_end(tmp_path):
    path = write_hdf5(tmp_path / "a.hdf5", d4rl() | {"timeouts": np.zeros(6)})
    refused(path, "row 5 that does not; the last end is row 2")
    assert load(path, drop_unfinished=True).steps == 3


def test_hdf5_without_rewards_is_refused(tmp_path):
    given = d4rl()
    del given["rewards"]
    refused(write_hdf5(tmp_path / "a.hdf5", given), "expected rewards among its arrays", "timeouts")


def test_wrong_kinds_of_hdf5_arrays_are_refused(tmp_path):
    text = np.array([b"x"] * 6)
    refused(write_hdf5(tmp_path / "a.hdf5", d4rl() | {"actions": text}), "actions: expected rows of numbers")
    refused(write_hdf5(tmp_path / "b.hdf5", d4rl() | {"rewards": 1.0}), "rewards: expected rows of numbers")
    refused(write_hdf5(tmp_path / "c.hdf5", d4rl() | {"actions": np.full((6, 2), 3.0)}), "3.0 in row 0")
    with h5py.File(tmp_path / "d.hdf5", "w") as file:
        for name, array in d4rl().items():
            file[name] = array
        del file["actions"]
        file["actions"] = h5py.SoftLink("/nowhere")
    refused(tmp_path / "d.hdf5", "expected actions among its arrays")


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_a_truncated_hdf5_is_refused(tmp_path, share):
    whole = write_hdf5(tmp_path / "a.hdf5", d4rl()).read_bytes()
    (tmp_path / "b.hdf5").write_bytes(whole[: int(share * len(whole))])
    refused(tmp_path / "b.hdf5", "damaged file", "Get it anew")


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    path = write_hdf5(tmp_path / "a.hdf5", d4rl())
    monkeypatch.setitem(sys.modules, "h5py", None)
    refused(path, "pip install 'crossfade[offline]'")


# Minari


def minari(folder, lengths=(3, 2), metadata=True, **changed):
    (folder / "data").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        for i, n in enumerate(lengths):
            group = file.create_group(f"episode_{i}")
            group.attrs["id"], group.attrs["total_steps"] = i, n
            arrays = {
                "observations": rng.normal(size=(n + 1, 2)) + 10 * i,
                "actions": rng.uniform(-1, 1, (n, 1)).astype(np.float32),
                "rewards": np.arange(n, dtype=np.float64),
                "terminations": np.arange(n) == (n - 1 if i == 0 else -1),
                "truncations": np.arange(n) == (n - 1 if i else -1),
            }
            for name, array in (arrays | changed).items():
                if isinstance(array, dict):
                    for key, part in array.items():
                        group.create_dataset(f"{name}/{key}", data=part)
                else:
                    group.create_dataset(name, data=array, compression="gzip")
            group.create_dataset("infos/success", data=np.zeros(n))
    if metadata:
        told = {"total_episodes": len(lengths), "total_steps": sum(lengths), "data_format": "hdf5"}
        (folder / "data" / "metadata.json").write_text(json.dumps(told))
    return folder


def test_episodes_of_minari(tmp_path):
    found = load(minari(tmp_path / "d"))
    assert found.first.tolist() == [0, 0, 0, 3, 3] and found.last.tolist() == [2, 2, 2, 4, 4]
    assert found.masks.tolist() == [1, 1, 0, 1, 1]
    assert found.rewards.tolist() == [0, 1, 2, 0, 1]
    assert found.next_observations[:2].tolist() == found.observations[1:3].tolist()
    assert (found.observations[3:] > 5).all() and (found.next_observations[:3] < 5).all()
    assert equal(load(tmp_path / "d" / "data" / "main_data.hdf5"), found)
    assert equal(load(tmp_path / "d" / "data"), found)


def test_episodes_of_minari_are_in_the_order_of_their_numbers(tmp_path):
    found = load(minari(tmp_path / "d", lengths=(1,) * 12))
    assert (np.abs(found.observations - 10 * np.arange(12)[:, None]) < 5).all()


def test_minari_without_metadata_and_with_wrong_metadata(tmp_path):
    folder = minari(tmp_path / "d", metadata=False)
    assert load(folder).steps == 5
    place = folder / "metadata.json"
    for text, word in (
        ('{"total_steps": 7}', "expected total_steps=7 as in metadata.json, got 5"),
        ('{"total_episodes": 1}', "expected total_episodes=1"),
        ('{"data_format": "arrow"}', "expected data_format hdf5, got 'arrow'"),
        ("{", "expected JSON"),
        ("[]", "expected a dictionary"),
    ):
        place.write_text(text)
        refused(folder, word)


def test_dictionaries_are_refused_with_the_reason(tmp_path):
    parts = {"achieved_goal": np.zeros((4, 2)), "observation": np.zeros((4, 2))}
    words = "observations: expected one array, got a group of several (achieved_goal, observation)", "Flatten"
    refused(minari(tmp_path / "d", observations=parts), *words)


def test_episodes_of_wrong_sizes_are_refused(tmp_path):
    refused(minari(tmp_path / "a", observations=np.zeros((3, 2))), "episode_0", "got 3 and 3")
    wrong = minari(tmp_path / "b", rewards=np.zeros(2))
    refused(wrong, "episode_0: rewards: expected 3 rows")


# ExORL


def episode(n=4, seed=0, **changed):
    rng = np.random.default_rng(seed)
    arrays = {
        "observation": rng.normal(size=(n, 3)).astype(np.float32),
        "action": rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        "reward": np.arange(n, dtype=np.float32)[:, None],
        "discount": np.ones((n, 1), np.float32),
        "physics": np.zeros((n, 7)),
    }
    return arrays | changed


def test_episodes_of_exorl(tmp_path):
    one = episode(discount=np.array([[1], [1], [0.5], [1]]))  # half a mask ends nothing
    two = episode(3, 1, discount=np.array([1, 0, 1.0]))
    save(tmp_path / "episode_000001_3.npz", **two)
    save(tmp_path / "episode_000000_4.npz", **one)
    (tmp_path / "README.txt").write_text("x")
    found = load(tmp_path)
    both = lambda name, cut: np.concatenate([one[name][cut], two[name][cut]]).tolist()
    assert found.observations.tolist() == both("observation", slice(-1))
    assert found.next_observations.tolist() == both("observation", slice(1, None))
    assert found.actions.tolist() == both("action", slice(1, None))
    assert found.rewards.tolist() == [1, 2, 3, 1, 2]
    assert found.masks.tolist() == [1, 0.5, 1, 0, 1]
    assert found.last.tolist() == [2, 2, 2, 3, 4]
    assert load(tmp_path / "episode_000000_4.npz").steps == 3


def test_wrong_episodes_name_their_file(tmp_path):
    save(tmp_path / "a.npz", **episode())
    for wrong, word in (
        (episode(reward=np.zeros(3)), "got observation 4, action 4, reward 3, discount 4"),
        (episode(1), "at least 2"),
        (episode(observation=np.full((4, 3), np.nan)), "nan in row 0"),
        (episode(observation=np.zeros((4, 5))), "as in"),
        (episode(discount=np.array(["x"] * 4)), "expected numbers"),
        (episode(discount=np.array(1.0)), "discount 0"),
        ({"observation": np.zeros(3)}, "expected action, reward, discount among its arrays, got observation"),
    ):
        save(tmp_path / "b.npz", **wrong)
        refused(tmp_path, "b.npz", word)


# What is of no kind


def test_what_is_not_there(tmp_path):
    refused(tmp_path / "nothing.npz", "nothing.npz", "No such file", "nothing is there")


def test_what_is_of_no_kind(tmp_path):
    readable = "OGBench's .npz", "D4RL's .hdf5", "Minari folder", "ExORL"
    refused(tmp_path, *readable, "an empty folder")
    place = tmp_path / "x"
    for content, word in (
        (b"", "an empty file"),
        (b"observations,actions\n1,2\n", "a file that begins with b'observat'"),
        (pickle.dumps({"observations": 1}), "a pickle"),
        (b"\x93NUMPY\x01\x00", "a single array (.npy)"),
        (b"\x1f\x8b\x08\x00", "packed by gzip"),
    ):
        place.write_bytes(content)
        refused(place, *readable, word)
    refused(save(tmp_path / "a.npz", x=np.zeros(3), y=np.zeros(3)), *readable, "an .npz of x, y")
    np.savez(tmp_path / "b.npz")
    refused(tmp_path / "b.npz", *readable, "an .npz of nothing")
    refused(write_hdf5(tmp_path / "a.hdf5", {"x": np.zeros(3)}), *readable, "HDF5 with x")
    (tmp_path / "deep" / "buffer").mkdir(parents=True)
    refused(tmp_path / "deep", *readable, "a folder of buffer/")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "something that is no file")


def test_links_in_a_circle(tmp_path):
    (tmp_path / "a.npz").symlink_to(tmp_path / "b.npz")
    (tmp_path / "b.npz").symlink_to(tmp_path / "a.npz")
    refused(tmp_path / "a.npz", "symbolic links")


def test_what_may_not_be_read(tmp_path, monkeypatch):
    def forbidden(*arguments, **words):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "x")

    path = save(tmp_path / "a.npz", **raw())
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "open", forbidden)
        refused(path, "Permission denied", "change its permissions")
    (tmp_path / "folder").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(files.Path, "iterdir", forbidden)
        refused(tmp_path / "folder", "Permission denied", "change its permissions")


def test_names_that_are_no_utf8(tmp_path):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(place)
    refused(place, "caf\\xe9", "an empty folder")
    assert equal(load(save(os.path.join(place, "a.npz"), **raw())), data())
    assert load(write_hdf5(os.path.join(place, "a.hdf5"), d4rl())).steps == 6
    given = {**raw(), "rewards": np.zeros(3)}
    refused(save(os.path.join(place, "b.npz"), **given), "caf\\xe9/b.npz: rewards")


def test_an_array_too_large_for_memory_is_refused(tmp_path):
    header = io.BytesIO()
    form = {"descr": "<f8", "fortran_order": False, "shape": (2**44, 8)}
    np.lib.format.write_array_header_1_0(header, form)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as bundle:
        for name in raw():
            bundle.writestr(f"{name}.npy", header.getvalue())
    refused(tmp_path / "a.npz", "fits into memory")


@pytest.mark.parametrize("settings", [{"compact": True}, {"drop_unfinished": True}])
def test_settings_that_a_kind_does_not_have_are_refused(tmp_path, settings):
    refused(minari(tmp_path / "d"), f"{next(iter(settings))}: expected False", **settings)
    if "compact" in settings:
        refused(write_hdf5(tmp_path / "a.hdf5", d4rl()), "compact: expected False", **settings)
