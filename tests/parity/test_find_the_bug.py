"""examples/find_the_bug.py finds its three bugs in order, each at its level, with both lines and the cause."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "find_the_bug.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("find_the_bug", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_three_bugs_are_found_one_after_another(example, tmp_path, capsys):
    found = example.find_and_mend(example.Port(), tmp_path)
    assert [divergence.level for divergence in found] == ["forward", "loss", "grad"]
    assert [divergence.kind for divergence in found] == ["eps", "ddof", "detach"]
    lines = [divergence.torch.source for divergence in found]
    assert "self.norm(self.fc(obs))" in lines[0] and "advantage.std()" in lines[1] and "target = " in lines[2]
    assert "jnp.tanh(self.norm" in found[0].jax.source and "std(ddof=" in found[1].jax.source
    out = capsys.readouterr().out
    assert "torch 1e-05, JAX 1e-06" in out and out.rstrip().endswith("3 bugs mended: ROUNDING")
    assert len(list((tmp_path / "find_the_bug").glob("*.html"))) == 4
