"""`crossfade bench trading`: steps per second of the environments alone and of whole PPO, and what the promises say.

Every contender is a process of its own (bench_worker.py), once with all of the machine's cores and, where that may
be faster, once with a single one; jax_full also with its accounts shared among the cores (devices=). Those of a setting
take turns. A promise is about the fastest way of a contender, and is held against the fastest way of the other.
Environments hand all 225 numbers of every observation to a linear policy. In whole PPO the modes on the host draw from
NumPy's own generator, and torch steps its accounts in two ways: in a process each, by Gymnasium, as SubprocVecEnv does,
and one after another in its own process, which is faster where a step is this short.
*of peak*: the arithmetic that the networks need per second (one pass forward to act, one forward and backward in each
epoch), as a share of the fastest float32 matrix products that torch or JAX make on this machine.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from ...bench import contest
from ...bench.contest import CORES, SHARED, Promise, both, show
from ...bench.harness import chosen, end
from .bench_worker import missing

JAX, NUMPY, PLAIN, PANDAS = "JAX", "vectorised NumPy", "plain Python, one account", "pandas row by row, one account"
TORCH, PURE, FULL = "torch", "torch_pure", "jax_full"
TODAY = "torch, one process per account"
ONES = {PLAIN: {"kind": "one", "world": "plain", "cores": 1}, PANDAS: {"kind": "one", "world": "pandas", "cores": 1}}
SEED_NET = "network=seed"


class Size(NamedTuple):
    """What is promised of the environment at a number of accounts."""

    steps: float  # per second, at least
    gigabytes: float  # at most


SIZES = {100: Size(0.8e6, 1.0), 1000: Size(1.5e6, 2.0), 5000: Size(1.5e6, 4.0), 10_000: Size(1.5e6, 6.0)}
WITH_ONES = 1000  # the size at which one account at a time is measured too


def worlds(n: int) -> str:
    return f"environment, {n} accounts"


SMALL, PUBLISHED, LARGE = "PPO, 64x2, 256 x 128 steps", "PPO, published network, 256 x 128 steps", "PPO, 10,000 x 128"


def _worlds(n: int) -> dict[str, dict[str, Any]]:
    return both(JAX, {"kind": "jax", "n": n}) | {NUMPY: {"kind": "numpy", "n": n, "cores": 1}}


def _ppo(mode: str, *words: str) -> dict[str, Any]:
    return {"kind": "ppo", "words": [f"mode={mode}", *words]}


def _full(*words: str) -> dict[str, dict[str, Any]]:
    """jax_full with all cores, with one, and, where they can be halved, with its accounts shared among them.

    Several updates in a compiled call, as in a run, which makes 100.
    """
    request = {**_ppo("jax_full", *words), "updates": 5}
    shared = {**request, "words": [*request["words"], f"devices={CORES}"], "cores": CORES}
    return both(FULL, request) | ({FULL + SHARED: shared} if CORES in (2, 4, 8, 16) else {})


SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    **{worlds(n): _worlds(n) | (ONES if n == WITH_ONES else {}) for n in SIZES},
    SMALL: {
        TODAY: {**_ppo("torch"), "processes": True, "cores": CORES},
        **both(TORCH, _ppo("torch")),
        **both(PURE, _ppo("torch_pure")),
        "jax_minimal": {**_ppo("jax_minimal"), "cores": CORES},
        "jax_policy": {**_ppo("jax_policy"), "cores": CORES},
        **_full(),
    },
    PUBLISHED: {
        **both(PURE, _ppo("torch_pure", SEED_NET)),
        **_full(SEED_NET),
    },
    LARGE: {FULL: {**_ppo("jax_full", "n_envs=10000"), "cores": CORES}},
}


PROMISES = (
    *(Promise(worlds(n), JAX, "steps", size.steps) for n, size in SIZES.items()),
    *(Promise(worlds(n), JAX, "gigabytes", size.gigabytes) for n, size in SIZES.items()),
    Promise(worlds(WITH_ONES), JAX, "ratio", 1000.0, PANDAS),
    Promise(SMALL, FULL, "ratio", 10.0, TODAY),
    Promise(SMALL, FULL, "ratio", 10.0, TORCH),
    Promise(SMALL, FULL, "ratio", 1.5, PURE),
    Promise(LARGE, FULL, "gigabytes", 2.0),
)
WORKER = "crossfade.systems.trading.bench_worker"


def main(*, quick: bool = False, as_json: bool = False, quiet: bool = False, only: str = "") -> int:
    """Runs the bench and prints it; 1 when a promise is broken or cannot be measured, for a quick look always 0."""
    record = run(quick=quick, progress=not (quiet or as_json), only=only)
    return end(record, show, quick=quick, as_json=as_json)


def run(quick: bool = False, progress: bool = False, only: str = "") -> dict[str, Any]:
    """The whole record: circumstances, every setting's figures, and the promises."""
    rounds, seconds = (3, 0.3) if quick else (7, 2.0)
    why = "; ".join(missing())
    return contest.run(
        WORKER,
        chosen(SETTINGS, only),
        PROMISES,
        rounds,
        seconds,
        flops=lambda request: flops_per_step(request["words"]) if request["kind"] == "ppo" else None,
        missing={PANDAS: why} if why else {},
        progress=progress,
    )


def flops_per_step(words: Iterable[str]) -> int:
    """What the networks need for a step of the environment, whoever computes it."""
    from ...bench.flops import per_node
    from ...config import apply
    from .config import TradingConfig

    config = apply(TradingConfig(), tuple(words))
    observation_dim = config.params.observation_dim
    shapes = config.architecture.shapes(observation_dim, config.params.n_actions)
    forward = sum(2 * shape[0] * shape[1] for name, shape in shapes.items() if len(shape) == 2)
    return forward + config.epochs * per_node(
        {name: shape for name, shape in shapes.items() if len(shape) == 2}, observation_dim
    )


def promises(settings: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each promise: what was found, and whether it suffices."""
    return contest.judge(PROMISES, settings)
