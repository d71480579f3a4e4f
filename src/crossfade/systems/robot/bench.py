"""`crossfade bench robot`: the environment with a policy, and whole PPO, levels 1 to 4; what the promises say.

Every contender is a process of its own (bench_worker.py), with all of the machine's cores and, where that may be
faster, once with a single one; compiled ones also with their robots shared among the cores. Those of a setting take
turns. A promise is about the fastest way of a contender, and is held against the fastest way of the other.

A step is a control step of one robot: five steps of the physics, observation, reward, end, and a new episode where one
has ended. The biped of 11 joints walks under a policy of 64 tanh units, with its noise drawn ahead. *Level 1* is the
published way: one MuJoCo robot after the other in a Python loop, 16 of them, and a compiled policy for all. *The same
physics in NumPy* is our articulated-body engine, vectorised. The levels of PPO, under our physics and under MuJoCo's: 1
NumPy robots and JAX networks, 2 one compiled program that calls the NumPy robots back, 3 all of it compiled, 4 the same
shared among devices.

Beside them stands Brax's PPO on the same world with as many samples, passes and minibatches, and with the words of
`--preset brax`, as ours has once too, also on several devices. Its networks are as wide and as deep. With 64 units its
critic is a network of its own where ours shares the actor's trunk, so it computes more of them; with 128 units, as the
specification measured Brax, both have actor and critic apart: that is what is promised about.

*of peak*: the arithmetic of the networks alone, one pass forward to act and one forward and backward in each epoch, as
a share of the fastest float32 matrix products that torch or JAX make on this machine.
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from ...bench import contest
from ...bench.contest import ALONE, CORES, SHARED, Promise, both, show
from ...bench.harness import chosen, end
from . import RECORD

LOOP, NUMPY, HOST = (
    "level 1: MuJoCo robots in a Python loop, 16",
    "same physics in NumPy, 256",
    "C MuJoCo, threads, 256",
)
JAX, MJX = "compiled, aba, 256", "compiled, MJX, 256"
WORLD, TRAINING = "environment with a policy, sprig11", "PPO, sprig11, 64 x 20 steps"
APART = TRAINING + ", 128 x 128, actor and critic apart"
LEVEL_1, LEVEL_2, LEVEL_3 = "level 1: jax_policy", "level 2: callback", "level 3 and 4: jax_full"
LEVEL_2_BRAX, BRAX = "level 2: callback, Brax's PPO", "level 3: Brax's PPO"
AS_BRAX = "level 3 and 4: jax_full, Brax's settings"
BY_BRAX = BRAX, BRAX + ALONE, BRAX + SHARED, LEVEL_2_BRAX
MUJOCO = ", mujoco"
TORCH, PURE = "torch", "torch_pure"
UPDATES = 20
"""Updates in a compiled call, as a run of ours makes them (`chunk`); Brax's PPO is given as many."""
SIZES = ("env.model=sprig11", "n_envs=64", "n_steps=20", "minibatches=8", "epochs=4")
BRAX_WORDS = tuple(
    word for word in RECORD.presets["brax"] if word.split("=")[0] not in {"steps", *(w.split("=")[0] for w in SIZES)}
)
NARROW, WIDE = "hidden=64", "hidden=128"
Contenders = dict[str, dict[str, Any]]


def _ppo(*words: str) -> dict[str, Any]:
    return {"kind": "ppo", "words": [*SIZES, *words]}


def _shared(name: str, *words: str, updates: int = UPDATES) -> Contenders:
    """jax_full with its robots shared among the cores; several updates in a compiled call."""
    request = {**_ppo("mode=jax_full", *words, f"devices={CORES}"), "updates": updates, "cores": CORES}
    return {name + SHARED: request} if CORES in (2, 4, 8) else {}


def _compiled(name: str, *words: str) -> Contenders:
    """The same, and with all cores, and with one."""
    return both(name, {**_ppo("mode=jax_full", *words), "updates": UPDATES}) | _shared(name, *words)


def _brax(*words: str, updates: int = UPDATES) -> dict[str, Any]:
    """Brax's PPO; several updates in a compiled call."""
    return {**_ppo("trainer=brax", *BRAX_WORDS, *words), "kind": "brax", "updates": updates}


def _by_brax(width: str) -> Contenders:
    """Brax's PPO with all cores, with one, and on several devices; ours that computes what it computes."""
    several = {BRAX + SHARED: {**_brax(width, f"devices={CORES}"), "cores": CORES}} if CORES in (2, 4, 8) else {}
    return both(BRAX, _brax(width)) | several | _shared(AS_BRAX, *BRAX_WORDS, width)


SETTINGS: dict[str, Contenders] = {
    WORLD: {
        LOOP: {"kind": "loop", "n": 16, "cores": CORES},
        NUMPY: {"kind": "numpy", "n": 256, "physics": "aba", "cores": 1},
        HOST: {"kind": "numpy", "n": 256, "physics": "mujoco", "cores": CORES},
        **both(JAX, {"kind": "jax", "n": 256, "physics": "aba"}),
        **({JAX + SHARED: {"kind": "jax", "n": 256, "physics": "aba", "devices": CORES, "cores": CORES}}),
        MJX: {"kind": "jax", "n": 256, "physics": "mujoco", "cores": CORES},
    },
    TRAINING: {
        TORCH: {**_ppo("mode=torch", NARROW), "cores": CORES},
        **both(PURE, _ppo("mode=torch_pure", NARROW)),
        LEVEL_1: {**_ppo("level=1", NARROW), "cores": CORES},
        LEVEL_2: {**_ppo("level=2", NARROW), "cores": CORES},
        LEVEL_2_BRAX: {**_brax("env.callback=true", NARROW, updates=1), "cores": CORES},
        **_compiled(LEVEL_3, NARROW),
        **_by_brax(NARROW),
        LEVEL_1 + MUJOCO: {**_ppo("level=1", "env.physics=mujoco", NARROW), "cores": CORES},
        LEVEL_2 + MUJOCO: {**_ppo("level=2", "env.physics=mujoco", NARROW), "cores": CORES},
        **_shared(LEVEL_3 + MUJOCO, "env.physics=mujoco", NARROW, updates=1),
    },
    APART: {
        **both(PURE, _ppo("mode=torch_pure", WIDE, "apart=true")),
        **_compiled(LEVEL_3, WIDE, "apart=true"),
        **_by_brax(WIDE),
    },
}
PROMISES = (
    Promise(WORLD, JAX, "ratio", 15.0, LOOP),
    Promise(WORLD, JAX, "ratio", 5.0, NUMPY),
    Promise(WORLD, JAX, "compile_s", 15.0),
    Promise(TRAINING, LEVEL_3, "ratio", 1.5, PURE),
    Promise(APART, LEVEL_3, "ratio", 3.0, BRAX),
    Promise(TRAINING, LEVEL_3, "compile_s", 15.0),
)
WORKER = "crossfade.systems.robot.bench_worker"


def main(*, quick: bool = False, as_json: bool = False, quiet: bool = False, only: str = "") -> int:
    """Runs the bench and prints it; 1 when a promise is broken, for a quick look always 0."""
    record = run(quick=quick, progress=not (quiet or as_json), only=only)
    return end(record, show, quick=quick, as_json=as_json)


def run(quick: bool = False, progress: bool = False, only: str = "") -> dict[str, Any]:
    """The whole record; a quick look has neither MJX nor Brax, which compile for half a minute."""
    rounds, seconds = (3, 0.3) if quick else (5, 1.0)
    settings = {name: _quick(SETTINGS[name]) for name in (WORLD, TRAINING)} if quick else SETTINGS
    settings = chosen(settings, only)
    why = "Brax is not installed"
    absent: dict[str, str] = {} if find_spec("brax") else dict.fromkeys(BY_BRAX, why)
    return contest.run(WORKER, settings, PROMISES, rounds, seconds, flops=flops, missing=absent, progress=progress)


def _quick(contenders: Contenders) -> Contenders:
    slow = MJX, TORCH, AS_BRAX + SHARED, *BY_BRAX
    return {name: request for name, request in contenders.items() if name not in slow and MUJOCO not in name}


def flops(request: dict[str, Any]) -> int | None:
    """What the networks need for a control step, whoever computes it."""
    return flops_per_step(request["words"]) if request["kind"] == "ppo" else None


def flops_per_step(words: Iterable[str]) -> int:
    """One pass forward to act, and one forward and backward in each epoch."""
    from ...bench.flops import per_node
    from ...config import apply
    from .config import RobotConfig

    config = apply(RobotConfig(), tuple(words))
    nu = config.env.load().nu
    seen = 3 * nu + 11 + 3 * config.env.see_command
    shapes = {n: s for n, s in config.architecture.shapes(seen, 2 * nu, nu).items() if len(s) == 2}
    return sum(2 * rows * columns for rows, columns in shapes.values()) + config.epochs * per_node(shapes, seen)


def promises(settings: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each promise: what was found, and whether it suffices."""
    return contest.judge(PROMISES, settings)
