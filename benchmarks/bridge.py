"""`python benchmarks/bridge.py [--quick] [--json]`: the same as `crossfade bench bridge`."""

import sys

from crossfade.bench.bridge import main

if __name__ == "__main__":
    sys.exit(main(quick="--quick" in sys.argv, as_json="--json" in sys.argv))
