"""What `bisect` reads off numbers alone: how one array became another, and which leaf follows which."""

import numpy as np
import pytest

from crossfade.parity.bisecting.differences import said, said_of_all
from crossfade.parity.bisecting.following import Follows, follows
from crossfade.parity.bisecting.relations import relation

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 4))
VAR = RNG.uniform(0.5, 2.0, 3)
Q = RNG.normal(size=9)


@pytest.mark.parametrize(
    ("ours", "theirs", "kind"),
    [
        (X, X.astype(np.float32).astype(np.float64), "cast"),
        (np.sqrt(VAR) + 1e-6, np.sqrt(VAR + 1e-6), "eps"),
        (X, 1.5 * X, "factor"),
        (np.full(3, 0.5), np.full(3, 0.75), "constant"),
        (X[0] / np.linalg.norm(X[0]), np.array([0.0, 0.0, -1.0, 0.0]), "constant"),
        (Q, np.concatenate([Q[:5], Q[:4]]), "index"),
        (X, X[::-1].copy(), "order"),
        (np.full(4, 0.3), np.zeros(4), "left out"),
        (X > 0, X <= 0, "mask"),
        (np.full(9, True), np.full(9, False), ""),
        (X, X + RNG.normal(size=X.shape), ""),
    ],
)
def test_a_difference_is_read_off_the_numbers(ours, theirs, kind):
    assert said("x", ours, theirs, {})[0] == kind


def test_a_factor_and_an_offset_are_told_together():
    numbers = np.linspace(-1, 2, 7) ** 3
    assert relation(numbers, 2.5 * numbers - 4, ()) == "JAX is 2.5 times torch plus -4"
    assert "times" not in relation(numbers, 2.5 * numbers - 4 + 1e-6 * numbers**2, ())


def test_a_ratio_of_one_is_no_factor():
    assert said("x", X, X * (1 + 1e-7), {})[0] != "factor"


def test_small_integers_need_two_values_of_their_name():
    ours, theirs = np.array([1, 2]), np.array([0, 3])
    assert said("position", ours, theirs, {"after.position": ours}) == ("", "")
    kind, words = said("position", ours, theirs, {"after.position": ours, "state.position": theirs})
    assert kind == "operand" and "state.position" in words


def test_what_changes_in_one_half_alone_is_told():
    numbers = [np.asarray(n) for n in (3, 6, 9)]
    still = [np.asarray(9)] * 3
    assert said_of_all("size", numbers, still) == ("constant", "size is 9 every time in JAX, on the host it changes")
    late = said_of_all("size", numbers, [np.asarray(0), *numbers[:-1]])
    assert late is not None and late[0] == "state"
    assert said_of_all("size", numbers, numbers[::-1]) is None
    assert said_of_all("size", numbers[:2], still[:2]) is None


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_a_leaf_that_follows_another_is_recognised(after, share):
    before = {"net.weight": X, "target.weight": RNG.normal(size=X.shape), "other.weight": RNG.normal(size=X.shape)}
    moved = before | {"net.weight": X + 0.01 * RNG.normal(size=X.shape)}
    source = (moved if after else before)["net.weight"]
    moved["target.weight"] = before["target.weight"] + share * (source - before["target.weight"])
    found = follows("target.weight", before, moved)
    assert found is not None and found.is_like(Follows("net.weight", after, share))
    assert follows("other.weight", before, moved) == Follows()
    assert (follows("net.weight", before, moved) is None) != (after and share == 1)  # then both are the same
