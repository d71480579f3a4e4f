"""A term of an offline agent against its formula in NumPy: value, what it tells, and the gradient of every module.

A formula is `(p, c, b, config) -> (value, info)`: parameters `p` in their own places, `c` where they are constants. It
moves with `p` alone, so its slope along a direction is that of the gradient, detached modules included.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import numpy as np
from offline_cases_jax import Arrays, batch_of, directions, named, on_device, parameters_of, policy_of, specs_of

from crossfade.algos.offline.batch import Batch, Phase
from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.losses_jax import loss, terms
from crossfade.algos.offline.networks_jax import make_policy

Formula = Callable[[Arrays, Arrays, Batch, OfflineConfig], tuple[Any, dict[str, Any]]]
STEP = 1e-5
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Programs that run once."""


def judge(config: OfflineConfig, phase: Phase, name: str, formula: Formula, p: Arrays | None = None) -> None:
    p, b = p or parameters_of(config), batch_of(config, phase)
    agent, policy = import_module(config.agent.jax), make_policy(specs_of(config), p, "float64")

    def term(policy, batch):
        return getattr(agent, name)(policy, agent.prepare(policy, batch, config), config)

    measure = jax.jit(jax.value_and_grad(term, has_aux=True), compiler_options=QUICK)

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
    measure = jax.jit(lambda p, b: (terms(p, b, config), loss(p, b, config)), compiler_options=QUICK)
    for full in (True, False) if phase == "finetuning" else (True,):
        alone, (total, info) = measure(policy, on_device(batch_of(config, phase, full=full)))
        assert set(alone) == set(agent.terms[phase])
        idle = () if full or phase == "pretraining" else agent.when_full
        counted = {name: 0.0 if name in idle else float(value) for name, value in alone.items()}
        np.testing.assert_allclose(total, sum(counted.values()), rtol=1e-12)
        for name in alone:
            np.testing.assert_allclose(info[name], counted[name], rtol=1e-12)
        assert info["loss"] == total
        for key, told in info.items():
            if "/" in key and key.split("/")[0] in idle:
                assert told == 0, key
