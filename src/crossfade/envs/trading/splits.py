"""Which sessions are learned from and which are held out, in order of time: what is judged always lies after.

Features are causal and an episode never leaves its session, so nothing of a held-out session is seen before it; the
embargo leaves out sessions in between, against what lasts from one day to the next.
"""

from typing import NamedTuple

from ...errors import UsageError


class Split(NamedTuple):
    """Sessions by number."""

    learn: range
    judge: range


def walk_forward(sessions: int, folds: int, embargo: int = 1) -> list[Split]:
    """Anchored: the data in folds + 1 blocks, each but the first judged by what was learned from all before it."""
    edges = [sessions * i // (folds + 1) for i in range(folds + 2)]
    if folds < 1 or sessions < folds + 1 or edges[1] - embargo < 1:
        raise UsageError(
            f"expected sessions enough for {folds + 1} blocks of more than {embargo} each (folds={folds}, "
            f"embargo={embargo}), got {sessions}. Take fewer folds or more data."
        )
    return [Split(range(edges[i] - embargo), range(edges[i], edges[i + 1])) for i in range(1, folds + 1)]


def last_part(sessions: int, embargo: int = 1, share: float = 0.2) -> Split:
    """The last sessions held out, the rest learned from."""
    judged = max(1, round(share * sessions))
    if sessions - judged - embargo < 1:
        raise UsageError(
            f"expected more than {judged + embargo} sessions to hold out {judged} with an embargo of {embargo}, got "
            f"{sessions}. Import more data, or set embargo=0."
        )
    return Split(range(sessions - judged - embargo), range(sessions - judged, sessions))
