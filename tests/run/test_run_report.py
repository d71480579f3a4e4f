"""Reports and pictures: everything on one page, nothing from outside, whatever the metrics look like."""

import html.parser
import re
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from run_settings import Settings

from crossfade.errors import UsageError
from crossfade.run import Log, RunDir, Section, page, plots, report, report_runs, write_report
from crossfade.run.page import Cell


class Checker(html.parser.HTMLParser):
    """Follows the tags of a page and notes what would be fetched from elsewhere."""

    VOID = {"meta", "link", "img", "br", "hr", "input"}

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [
            v for k, v in attrs if k in ("src", "href", "xlink:href") and not str(v).startswith(("#", "data:"))
        ]

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def checked(path):
    checker, text = Checker(), path.read_text()
    checker.feed(text)
    assert checker.open == [] and checker.fetched == []
    assert not re.search(r"@import|url\((?!#)|<script", text)
    return " ".join(checker.words)


def make_run(root, mode, seed, steps=20, finish=True, result=None, settings=Settings):
    generator = np.random.default_rng(seed)
    with RunDir.create(root, "toy", ["tb", "grid", mode], seed, settings(mode=mode, seed=seed)) as run:
        with Log(run, quiet=True, tensorboard=False) as log:
            for step in range(1, steps + 1):
                extra = {"eval/tv": 1 / step} if step % 5 == 0 else {}
                log(step, {"loss": 5 / step + generator.normal() / 10, "time/sps": 100.0 + step, **extra})
            log(steps + 1, {"loss": np.nan})
        if finish:
            run.finish(steps, result)
    return run.path


def test_a_report_of_several_runs_is_one_self_contained_page(tmp_path):
    runs = [
        make_run(tmp_path, "torch", 0),
        make_run(tmp_path, "torch", 1),
        make_run(tmp_path, "jax_full", 0, finish=False),
    ]
    words = checked(report_runs(runs, tmp_path / "report.html", title="Grid <L=16>", baseline="tb-grid-torch"))
    for expected in (
        "Grid <L=16>",
        "tb-grid-jax_full",
        "not finished",
        "eval/tv over seconds",
        "mean of 2",
        "1x)",
        "numpy",
    ):
        assert expected in words
    assert str(tmp_path) not in words


@dataclass(frozen=True)
class Nested(Settings):
    """A config with settings below settings, and some that change nothing of what is learned."""

    env: dict[str, int] = field(default_factory=lambda: {"phase": 1})
    chunk: int = 10
    devices: int = 1


def test_runs_share_a_label_if_they_differ_in_seed_and_bookkeeping_alone(tmp_path):
    second = partial(Nested, env={"phase": 2})
    runs = [
        make_run(tmp_path, "torch", 0, settings=Nested),
        make_run(tmp_path, "torch", 0, settings=second),
        make_run(tmp_path, "torch", 1, settings=partial(Nested, chunk=5)),
        make_run(tmp_path, "jax_full", 0, settings=second),
    ]
    first, repeated, other, alone = (run.label for run in report.load_runs(runs))
    assert first == repeated == "tb-grid-torch env.phase=1" and other == "tb-grid-torch env.phase=2"
    assert alone == "tb-grid-jax_full", "nothing to be told apart from"
    words = checked(report_runs(runs, tmp_path / "report.html"))
    assert "env.phase=1 (mean of 2)" in words and "mean of 3" not in words
    apart = make_run(tmp_path, "jax_full", 1, settings=partial(second, devices=2))
    assert [run.label for run in report.load_runs([runs[3], apart])] == [f"{alone} devices={n}" for n in (1, 2)]


def test_metrics_beside_the_headline_are_folded_away(tmp_path):
    run = make_run(tmp_path, "torch", 0)
    path = report_runs([run], tmp_path / "report.html", headline=["eval/tv", "eval/unknown"])
    checked(path)
    shown, folded = re.sub(r"<details>.*?</details>", "", (text := path.read_text()), flags=re.DOTALL), text
    assert "eval/tv over steps" in shown and "loss over steps" not in shown and "loss over steps" in folded
    everything = report_runs([run], tmp_path / "all.html").read_text()
    assert "loss over steps" in re.sub(r"<details>.*?</details>", "", everything, flags=re.DOTALL)


def test_the_speed_of_a_run_is_that_of_its_result_and_never_counts_the_first_chunk(tmp_path):
    ended = make_run(tmp_path, "torch", 0, result={"time/its": 7.0, "time/its_low": 6.0, "time/its_high": 9.0})
    assert report.speed(report.load_run(ended)) == (7.0, 6.0, 9.0)
    under_way = make_run(tmp_path, "torch", 1, steps=4, finish=False)  # logged 101, 102, 103, 104
    assert report.speed(report.load_run(under_way)) == (103.0, 102.5, 103.5)
    words = checked(report_runs([ended], tmp_path / "report.html"))
    assert "updates per second" in words and "compile time left out" in words


def test_equal_runs_give_equal_pages(tmp_path):
    runs = [make_run(tmp_path, "torch", 0)]
    first = report_runs(runs, tmp_path / "a.html").read_text()
    assert report_runs(runs, tmp_path / "b.html").read_text() == first


def test_a_run_without_rows_can_be_reported(tmp_path):
    with RunDir.create(tmp_path, "toy", ["tb"], 0, Settings()) as run:
        pass
    assert "not finished" in checked(report_runs([run.path], tmp_path / "report.html"))


def test_no_runs_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="expected at least one run"):
        report_runs([], tmp_path / "report.html")


def test_sections_hold_tables_with_tones_text_and_pictures(tmp_path):
    picture = plots.bars({"torch": 10.0, "jax_full": 400.0}, xlabel="steps per second", baseline="torch")
    blocks = [
        page.table(["level", "verdict"], [["grad", Cell("EQUAL", "good")], ["<b>", Cell(1234567, "bad")]], "parity"),
        page.paragraph("a & b"),
        page.code("crossfade climb gflownet"),
        page.figure(plots.to_svg(picture), "speed"),
    ]
    path = write_report(tmp_path / "deep" / "page.html", "Ladder", [Section("Parity", blocks)], lead="five modes")
    words = checked(path)
    for expected in ("EQUAL", "<b>", "1,234,567", "a & b", "(40x)", "five modes"):
        assert expected in words
    with pytest.raises(UsageError, match="unknown baseline 'trch'. Did you mean 'torch'"):
        plots.bars({"torch": 1.0}, xlabel="", baseline="trch")
    assert 'class="num bad"' in path.read_text() and "currentColor" in path.read_text()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.123456, "0.1235"),
        (12345.6, "12,346"),
        (5, "5"),
        (True, "True"),
        (1e-9, "1e-09"),
        (np.nan, "nan"),
    ],
)
def test_values_are_shown_for_people(value, shown):
    assert page.show(value) == shown


def test_runs_of_one_label_are_drawn_as_mean_and_band(tmp_path):
    x = np.arange(5.0)
    lines = [plots.Curve("a", x, x), plots.Curve("a", x + 1, x), plots.Curve("b", x, x**2)]
    axes = plots.curves(lines, xlabel="steps", ylabel="loss", log=True).axes[0]
    mean, single = axes.get_lines()
    assert len(axes.collections) == 1
    np.testing.assert_allclose(mean.get_data(), ([1, 2, 3, 4], [0.5, 1.5, 2.5, 3.5]))
    np.testing.assert_allclose(single.get_ydata(), x**2)


def test_pictures_are_saved_as_png(tmp_path):
    path = plots.save_png(plots.curves([], xlabel="steps", ylabel="loss"), tmp_path / "plots" / "loss.png")
    assert path.read_bytes().startswith(b"\x89PNG")
