"""Every registered environment, in both frameworks, keeps the protocol; a flipped mask bit is noticed."""

import inspect
import subprocess
import sys
from functools import cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_cases import CASES, ENUMERABLE, QUICK, name, twins

from crossfade.envs.dag import base_jax, base_numpy, conformance
from crossfade.envs.dag.hypergrid.hypergrid_jax import Hypergrid
from crossfade.envs.dag.registry import ALL, make, params_class
from crossfade.errors import UsageError
from crossfade.ranges import check_value
from default_run import few

WALKS = 6
REWARDS = Literal["corners", "cosine"]


@cache
def noise(params):
    """For walks that are as long as can be."""
    rng = np.random.default_rng(0)
    shape = (params.max_steps, WALKS)
    return rng.uniform(size=(*shape, params.n_actions)), rng.uniform(size=(*shape, params.n_parents))


@cache
def states_of(params):
    env = make(params, "numpy")
    return conformance.states_of(env, conformance.walk(env, *noise(params))[0])


@pytest.mark.parametrize("params", few(CASES, *QUICK), ids=name)
def test_twins_keep_the_protocol_and_are_equal(params):
    assert conformance.check(*twins(params)) == []


@pytest.mark.parametrize("params", [CASES[0], CASES[-1]], ids=name)
def test_walks_are_the_same_in_a_compiled_scan(params):
    env = make(params, "jax")

    @jax.jit
    def walk(noise):
        def body(state, row):
            state = env.step(state, (env.forward_mask(state) * row).argmax(-1))
            return state, state

        return jax.lax.scan(body, env.reset((WALKS,)), noise)[1]

    visited = walk(noise(params)[0].astype(np.float32))
    expected = conformance.walk(make(params, "numpy"), *noise(params))[0][1:]
    np.testing.assert_array_equal(visited.x, np.stack([state.x for state in expected]))
    np.testing.assert_array_equal(visited.done, np.stack([state.done for state in expected]))


@pytest.mark.parametrize("params", CASES, ids=name)
def test_batch_axes_are_free(params):
    env, states = make(params, "numpy"), states_of(params)
    one = base_numpy.State(states.x[-1], states.done[-1])
    cube = base_numpy.State(states.x[-1][None, None], states.done[-1][None, None])
    zero = np.zeros((), np.int32)
    for method in (env.forward_mask, env.backward_mask, env.observe, env.log_reward):
        np.testing.assert_array_equal(method(cube)[0, 0], method(one))
    for method in (env.step, env.unstep, env.parent_of, env.action_of):
        for a, b in zip(
            jax.tree.leaves(method(cube, zero[None, None])), jax.tree.leaves(method(one, zero)), strict=True
        ):
            np.testing.assert_array_equal(a[0, 0], b)


class Flipped:
    """An environment with one bit of one mask wrong."""

    def __init__(self, env, mask, x, bit):
        self.env, self.mask, self.x, self.bit = env, mask, x, bit

    def __getattr__(self, attribute):
        if attribute != self.mask:
            return getattr(self.env, attribute)

        def flipped(state):
            mask = getattr(self.env, attribute)(state).copy()
            mask[..., self.bit] ^= (state.x == self.x).all(-1) & ~state.done
            return mask

        return flipped


@pytest.mark.parametrize("params", few(ENUMERABLE, *QUICK), ids=name)
@pytest.mark.parametrize("mask", ["forward_mask", "backward_mask"])
def test_a_flipped_mask_bit_is_noticed(params, mask):
    env, states = make(params, "numpy"), states_of(params)
    width = {"forward_mask": env.n_actions - (not env.terminating), "backward_mask": env.n_parents}[mask]
    rng = np.random.default_rng(1)
    for _ in range(10):
        broken = Flipped(env, mask, states.x[rng.integers(len(states.x))], rng.integers(width))
        try:
            assert conformance.failures(broken, conformance.facts(broken, states, np))
        except IndexError:
            pass  # the wrong bit led out of the environment's tables: noticed as well


class Skewed(Hypergrid):
    """A JAX twin that is wrong in one reward."""

    def log_r(self, x):
        return super().log_r(x) + 1e-9 * (x == 1).all()


def test_a_twin_that_differs_is_named():
    params = params_class("hypergrid")(n_dim=2, length=3)
    problems = conformance.check(make(params, "numpy"), Skewed(params))
    assert [p for p in problems if "differ in log_reward at (4,), x = [1, 1]" in p]


@pytest.mark.parametrize("params", CASES, ids=name)
def test_environments_are_values(params):
    for framework in ("numpy", "jax"):
        again = type(params)(**{k: getattr(params, k) for k in params.__dataclass_fields__})
        assert make(params, framework) == make(again, framework)
        assert hash(make(params, framework)) == hash(make(again, framework))


def test_twin_classes_have_the_same_methods_and_arguments():
    for entry_name in ALL:
        ours, theirs = twins(params_class(entry_name)())
        faces = [
            {n: list(inspect.signature(m).parameters) for n, m in inspect.getmembers(type(env), inspect.isfunction)}
            for env in (ours, theirs)
        ]
        assert faces[0] == faces[1]


def test_an_invalid_action_is_named_by_check_action():
    env, jax_env = twins(params_class("hypergrid")(n_dim=2, length=2))
    state = env.step(env.reset((2,)), np.array([0, 1]))
    with pytest.raises(UsageError, match=r"invalid action 0 in state \[1 0\].*Valid there: \[1, 2\]"):
        base_numpy.check_action(env, state, np.array([0, 0]))
    with pytest.raises(UsageError, match="invalid action 1"):
        base_jax.check_action(jax_env, base_jax.State(*map(jnp.asarray, state)), jnp.array([2, 1]))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: params_class("hypergird"), "Did you mean 'hypergrid'"),
        (lambda: make(params_class("grid")(), "torch"), "'numpy' or 'jax' expected"),
        (lambda: make(object(), "numpy"), "no environment is registered"),
        (lambda: params_class("hypergrid")(length=1), "length: expected an integer from 2 to 1,000,000, got 1"),
        (lambda: params_class("hypergrid")(r0=-0.1), "r0: expected a finite number above 0"),
        (lambda: params_class("hypergrid")(r1=float("nan")), "r1: expected a finite number"),
        (lambda: check_value("reward", "corner", REWARDS), "reward: expected one of corners | cosine"),
        (lambda: params_class("grid")(length=1), "length: expected an integer from 2"),
        (lambda: params_class("grid")(variance=0.0), "variance: expected a finite number from 1e-06"),
        (lambda: params_class("grid")(max_dim_per_action=3), "max_dim_per_action at most n_dim"),
        (lambda: make(params_class("hypergrid")(n_dim=16, length=8), "numpy").state(np.zeros(1, int)), "too many"),
    ],
)
def test_bad_input_is_refused_in_words(build, message):
    with pytest.raises(UsageError, match=message):
        build()


def test_params_and_numpy_twins_import_no_framework():
    code = (
        "import sys; from crossfade.envs.dag.registry import ALL, make, params_class\n"
        "for name in ALL:\n"
        "    env = make(params_class(name)(), 'numpy')\n"
        "    env.log_reward(env.reset())\n"
        "assert not {'torch', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
