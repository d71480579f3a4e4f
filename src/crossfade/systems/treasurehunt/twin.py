"""Treasurehunt with IQN as a twin: networks, losses and gradients, updates of all models, the game and whole epochs."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ...algos.iqn.batch import Batch, Replay, Transitions
from ...algos.iqn.noise_numpy import draw
from ...algos.iqn.optimizer import EPS, names, rates
from ...config import apply
from ...envs.game import MOVES, Game
from ...parity.twin import Twin
from ...random import random_numpy as random
from .config import TreasurehuntConfig

SMALL = (
    "env.height=6",
    "env.width=6",
    "env.agents=2",
    "env.radius=1",
    "env.turns=6",
    "env.items=gem:10:0.2,deck:1.5:0.1:0.5:-2.5",
    "order=shuffled",
    "worlds=2",
    "memory=24",
    "batch_size=8",
    "frames=3",
    "n_step=2",
    "quantiles=4",
    "acting_quantiles=3",
    "hidden=8",
    "cosines=5",
    "kappa=0.5",
    "epsilon=0.5",
    "tau=0.05",
    "lr=1e-3",
    "clip_norm=0.7",
)
ENV_STEPS = 30
EPOCHS = 5
"""Epochs of the level `rollout`: the ring of rows comes round."""
FULL = 3
"""The epoch from which updates draw their batches: enough has been played."""


def treasurehunt(*words: str) -> Twin:
    """The system of a small config, `treasurehunt("env.rule=tag", "moves=simultaneous")` for one.

    Target networks are not those of the start, which equal the local ones, but drawn from another seed.
    """
    import jax
    import jax.numpy as jnp
    import optax

    from ...algos.iqn import acting_jax, acting_torch, losses_jax, losses_torch
    from ...bridge import Mapping
    from ...trainers.system import Scheduled
    from .system_jax import System as JaxSystem
    from .system_torch import System as TorchSystem

    config = apply(apply(TreasurehuntConfig(), SMALL), words)
    ours, theirs = TorchSystem(config), JaxSystem(config)
    other = TorchSystem(replace(config, seed=config.seed + 1)).parameters()
    parameters = {name: other[name] if ".target." in name else array for name, array in ours.parameters().items()}
    policy, model = ours.make_policy(parameters), theirs.make_policy(parameters)
    optimizers = theirs.make_optimizers(model)

    @cache
    def epoch(step: int) -> tuple[Batch, Replay]:
        """What epoch `step` learns from, played by the policy of the start, and replay after it."""
        return ours.collect(policy, epoch(step - 1)[1] if step else ours.start_buffer(), step)

    def torch_update(policy: Any, adam: Any, batch: Batch) -> Any:
        # A step of Adam leaves alone what has no gradient, so that one can serve all models, each in its turn.
        return ours.update(policy, dict.fromkeys(names(config), Scheduled(adam)), batch)

    def jax_update(policy: Any, tx: Any, opt_states: Any, batch: Batch) -> Any:
        return JaxSystem(_in_precision(config, batch.transitions.state)).update(policy, optimizers, opt_states, batch)

    def rollout(policy: Any, key: Any) -> Any:
        own = replace(_in_precision(config, policy.models[0].local.head1.weight), mode="jax_full")
        return _compiled_rollout(JaxSystem(own), policy, key)

    own = lambda policy: {name: tx.init(policy) for name, tx in optimizers.items()}
    tx = optax.GradientTransformation(own, lambda *_: None)  # pyright: ignore[reportArgumentType]
    actions = np.random.default_rng(0).integers(0, ours.game.n_actions, (ENV_STEPS, config.worlds, config.agents))
    return Twin(
        "treasurehunt",
        torch=policy,
        jax=model,
        mapping=Mapping.by_name(policy, model),
        batches=lambda i: epoch(FULL + i)[0],
        forward=(_forward(config, acting_torch.values), _forward(config, acting_jax.values)),
        loss=(_loss(config, losses_torch.model_loss), _loss(config, losses_jax.model_loss)),
        optimizer=(lambda parameters: _adam(config, policy, parameters), tx),
        update=(torch_update, jax_update),
        env=(_Stepper(ours.game, config, np), _Stepper(theirs.compiled, config, jnp)),
        actions=actions.astype(np.int32),
        rollout=(lambda policy, key: _host_rollout(config, policy, key), jax.jit(rollout)),
    )


def _forward(config: TreasurehuntConfig, values: Any) -> Any:
    """Both networks of every model as they learn, and the local one as it acts."""

    def forward(policy: Any, batch: Batch) -> list[dict[str, Any]]:
        found = []
        for number, model in enumerate(policy.models):
            own = Transitions(*(part[config.members(number)[0]] for part in batch.transitions))
            found.append(
                {
                    "local": model.local(own.state, own.fractions[2], own.noise[2]),
                    "target": model.target(own.next_state, own.fractions[1], own.noise[1]),
                    "acting": values(model.local, own.state, own.fractions[0]),
                }
            )
        return found

    return forward


def _loss(config: TreasurehuntConfig, model_loss: Any) -> Any:
    """The sum of the losses of all models, which have no parameter in common, and what each tells."""

    def loss(policy: Any, batch: Batch) -> tuple[Any, dict[str, Any]]:
        each = [model_loss(policy, number, batch.transitions, config) for number in range(config.n_models)]
        return sum(value for value, _ in each), {
            name: told for name, (_, told) in zip(names(config), each, strict=True)
        }

    return loss


def _adam(config: TreasurehuntConfig, policy: Any, parameters: list[Any]) -> Any:
    """One Adam over the local networks of all models, each with its rate. What trains comes model by model, the local
    network first; the target network follows if gradients reach it."""
    import torch

    local, each = len(list(policy.models[0].local.parameters())), len(parameters) // config.n_models
    groups = [{"params": parameters[number * each :][:local], "lr": rate} for number, rate in enumerate(rates(config))]
    return torch.optim.Adam(groups, eps=EPS)


class _Stepper:
    """Games as the level `env` steps them, by the same actions in every kind of turns; after the last turn of a game
    the next one begins."""

    def __init__(self, game: Game, config: TreasurehuntConfig, xp: Any):
        count = ENV_STEPS // game.turns + 1
        each = [draw(random.fold_in(random.key(1), number), game, 0, config) for number in range(count)]
        self.game, self.xp, self.start = game, xp, xp.asarray(np.stack([noise.start for noise in each]))
        turns = lambda field: xp.asarray(np.concatenate([getattr(noise, field) for noise in each]))
        self.turn, self.order, self.chance = turns("turn"), turns("order"), turns("reward")

    def reset(self, key: Any) -> Any:
        fresh = self.game.begin(self.start[0])
        return {"turn": self.xp.zeros((), np.int32), **dict.fromkeys(MOVES, fresh)}

    def step(self, state: Any, action: Any) -> Any:
        now = state["turn"]
        after, outputs = {"turn": now + self.xp.ones((), np.int32)}, {}
        over = after["turn"] % self.game.turns == 0
        fresh = self.game.begin(self.start[after["turn"] // self.game.turns])
        for moves in MOVES:
            moved, outputs[moves] = self._play(moves, state[moves], action, now)
            chosen = (self.xp.where(over, new, old) for new, old in zip(fresh, moved, strict=True))
            after[moves] = type(moved)(*chosen)
        return after, outputs

    def _play(self, moves: str, state: Any, action: Any, now: Any) -> tuple[Any, dict[str, Any]]:
        """A turn, with what each agent saw when it had to decide and its reward, in the order in which they act."""
        order, chance = self.order[now], self.chance[now]
        state = self.game.start_turn(state, self.turn[now])
        seen = [] if moves == "sequential" else [self.game.observe(state, agent) for agent in order]
        if moves == "simultaneous":
            together = self.xp.broadcast_to(order, action.shape)
            state, reward = self.game.move_together(state, action, together, chance)
            return state, {"observation": seen, "reward": reward}
        rewards = []
        for agent in order:
            if moves == "sequential":
                seen.append(self.game.observe(state, agent))
            state, reward = self.game.move(state, agent, action[:, agent], chance[:, agent])
            rewards.append(reward)
        return state, {"observation": seen, "reward": rewards}


def _host_rollout(config: TreasurehuntConfig, policy: Any, key: Any) -> dict[str, Any]:
    import torch

    from ...algos.iqn.acting_torch import values
    from .system_torch import System

    system = System(_in_precision(config, policy.models[0].local.head1.weight))
    system.key = key.numpy().astype(np.uint32)
    replay, batches = system.start_buffer(), []
    for step in range(EPOCHS):
        batch, replay = system.collect(policy, replay, step)
        batches.append(system.tensors(batch))
    stacked = Batch(
        Transitions(*(torch.stack(parts) for parts in zip(*(batch.transitions for batch in batches), strict=True))),
        ready=np.stack([batch.ready for batch in batches]),
        copy=np.stack([batch.copy for batch in batches]),
        info={name: np.array([batch.info[name] for batch in batches]) for name in batches[0].info},
    )
    return _trajectory(system.config, policy, replay, stacked, values)


def _compiled_rollout(system: Any, policy: Any, key: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from ...algos.iqn import replay_jax
    from ...algos.iqn.acting_jax import values

    config = system.config
    epsilon = jnp.array([config.epsilons(step) for step in range(EPOCHS)], "float32")
    copy = jnp.array([config.copies(step) for step in range(EPOCHS)])
    one = lambda replay, given: _compiled_epoch(system, policy, replay, key, *given)
    start = replay_jax.start(config, system.compiled)
    replay, batches = jax.lax.scan(one, start, (jnp.arange(EPOCHS), epsilon, copy))
    return _trajectory(config, policy, replay, batches, values)


def _compiled_epoch(
    system: Any, policy: Any, replay: Replay, key: Any, step: Any, epsilon: Any, copy: Any
) -> tuple[Replay, Batch]:
    """An epoch of the JAX half up to its gradient step: replay after the episode, and what is learned from."""
    import jax
    import jax.numpy as jnp

    from ...algos.iqn import noise_jax, replay_jax, rollout_jax, train_jax

    game, config = system.compiled, system.config
    noise = noise_jax.draw(jax.random.fold_in(key, step), game, system.sizes.noise_dim, config)
    local = jax.tree.map(lambda *arrays: jnp.stack(arrays), *(model.local for model in policy.models))
    replay, history = replay_jax.open_episode(replay, config)
    episode, _ = rollout_jax.play(game, train_jax.actor(local, config), history, noise, epsilon, config)
    replay = replay_jax.store(replay, episode, config)
    batch = train_jax.batch_of(replay, noise, copy, game, config)
    told = rollout_jax.returns(episode)
    return replay, batch._replace(info={name: value.astype(config.dtype) for name, value in told.items()})


def _trajectory(config: TreasurehuntConfig, policy: Any, replay: Replay, batches: Batch, values: Any) -> dict[str, Any]:
    """Replay at the end, the batches of all epochs, and what the networks make of the last one."""
    of = lambda agent: Transitions(*(part[-1, agent] for part in batches.transitions))
    networks = [policy.models[number].local for number in config.model_of]
    found = [values(local, of(agent).state, of(agent).fractions[0]) for agent, local in enumerate(networks)]
    return {"replay": replay, "batches": batches, "values": found}


def _in_precision(config: TreasurehuntConfig, like: Any) -> TreasurehuntConfig:
    """The config in the precision of an array of either framework."""
    return replace(config, dtype=str(like.dtype).removeprefix("torch."))
