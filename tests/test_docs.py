"""The code of the README and of the pages that show whole programs runs as it stands."""

from pathlib import Path

import pytest
from mktestdocs import grab_code_blocks

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/migrate_your_own.md", "docs/trading_gymnasium.md", "docs/treasurehunt_pettingzoo.md")
BLOCKS = {
    f"{page}:{i}": block
    for page in PAGES
    for i, block in enumerate(grab_code_blocks((ROOT / page).read_text(), lang="python"))
}


@pytest.mark.parametrize("name", BLOCKS)
def test_the_code_runs(name):
    exec(compile(BLOCKS[name], name, "exec"), {"__name__": "page"})


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_code(page):
    assert any(name.startswith(page) for name in BLOCKS)
