"""How every bench ends: its record as a table or as JSON, and an exit code that tells of broken promises."""

import json
from collections.abc import Callable
from typing import Any


def end(record: dict[str, Any], show: Callable[[dict[str, Any]], None], *, quick: bool, as_json: bool) -> int:
    """1 when a promise is broken or could not be measured; a quick look promises nothing."""
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        show(record)
    return 0 if quick or all(promise["kept"] for promise in record["promises"]) else 1
