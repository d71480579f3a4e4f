"""For all systems."""

import pytest

# The toys whose tests are slow where a system of the project or the first toy proves the same in the default run.
LIKE_OTHERS = ("toy_actor_critic:RECORD", "toy_point:RECORD", "toy_style:RECORD")
DEAR_MODES = {"jax_minimal", "jax_policy"}
DEAR = {("test_a_report_shows_the_run", "trading")}  # the default run has it in tests/algos/test_trading_walk.py
DEAR |= {("test_a_report_shows_the_run", system) for system in ("treasurehunt", "offline", "robot")}
DEAR |= {
    (test, system)
    for test in (
        "test_a_killed_run_resumes_bit_for_bit",
        "test_a_killed_run_resumes_in_another_mode",
        "test_an_evaluation_is_printed_and_written_as_json",
    )
    for system in ("trading", "treasurehunt", "robot")
}
DEAR |= {("test_a_killed_run_resumes_bit_for_bit", "offline")}
DEAR |= {("test_numbers_that_are_not_finite_are_told_and_not_kept", toy) for toy in LIKE_OTHERS}
COMPILED = {("test_numbers_that_are_not_finite_are_told_and_not_kept", "jax_full")}
QUICKLY_COMPILED = ("gflownet", "toy:RECORD")
"""The systems whose cases of `COMPILED` are in the default run; the others have those of another mode there."""


def pytest_collection_modifyitems(items):
    """Marks what the default run of the contract leaves out; its modules have one fixture for all systems."""
    for item in items:
        if item.path.name not in ("test_contract.py", "test_contract_runs.py") or not hasattr(item, "callspec"):
            continue
        given, runs = item.callspec.params, {"finished", "killed"} & set(item.fixturenames)
        modes = {given.get(name) for name in ("mode", "first", "second")}
        like_others = given.get("system") in LIKE_OTHERS and (runs or modes & DEAR_MODES)
        compiled = (item.originalname, given.get("mode")) in COMPILED and given.get("system") not in QUICKLY_COMPILED
        if like_others or compiled or (item.originalname, given.get("system")) in DEAR:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """torch_pure as plain torch: torch.compile cannot trace the type checks of the test run."""
    monkeypatch.setattr("crossfade.trainers.torch_pure.find_compiler", lambda: ("", "this is a test"))
