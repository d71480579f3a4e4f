"""Whether arrays fit the parameters that they are meant to fill."""

from collections.abc import Mapping

from ..errors import UsageError

Shapes = Mapping[str, tuple[int, ...]]


def check_shapes(expected: Shapes, got: Shapes) -> None:
    """UsageError that names every parameter which is missing, unknown or of another shape."""
    if dict(expected) == dict(got):
        return
    differing = sorted(name for name in {**expected, **got} if expected.get(name) != got.get(name))
    table = "; ".join(f"{name}: expected {expected.get(name)}, got {got.get(name)}" for name in differing)
    raise UsageError(
        f"the parameters do not fit the policy of this config. {table}. Use those of the system's `parameters()`, or "
        f"the config they were made with."
    )
