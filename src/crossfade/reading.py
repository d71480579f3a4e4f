"""Text files that users name: read whole, or refused in words."""

import os

from .errors import UsageError

MOST = 2**28  # characters would take as many bytes at least; larger ones are no text of settings or data


def read_text(path: str | os.PathLike[str], expected: str) -> str:
    """The text of a file; UsageError with what was `expected` there if it cannot be read, or is none."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST + 1)
        if len(data) > MOST:
            raise ValueError(f"more than {MOST} bytes")
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError as error:
        raise UsageError(f"expected {expected} at {str(path)!r}, found none.") from error
    except OSError as error:
        raise UsageError(f"expected {expected} at {str(path)!r}, got: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"expected {expected} at {str(path)!r}, got bytes that are no UTF-8 text. Save it as UTF-8."
        ) from error
    except ValueError as error:
        raise UsageError(f"expected {expected} at {str(path)!r}, got {error}.") from error
