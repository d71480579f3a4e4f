"""`crossfade data` as a user meets it."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from trading_files import databento, firstrate, some_bars, write, yfinance

from crossfade.cli import main
from crossfade.envs.trading import importers, synthetic
from crossfade.envs.trading.importers import formats, store
from crossfade.errors import DataError

BARS = some_bars(days=8)


def test_import_stores_bars_and_prints_its_report(tmp_path: Path, capsys):
    path = write(tmp_path / "es.csv", databento(BARS))
    assert main(["data", "import", str(path), "--contract", "ES", "--to", str(tmp_path / "bars"), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "4080 minute bars, 8 sessions" in out and "source      databento" in out and "ES.safetensors" in out
    np.testing.assert_array_equal(store.read(tmp_path / "bars", ["ES"])["ES"].close, BARS.close)


def test_the_help_names_every_source(capsys):
    with pytest.raises(SystemExit):
        main(["data", "import", "--help"])
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(f" {source}" in told for source in formats.FORMATS)


def test_a_run_learns_from_imported_bars_and_is_judged_by_the_last_of_them(tmp_path: Path, capsys):
    """Mornings of an hour, so that they are soon over."""
    folder, both = str(tmp_path / "bars"), synthetic.bars(("ES", "NQ"), 8)
    for name, bars in both.items():
        path = write(tmp_path / f"{name}.txt", firstrate(bars.where(bars.minute < 10 * 60 + 30)))
        assert main(["data", "import", str(path), "--contract", name, "--to", folder, "--quiet"]) == 0
    small = ["n_envs=4", "n_steps=8", "hidden=8", "epochs=1", "minibatches=1", "env.window=3", "steps=1", "mode=torch"]
    words = [*small, f"data={folder}", "markets=ES,NQ", "--runs-dir", str(tmp_path), "--quiet"]
    capsys.readouterr()
    assert main(["train", "trading", *words]) == 0
    assert "eval/daily" in capsys.readouterr().out


def test_check_writes_nothing_and_speaks_json(tmp_path: Path, capsys, monkeypatch):
    """A file whose name looks like a setting is a file all the same."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "ES=F.csv", yfinance(BARS))
    assert main(["data", "check", "ES=F.csv", "--contract", "ES", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["source"], report["sessions"], report["busiest"]) == ("yfinance", 8, "09:30")
    assert [path.name for path in tmp_path.iterdir()] == ["ES=F.csv"]


@pytest.mark.parametrize(
    "words, code, words_of_the_error",
    [
        (["--contract", "ES"], 1, "row 51: open nan"),
        (["--contract", "ESS"], 2, "Did you mean 'ES'?"),
        (["--contract", "ES", "--source", "firstrat"], 2, "Did you mean 'firstrate'?"),
        (["--contract", "ES", "--zone", "Mars"], 2, "unknown zone 'Mars'"),
    ],
)
def test_what_is_wrong_is_told_without_a_traceback(words, code, words_of_the_error, tmp_path: Path, capsys):
    rows = firstrate(BARS)
    cells = rows[50].split(",")
    rows[50] = ",".join([cells[0], "nan", *cells[2:]])
    path = write(tmp_path / "es.txt", rows)
    assert main(["data", "check", str(path), *words, "--quiet"]) == code
    assert words_of_the_error in capsys.readouterr().err


def test_facts_fail_where_the_synthetic_market_leaves_its_bands(tmp_path: Path, capsys):
    assert main(["data", "facts", "--market", "martingale", "--days", "10", "--quiet"]) == 1
    assert "FAIL  kurtosis 1m" in capsys.readouterr().out
    path = write(tmp_path / "es.csv", databento(BARS))
    assert main(["data", "import", str(path), "--contract", "ES", "--to", str(tmp_path), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["data", "facts", str(tmp_path), "--json"]) == 0
    assert {fact["name"] for fact in json.loads(capsys.readouterr().out)["ES"]} >= {"kurtosis 1m", "leverage"}
    assert main(["data", "facts", "--market", "planetd"]) == 2
    assert "Did you mean 'planted'?" in capsys.readouterr().err


@pytest.fixture
def packages(tmp_path: Path, monkeypatch) -> Path:
    """A place where packages are found, with a package that must not be imported."""
    for name in ("mlfinpy", "arch", "gym_anytrading"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_ticks_of_a_sample_become_minutes(packages: Path, tmp_path: Path, capsys):
    """Two trades a second for two hours from 08:30 in Chicago; the high of each minute is before its low."""
    rows = ["DateTime,Price,Volume"]
    for s in range(2 * 60 * 120):
        price = 1640 + (1 if s % 120 == 10 else -1 if s % 120 == 90 else 0)
        rows.append(
            f"2013-09-03 {8 + (s // 2 + 1800) // 3600:02d}:{(s // 120 + 30) % 60:02d}:{s // 2 % 60:02d}.500,{price},1"
        )
    (packages / "mlfinpy/dataset/data").mkdir(parents=True)
    write(packages / "mlfinpy/dataset/data/tick_data.csv", rows)
    assert main(["data", "sample", "mlfinpy", "--to", str(tmp_path / "to"), "--quiet"]) == 0
    bars = store.read(tmp_path / "to", ["ES"])["ES"]
    np.testing.assert_array_equal(bars.minute, 9 * 60 + 30 + np.arange(120))
    assert set(bars.high) == {1641 * 4} and set(bars.low) == {1639 * 4} and set(bars.volume) == {120}
    assert bars.high_first.all()
    assert "mlfinpy" not in sys.modules


def test_daily_samples_are_written_as_plain_tables(packages: Path, tmp_path: Path):
    for name in ("sp500", "nasdaq"):
        (packages / "arch/data" / name).mkdir(parents=True)
        with gzip.open(packages / f"arch/data/{name}/{name}.csv.gz", "wt") as file:
            file.write("Date,Open,High,Low,Close,Adj Close,Volume\n1/4/1999,1,4,0.5,2,7,9\n")
    assert main(["data", "sample", "arch", "--to", str(tmp_path / "to"), "--quiet"]) == 0
    expected = "datetime,open,high,low,close,volume\n1999-01-04 00:00:00,1,4,0.5,2,9\n"
    assert (tmp_path / "to/sp500.csv").read_text() == (tmp_path / "to/nasdaq.csv").read_text() == expected


def test_a_sample_that_is_not_there_is_told_with_the_way_to_get_it(packages: Path, capsys, monkeypatch):
    assert main(["data", "sample", "anytrading"]) == 1
    assert "expected the sample here" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["data", "sample", "anytrading"]) == 2
    assert "pip install gym-anytrading" in capsys.readouterr().err
    assert main(["data", "sample", "mlfin"]) == 2
    assert "Did you mean 'mlfinpy'?" in capsys.readouterr().err


def test_an_import_never_overwrites_other_bars_without_a_word(tmp_path: Path, capsys):
    folder = tmp_path / "bars"
    first, second = write(tmp_path / "a.txt", firstrate(BARS)), write(tmp_path / "b.txt", firstrate(some_bars(days=5)))
    words = ["--contract", "ES", "--to", str(folder), "--quiet"]
    assert main(["data", "import", str(first), *words]) == 0
    kept = (folder / "ES.safetensors").read_bytes()
    assert main(["data", "import", str(first), *words]) == 0  # the same bars again
    capsys.readouterr()
    assert main(["data", "import", str(second), *words]) == 2
    told = capsys.readouterr().err
    assert "there are 4080 from" in told and "--replace" in told
    assert (folder / "ES.safetensors").read_bytes() == kept
    assert main(["data", "import", str(second), *words, "--replace"]) == 0
    assert len(store.read(folder, ["ES"])["ES"].stamp) == 5 * 510


def test_bars_that_were_changed_on_disk_are_refused(tmp_path: Path):
    imported = importers.read(write(tmp_path / "a.txt", firstrate(BARS)), "ES")
    path = store.save(tmp_path / "bars", "ES", imported)
    other = imported.bars._replace(volume=imported.bars.volume + 1)
    metadata = {"sha256": store.digest(imported.bars)}
    path.write_bytes(safetensors.numpy.save({k: np.ascontiguousarray(v) for k, v in other._asdict().items()}, metadata))
    with pytest.raises(DataError, match="expected bars with the hash"):
        store.read(tmp_path / "bars", ["ES"])
