"""Checks on the fields of files that params name."""


def is_number(text: str) -> bool:
    """Whether a field of a file reads as a number (nan and inf do)."""
    try:
        float(text)
    except ValueError:
        return False
    return True
