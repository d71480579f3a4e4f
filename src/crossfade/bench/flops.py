"""How much arithmetic an algorithm needs, and how much the machine could do: a speed in shares of the possible."""

import time
from collections.abc import Callable, Mapping

import jax
import numpy as np
import torch

SIZES = (512, 1024, 2048)


def per_node(shapes: Mapping[str, tuple[int, ...]], observation_dim: int) -> int:
    """Floating-point operations of the linear layers on one state: a forward pass and the gradient of all parameters.

    A weight takes part in a multiplication and an addition forward, as many for its own gradient, and as many for the
    gradient of its input, which the layers that read the observation do not need.
    """
    weights = [shape for name, shape in shapes.items() if name.endswith(".weight")]
    return sum(rows * columns * (4 if columns == observation_dim else 6) for rows, columns in weights)


def matrix_peak(seconds: float = 1.0) -> dict[str, float]:
    """Operations per second of float32 matrix products, the fastest seen, by framework, with the threads each has."""
    rates = {"torch": 0.0, "jax": 0.0}
    multiply = jax.jit(lambda a, b: a @ b)
    for size in SIZES:
        a, b = np.random.default_rng(0).normal(size=(2, size, size)).astype(np.float32)
        tensors, arrays = (torch.from_numpy(a), torch.from_numpy(b)), (jax.device_put(a), jax.device_put(b))
        runs: dict[str, Callable[[], object]] = {
            "torch": lambda pair=tensors: torch.mm(*pair),
            "jax": lambda pair=arrays: multiply(*pair).block_until_ready(),
        }
        for name, run in runs.items():
            rates[name] = max(rates[name], 2 * size**3 / _fastest(run, seconds / (2 * len(SIZES))))
    return rates


def _fastest(run: Callable[[], object], seconds: float) -> float:
    run()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)
