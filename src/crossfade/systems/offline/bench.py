"""`crossfade bench offline`: updates per second of every agent in every mode, and batches with goals alone.

Data are random, 24 numbers of observation, 6 of action, 100,000 steps, batches of 256. An update draws its batch and
its random numbers, and steps; those of fine-tuning are full ones, so that all of them do the same. *64x64*: networks
with two hidden layers of 64, fine-tuning. *512x4*: as published, pre-training and fine-tuning, and a table of
milliseconds beside those of the public JAX code on two cores like these. Modes on the host draw from torch's and
NumPy's own generators, and torch runs with one thread or with one for each core, whichever was faster before its turns.
jax_full makes many updates in a compiled call; *8 seeds* counts the updates of all.

At 512x4 two contenders stand for all agents with iql alone: torch_pure, which compiles for a minute and more each time,
as its figures at 64x64 tell, and 8 seeds, since the products of one keep all cores busy. All processes take turns.

*of peak*: the arithmetic that the networks need per second (`operations.py` counts it), as a share of the fastest
float32 matrix products that torch or JAX make on this machine.

Goals: batches of 256 from a million steps with HILP's goals. *NumPy* draws from the streams that both frameworks share,
as the modes on the host do in a run; *NumPy, own generator* does not.
"""

from typing import Any

from ...algos.offline.batch import PHASES, Phase
from ...algos.offline.config import AGENTS
from ...bench import contest
from ...bench.contest import CORES, Contenders, Promise
from ...bench.harness import chosen, end, wide_console
from ...config import apply
from .config import OfflineDataConfig

TORCH, PURE, POLICY, FULL, SEEDS = "torch", "torch_pure", "jax_policy", "jax_full", "jax_full, 8 seeds"
NUMPY, NATIVE, DEVICE = "NumPy", "NumPy, own generator", "JAX, in a program"
RELABELLING = "batches of 256 with goals, a million steps"
SMALL, LARGE = "64x64", "512x4"
WIDTHS = {SMALL: "64,64", LARGE: "512,512,512,512"}
ORIGINALS = {
    "iql": (13, 56),
    "infom": (89, 724),
    "td_infonce": (151, 202),
    "fb_repr": (104, 71),
    "hilp": (143, 71),
    "crl_infonce": (94, 94),
    "mbpo_rebrac": (25, 73),
    "dino_rebrac": (42, 77),
}
"""Milliseconds per update of the public JAX code at 512x4, by phase."""
OBSERVATION, ACTION = 24, 6
ENDLESS = 1_000_000_000
"""Updates of a run that no measurement ends."""
WORKER = "crossfade.systems.offline.bench_worker"


def named(agent: str, size: str, phase: Phase) -> str:
    """A setting's name."""
    return f"{agent}, {size}, {'pre-training' if phase == 'pretraining' else 'fine-tuning'}"


def _contenders(agent: str, size: str, phase: Phase) -> dict[str, dict[str, Any]]:
    widths = [f"hidden={WIDTHS[size]}", f"encoder_hidden={WIDTHS[size]}"]
    shared = {"agent": agent, "phase": phase, "words": widths, "cores": CORES}
    updates = {"kind": "updates", **shared}
    many = {"updates": 50 if size == SMALL else 4}
    found: dict[str, dict[str, Any]] = {TORCH: {**updates, "mode": "torch"}}
    if size == SMALL or agent == "iql":
        found[PURE] = {**updates, "mode": "torch_pure"}
    found |= {POLICY: {**updates, "mode": "jax_policy"}, FULL: {**updates, "mode": "jax_full", **many}}
    if size == SMALL or agent == "iql":
        found[SEEDS] = {"kind": "seeds", "seeds": 8, **shared, **many}
    return found


def _relabelling() -> dict[str, dict[str, Any]]:
    ways = {NUMPY: "shared", NATIVE: "native", DEVICE: "compiled"}
    found = {of: {"kind": "relabelling", "way": way, "rows": 1_000_000, "cores": 1} for of, way in ways.items()}
    found[DEVICE]["batches"] = 1000
    return found


SETTINGS: dict[str, Contenders] = {
    RELABELLING: _relabelling(),
    **{named(agent, SMALL, "finetuning"): _contenders(agent, SMALL, "finetuning") for agent in AGENTS},
    **{named(agent, LARGE, phase): _contenders(agent, LARGE, phase) for agent in AGENTS for phase in PHASES},
}
UNITS = {name: "batches" if name == RELABELLING else "updates" for name in SETTINGS}


def _promises(setting: str) -> list[Promise]:
    if setting == RELABELLING:
        return [Promise(setting, DEVICE, "ratio", 10.0, NUMPY)]
    least = 1.5 if SMALL in setting else 1.1
    return [Promise(setting, FULL, "ratio", 1.0, POLICY, spread=True), Promise(setting, FULL, "ratio", least, TORCH)]


PROMISES = tuple(promise for setting in SETTINGS for promise in _promises(setting))


def main(*, quick: bool = False, as_json: bool = False, quiet: bool = False, only: str = "") -> int:
    """Runs the bench and prints it; 1 when a promise is broken, for a quick look always 0."""
    record = run(quick=quick, progress=not (quiet or as_json), only=only)
    return end(record, show, quick=quick, as_json=as_json)


def run(quick: bool = False, progress: bool = False, only: str = "") -> dict[str, Any]:
    """The whole record; a quick look has three settings and nothing of what torch compiles."""
    rounds, seconds = (3, 0.2) if quick else (3, 0.5)
    settings = chosen(quick_look() if quick else SETTINGS, only)
    return contest.run(WORKER, settings, PROMISES, rounds, seconds, flops=flops, progress=progress)


def quick_look() -> dict[str, Contenders]:
    """What is ready to be measured in two minutes."""
    names = RELABELLING, named("iql", SMALL, "finetuning"), named("iql", LARGE, "finetuning")
    keep = lambda contenders: {of: request for of, request in contenders.items() if of not in (PURE, SEEDS)}
    return {name: keep(SETTINGS[name]) for name in names}


def configured(agent: str, phase: Phase, words: list[str]) -> OfflineDataConfig:
    """A run that stays in one phase, whose fine-tuning trains the actor in every update."""
    pretrain = ENDLESS if phase == "pretraining" else 0
    encoder = ["encoder=mlp"] if agent == "dino_rebrac" else []
    phases = [f"steps={ENDLESS}", f"pretrain={pretrain}", "actor_every=1", "latent_samples=1000"]
    return apply(OfflineDataConfig(), [f"agent={agent}", *encoder, *phases, *words])


def flops(request: dict[str, Any]) -> int | None:
    """The arithmetic of the networks in an update of a contender."""
    from .operations import flops as of_update

    if request["kind"] == "relabelling":
        return None
    config = configured(request["agent"], request["phase"], request["words"])
    return of_update(config, request["phase"], OBSERVATION, ACTION)


def show(record: dict[str, Any]) -> None:
    """Tables for people, the one beside the public code last but for the promises."""
    contest.show({**record, "promises": []}, UNITS)
    rows = compared(record["settings"])
    if rows:
        wide_console().print(_table(rows))
    contest.show_promises(record)


def compared(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Milliseconds per update at 512x4, by agent and phase, beside those of the public code where there are such."""
    rows = []
    for agent in AGENTS:
        for i, phase in enumerate(PHASES):
            measured = settings.get(named(agent, LARGE, phase))
            if measured is None:
                continue
            own = {of: 1000 / measured[of]["steps"] for of in (TORCH, POLICY, FULL)}
            public = ORIGINALS[agent][i] if agent in ORIGINALS else None
            rows.append({"agent": agent, "phase": phase, **own, "public": public})
    return rows


def _table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table("agent", "phase", TORCH, POLICY, FULL, "public JAX", "times", title="ms per update, 512x4")
    for row in rows:
        public, own = row["public"], [f"{row[of]:.1f}" for of in (TORCH, POLICY, FULL)]
        beside = ("", "") if public is None else (f"{public}", f"{public / row[FULL]:.2f}x")
        table.add_row(row["agent"], row["phase"], *own, *beside)
    return table
