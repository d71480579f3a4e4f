"""Initial laws: what each promises, and that precision changes nothing but the rounding."""

import math

import numpy as np
import pytest

from crossfade.nn import initial
from crossfade.random import random_numpy as random

KEY = random.key(3)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (5, 5)])
def test_orthogonal_rows_or_columns_have_the_length_of_the_gain(shape):
    weight = initial.orthogonal(1.5)(KEY, shape)
    product = weight @ weight.T if shape[0] <= shape[1] else weight.T @ weight
    np.testing.assert_allclose(product, 1.5**2 * np.eye(min(shape)), atol=1e-14)


def test_orthogonal_matrices_are_uniform_among_all():
    """Without the sign of R's diagonal, QR would return a first column of one sign."""
    signs = [initial.orthogonal()(random.key(i), (4, 4))[0, 0] > 0 for i in range(64)]
    assert 16 < sum(signs) < 48


def test_lecun_normal_has_variance_1_over_fan_in_and_ends_at_two_deviations():
    weight = initial.lecun_normal()(KEY, (400, 50))
    assert weight.var() * 50 == pytest.approx(1, rel=0.03)
    deviation = 1 / (initial.TRUNCATED * math.sqrt(50))
    assert 1.9 * deviation < np.abs(weight).max() <= 2 * deviation


def test_uniform_is_torchs_default_law():
    weight = initial.uniform(16)(KEY, (300, 16))
    assert 0.24 < np.abs(weight).max() <= 0.25 and weight.var() == pytest.approx(0.25**2 / 3, rel=0.05)


def test_both_precisions_start_at_the_same_place_and_parameters_draw_apart():
    laws = {"a": (initial.uniform(4), (3, 4)), "b": (initial.uniform(4), (3, 4)), "c": (initial.constant(2.0), (2,))}
    single, double = (initial.draw(laws, KEY, dtype) for dtype in ("float32", "float64"))
    assert all((single[name] == double[name].astype("float32")).all() for name in laws)
    assert (double["a"] != double["b"]).all() and (double["c"] == 2).all()
    assert single["a"].dtype == np.float32 and double["a"].flags.c_contiguous


def test_shapes_are_torchs():
    assert initial.linear_shapes("head", 3, 5) == {"head.weight": (5, 3), "head.bias": (5,)}
