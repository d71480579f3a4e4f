"""The README's code runs as it stands."""

from pathlib import Path

import pytest
from mktestdocs import grab_code_blocks

ROOT = Path(__file__).parent.parent
BLOCKS = grab_code_blocks((ROOT / "README.md").read_text(), lang="python")


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_readme_runs(block):
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_the_readme_shows_code():
    assert BLOCKS
