"""Planted bugs in the JAX half of treasurehunt: networks, loss and step of IQN, play and replay.

The torch half, and all of the JAX half that a bug does not name, is what is shipped. A bug is planted by exchanging a
function, by changing what is handed on, or by a setting that the JAX half alone has.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, reduce
from operator import itemgetter
from typing import Any
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch

from crossfade.algos.iqn import (
    losses_jax,
    networks_jax,
    noise_jax,
    noise_numpy,
    replay_jax,
    replay_numpy,
    rollout_jax,
    rollout_numpy,
    stacked_jax,
)
from crossfade.config import apply
from crossfade.envs.game import make_game
from crossfade.nn.layers_jax import name
from crossfade.optim.ema_jax import ema
from crossfade.parity import Twin
from crossfade.random import random_numpy
from crossfade.systems.treasurehunt.config import TreasurehuntConfig
from crossfade.systems.treasurehunt.twin import SMALL, treasurehunt

whole = cache(treasurehunt)


def settings(*groups: tuple[str, ...]) -> TreasurehuntConfig:
    """The config of some words, changed by others."""
    return reduce(apply, groups, TreasurehuntConfig())


def part(named: str, twin: Twin, **fields: Any) -> Twin:
    """The models of a twin with some of its levels: what is left out is not compiled."""
    return Twin(named, torch=twin.torch, jax=twin.jax, mapping=twin.mapping, batches=twin.batches, **fields)


def patched(function: Callable[..., Any], *patches: tuple[Any, str, Any]) -> Callable[..., Any]:
    """A function that finds others in its modules than are there."""

    def call(*given: Any) -> Any:
        with ExitStack() as stack:
            for module, attribute, other in patches:
                stack.enter_context(patch.object(module, attribute, other))
            return function(*given)

    return call


# Networks

NETWORK = dict.fromkeys(
    (
        "cosines counted from zero",
        "dueling mean over the fractions",
        "noise of the weight for the bias too",
        "noise in the wrong order of layers",
    ),
    "forward",
)
ALONE = ("env.agents=1",)


def iqn_network(bug: str | None = None) -> Twin:
    twin, numbers, right = whole(*ALONE), networks_jax._numbers, networks_jax.Network.__call__

    def cosines(fractions, weight):
        i = jnp.arange(weight.shape[1], dtype=weight.dtype)
        return jnp.cos(jnp.pi * jnp.einsum("bn,i->bni", fractions, i))

    def shared(layers, noise):
        return [own and (own[0], own[0].reshape(-1)[: len(own[1])]) for own in numbers(layers, noise)]

    def reversed_order(layers, noise):
        return numbers(layers[::-1], noise)[::-1]

    def mean_over_fractions(network, *given):
        advantage = right(eqx.tree_at(lambda n: n.value, network, None), *given)
        wide = lambda mean: jnp.broadcast_to(mean, advantage.shape)
        return right(network, *given) + wide(advantage.mean(-1, keepdims=True)) - wide(advantage.mean(1, keepdims=True))

    bugs = {
        "cosines counted from zero": (networks_jax, "_cosines", cosines),
        "dueling mean over the fractions": (networks_jax.Network, "__call__", mean_over_fractions),
        "noise of the weight for the bias too": (networks_jax, "_numbers", shared),
        "noise in the wrong order of layers": (networks_jax, "_numbers", reversed_order),
    }
    forward = patched(twin.forward[1], *([bugs[bug]] if bug else []))
    return part("iqn_network", twin, forward=(twin.forward[0], forward))


# Losses

LOSS = {
    "indicator of errors above zero": "loss",
    "not divided by kappa": "loss",
    "fractions along the targets": "loss",
    "sum over the fractions for the mean": "loss",
    "action chosen by the target network": "loss",
    "discount forgotten": "loss",
    "next value where there is none": "loss",
    "transitions that do not count are counted": "loss",
    "noise of the choice for the target too": "loss",
    "fractions of the state for the next state": "loss",
    "targets of the local network": "loss",
    "noise scales held fixed": "grad",
    "indicator made smooth by its gradient": "grad",
}
COUNTED = (*ALONE, "quirks=gap_rows", "ends=terminal")  # with rows that do not count, and with ends


def iqn_loss(bug: str | None = None) -> Twin:
    twin, huber = whole(*COUNTED), losses_jax.quantile_huber
    right = twin.loss[1]

    def with_huber(wrong):
        return patched(right, (losses_jax, "quantile_huber", wrong))

    def with_batch(change):
        return lambda policy, batch: right(policy, batch._replace(transitions=change(batch.transitions)))

    def smooth(u, fractions, kappa):
        weight = jnp.broadcast_to(fractions[..., None], u.shape) - (u < 0)
        leak = jnp.abs(weight) * (1 + u - jax.lax.stop_gradient(u))  # its value is that of the weight
        return huber(u, fractions, kappa) + (0 * u + leak - jnp.abs(weight)).mean((1, 2))

    def fixed_scales(policy, batch):
        hold = lambda path, leaf: jax.lax.stop_gradient(leaf) if ".sigma_" in name(path) else leaf
        return right(jax.tree_util.tree_map_with_path(hold, policy), batch)

    def of_local(policy, batch):
        models = tuple(networks_jax.Model(model.local, model.local) for model in policy.models)
        return right(networks_jax.Policy(models), batch)

    row = lambda column, to, of: column.at[:, to].set(column[:, of])
    bugs = {
        "indicator of errors above zero": lambda: with_huber(lambda u, tau, kappa: huber(u, 1 - tau, kappa)),
        "not divided by kappa": lambda: with_huber(lambda u, tau, kappa: kappa * huber(u, tau, kappa)),
        "fractions along the targets": lambda: with_huber(lambda u, tau, kappa: huber(u.mT, tau, kappa)),
        "sum over the fractions for the mean": lambda: with_huber(
            lambda u, tau, kappa: u.shape[1] * huber(u, tau, kappa)
        ),
        "action chosen by the target network": lambda: whole(*COUNTED, "double=false").loss[1],
        "discount forgotten": lambda: with_batch(lambda t: t._replace(discount=jnp.sign(t.discount))),
        "next value where there is none": lambda: with_batch(
            lambda t: t._replace(discount=jnp.where(t.discount == 0, 0.99, t.discount))
        ),
        "transitions that do not count are counted": lambda: with_batch(
            lambda t: t._replace(valid=jnp.ones_like(t.valid))
        ),
        "noise of the choice for the target too": lambda: with_batch(lambda t: t._replace(noise=row(t.noise, 1, 0))),
        "fractions of the state for the next state": lambda: with_batch(
            lambda t: t._replace(fractions=row(t.fractions, 1, 2))
        ),
        "targets of the local network": lambda: of_local,
        "noise scales held fixed": lambda: fixed_scales,
        "indicator made smooth by its gradient": lambda: with_huber(smooth),
    }
    return part("iqn_loss", twin, loss=(twin.loss[0], bugs[bug]() if bug else right))


# Steps

STEP = {
    "one norm for all models": "update",
    "target follows before the step": "update",
    "shares of local and target exchanged": "update",
    "target does not follow": "update",
    "learning rate of the first agent for all": "update",
    "batch that is not ready is learned from": "update",
}
PLAIN = ("noisy=false", "dueling=false")
PAIR = (*PLAIN, "lr=1e-3,2e-3", "clip_norm=0.1")


def iqn_step(bug: str | None = None) -> Twin:
    twin, gradient, config = whole(*PAIR), stacked_jax._gradient, settings(SMALL, PAIR)
    right = twin.update[1]

    def one_norm(policy, tx, opt_states, batch):
        norms = []
        for number, model in enumerate(policy.models):
            own = jax.tree.map(itemgetter(number), batch.transitions)
            norms += [jnp.square(g).sum() for g in jax.tree.leaves(gradient(model, own, config)[0])]
        share = jnp.minimum(1, config.clip_norm / jnp.sqrt(sum(norms)))
        scaled = lambda *given: jax.tree.map(lambda g: share * g, gradient(*given))
        found = patched(right, (stacked_jax, "_gradient", scaled))(policy, tx, opt_states, batch)
        return *found[:2], right(policy, tx, opt_states, batch)[2]

    def early(own, g, rate, config):
        after = step(own, g, rate, config)
        target = ema(own.models.target, own.models.local, config.tau)
        return after._replace(models=networks_jax.Model(after.models.local, target))

    step = stacked_jax._step
    unready = twin.batches(0)._replace(ready=np.array(False))
    bugs = {
        "one norm for all models": lambda: one_norm,
        "target follows before the step": lambda: patched(right, (stacked_jax, "_step", early)),
        "shares of local and target exchanged": lambda: whole(*PAIR, "tau=0.95").update[1],
        "target does not follow": lambda: whole(*PAIR, "target=hard", "sync=1000").update[1],
        "learning rate of the first agent for all": lambda: whole(*PLAIN, "clip_norm=0.1").update[1],
        "batch that is not ready is learned from": lambda: (
            lambda policy, tx, states, batch: right(policy, tx, states, batch._replace(ready=jnp.array(True)))
        ),
    }
    found = part("iqn_step", twin, optimizer=twin.optimizer, update=(twin.update[0], bugs[bug]() if bug else right))
    return replace(found, batches=lambda i: unready) if bug and "not ready" in bug else found


COPY = {
    "copied after the step": "update",
    "copied to the local network": "update",
    "copied one epoch too late": "updates",
}
HARD = (*PLAIN, "target=hard", "sync=3")


def iqn_copy(bug: str | None = None) -> Twin:
    """The first batch is one before which target networks are copied, and so is the fourth."""
    twin = whole(*HARD)
    right = twin.update[1]
    numbered = lambda i: twin.batches(i)._replace(info={"number": np.array(i, np.int32)})

    def after(policy, tx, states, batch):
        policy, states, told = right(policy, tx, states, batch._replace(copy=jnp.array(False)))
        copied = lambda model: jax.tree.map(lambda a, b: jnp.where(batch.copy, a, b), model.local, model.target)
        models = tuple(networks_jax.Model(model.local, copied(model)) for model in policy.models)
        return networks_jax.Policy(models), states, told

    def backwards(policy, tx, states, batch):
        copied = lambda model: jax.tree.map(lambda a, b: jnp.where(batch.copy, b, a), model.local, model.target)
        models = tuple(networks_jax.Model(copied(model), model.target) for model in policy.models)
        return right(networks_jax.Policy(models), tx, states, batch)

    def late(policy, tx, states, batch):
        return right(policy, tx, states, batch._replace(copy=batch.info["number"] % 4 == 0))

    bugs = {"copied after the step": after, "copied to the local network": backwards, "copied one epoch too late": late}
    found = part("iqn_copy", twin, optimizer=twin.optimizer, update=(twin.update[0], bugs[bug] if bug else right))
    return replace(found, batches=numbered)


# Play and replay, by agents without a network: what they do depends on what they see, on fractions and on chance

PLAY = dict.fromkeys(
    (
        "random action where the number equals epsilon",
        "all see the map of the turn's start",
        "fractions not distorted",
    ),
    "rollout",
)
REPLAY = dict.fromkeys(
    (
        "windows a row too early",
        "next state a row too early",
        "rewards summed across the end of an episode",
        "first reward alone",
        "rows drawn with replacement",
        "rows of gaps drawn",
        "windows across the newest row",
        "history not cleared",
        "last observation not kept",
        "value goes on where it ends",
        "rewards of another game",
    ),
    "rollout",
)
EPOCHS = ("ends=terminal", "risk=cvar", "risk_level=0.5", "gamma=0.9,0.8")
CHANGED = {
    "all see the map of the turn's start": "moves=stale_obs",
    "fractions not distorted": "risk=neutral",
    "first reward alone": "quirks=discount_only",
    "rows of gaps drawn": "quirks=gap_rows",
    "windows across the newest row": "quirks=straddling_windows",
    "history not cleared": "quirks=stale_history",
    "last observation not kept": "quirks=gap_bootstrap",
    "value goes on where it ends": "ends=bootstrap",
}
PLAYED = 4
EPSILON = np.float32(0.5)


def played(bug: str | None = None) -> TreasurehuntConfig:
    """The config of a half, in the precision of the run."""
    dtype = f"dtype={torch.get_default_dtype()}".replace("torch.", "")
    return settings(SMALL, EPOCHS, (dtype,) if bug not in CHANGED else (dtype, CHANGED[bug]))


def actor(xp: Any) -> Callable[..., Any]:
    return lambda agent, stack, tau: ((stack.sum(-1) + xp.floor(8 * tau[:, 0]) + agent) % 4).astype(xp.int32)


def play_on_host(key: np.ndarray, history: np.ndarray, config: TreasurehuntConfig) -> Any:
    """An episode and its noise. In quarters, numbers that are to be below epsilon often equal it."""
    game = make_game(config.env, "numpy")
    noise = noise_numpy.draw(key, game, 0, config)
    noise = noise._replace(explore=np.floor(4 * noise.explore) / np.float32(4))
    return rollout_numpy.play(game, actor(np), history, noise, np.full(2, EPSILON), config)[0], noise


def iqn_play(bug: str | None = None) -> Twin:
    def host(_, key):
        config = played()
        replay = replay_numpy.start(config, make_game(config.env, "numpy"))
        return play_on_host(key.numpy().astype(np.uint32), replay_numpy.open_episode(replay, config)[1], config)

    def compiled(_, key):
        config = played(bug)
        game = make_game(config.env, "jax")
        epsilon = np.nextafter(EPSILON, np.float32(1)) if bug and "equals epsilon" in bug else EPSILON
        history = replay_jax.open_episode(replay_jax.start(config, game), config)[1]

        @jax.jit
        def play(key):
            noise = noise_jax.draw(key, game, 0, config)
            noise = noise._replace(explore=jnp.floor(4 * noise.explore) / jnp.float32(4))
            return rollout_jax.play(game, actor(jnp), history, noise, jnp.full(2, epsilon), config)[0], noise

        return play(key)

    return Twin("iqn_play", rollout=(host, compiled))


def iqn_replay(bug: str | None = None) -> Twin:
    """Epochs played on the host for both halves."""

    def run(key, open_episode, store, sample, start):
        replay, batches, config = start, [], played()
        for epoch in range(PLAYED):
            replay, history = open_episode(replay)
            episode, noise = play_on_host(random_numpy.fold_in(key, epoch), np.asarray(history), config)
            replay = store(replay, episode)
            batches.append(sample(replay, noise.choice))
        return replay, batches

    def host(_, key):
        config = played()
        game = make_game(config.env, "numpy")
        return run(
            key.numpy().astype(np.uint32),
            lambda replay: replay_numpy.open_episode(replay, config),
            lambda replay, episode: replay_numpy.store(replay, episode, config),
            lambda replay, choice: replay_numpy.sample(replay, choice, game.turns, config),
            replay_numpy.start(config, game),
        )

    def compiled(_, key):
        config = played(bug)
        game = make_game(config.env, "jax")
        return run(
            np.asarray(jax.random.key_data(key)),
            jax.jit(lambda replay: replay_jax.open_episode(replay, config)),
            jax.jit(lambda replay, episode: replay_jax.store(replay, jax.tree.map(jnp.asarray, episode), config)),
            jax.jit(lambda replay, choice: drawn(replay, jnp.asarray(choice), game.turns, config)),
            replay_jax.start(config, game),
        )

    def drawn(replay, choice, turns, config):
        right = replay_jax.sample
        if bug == "windows a row too early":
            earlier = replay._replace(observation=jnp.roll(replay.observation, 1, 2))
            return right(earlier, choice, turns, config)
        if bug == "next state a row too early":
            earlier = replay._replace(observation=jnp.roll(replay.observation, 1, 2))
            found, ready = right(replay, choice, turns, config)
            return found._replace(next_state=right(earlier, choice, turns, config)[0].next_state), ready
        if bug == "rewards summed across the end of an episode":
            ahead = lambda replay, turns, config: jnp.full_like(replay.turn, config.n_step)
            return patched(right, (replay_jax, "steps_ahead", ahead))(replay, choice, turns, config)
        if bug == "rows drawn with replacement":
            return patched(right, (replay_jax, "_smallest", replaced))(replay, choice, turns, config)
        if bug == "rewards of another game":
            return right(replay._replace(reward=replay.reward[::-1]), choice, turns, config)
        return right(replay, choice, turns, config)

    def replaced(numbers, n):
        order, can = jnp.argsort(numbers, axis=-1), (numbers < 2).sum(-1, keepdims=True)
        at = jnp.floor(jnp.mod(numbers[:, :n], 1) * can).astype(jnp.int32)
        return jnp.take_along_axis(order, at, -1).astype(jnp.int32)

    return Twin("iqn_replay", rollout=(host, compiled))


FAMILIES = {
    iqn_network: NETWORK,
    iqn_loss: LOSS,
    iqn_step: STEP,
    iqn_copy: COPY,
    iqn_play: PLAY,
    iqn_replay: REPLAY,
}

QUICK = {
    iqn_network: (
        "cosines counted from zero",
        "dueling mean over the fractions",
        "noise of the weight for the bias too",
    ),
    iqn_loss: (
        "indicator of errors above zero",
        "not divided by kappa",
        "fractions along the targets",
        "action chosen by the target network",
        "transitions that do not count are counted",
        "noise scales held fixed",
    ),
    iqn_step: ("one norm for all models",),
    iqn_replay: (
        "next state a row too early",
        "rewards summed across the end of an episode",
        "rows drawn with replacement",
        "history not cleared",
    ),
}
"""What the default run has time for: some bugs of each kind, and the clean twins they were made from."""
SLOW = {make.__name__ for make in FAMILIES if make not in QUICK} | {
    bug for make, bugs in FAMILIES.items() for bug in bugs if bug not in QUICK.get(make, ())
}
