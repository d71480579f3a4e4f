"""The example of a JAX agent that goes on learning in torch does what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "jax_agent_in_torch.py"


@pytest.mark.slow
def test_the_agent_learns_in_both_and_is_the_same_in_both():
    done = subprocess.run([sys.executable, str(EXAMPLE), "60"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    rewards = [
        float(number) for line in re.findall("mean reward.*", done.stdout) for number in re.findall(r"-\d.\d+", line)
    ]
    first, learned, _, last = rewards
    assert learned > first + 0.5 and last > learned - 0.05, done.stdout
    assert "100.0% of the actions are equal" in done.stdout
    assert float(re.search(r"differ by (\S+)", done.stdout)[1]) < 1e-5  # pyright: ignore[reportOptionalSubscript]
    assert "1 of the loss, 1 of act" in done.stdout
