"""The scores of the mutation suite, printed after the tests."""

from collections import Counter


def pytest_terminal_summary(terminalreporter):
    done = [
        (outcome, dict(report.user_properties))
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call"
    ]
    counts = Counter((told["mutation suite"], outcome) for outcome, told in done if "mutation suite" in told)
    if counts:
        caught, missed = counts["mutants", "passed"], counts["mutants", "failed"]
        quiet, alarms = counts["false alarms", "passed"], counts["false alarms", "failed"]
        terminalreporter.write_line(
            f"mutants caught {caught}/{caught + missed} at the right level; false alarms {alarms}/{quiet + alarms}"
        )
    scores = [told["bisect"] for _, told in done if "bisect" in told]
    for family in (*dict.fromkeys(family for family, _, _ in scores), "all") if scores else ():
        own = [score for score in scores if family in (score[0], "all")]
        located, explained = (sum(score[i] for score in own) for i in (1, 2))
        told = [f"{n}/{len(own)} ({n / len(own):.0%})" for n in (located, explained)]
        terminalreporter.write_line(f"bisect, {family}: located {told[0]}, explained {told[1]}")
