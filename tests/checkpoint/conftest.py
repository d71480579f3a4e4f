"""A small training state with every part a bundle can hold, as NumPy arrays."""

import numpy as np
import pytest

from crossfade import checkpoint


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "body.0.weight": rng.normal(size=(4, 3)).astype(np.float32),
        "body.0.bias": rng.normal(size=4).astype(np.float32),
        "scale": np.array(2.5, np.float32),
    }


@pytest.fixture
def bundle(tmp_path, arrays):
    """One bundle of step 7 in an otherwise empty folder."""
    return checkpoint.save(
        tmp_path / "checkpoints",
        params=arrays,
        normalizer={"mean": np.arange(3.0), "count": 12},
        replay={"obs": np.arange(6, dtype=np.uint8).reshape(2, 3), "next": 1},
        key=np.array([0, 42], np.uint32),
        step=7,
        meta={"system": "grid"},
    )
