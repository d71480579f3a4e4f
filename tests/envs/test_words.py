"""Bit sequences, sequences over a landscape, Ising spins: rewards by definition, files of the user."""

import itertools

import numpy as np
import pytest

from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.registry import make
from crossfade.envs.dag.words.params import BLOCKS, BitSequenceParams, IsingParams, SequenceParams
from crossfade.errors import UsageError


def objects(params):
    """All complete objects."""
    return np.array(list(itertools.product(range(params.n_symbols), repeat=params.n_words)), np.int32)


@pytest.mark.parametrize("order, parents", [("append", 1), ("prepend_append", 2), ("free", 4)])
def test_three_orders_build_the_same_objects(order, parents):
    params = BitSequenceParams(n_bits=8, word_bits=2, order=order, n_modes=2)
    graph = enumerate_states(make(params, "numpy"))
    assert graph.forward_mask[:, -1].sum() == 4**4
    assert graph.backward_mask.sum(-1).max() == parents
    reference = enumerate_states(make(BitSequenceParams(n_bits=8, word_bits=2, n_modes=2), "numpy"))
    assert graph.log_z == pytest.approx(reference.log_z, abs=1e-12)


def test_modes_are_different_and_made_of_blocks():
    params = BitSequenceParams()
    assert len(np.unique(params.modes, axis=0)) == 60
    texts = {"".join(map(str, block)) for block in params.modes.reshape(-1, 8)}
    assert texts <= set(BLOCKS)
    assert len(np.unique(BitSequenceParams(n_bits=8, word_bits=8, n_modes=5).modes, axis=0)) == 5


@pytest.mark.parametrize("normalise, slope", [(True, 3 / 16), (False, 3)])
def test_bit_reward_is_the_distance_to_the_nearest_mode(normalise, slope):
    params = BitSequenceParams(n_bits=16, word_bits=4, n_modes=3, normalise=normalise)
    words = objects(params)[::97]
    bits = np.array([[int(b) for w in row for b in f"{w:04b}"] for row in words])
    distance = np.abs(bits[:, None] - params.modes[None]).sum(-1).min(-1)
    np.testing.assert_allclose(make(params, "numpy").log_r(words), -slope * distance, atol=1e-15)


def test_an_unfinished_bit_sequence_counts_what_is_written():
    params = BitSequenceParams(n_bits=16, word_bits=8, n_modes=1)
    first = int("".join(map(str, params.modes[0, :8])), 2)
    assert make(params, "numpy").log_r(np.array([first, -1], np.int32)) == 0
    assert make(params, "numpy").log_r(np.array([first ^ 3, -1], np.int32)) == pytest.approx(-3 * 2 / 16)


def test_synthetic_landscape_spans_floor_to_scale():
    table = np.exp(SequenceParams().log_table)
    assert table.shape == (65_536,)
    assert table.min() == pytest.approx(1e-3) and table.max() == pytest.approx(10)
    assert 100 < (table > 1e-3).sum()
    assert (SequenceParams(seed=1).log_table != SequenceParams().log_table).any()
    np.testing.assert_array_equal(SequenceParams().log_table, SequenceParams().log_table)


def test_synthetic_landscape_adds_fields_and_couplings():
    from crossfade.envs.dag.words import landscape

    y = landscape.synthetic(3, 2, 0.0, 0).reshape(2, 2, 2)  # without couplings the letters add up
    np.testing.assert_allclose(y[1, 1, 1] - y[0, 1, 1], y[1, 0, 0] - y[0, 0, 0], atol=1e-12)
    coupled = landscape.synthetic(3, 2, 1.0, 0).reshape(2, 2, 2)
    assert abs((coupled[1, 1, 1] - coupled[0, 1, 1]) - (coupled[1, 0, 0] - coupled[0, 0, 0])) > 1e-3


SEQUENCES = ["".join(s) for s in itertools.product("ab", repeat=3)]
VALUES = np.linspace(0, 1, 8)


def write_csv(path, rows, header=True):
    lines = ["sequence,value"] * header + [f"{s},{v}" for s, v in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("header", [True, False])
def test_csv_and_npz_files_give_the_same_landscape(tmp_path, header):
    rows = list(zip(SEQUENCES, VALUES, strict=True))[::-1]
    csv = write_csv(tmp_path / "y.csv", rows, header)
    npz = tmp_path / "y.npz"
    np.savez(npz, sequence=[["ab".index(c) for c in s] for s in SEQUENCES], value=VALUES)
    words = {"length": 3, "letters": "ab"}
    ours, theirs = SequenceParams(**words, file=csv), SequenceParams(**words, file=str(npz))
    np.testing.assert_array_equal(ours.log_table, theirs.log_table)
    np.testing.assert_allclose(np.exp(ours.log_table), np.maximum(1e-3, 10 * VALUES**3))
    full = np.array([1, 0, 1], np.int32)
    assert make(ours, "numpy").log_r(full) == pytest.approx(np.log(10 * VALUES[5] ** 3))


GOOD = list(zip(SEQUENCES, VALUES, strict=True))


@pytest.mark.parametrize(
    "rows, message",
    [
        (GOOD[:3] + GOOD[5:], "2 are missing and 0 stand there more than once, the first such is abb"),
        (GOOD + GOOD[:1], "0 are missing and 1 stand there more than once, the first such is aaa"),
        (GOOD[:-1] + [("bbb", "nan")], "every value must be finite and at least 0, got nan for bbb"),
        (GOOD[:-1] + [("bbc", 1.0)], "line 9: expected a sequence of 3 letters out of ab"),
        (GOOD[:-1] + [("bbb", "high")], "line 9: expected"),
        (GOOD[:-1] + [("bb", 1.0)], "line 9: expected"),
        ([], "8 are missing"),
    ],
)
def test_a_bad_landscape_file_is_refused_in_words(tmp_path, rows, message):
    with pytest.raises(UsageError, match=message):
        SequenceParams(length=3, letters="ab", file=write_csv(tmp_path / "y.csv", rows))


def test_other_bad_landscapes_are_refused(tmp_path):
    (tmp_path / "y.txt").write_text("")
    np.savez(tmp_path / "y.npz", letters=[1])
    np.savez(tmp_path / "z.npz", sequence=np.zeros((8, 2), int), value=np.zeros(8))
    for file, message in [
        ("none.csv", "found none"),
        ("y.txt", "ends with .csv or .npz"),
        ("y.npz", "expected arrays `sequence` and `value`"),
        ("z.npz", r"of shape \(rows, 3\)"),
    ]:
        with pytest.raises(UsageError, match=message):
            SequenceParams(length=3, letters="ab", file=str(tmp_path / file))
    with pytest.raises(UsageError, match="two or more different characters"):
        SequenceParams(letters="AA")
    with pytest.raises(UsageError, match="Use a shorter sequence"):
        SequenceParams(length=20)
    with pytest.raises(UsageError, match="n_bits must be a multiple of 8"):
        BitSequenceParams(n_bits=12, word_bits=4)
    with pytest.raises(UsageError, match="n_modes must be at most 5"):
        BitSequenceParams(n_bits=8)


def test_ising_counts_every_bond_twice():
    params = IsingParams(side=3, coupling=0.25, field=0.5)
    x = objects(params)
    spin = 2 * x.reshape(-1, 3, 3) - 1
    bonds = sum((spin * np.roll(spin, 1, axis)).sum((1, 2)) for axis in (1, 2))
    expected = 2 * 0.25 * bonds + 0.5 * spin.sum((1, 2))
    np.testing.assert_allclose(make(params, "numpy").log_r(x), expected, atol=1e-12)
    assert (params.bonds.sum(0) == 4 * 0.25).all()
    assert make(params, "numpy").log_r(params.source) == 0
