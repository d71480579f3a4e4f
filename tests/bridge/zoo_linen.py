"""The zoo in Flax linen; automatic names follow construction, not use."""

import jax
import jax.numpy as jnp
from flax import linen as nn

relu = nn.relu
zeros, ones = nn.initializers.zeros, nn.initializers.normal(1.0)


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(relu(nn.Dense(6)(relu(nn.Dense(8)(x)))))  # the output layer is Dense_0


class Shuffled(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(4)(relu(nn.Dense(4)(relu(nn.Dense(4)(relu(nn.Dense(4)(x)))))))


class ActorCritic(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = relu(nn.Dense(6)(x))
        value = nn.Dense(2)(h)
        return {"value": value, "policy": nn.Dense(2)(h) * jnp.exp(self.param("log_std", zeros, (2,)))[None]}


class Gaussian(nn.Module):
    @nn.compact
    def __call__(self, x):
        mean = nn.Dense(2)(x)
        bound, log_std = self.param("a", zeros, (2,)), self.param("b", zeros, (2,))
        return mean, jnp.broadcast_to(log_std, mean.shape), jnp.broadcast_to(bound, mean.shape)


class Norms(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = relu(nn.LayerNorm(epsilon=1e-5)(nn.Dense(5)(x)))
        return nn.Dense(2, use_bias=False)(relu(nn.LayerNorm(epsilon=1e-5)(nn.Dense(5)(h))))


class Pixels(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = relu(nn.Conv(4, (3, 3), strides=2, padding=1)(x))
        h = relu(nn.Conv(4, (2, 2), padding="VALID")(h)).reshape(x.shape[0], -1)
        return nn.Dense(2)(relu(nn.Dense(5)(h)))


class Sequence(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = relu(nn.Conv(4, (2,), padding="VALID", feature_group_count=2)(x))
        return nn.Conv(3, (2,), padding="VALID", kernel_dilation=2)(h).mean(1)


class Tokens(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(5)(nn.Embed(5, 4)(x))


class Groups(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.GroupNorm(2, epsilon=1e-5)(nn.Conv(4, (2, 2), padding="VALID")(x))
        return nn.Dense(3)(relu(h).mean((1, 2)))


class RootMeanSquare(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(4)(nn.RMSNorm(epsilon=1e-5)(nn.Dense(4)(x)))


class BatchMLP(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        h = nn.BatchNorm(not train, epsilon=1e-5)(nn.Dense(4)(x))
        return nn.BatchNorm(not train, epsilon=1e-5)(nn.Dense(4)(relu(h)))


class BatchConv(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        return relu(nn.BatchNorm(not train, epsilon=1e-5)(nn.Conv(3, (2, 2), padding="VALID", use_bias=False)(x)))


class Recurrent(nn.Module):
    cell: type

    @nn.compact
    def __call__(self, x):
        cell, fc = self.cell(4), nn.Dense(3)
        state = cell.initialize_carry(jax.random.key(0), x.shape)
        for _ in range(2):
            state, h = cell(state, jnp.tanh(fc(x)))
        return nn.Dense(2)(h)


class NoisyDense(nn.Module):
    @nn.compact
    def __call__(self, x, eps_in, eps_out):
        mu, sigma = self.param("mu", ones, (4, 4)), self.param("sigma", ones, (4, 4))
        bias, bias_sigma = self.param("bias", ones, (4,)), self.param("bias_sigma", ones, (4,))
        f_in, f_out = (jnp.sign(e) * jnp.sqrt(jnp.abs(e)) for e in (eps_in, eps_out))
        return x @ (mu + sigma * jnp.outer(f_in, f_out)) + (bias + bias_sigma * f_out)[None]


class Noisy(nn.Module):
    @nn.compact
    def __call__(self, x, eps_in, eps_out):
        return NoisyDense()(relu(nn.Dense(4)(x)), eps_in, eps_out)


class Tied(nn.Module):
    @nn.compact
    def __call__(self, x):
        embed = nn.Embed(6, 4)
        return embed.attend(relu(nn.Dense(4)(embed(x))))


class Critic(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(relu(nn.Dense(4)(relu(nn.Dense(4)(x)))))[:, 0]


def ensemble(out_axes: int) -> type[nn.Module]:
    return nn.vmap(
        Critic, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, out_axes=out_axes, axis_size=2
    )


class Critics(nn.Module):
    @nn.compact
    def __call__(self, x):
        return ensemble(0)()(x)


class Targets(nn.Module):
    @nn.compact
    def __call__(self, x):
        target, online = (ensemble(1)(name=name)(x) for name in "ab")
        return online, target


class StackedCritics(nn.Module):
    @nn.compact
    def __call__(self, x):
        w, b = self.param("w", ones, (2, 3, 4)), self.param("b", ones, (2, 4))
        v, a = self.param("v", ones, (4, 2)), self.param("a", ones, (2,))
        h = relu(jnp.einsum("bi,nio->nbo", x, w) + b[:, None])
        return jnp.einsum("nbi,in->nb", h, v) + a[:, None]


class Dueling(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = relu(nn.Dense(4)(x))
        value = nn.Dense(3)(relu(nn.Dense(4)(h)))
        advantage = nn.Dense(3)(relu(nn.Dense(4)(h)))
        return value.mean(1, keepdims=True) + advantage - advantage.mean(1, keepdims=True)


class Residual(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = x + nn.Dense(4)(relu(nn.Dense(4)(x)))
        return x


MODULES = {
    "mlp": MLP,
    "shuffled": Shuffled,
    "actor_critic": ActorCritic,
    "layernorm": Norms,
    "pixels": Pixels,
    "sequence": Sequence,
    "tokens": Tokens,
    "groupnorm": Groups,
    "rmsnorm": RootMeanSquare,
    "batchnorm_mlp": BatchMLP,
    "batchnorm_conv": BatchConv,
    "lstm": lambda: Recurrent(nn.OptimizedLSTMCell),
    "gru": lambda: Recurrent(nn.GRUCell),
    "noisy": Noisy,
    "tied": Tied,
    "critics": Critics,
    "stacked_critics": StackedCritics,
    "dueling": Dueling,
    "residual": Residual,
    "gaussian": Gaussian,
    "targets": Targets,
}
