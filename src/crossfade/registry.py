"""What the command line can name: strings only, so that listing it imports no framework."""

from dataclasses import dataclass
from typing import TypeVar

from .errors import UsageError, nearest


@dataclass(frozen=True)
class Item:
    """Something with a name, a line of help, and the place it is loaded from when asked for."""

    help: str
    target: str  # "module:attribute"


@dataclass(frozen=True)
class System:
    """A learning system: its config and its two halves, each named by the place it is loaded from."""

    help: str
    config: str
    torch: str
    jax: str
    pictures: str


SYSTEMS = {
    "gflownet": System(
        "objects sampled in proportion to their reward",
        config="crossfade.algos.gflownet.config:GFlowNetConfig",
        torch="crossfade.systems.gflownet.system:torch_system",
        jax="crossfade.systems.gflownet.system:jax_system",
        pictures="crossfade.systems.gflownet.pictures:pictures",
    ),
    "trading": System(
        "futures traded within the day, by PPO with masked actions",
        config="crossfade.systems.trading.config:TradingConfig",
        torch="crossfade.systems.trading.system_torch:System",
        jax="crossfade.systems.trading.system_jax:System",
        pictures="crossfade.systems.trading.pictures:pictures",
    ),
}

MODES = {
    "torch": "NumPy env, torch policy, torch eager learner, Python loop",
    "torch_pure": "one functional torch step, torch.func + torch.compile: the honest baseline",
    "jax_minimal": "torch policy, JAX learner, parameters synced back (bridge.Step)",
    "jax_policy": "NumPy env, JAX policy and learner, Python loop",
    "jax_full": "env, policy, learner, buffer and loop in one compiled JAX program",
}

TWINS = {
    "gflownet": Item(
        "trajectory balance on a small hypergrid, from parameters to trajectories",
        "crossfade.systems.gflownet.twin:gflownet",
    ),
    "trading": Item(
        "PPO on futures, phase 2: network, loss, updates, accounts (equal to the last bit) and rollouts",
        "crossfade.systems.trading.twin:trading",
    ),
    "policy_value": Item(
        "PPO loss of a small policy/value net, Adam with clipping", "crossfade.parity.cases:policy_value"
    ),
    "critics": Item("TD loss of an ensemble of critics with target networks", "crossfade.parity.cases:critics"),
}

BENCHES = {
    "bridge": Item(
        "one training step: eager, fused, compiled, hand-written JAX, bridge.Step", "crossfade.bench.bridge:main"
    ),
    "gflownet": Item("iterations per second of every mode", "crossfade.systems.gflownet.bench:main"),
    "trading": Item(
        "steps per second of environments old and new, and of PPO in every mode", "crossfade.systems.trading.bench:main"
    ),
}


T = TypeVar("T")


def lookup(kind: str, table: dict[str, T], name: str) -> T:
    """The named item, or an error with the nearest name."""
    if name not in table:
        raise UsageError(f"unknown {kind} {name!r}.{nearest(name, table)} Known: {', '.join(table)}.")
    return table[name]
