"""One process of the bench of a user's own code: like bridge_worker.py, with a target `module:attribute`."""

import json
import os
import sys
from contextlib import redirect_stdout

from ..errors import CrossfadeError, UsageError
from ..loading import load_attribute
from .bridge_worker import measured


def main() -> None:
    request = json.loads(sys.argv[1])
    os.sched_setaffinity(0, request["cpus"])
    import torch

    torch.set_num_threads(len(request["cpus"]))
    from .own_contenders import contenders

    try:
        with redirect_stdout(sys.stderr):  # what the user's code prints is not the record
            own = contenders(load_attribute(request["target"]), request["target"])
            record = measured({own.name: own.makers()}, request)
    except CrossfadeError as error:
        record = {"failed": str(error), "usage": isinstance(error, UsageError)}
    print(json.dumps(record))


if __name__ == "__main__":
    main()
