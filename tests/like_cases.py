"""Cases that the default run leaves out because another case of the same test is like them: `like_cases.txt`.

The list is made from the times of a run, and added to:

    make test ARGS="--junitxml=report.xml"
    .venv/bin/python tests/like_cases.py report.xml

A test keeps its quicker cases: all below LONG, and of the others a quarter, at least one. A case of
the contract is listed by hand, where the same property stays for another mode of its system.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

LONG = 0.25
"""Seconds from which on a case may be left out."""
LIST = Path(__file__).with_name("like_cases.txt")
BY_HAND = ("tests/systems/test_contract",)
"""Where the modules say themselves what is left out, so that every system and every mode keeps its proof."""


def left_out() -> set[str]:
    """The node ids of the list."""
    return set(LIST.read_text().splitlines())


def test_of(node: str) -> str:
    """The node id without its case."""
    return node.partition("[")[0]


def chosen(times: dict[str, float]) -> set[str]:
    """Which of these cases, with their seconds, are to be left out."""
    cases: dict[str, list[str]] = defaultdict(list)
    for node in times:
        cases[test_of(node)].append(node)
    found: set[str] = set()
    for test, nodes in cases.items():
        long = sorted((node for node in nodes if times[node] > LONG), key=times.__getitem__)
        kept = max(1, len(nodes) // 4) if len(long) == len(nodes) else 1
        found |= set() if test.startswith(BY_HAND) else set(long[kept:])
    return found


def faults(collected: Iterable[str], slow: Iterable[str]) -> list[str]:
    """What is wrong with the list, given all cases of the files in question and those that are slow by themselves."""
    collected, listed = set(collected), left_out()
    files = {node.partition("::")[0] for node in collected}
    kept = {test_of(node) for node in collected - listed - set(slow)}
    ours = sorted(node for node in listed if node.partition("::")[0] in files)
    gone = [f"{node}: there is no such case" for node in ours if node not in collected]
    return gone + [f"{node}: its test has no case left" for node in ours if test_of(node) not in kept]


def main(report: str) -> None:
    cases = ElementTree.parse(report).getroot().iter("testcase")
    named = ((case, f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}") for case in cases)
    times = {node: float(case.get("time", 0)) for case, node in named}
    LIST.write_text("".join(f"{node}\n" for node in sorted(left_out() | chosen(times))))


if __name__ == "__main__":
    main(sys.argv[1])
