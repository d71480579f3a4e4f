"""`python -m crossfade` is `crossfade`."""

import sys

from .cli import main

sys.exit(main())
