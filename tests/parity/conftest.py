"""The score of the mutation suite, printed after the tests."""


def pytest_terminal_summary(terminalreporter):
    counts = {(kind, outcome): 0 for kind in ("mutants", "false alarms") for outcome in ("passed", "failed")}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            kind = dict(report.user_properties).get("mutation suite")
            if kind is not None and report.when == "call":
                counts[kind, outcome] += 1
    if any(counts.values()):
        caught, missed = counts["mutants", "passed"], counts["mutants", "failed"]
        quiet, alarms = counts["false alarms", "passed"], counts["false alarms", "failed"]
        terminalreporter.write_line(
            f"mutants caught {caught}/{caught + missed} at the right level; false alarms {alarms}/{quiet + alarms}"
        )
