"""From phase 1 to phase 2: more inputs, more actions, the same function. Framework-free.

The first layer gets columns of zeros for the new inputs and the actor's output rows of zeros for the new actions, so
the three old logits and the value stay what they were, whatever the new inputs are: to the last bit, as
test_trading_transfer.py proves. A new action begins at the logit `NEW_BIAS`: where the mask forbids it nothing has
changed, and where it is legal (`divergence` says how much that matters) it is tried now and then.
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
NEW_BIAS = -3.0  # beside a HOLD of logit 0 a new action then has a probability of about 5 %
SEEN = ("features", "normalize_observations")  # what any run that takes over parameters must share with theirs
KEPT = (*SEEN, "network", "hidden", "layers", "dtype")  # what growing leaves alone
OLD = 3  # actions of phase 1


def adopt(
    config: TradingConfig, parameters: Parameters, buffer: Mapping[str, Any] | None, saved: TradingConfig | None
) -> tuple[Parameters, Carry, str]:
    """Parameters of another run with the statistics they were learned by; those of phase 1 grow for phase 2."""
    market, found = data.market(config), statistics(config, buffer, saved)
    carry = start(config, BoundWorld(Trading(config.params), market, world.settings(config, 0)))
    if not is_phase_1(parameters, config):
        return parameters, carry._replace(statistics=found), ""
    parameters, found = grow(parameters, found, before(config) if saved is None else saved, config)
    seen, mask = open_positions(config, market, found)
    half = import_module(f".system_{'jax' if config.mode in ('jax_policy', 'jax_full') else 'torch'}", __package__)
    note = describe(divergence(half.logits(config, parameters, seen), mask))
    return parameters, carry._replace(statistics=found), note


def before(config: TradingConfig) -> TradingConfig:
    """The config of phase 1 from which one of phase 2 can grow."""
    return replace(config, env=replace(config.env, phase=1))


def is_phase_1(parameters: Mapping[str, np.ndarray], config: TradingConfig) -> bool:
    """Whether these are parameters of phase 1 and the config is one of phase 2."""
    return config.env.phase == 2 and _shapes(parameters) == _expected(before(config))


def grow(
    parameters: Mapping[str, np.ndarray], statistics: Statistics, old: TradingConfig, new: TradingConfig
) -> tuple[Parameters, Statistics]:
    """Parameters and statistics of observations of phase 1 as those of phase 2."""
    seen = lambda env: (env.phase, env.window, env.n_features)
    if seen(old.env) != seen(before(new).env) or new.env.phase != 2:
        raise CheckpointError(
            f"expected to grow from phase 1 to phase 2 with the same window and features, got (phase, window, "
            f"n_features) of {seen(old.env)} and {seen(new.env)}. Keep env.window and env.n_features as they were."
        )
    _check_same(KEPT, old, new)
    if _shapes(parameters) != _expected(old):
        raise CheckpointError(f"expected parameters of shapes {_expected(old)}, got {_shapes(parameters)}.")
    grown = {name: np.zeros(shape, parameters[name].dtype) for name, shape in _expected(new).items()}
    for name, array in parameters.items():
        grown[name][tuple(map(slice, array.shape))] = array
    *_, output = (name for name in grown if name.startswith("actor") and name.endswith("bias"))
    grown[output][OLD:] = NEW_BIAS
    more = new.params.observation_dim - old.params.observation_dim
    mean, var, count = statistics
    return grown, Statistics(np.pad(mean, (0, more)), np.pad(var, (0, more), constant_values=1), count)


def divergence(logits: Float[np.ndarray, "n 6"], mask: Bool[np.ndarray, "n 6"]) -> Float[np.ndarray, " n"]:
    """KL in nats of the choice among six actions from that among the first three: 0 where no new one is legal.

    The old actions keep their proportions, so it is -log of the probability that is left to them.
    """
    weight = np.where(mask, np.exp(logits - logits.max(-1, keepdims=True)), 0.0)
    return -np.log(weight[:, :OLD].sum(-1) / weight.sum(-1))


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


def describe(divergence: Float[np.ndarray, " n"]) -> str:
    """A growth in words, for the user."""
    text = (
        "grown from phase 1 to phase 2: logits of HOLD, BUY and SELL and the value are bit for bit what they were; "
        "statistics of observations are carried over, the optimiser is fresh."
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
