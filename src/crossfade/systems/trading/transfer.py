"""From an earlier phase to a later one: more inputs, more actions, the same function. Framework-free.

The first layer gets columns of zeros for the new inputs and the actor's output rows of zeros for the new actions, so
the old logits and the value stay what they were, whatever the new inputs are; how far that holds to the last bit is
measured on the spot (`difference`) and said. A new action begins at the logit `NEW_BIAS`: where the mask forbids it
nothing has changed, and where it is legal (`divergence` says how much that matters) it is tried now and then.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from ...algos.ppo.batch import Carry
from ...algos.ppo.start import start
from ...envs.trading.market import Market
from ...envs.trading.trading_numpy import Trading
from ...envs.world import BoundWorld
from ...errors import CheckpointError
from ...nn.normalizer_numpy import Statistics, normalize
from . import data, world
from .config import TradingConfig
from .curriculum import Curriculum

Parameters = dict[str, np.ndarray]
Outputs = tuple[np.ndarray, np.ndarray]
"""Logits and values."""
NEW_BIAS = -3.0  # beside a HOLD of logit 0 a new action then has a probability of about 5 %
SEEN = ("features", "normalize_observations")  # what any run that takes over parameters must share with theirs
KEPT = (*SEEN, "network", "hidden", "layers", "dtype")  # what growing leaves alone


def adopt(
    config: TradingConfig, parameters: Parameters, buffer: Mapping[str, Any] | None, saved: TradingConfig | None
) -> tuple[Parameters, Carry, str]:
    """Parameters of another run with the statistics they were learned by; those of an earlier phase grow."""
    market, found = data.market(config), statistics(config, buffer, saved)
    carry = start(config, BoundWorld(Trading(config.params), market, world.settings(config, 0)))
    phase = earlier_phase(parameters, config)
    if phase is None:
        return parameters, carry._replace(statistics=found), ""
    old = before(config, phase)
    grown, found = grow(parameters, found, old if saved is None else saved, config)
    seen, mask = open_positions(config, market, found)
    half = import_module(f".system_{'jax' if config.mode in ('jax_policy', 'jax_full') else 'torch'}", __package__)
    then = half.outputs(old, parameters, np.ascontiguousarray(seen[:, : old.params.observation_dim]))
    now = half.outputs(config, grown, seen)
    note = describe(old, config, difference(then, now), divergence(now[0], mask, old.params.n_actions))
    return grown, carry._replace(statistics=found), note


def before(config: TradingConfig, phase: int) -> TradingConfig:
    """The config of an earlier phase from which that of a later one can grow."""
    [env] = (env for env in config.earlier if env.phase == phase)
    return replace(config, env=env)


def earlier_phase(parameters: Mapping[str, np.ndarray], config: TradingConfig) -> int | None:
    """The phase of these parameters if those of the config can grow from them."""
    shapes = {env.phase: _expected(before(config, env.phase)) for env in config.earlier}
    return next((phase for phase, expected in shapes.items() if _shapes(parameters) == expected), None)


def grow(
    parameters: Mapping[str, np.ndarray], statistics: Statistics, old: TradingConfig, new: TradingConfig
) -> tuple[Parameters, Statistics]:
    """Parameters and statistics of observations of an earlier phase as those of a later one."""
    seen = lambda env: (env.phase, env.window, env.n_features)
    if seen(old.env) not in map(seen, new.earlier):
        raise CheckpointError(
            f"expected to grow from an earlier phase to a later one with the same window and features, got (phase, "
            f"window, n_features) of {seen(old.env)} and {seen(new.env)}. Keep env.window and env.n_features as they "
            "were."
        )
    _check_same(KEPT, old, new)
    if _shapes(parameters) != _expected(old):
        raise CheckpointError(f"expected parameters of shapes {_expected(old)}, got {_shapes(parameters)}.")
    grown = {name: np.zeros(shape, parameters[name].dtype) for name, shape in _expected(new).items()}
    for name, array in parameters.items():
        grown[name][tuple(map(slice, array.shape))] = array
    *_, output = (name for name in grown if name.startswith("actor") and name.endswith("bias"))
    grown[output][old.params.n_actions :] = NEW_BIAS
    more = new.params.observation_dim - old.params.observation_dim
    mean, var, count = statistics
    return grown, Statistics(np.pad(mean, (0, more)), np.pad(var, (0, more), constant_values=1), count)


def difference(old: Outputs, new: Outputs) -> float:
    """The largest one of old logits and of values before and after a growth."""
    (logits, value), (more, same) = old, new
    return float(max(np.abs(more[:, : logits.shape[1]] - logits).max(), np.abs(same - value).max()))


def divergence(
    logits: Float[np.ndarray, "n a"], mask: Bool[np.ndarray, "n a"], old_actions: int
) -> Float[np.ndarray, " n"]:
    """KL in nats of the choice among all actions from that among the old ones: 0 where no new one is legal.

    The old actions keep their proportions, so it is -log of the probability that is left to them.
    """
    weight = np.where(mask, np.exp(logits - logits.max(-1, keepdims=True)), 0.0)
    return -np.log(weight[:, :old_actions].sum(-1) / weight.sum(-1))


def statistics(config: TradingConfig, buffer: Mapping[str, Any] | None, saved: TradingConfig | None) -> Statistics:
    """The observation statistics of a run, which its parameters were trained with."""
    if saved is not None:
        _check_same(SEEN, saved, config)
    if buffer is None:
        raise CheckpointError(
            "expected a checkpoint with the statistics of its observations, got parameters alone. Give the folder of "
            "the run."
        )
    return Statistics(**buffer["statistics"])


def open_positions(
    config: TradingConfig, market: Market, statistics: Statistics
) -> tuple[Float[np.ndarray, "n o"], Bool[np.ndarray, "n a"]]:
    """What a policy sees, and may do, when it is given positions at a random profit."""
    forced = replace(config, forced=1.0, curriculum=Curriculum())
    env, settings = Trading(config.params), world.settings(forced, 0)
    state = start(forced, BoundWorld(env, market, settings)).state
    seen = env.observe(market, settings, state).astype(config.dtype)
    mask = env.mask(market, settings, state)
    return normalize(statistics, seen) if config.normalize_observations else seen, mask


def describe(old: TradingConfig, new: TradingConfig, difference: float, divergence: Float[np.ndarray, " n"]) -> str:
    """A growth in words, for the user."""
    kept = "bit for bit what they were" if difference == 0 else f"at most {difference:.1g} from what they were"
    text = (
        f"grown from phase {old.env.phase} to phase {new.env.phase}: logits of the first {old.params.n_actions} "
        f"actions and the value are {kept}, measured on {len(divergence)} accounts; statistics of observations are "
        "carried over, the optimiser is fresh."
    )
    where = divergence[divergence > 0]
    if not len(where):
        return text
    share = (1 - np.exp(-where)).mean()
    return f"{text} Where new actions are legal they get {share:.1%} at first (KL {where.mean():.3g} nats)."


def _check_same(names: tuple[str, ...], old: TradingConfig, new: TradingConfig) -> None:
    for name in names:
        if (was := getattr(old, name)) != (wanted := getattr(new, name)):
            raise CheckpointError(f"{name}: expected {was} as in that run, got {wanted}. Keep it as it was.")


def _expected(config: TradingConfig) -> dict[str, tuple[int, ...]]:
    return config.architecture.shapes(config.env.observation_dim, config.env.n_actions)


def _shapes(parameters: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in parameters.items()}
