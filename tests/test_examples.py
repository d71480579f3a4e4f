"""The examples of acceleration: the accelerated run takes the actions of the plain one."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def double(x64):
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


CASES = [("accelerate_ppo", 1024, {}), ("accelerate_sac", 60, {"WARM_UP": 40, "BATCH": 16})]
LONG = [("accelerate_ppo", 4096, {}), ("accelerate_sac", 1500, {})]


@pytest.mark.parametrize(
    ("name", "steps", "settings"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in LONG)]
)
def test_the_accelerated_run_takes_the_same_actions(name, steps, settings, double, monkeypatch):
    """At least 1000 actions when long: each of them comes from parameters that were learnt in the other framework."""
    example = load(name)
    for setting, value in settings.items():
        monkeypatch.setattr(example, setting, value)
    plain, fast = (example.train(steps, 0, accelerate) for accelerate in (False, True))
    assert plain.actions.size == steps and len(plain.returns) == len(fast.returns)
    np.testing.assert_allclose(fast.actions, plain.actions, rtol=0, atol=1e-6)
    np.testing.assert_allclose(fast.returns, plain.returns, rtol=1e-6)


@pytest.mark.parametrize("name", ["accelerate_ppo", "accelerate_sac"])
def test_the_accelerated_version_is_five_lines_more_at_most(name):
    source = (EXAMPLES / f"{name}.py").read_text()
    block = re.search(r"\n    if accelerate:\n((?:        .*\n|\n)+)", source)
    assert block is not None and len([line for line in block[0].splitlines() if line.strip()]) <= 5
    assert source.count("accelerate(") == block[0].count("accelerate(")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "steps"), [("accelerate_ppo", 8192), ("accelerate_sac", 1200)])
def test_three_seeds_reach_the_same_returns(name, steps, double, capsys):
    load(name).compare(steps, 3)
    lines = capsys.readouterr().out.splitlines()
    pairs = [re.findall(r"return (-?[\d.]+) in .* accelerated (-?[\d.]+) in", line)[0] for line in lines]
    assert len(pairs) == 3 and len(set(pairs)) == 3
    for plain, fast in pairs:
        assert abs(float(plain) - float(fast)) <= 0.01 * abs(float(plain))
