"""Whether a run fits into memory, asked before anything is allocated: a machine that swaps can hardly be stopped."""

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import UsageError

CGROUP = Path("/sys/fs/cgroup/memory.max")  # the limit of a container


def total() -> int | None:
    """Bytes of memory that this process can have at most; None where that cannot be told."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    limit = CGROUP.read_text().strip() if CGROUP.is_file() else ""
    return min(machine, int(limit)) if limit.isdigit() else machine


def check_fits(needs: Mapping[str, int], copies: int = 1) -> None:
    """Refuses what needs more memory than there is; `needs` holds bytes by what they are for."""
    room, needed = total(), sum(needs.values()) * copies
    if room is not None and needed > room:
        largest = sorted(needs.items(), key=lambda need: -need[1])
        of = f" in each of {copies}" if copies > 1 else ""
        parts = ", ".join(f"{_show(size)} {what}" for what, size in largest if size * copies > room / 100)
        raise UsageError(
            f"expected a run that fits into {_show(room)} of memory, got one that needs {_show(needed)} at least: "
            f"{parts}{of}. Make that smaller."
        )


def network_bytes(inputs: int, hidden: int, layers: int, outputs: int, dtype: str) -> int:
    """Bytes of a network under training: weights, gradient and Adam's two moments."""
    widths = [inputs, *[hidden] * min(layers, 1), outputs]
    weights = sum(a * b for a, b in zip(widths, widths[1:], strict=False)) + max(layers - 1, 0) * hidden**2
    return 4 * weights * (8 if dtype == "float64" else 4)


def _show(size: int) -> str:
    if size >= 10**18:
        return "more than 1,000,000 TB"
    return f"{size / 1e9:,.1f} GB" if size < 10**13 else f"{size / 1e12:,.0f} TB"
