"""Proof that two halves of a port are the same system, level by level, in float64 and in float32."""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from ..verdict import Verdict as Verdict
    from .bisecting import Divergence as Divergence, bisect as bisect
    from .checking import check as check
    from .report import Report as Report
    from .twin import Twin as Twin

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "Divergence": "bisecting",
        "Report": "report",
        "Twin": "twin",
        "Verdict": "report",
        "bisect": "bisecting",
        "check": "checking",
    },
)
