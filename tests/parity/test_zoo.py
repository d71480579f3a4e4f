"""Every architecture of the matching zoo is a clean port: no level that can be run raises an alarm."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

from bridge.zoo import CELLS, ZOO
from crossfade.bridge import match
from crossfade.bridge.libraries import open_model
from crossfade.parity import Twin, Verdict, check

# One or two architectures for each library; the other cells are slow. That they are matched is proved in tests/bridge.
QUICK = {
    ("tied", "linen"),
    ("residual", "linen"),
    ("gaussian", "haiku"),
    ("noisy", "nnx"),
    ("dueling", "nnx"),
    ("stacked_critics", "equinox"),
}
assert QUICK <= set(CELLS)
PINNED = {("tied", "nnx")}  # nnx.Embed multiplies in the precision it was made with, whatever its weights are
pytestmark = pytest.mark.filterwarnings("ignore:.*compared in float32:UserWarning")


def zoo_twin(name: str, library: str) -> Twin:
    case = ZOO[name]
    module, model, options = case.torch().eval(), case.jax(library), case.options(library)
    mapping = match(module, model, case.example(), **options)
    opened = open_model(model)
    apply: Callable[[Any, Any], Any] = options.get("jax_apply", opened.call)
    arguments = lambda x: x if isinstance(x, tuple) else (x,)

    def jax_forward(model, batch):
        y = apply(opened.inference(model), batch["jax"])
        return jnp.moveaxis(y, -1, 1) if case.image and library != "equinox" and y.ndim > 2 else y

    return Twin(
        f"{name} in {library}",
        torch=module,
        jax=model,
        mapping=mapping,
        batch={"torch": case.example(1), "jax": case.jax_example(library, 1)},
        forward=(lambda m, b: m(*arguments(b["torch"])), jax_forward),
    )


@pytest.mark.parametrize(
    ("name", "library"), [pytest.param(*cell, marks=() if cell in QUICK else pytest.mark.slow) for cell in CELLS]
)
def test_the_zoo_raises_no_alarm(name, library, record_property):
    record_property("mutation suite", "false alarms")
    dtype = "float32" if (name, library) in PINNED else "both"
    report = check(zoo_twin(name, library), "forward", dtype)
    assert report.verdict is not Verdict.DIFFERENT, report.text()
    assert all(row.guard for row in report.rows if row.verdict is not None)


@pytest.mark.parametrize(("name", "library"), sorted(PINNED))
def test_a_layer_pinned_to_float32_is_told(name, library):
    assert "float32 leak" in str(check(zoo_twin(name, library), "forward").first)
