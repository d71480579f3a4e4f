"""`kill -9` at any moment of a save leaves the last complete bundle, and it loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = 50


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> list[dict]:
    script = Path(__file__).with_name("saver.py")
    command = [sys.executable, str(script), str(tmp_path_factory.mktemp("killed")), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_last_complete_save_loads_after_every_kill(killed):
    assert len(killed) == KILLS
    for kill in killed:
        # A save that returned is never lost; the one in flight may have made it.
        assert kill["acknowledged"] <= kill["found"] <= kill["acknowledged"] + 1
        assert kill["seconds"] < 1


def test_the_kills_struck_in_the_middle_of_saves(killed):
    assert sum(any(name.startswith(".tmp-") for name in kill["leftovers"]) for kill in killed) > KILLS / 4
    assert max(kill["found"] for kill in killed) > 5


def test_numpy_users_need_neither_torch_nor_jax(killed):
    assert not any(kill["frameworks"] for kill in killed)
