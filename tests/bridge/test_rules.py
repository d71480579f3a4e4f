"""Rules: every operation undoes itself, on NumPy and JAX arrays, and survives JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.bridge.rules import (
    OPS,
    Rule,
    add,
    concat,
    each,
    flip,
    fold,
    permute,
    reshape,
    shift,
    split,
    stack,
    take,
    unstack,
)
from crossfade.errors import UsageError

CASES = [
    (Rule(), [(2, 3)], [(2, 3)]),
    (Rule(permute(2, 0, 1)), [(2, 3, 4)], [(4, 2, 3)]),
    (Rule(reshape((4,), (1, 4))), [(4,)], [(1, 4)]),
    (Rule(flip(0, 1)), [(2, 3)], [(2, 3)]),
    (Rule(take(1, 2, 0, 1)), [(2, 3)], [(2, 3)]),
    (Rule(stack()), [(2, 3), (2, 3)], [(2, 2, 3)]),
    (Rule(unstack(), each(permute(1, 0))), [(2, 3, 4)], [(4, 3), (4, 3)]),
    (Rule(each(permute(1, 0)), stack()), [(2, 3), (2, 3)], [(2, 3, 2)]),
    (Rule(concat(0, 2, 1)), [(2, 3), (1, 3)], [(3, 3)]),
    (Rule(split(0, 1, 2)), [(3, 2)], [(1, 2), (2, 2)]),
    (Rule(add(), split(0, 2, 2)), [(4,), (4,)], [(2,), (2,)]),
    (Rule(fold(4)), [(6,), (6,)], [(6,), (2,)]),
    (Rule(shift(1, 3, -1.0)), [(4,)], [(4,)]),
]


def _arrays(shapes):
    rng = np.random.default_rng(0)
    return tuple(rng.integers(-9, 9, shape).astype(np.float32) for shape in shapes)


@pytest.mark.parametrize(
    ("rule", "ours", "theirs"), CASES, ids=lambda value: str(value) if isinstance(value, Rule) else ""
)
def test_rules_undo_themselves(rule, ours, theirs):
    there = rule.forward(_arrays(ours))
    assert [a.shape for a in there] == theirs
    back = rule.inverse(there)
    assert [a.shape for a in back] == ours and all(a.dtype == np.float32 for a in (*there, *back))
    if not any(op.name in ("add", "fold") for op in rule.ops):
        assert all(map(np.array_equal, back, _arrays(ours)))
    assert all(map(np.array_equal, rule.forward(back), there))  # what was summed comes back as the same sum

    compiled = jax.jit(rule.forward)(tuple(map(jnp.asarray, _arrays(ours))))
    assert all(map(np.array_equal, compiled, there))
    assert Rule.from_json(json.loads(json.dumps(rule.to_json()))) == rule


def test_an_index_has_32_bits_whatever_the_precision():
    """A program traced in double precision and used again in single could not be compiled with another index."""
    with jax.enable_x64(True):
        for direction in (Rule(take(0, 2, 0, 1)).forward, Rule(take(0, 2, 0, 1)).inverse):
            assert "i64" not in str(jax.make_jaxpr(direction)((jnp.ones(3),)))


def test_every_operation_is_tested():
    flat = lambda rule: (
        {op.name for op in rule.ops} | {n for op in rule.ops for r in op.args if isinstance(r, Rule) for n in flat(r)}
    )
    assert set().union(*(flat(rule) for rule, _, _ in CASES)) == set(OPS)


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (Rule(add()), lambda a, b: (a + b).sum()),
        (Rule(fold(2)), lambda a, b: (a[:2] + b[:2]).sum() + (a[2:] * b[2:]).sum()),
        (Rule(add(), shift(0, 1, 1.0)), lambda a, b: ((a + b) ** 2).sum()),
    ],
)
def test_linear_rules_carry_gradients(rule, value):
    """The gradient of a function of JAX's arrays, carried back, is the gradient of the same function of torch's."""
    ours = tuple(map(jnp.asarray, _arrays([(4,), (4,)])))
    if rule.ops[0].name == "fold":
        outer = lambda y: y[0][:2].sum() + (y[0][2:] * y[1]).sum()
    elif len(rule.ops) > 1:
        outer = lambda y: ((y[0] - jnp.array([1.0, 0, 0, 0])) ** 2).sum()
    else:
        outer = lambda y: y[0].sum()
    expected = jax.grad(lambda x: value(*x))(ours)
    theirs = jax.grad(outer)(rule.forward(ours))
    for got, want in zip(rule.inverse(theirs, linear=True), expected, strict=True):
        np.testing.assert_allclose(got, want)
    for got, want in zip(rule.forward(expected, linear=True), theirs, strict=True):
        np.testing.assert_allclose(got, want)


def test_an_unknown_operation_is_refused():
    with pytest.raises(UsageError, match="unknown rule operation 'exec'"):
        Rule.from_json([["exec", "1"]])
