"""`crossfade bench treasurehunt`: the world alone, greedy acting, whole epochs, gradient steps; what the promises say.

Every contender is a process of its own (bench_worker.py), with all of the machine's cores and, where that may be
faster, once with a single one; jax_full also with every batch shared among the cores (devices=). Those of a setting
take turns. A promise is about the fastest way of a contender, and is held against the fastest way of the other.

World alone: an episode of 50 turns with its beginning, random actions drawn ahead, agents one after the other; all
numbers of every observation go into a sum. A turn is one of all five agents on one map. *Objects as published* show the
whole map for every observation, as the published system did when it was measured; later it shows the window only, as
*lean objects* do. Greedy acting: one map, epsilon 0, no learning; its numbers are drawn ahead. Whole epochs: epsilon
stays 0.5, replay is full from the start (of random actions), and the modes on the host draw from torch's and NumPy's
own generators. Torch is the published loop: it steps the objects as published and, like all contenders here, keeps the
published faults (legacy=true), of which one costs time: its target networks gather gradients that nobody uses, some
quarter of the step. torch_pure and the JAX modes compute none, and step NumPy or JAX arrays.

*of peak*: the arithmetic that the networks need per second, as a share of the fastest float32 matrix products that
torch or JAX make on this machine. With H hidden units, I inputs, C cosines, A actions and N fractions, a forward pass
on B states multiplies and adds, two operations,

    F = B I H + B N (C H + H^2 + H A + H)

times. A gradient step has three forward passes and one backward: a weight takes part once more for its own gradient,
and once more for that of its input, which the layers that read the data (I H and C H) do not need,

    2 (3 F + F + B N (H^2 + H A + H)).

An epoch is one such step of every agent, and a forward pass, B = 1, for every action that is not random.
"""

import math
from typing import Any

from ...bench import contest
from ...bench.contest import CORES, SHARED, Promise, both, show
from ...bench.harness import chosen, end

PUBLISHED, LEAN = "objects as published, 1 map", "lean objects, 1 map"
ONE, MANY, MOST = "JAX, 1 map", "JAX, 64 maps", "JAX, 1024 maps"
TORCH, VECTORISED, PURE, MINIMAL, POLICY, FULL = (
    "torch",
    "torch, vectorised world",
    "torch_pure",
    "jax_minimal",
    "jax_policy",
    "jax_full",
)
WORLD = "world alone"
GREEDY, GREEDY_256 = (f"greedy acting, {n} fractions" for n in (12, 256))
FAITHFUL = "whole epoch, faithful: batch 256, 256 acting fractions, epsilon 0.5"
SMALL = "whole epoch, 12 acting fractions, batch 64, epsilon 0.5"
AXIS, AXIS_256 = (f"gradient step of five models, batch {n}, by agent_axis" for n in (64, 256))
UNITS = {WORLD: "turns", GREEDY: "turns", GREEDY_256: "turns", FAITHFUL: "epochs", SMALL: "epochs"}
DEVICES = math.gcd(CORES, 64)  # each takes its part of a batch
Contenders = dict[str, dict[str, Any]]


def _greedy(fractions: int) -> Contenders:
    ways = {TORCH: "torch", VECTORISED: "vectorised", POLICY: "policy", FULL: "compiled"}
    found: Contenders = {}
    for name, way in ways.items():
        found |= both(name, {"kind": "greedy", "way": way, "fractions": fractions})
    return found


def _epochs(*words: str) -> Contenders:
    """All modes; jax_full makes as many epochs in a compiled call as in a run."""
    request = lambda mode, *own: {"kind": "epochs", "words": [f"mode={mode}", *FIXED, *words, *own]}
    several = lambda *own: {**request(FULL, *own), "epochs": 10}
    found = both(TORCH, request(TORCH)) | both(PURE, request(PURE))
    found |= {name: {**request(name), "cores": CORES} for name in (MINIMAL, POLICY)}
    found |= both(FULL, several())
    return found | ({FULL + SHARED: {**several(f"devices={DEVICES}"), "cores": CORES}} if DEVICES > 1 else {})


def _axes(*words: str) -> Contenders:
    ways = {axis: (f"agent_axis={axis}",) for axis in ("vmap", "map", "unroll")}
    if DEVICES > 1:
        ways |= {"batches" + SHARED: (f"devices={DEVICES}",)}
        ways |= {"shard" + SHARED: (f"devices={DEVICES}", "agent_axis=shard")}
    return {name: {"kind": "learning", "words": [*words, *own], "cores": CORES} for name, own in ways.items()}


FIXED = ("epsilon=0.5", "epsilon_decay=0", "legacy=true", "n_step=3")
SETTINGS: dict[str, Contenders] = {
    WORLD: {
        PUBLISHED: {"kind": "objects", "published": True, "cores": 1},
        LEAN: {"kind": "objects", "published": False, "cores": 1},
        "NumPy, 1 map": {"kind": "numpy", "maps": 1, "cores": 1},
        "NumPy, 1024 maps": {"kind": "numpy", "maps": 1024, "cores": 1},
        **both(ONE, {"kind": "jax", "maps": 1, "episodes": 10}),
        **both(MANY, {"kind": "jax", "maps": 64}),
        **both(MOST, {"kind": "jax", "maps": 1024}),
    },
    GREEDY: _greedy(12),
    GREEDY_256: _greedy(256),
    FAITHFUL: _epochs("batch_size=256", "acting_quantiles=256"),
    SMALL: _epochs("batch_size=64", "acting_quantiles=12"),
    AXIS: _axes("batch_size=64"),
    AXIS_256: _axes("batch_size=256"),
}
PROMISES = (
    Promise(WORLD, ONE, "ratio", 100.0, PUBLISHED),
    Promise(WORLD, MOST, "ratio", 500.0, PUBLISHED),
    Promise(GREEDY, FULL, "ratio", 8.0, TORCH),
    Promise(FAITHFUL, FULL, "ratio", 2.5, TORCH),
    Promise(FAITHFUL, FULL, "ratio", 1.5, PURE),
    Promise(SMALL, FULL, "ratio", 8.0, TORCH),
)
WORKER = "crossfade.systems.treasurehunt.bench_worker"


def main(*, quick: bool = False, as_json: bool = False, quiet: bool = False, only: str = "") -> int:
    """Runs the bench and prints it; 1 when a promise is broken, for a quick look always 0."""
    record = run(quick=quick, progress=not (quiet or as_json), only=only)
    return end(record, lambda record: show(record, UNITS), quick=quick, as_json=as_json)


def run(quick: bool = False, progress: bool = False, only: str = "") -> dict[str, Any]:
    """The whole record; a quick look has three settings, and what uses one core in them."""
    rounds, seconds = (3, 0.3) if quick else (5, 1.0)
    settings = chosen(quick_look() if quick else SETTINGS, only)
    return contest.run(WORKER, settings, PROMISES, rounds, seconds, flops=flops, progress=progress)


def quick_look() -> dict[str, Contenders]:
    """What compiles fast enough to be measured in two minutes."""
    alone = lambda contenders: {name: request for name, request in contenders.items() if request["cores"] == 1}
    return {name: alone(SETTINGS[name]) for name in (WORLD, GREEDY, SMALL)}


def flops(request: dict[str, Any]) -> int | float | None:
    """The arithmetic of the networks in a step of a contender; see above."""
    from ...algos.iqn.architecture import architecture
    from ...config import apply
    from ...envs.treasurehunt.params import ACTIONS
    from .config import TreasurehuntConfig

    config = apply(TreasurehuntConfig(), request.get("words", ()))
    env = config.env
    layers = architecture(config, env.observation_dim, len(ACTIONS)).layers
    weights = {name: inputs * outputs for name, (inputs, outputs) in layers.items()}
    inner = sum(weights[name] for name in ("ff_1", "advantage", "value"))
    forward = lambda batch, n: batch * weights["head1"] + batch * n * (weights["cos_embedding"] + inner)
    step = 2 * (4 * forward(config.batch_size, config.quantiles) + config.batch_size * config.quantiles * inner)
    match request["kind"]:
        case "greedy":
            return 2 * env.agents * forward(1, request["fractions"])
        case "epochs":
            acting = (1 - config.epsilon[0]) * env.turns * 2 * forward(1, config.acting_quantiles)
            return env.agents * (step + acting)
        case "learning":
            return env.agents * step
        case _:
            return None
