"""A term of an offline agent against its formula in NumPy: value, what it tells, and the gradient of every module.

A formula is `(p, c, b, config) -> (value, info)`: parameters `p` in their own places, `c` where they are constants. It
moves with `p` alone, so its slope along a direction is that of the gradient, detached modules included.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import numpy as np
from offline_cases_jax import Arrays, batch_of, directions, named, on_device, parameters_of, policy_of

from crossfade.algos.offline.batch import Batch, Phase
from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.losses_jax import loss, terms

Formula = Callable[[Arrays, Arrays, Batch, OfflineConfig], tuple[Any, dict[str, Any]]]
STEP = 1e-5


def judge(config: OfflineConfig, phase: Phase, name: str, formula: Formula) -> None:
    p, b, policy = parameters_of(config), batch_of(config, phase), policy_of(config)
    agent = import_module(config.agent.jax)

    @eqx.filter_jit
    def measure(policy, batch):
        def term(policy):
            value, told = getattr(agent, name)(policy, agent.prepare(policy, batch, config), config)
            return value, told

        return jax.value_and_grad(term, has_aux=True)(policy)

    (found, told), gradient = measure(policy, on_device(b))
    expected, info = formula(p, p, b, config)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert set(told) == set(info)
    for key in info:
        np.testing.assert_allclose(told[key], info[key], rtol=1e-12, err_msg=key)
    slopes(config, phase, name, lambda moved: formula(moved, p, b, config)[0], p, named(gradient))


def slopes(config: OfflineConfig, phase: Phase, name: str, value: Callable[[Arrays], Any], p: Arrays, gradient: Arrays):
    """The derivative along a random direction in each module, and which modules have one at all."""
    d = directions(tuple(p), tuple(a.shape for a in p.values()))
    reached = set()
    for module in sorted({key.split(".")[0] for key in p}):
        own = [key for key in p if key.split(".")[0] == module]
        moved = lambda step, own=own: p | {key: p[key] + step * d[key] for key in own}
        slope = sum((gradient[key] * d[key]).sum() for key in own)
        at = [value(moved(k * STEP)) for k in (-2, -1, 1, 2)]
        expected = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * STEP)
        if module.startswith("target_"):
            assert slope == 0, module
            continue
        np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-8, err_msg=module)
        reached |= {module} if any(gradient[key].any() for key in own) else set()
    assert reached == set(config.agent.reached(config.spec, config.encoding is not None)[phase][name])


def judge_sum(config: OfflineConfig, phase: Phase) -> None:
    """The loss is the sum of its terms; without a full update, of those that it then has."""
    policy, agent = policy_of(config), config.agent
    alone = eqx.filter_jit(lambda p, b: terms(p, b, config))(policy, on_device(batch_of(config, phase)))
    assert list(alone) == list(agent.terms[phase]) or set(alone) == set(agent.terms[phase])
    measure = eqx.filter_jit(lambda p, b: loss(p, b, config))
    for full in (True, False):
        total, info = measure(policy, on_device(batch_of(config, phase, full=full)))
        idle = () if full or phase == "pretraining" else agent.when_full
        counted = {name: 0.0 if name in idle else float(value) for name, value in alone.items()}
        np.testing.assert_allclose(total, sum(counted.values()), rtol=1e-12)
        assert {name: float(info[name]) for name in alone} == counted or all(
            np.isclose(info[name], counted[name], rtol=1e-12, atol=0) for name in alone
        )
        assert info["loss"] == total
        for key, told in info.items():
            if "/" in key and key.split("/")[0] in idle:
                assert told == 0, key
