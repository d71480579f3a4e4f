"""Is everything here that crossfade needs, do the user's own two models match, does their environment keep its word?"""

from .installation import environment, print_environment
from .models import examine
from .wording import conclusion, details, page
from .worlds import Examined, examine_worlds

__all__ = [
    "Examined",
    "conclusion",
    "details",
    "environment",
    "examine",
    "examine_worlds",
    "page",
    "print_environment",
]
