"""Adversarial motion priors within compiled loops of PPO: style rewards, memory and discriminator on the device."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...envs.world import BoundWorld
from ...optim import sharing_jax as sharing
from ..ppo.config import PPOConfig
from ..ppo.hook import Aux, Watched
from . import features_jax, replay_jax
from .batch import Reference, Transitions
from .config import AMPConfig
from .hook_jax import StyleHook, mixed_reward
from .style import Watch

Info = dict[str, Array]


class CompiledStyleHook(StyleHook):
    """`StyleHook` with the pure functions of `CompiledHook`; `watch_jax` is `watch` in JAX."""

    def __init__(self, config: AMPConfig, ppo: PPOConfig, reference: Reference, watch: Watch, watch_jax: Watch):
        super().__init__(config, ppo, reference, watch)
        self.data, self._watch_jax = reference, watch_jax

    def watch_compiled(self, world: BoundWorld, state: Any) -> Float[Array, "envs f"]:
        return self._watch_jax(world, state)

    def __call__(
        self,
        data: Reference,
        aux: Aux,
        watched: Watched,
        reward: Float[Array, "steps envs"],
        key: PRNGKeyArray,
        devices: int,
    ) -> tuple[Float[Array, "steps envs"], Aux, Info]:
        x = features_jax.transitions(*watched, data.mean, data.deviation)
        mixed, told = mixed_reward(aux.learned.discriminator, x, reward, self.config)
        everyone = sharing.gather(x, devices, axis=1)
        memory = replay_jax.store(aux.memory, everyone.reshape(-1, x.shape[-1]))
        batches = replay_jax.batches(data.transition, memory, replay_jax.draw(key, self.config))
        learned, opt_state, info = self._learn(aux.learned, aux.opt_state, batches, devices)
        return mixed, Aux(learned, opt_state, memory), {**info, **sharing.mean(told, devices)}

    def _learn(
        self, learned: PyTree, opt_state: PyTree, batches: Transitions, devices: int
    ) -> tuple[PyTree, PyTree, Info]:
        """All gradient steps, and the mean of what is told of them. Each device has a part of every batch."""
        tx = self.make_optimizer(learned)

        def one(now: tuple[PyTree, PyTree], batch: Transitions) -> tuple[tuple[PyTree, PyTree], Info]:
            learned, opt_state = now
            found = eqx.filter_value_and_grad(self.loss, has_aux=True)(learned, sharing.part(batch, devices))
            gradient, info = sharing.mean((found[1], found[0][1]), devices)
            changes, opt_state = tx.update(gradient, opt_state, learned)
            return (eqx.apply_updates(learned, changes), opt_state), info

        (learned, opt_state), infos = jax.lax.scan(one, (learned, opt_state), batches)
        return learned, opt_state, jax.tree.map(lambda column: column.mean(), infos)
