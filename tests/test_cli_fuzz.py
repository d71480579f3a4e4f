"""Whatever a user types: an answer in words, an exit code, no traceback, no hang."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from cli_fuzz import MODULES, Fixtures, Lines, prepare
from crossfade import cli
from default_run import few

SECONDS = 30  # for one line, on a busy machine
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory) -> Iterator[Fixtures]:
    folder, before, path = tmp_path_factory.mktemp("fuzz"), os.getcwd(), list(sys.path)
    made = prepare(folder)
    os.chdir(folder)
    sys.path.insert(0, "")
    yield made
    os.chdir(before)
    sys.path[:] = path
    for name in MODULES:
        sys.modules.pop(name, None)


class Hung(BaseException):
    """A command line that does not end."""


@pytest.fixture
def answer(capsys, monkeypatch):
    """Runs a command line to its end; its exit code."""

    def unforeseen(error, words):
        raise AssertionError(f"unforeseen error in {words!r}") from error

    def alarm(number, frame):
        raise Hung

    monkeypatch.setattr(cli, "unforeseen", unforeseen)
    before = signal.signal(signal.SIGALRM, alarm)

    def run(words: list[str]) -> int:
        signal.alarm(SECONDS)
        try:
            code = cli.main(words)
        except SystemExit as stop:
            code = stop.code
        except Hung:
            raise AssertionError(f"still running after {SECONDS} s: {words!r}") from None
        finally:
            signal.alarm(0)
        said = capsys.readouterr()
        assert code in (0, 1, 2, 130), f"exit code {code!r} of {words!r}"
        assert "Traceback" not in said.err + said.out, words
        assert said.err.strip() or said.out.strip(), f"{words!r} failed without a word"
        return int(code)

    yield run
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("seed", few(range(4), 0))
def test_a_bad_command_line_is_answered_in_words(fixtures, answer, seed):
    lines = Lines(fixtures, seed)
    codes = Counter(answer(lines.line()) for _ in range(75))
    assert codes[1] and codes[2] > 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 14))
def test_bad_command_lines_by_the_thousand(fixtures, answer, seed):
    lines = Lines(fixtures, seed)
    for _ in range(400):
        answer(lines.line())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_trainings_with_odd_settings_end_in_words(fixtures, answer, seed, monkeypatch):
    monkeypatch.setattr("test_cli_fuzz.SECONDS", 120)
    lines = Lines(fixtures, seed)
    codes = Counter(answer(lines.deep()) for _ in range(60))
    assert codes[0] and codes[2]


def test_every_verb_is_tried(fixtures):
    lines = Lines(fixtures, 0)
    drawn = Counter(words[0] for words in (lines.line() for _ in range(1000)) if words)
    assert all(drawn[verb] > 20 for verb in lines.verbs)
