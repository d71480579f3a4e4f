import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from crossfade.nn.layers_jax import apply, filled, linear
from crossfade.optim import masking_jax

from . import ARMS, FEATURES, Shared


class Bandit(Shared):
    def make_policy(self, parameters):
        return filled(linear(FEATURES, ARMS), parameters, self.config.dtype)

    def make_optimizers(self, policy):
        return {"policy": optax.adam(self.config.lr)}

    def logits(self, policy, context):
        return apply(policy, jnp.asarray(context))

    def loss(self, policy, batch):
        log_p = (jax.nn.log_softmax(apply(policy, batch["context"])) * jax.nn.one_hot(batch["action"], ARMS)).sum(-1)
        value = -(batch["reward"] * log_p).mean()
        return value, {"loss": value, "reward": batch["reward"].mean()}

    def update(self, policy, optimizers, opt_states, batch):
        tx, opt_state = optimizers["policy"], opt_states["policy"]
        policy, opt_state, info = masking_jax.update(policy, tx, opt_state, self.loss, batch)
        return policy, {"policy": opt_state}, info

    def train(self, policy, optimizers, opt_states, buffer, step, n):
        state, info = self._train((policy, opt_states), optimizers, step + jnp.arange(n))
        return *state, buffer, info

    @eqx.filter_jit
    def _train(self, state, optimizers, steps):
        n, dtype = self.config.batch_size, self.config.dtype
        key, world = jax.random.key(self.config.seed), jnp.asarray(self.world)

        def once(state, step):
            first, second = jax.random.split(jax.random.fold_in(key, step))
            context = jax.random.uniform(first, (n, FEATURES), dtype)
            action = (apply(state[0], context) + jax.random.gumbel(second, (n, ARMS), dtype)).argmax(-1)
            batch = {"context": context, "action": action, "reward": (context * world[action]).sum(-1)}
            *state, info = self.update(state[0], optimizers, state[1], batch)
            return tuple(state), info

        return jax.lax.scan(once, state, steps)
