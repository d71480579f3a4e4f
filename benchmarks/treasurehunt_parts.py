"""Where an epoch of jax_full goes: each part of it compiled by itself and timed, beside the whole, in milliseconds.

    taskset -c 0 python benchmarks/treasurehunt_parts.py batch_size=64 acting_quantiles=12

On one core and one device, as everything here is that the table of docs/treasurehunt.md is made of. `products` are the
matrix products of the gradient steps alone, in their own shapes. Figures are medians over the rounds, in every one of
which each part is timed once.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from crossfade.algos.iqn import learners_jax, noise_jax, replay_jax, train_jax
from crossfade.algos.iqn.rollout_jax import play
from crossfade.systems.treasurehunt.bench import FIXED
from crossfade.systems.treasurehunt.bench_worker import Epochs

ROUNDS, EPOCHS = 9, 10


def parts(words: list[str]) -> dict[str, Callable[[], Any]]:
    """What there is to time, by name; all of it has run once."""
    epochs = Epochs(["mode=jax_full", *FIXED, *words], EPOCHS)
    epochs.once()
    system, trainer = epochs.trainer.system, epochs.trainer
    config, game = system.config, system.compiled
    learners = learners_jax.split(trainer.policy, trainer.opt_states, config)
    key, half = jax.random.wrap_key_data(jnp.asarray(system.key)), jnp.full(game.agents, 0.5)
    replay, history = replay_jax.open_episode(trainer.buffer, config)

    def episode(learners: Any, noise: Any, epsilon: Any) -> Any:
        act = train_jax.actor([learner.model.local for learner in learners], config)
        return play(game, act, history, noise, epsilon, config)[0]

    draw = jax.jit(lambda key: noise_jax.draw(key, game, system.sizes.noise_dim, config))
    rest = jax.jit(lambda key: noise_jax.draw(key, game, 0, config))
    noise = draw(key)
    act = jax.jit(episode)
    played = act(learners, noise, half)
    store = jax.jit(lambda replay, episode: replay_jax.store(replay, episode, config))
    sample = jax.jit(lambda replay, noise: train_jax.batch_of(replay, noise, jnp.asarray(False), game, config))
    batch = sample(replay, noise)
    first = jax.tree.map(lambda column: column[0], batch.transitions)
    gradient = jax.jit(lambda model, batch: learners_jax._gradient(model, batch, config)[0])
    found = gradient(learners[0].model, first)
    adam = jax.jit(lambda own, found: learners_jax._step(own, found, jnp.asarray(1e-4), config))
    update = jax.jit(lambda learners, batch: learners_jax.update_learners(learners, batch, config)[0])
    timed = {
        f"{EPOCHS} epochs": epochs.once,
        "noise of the networks, and all else that is drawn": lambda: draw(key),
        "all else that is drawn": lambda: rest(key),
        "episode, half of the actions greedy": lambda: act(learners, noise, half),
        "episode, all actions random": lambda: act(learners, noise, 2 * half),
        "replay, an episode stored": lambda: store(replay, played),
        "replay, a batch of each agent drawn": lambda: sample(replay, noise),
        "update of all models": lambda: update(learners, batch),
        "gradient of one model": lambda: gradient(learners[0].model, first),
        "products of that gradient": products(config, system.sizes),
        "clipping, Adam and target of one model": lambda: adam(learners[0], found),
    }
    for run in timed.values():
        jax.block_until_ready(run())
    return timed


def products(config: Any, sizes: Any) -> Callable[[], Any]:
    """Three forward passes and a backward one, as matrix products alone: of x (rows, inputs) by W (outputs, inputs)."""
    rows, many = config.batch_size, config.batch_size * config.quantiles
    forward = [(rows, sizes.inputs), (many, sizes.cosines), (many, sizes.hidden)]
    shapes = 3 * [(n, inputs, sizes.hidden) for n, inputs in forward]  # W x of each pass
    shapes += [(sizes.hidden, n, inputs) for n, inputs in forward]  # the gradient of W
    shapes += [(many, sizes.hidden, sizes.hidden)]  # and of the input of ff_1
    pairs = [(jnp.ones((n, k)), jnp.ones((k, m))) for n, k, m in shapes]
    multiply = jax.jit(lambda pairs: [a @ b for a, b in pairs])
    return lambda: multiply(pairs)


def main() -> None:
    timed = parts(sys.argv[1:])
    times: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(ROUNDS):
        for name, run in timed.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            times[name].append(1e3 * (time.perf_counter() - began))
    for name, each in times.items():
        print(f"{statistics.median(each):9.2f}  {min(each):9.2f}..{max(each):<9.2f}  {name}")


if __name__ == "__main__":
    main()
