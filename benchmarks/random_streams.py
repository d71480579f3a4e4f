"""Time of 2**20 uniforms from JAX's Threefry stream in torch, beside torch.rand, and of small draws.

python benchmarks/random_streams.py
"""

import statistics
import time
from collections.abc import Callable

import torch

import crossfade as cf

LARGE = 2**20


def measure(draw: Callable[[], object], repeats: int) -> tuple[float, float, float, float]:
    """Minimum, median and spread (90th less 10th percentile) of wall microseconds, and mean CPU microseconds."""
    for _ in range(3):
        draw()
    walls, cpu = [], time.process_time()
    for _ in range(repeats):
        start = time.perf_counter()
        draw()
        walls.append(1e6 * (time.perf_counter() - start))
    deciles = statistics.quantiles(walls, n=10)
    return min(walls), statistics.median(walls), deciles[-1] - deciles[0], 1e6 * (time.process_time() - cpu) / repeats


def main() -> None:
    key, numpy_key, numpy = cf.random.key(0), cf.random.numpy.key(0), cf.random.numpy
    large = {
        "torch.rand 1M": lambda: torch.rand(LARGE),
        "uniform 1M, torch": lambda: cf.random.uniform(key, (LARGE,)),
        "uniform 1M, numpy": lambda: numpy.uniform(numpy_key, (LARGE,)),
        "torch.randn 1M": lambda: torch.randn(LARGE),
        "normal 1M, torch": lambda: cf.random.normal(key, (LARGE,)),
    }
    small = {
        "uniform (32,), torch": lambda: cf.random.uniform(key, (32,)),
        "uniform (32,), numpy": lambda: numpy.uniform(numpy_key, (32,)),
        "normal (32,), torch": lambda: cf.random.normal(key, (32,)),
        "split 4, torch": lambda: cf.random.split(key, 4),
        "split 4, numpy": lambda: numpy.split(numpy_key, 4),
    }
    print(f"torch {torch.__version__}, microseconds per call, 3 warm-up calls")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        print(f"\n{f'{threads} thread(s)':<24}{'min':>10}{'median':>10}{'spread':>10}{'cpu':>10}")
        for name, draw in (large | small).items():
            figures = measure(draw, 30 if name in large else 1000)
            print(f"{name:<24}" + "".join(f"{figure:>10.1f}" for figure in figures))


if __name__ == "__main__":
    main()
