"""The rules that tell rounding from a bug, on plain arrays."""

import numpy as np
import pytest

from crossfade.verdict import (
    EPS32,
    Verdict,
    allow_float32,
    allow_float64,
    allow_unproved,
    compare,
    scale,
)

ONES = np.linspace(0.5, 1.0, 6).reshape(2, 3)


def judge(a, b, relative=1e-12, floor=0.0, dtypes=True):
    a, b = {"x": np.asarray(a)}, {"x": np.asarray(b)}
    return compare(a, b, allow_float64(a, b, relative, floor), dtypes=dtypes)


@pytest.mark.parametrize(
    ("a", "b", "verdict", "kind"),
    [
        (ONES, ONES, Verdict.EQUAL, "values"),
        (ONES, ONES * (1 + 1e-15), Verdict.ROUNDING, "values"),
        (ONES, ONES * (1 + 1e-8), Verdict.DIFFERENT, "values"),
        (ONES, ONES.T, Verdict.DIFFERENT, "shape"),
        (ONES, ONES.astype(np.float32), Verdict.DIFFERENT, "dtype"),
        (ONES.astype(np.float32), (ONES * (1 + 3e-7)).astype(np.float32), Verdict.ROUNDING, "values"),
        (ONES, np.where(ONES > 0.9, np.nan, ONES), Verdict.DIFFERENT, "non-finite"),
        ([np.nan, np.inf, 1.0], [np.nan, np.inf, 1.0], Verdict.EQUAL, "values"),
        ([np.inf, 1.0], [-np.inf, 1.0], Verdict.DIFFERENT, "non-finite"),
        ([1, 2, 3], [1, 2, 3], Verdict.EQUAL, "values"),
        ([1, 2, 3], [1, 2, 4], Verdict.DIFFERENT, "values"),
        ([2**62, 1], [2**62 + 1, 1], Verdict.DIFFERENT, "values"),
        ([True, False], [True, True], Verdict.DIFFERENT, "values"),
        ([1, 2], [1.0, 2.0], Verdict.DIFFERENT, "dtype"),
        ([], [], Verdict.EQUAL, "values"),
        (0.0, 0.0, Verdict.EQUAL, "values"),
    ],
)
def test_float64_rule(a, b, verdict, kind):
    comparison = judge(a, b)
    assert (comparison.verdict, comparison.worst.kind) == (verdict, kind)


def test_the_worst_element_is_named_with_both_values():
    b = ONES.copy()
    b[1, 2] = 3.0
    worst = judge(ONES, b).worst
    assert (worst.leaf, worst.index, worst.torch, worst.jax) == ("x", (1, 2), "1.0", "3.0")
    assert worst.size == pytest.approx(2 / 3)


def test_a_small_leaf_is_held_to_its_own_scale():
    torch = {"large": np.array([1e3]), "small": np.array([1e-3])}
    jax = {"large": np.array([1e3]), "small": np.array([1e-3 * (1 + 1e-8)])}
    comparison = compare(torch, jax, allow_float64(torch, jax, 1e-12))
    assert comparison.verdict is Verdict.DIFFERENT
    assert comparison.worst.leaf == "small"


def test_a_leaf_only_one_side_has_is_named():
    comparison = compare({"x": ONES, "y": ONES}, {"x": ONES}, {"x": 0.0})
    assert (comparison.worst.kind, comparison.worst.leaf) == ("missing", "y")


def test_a_masking_constant_does_not_widen_the_tolerance():
    a, b = np.array([-1e9, 1.0]), np.array([-1e9, 1.0 + 1e-8])
    assert scale(a, b) == pytest.approx(1.0)
    assert judge(a, b).verdict is Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([-1e9 + 0.5, 1.0], [-1e9 + 0.4, 1.0], Verdict.ROUNDING),
        ([-1e9 + 0.5, 1.0], [-1e9 + 0.5, 1.0 + 1e-8], Verdict.DIFFERENT),
        ([-1e9, 1.0], [-1.001e9, 1.0], Verdict.DIFFERENT),
        ([-1e9 + 0.5, -2e9], [-1e9 + 0.4, -2e9], Verdict.ROUNDING),
        ([3e6, 1.0], [3e6 * (1 + 1e-8), 1.0], Verdict.DIFFERENT),
    ],
)
def test_a_masking_constant_that_was_added_is_held_to_its_own_magnitude(a, b, verdict):
    assert judge(a, b, relative=1e-9).verdict is verdict


def test_sums_that_cancel_are_held_to_the_floor():
    assert judge([1e-17], [3e-17]).verdict is Verdict.DIFFERENT
    assert judge([1e-17], [3e-17], floor=1e-15).verdict is Verdict.ROUNDING


def float32_verdict(torch32, jax32, torch64, jax64):
    sides = [{"x": np.asarray(side)} for side in (torch32, jax32, torch64, jax64)]
    return compare(sides[0], sides[1], allow_float32(*sides)).verdict


def test_float32_is_held_to_its_measured_noise():
    noisy = (ONES * (1 + 1e-4)).astype(np.float32)
    single = ONES.astype(np.float32)
    assert float32_verdict(single, noisy, ONES, ONES) is Verdict.ROUNDING  # JAX is 1e-4 from its own float64 self
    assert float32_verdict(single, noisy, ONES, ONES * (1 + 1e-4)) is Verdict.DIFFERENT  # and here it is not
    assert (
        float32_verdict(single, single * np.float32(1 + 20 * EPS32), ONES, ONES) is Verdict.ROUNDING
    )  # 8 ulp at least


def test_clean_ports_stay_within_twice_the_noise_however_large():
    rng = np.random.default_rng(0)
    for size in 10.0 ** np.arange(-7, 3):
        torch32, jax32 = (ONES + size * rng.uniform(-1, 1, (2, *ONES.shape))).astype(np.float32)
        assert float32_verdict(torch32, jax32, ONES, ONES) is not Verdict.DIFFERENT


def test_a_nan_on_one_side_is_never_noise():
    nan = np.where(ONES > 0.9, np.nan, ONES).astype(np.float32)
    assert float32_verdict(ONES.astype(np.float32), nan, ONES, ONES) is Verdict.DIFFERENT


def test_without_float64_the_noise_is_estimated_from_sums_and_jitter():
    single = {"x": ONES.astype(np.float32)}
    short, long = allow_unproved(single, single, {}, 1), allow_unproved(single, single, {}, 10_000)
    assert short["x"] == pytest.approx(80 * EPS32)
    assert long["x"] == pytest.approx(1000 * EPS32)
    assert allow_unproved(single, single, {"x": 1e-4}, 1)["x"] == pytest.approx(1e-3)


def test_the_noise_of_the_worse_side_counts_as_far_as_rounding_explains_it():
    single, noisy = ({"x": (ONES * (1 + share)).astype(np.float32)} for share in (1e-6, 1e-3))
    allowed = lambda *rounding: allow_float32(single, noisy, {"x": ONES}, {"x": ONES}, *rounding)["x"]
    assert allowed() == pytest.approx(1e-2, rel=1e-2)
    assert allowed({}) == pytest.approx(1e-5, rel=1e-1)
    assert allowed({"x": 1e-4}) == pytest.approx(1e-3)
    assert allowed({"x": 1.0}) == allowed()
