"""One process of the bench of a user's own code: like bridge_worker.py, with a target `module:attribute`."""

import json
import os
import sys

from ..loading import load_attribute
from .bridge_worker import print_record


def main() -> None:
    request = json.loads(sys.argv[1])
    os.sched_setaffinity(0, request["cpus"])
    import torch

    torch.set_num_threads(len(request["cpus"]))
    from .own_contenders import contenders

    own = contenders(load_attribute(request["target"]), request["target"])
    print_record({own.name: own.makers()}, request)


if __name__ == "__main__":
    main()
