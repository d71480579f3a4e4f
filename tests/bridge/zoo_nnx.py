"""The zoo in Flax NNX; attributes are sorted by name, which is not the order of use."""

import jax
import jax.numpy as jnp
from flax import nnx

relu = jax.nn.relu
normal = jax.random.normal


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.z, self.m, self.a = (nnx.Linear(i, o, rngs=rngs) for i, o in ((3, 8), (8, 6), (6, 2)))

    def __call__(self, x):
        return self.a(relu(self.m(relu(self.z(x)))))


class Shuffled(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b, self.c, self.d = (nnx.Linear(4, 4, rngs=rngs) for _ in range(4))

    def __call__(self, x):
        return self.a(relu(self.d(relu(self.b(relu(self.c(x)))))))


class ActorCritic(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(6, 2, rngs=rngs), nnx.Linear(6, 2, rngs=rngs)
        self.c, self.d = nnx.Linear(3, 6, rngs=rngs), nnx.Param(jnp.zeros(2))

    def __call__(self, x):
        h = relu(self.c(x))
        value = self.a(h)
        return {"value": value, "policy": self.b(h) * jnp.exp(self.d[...])[None]}


class Gaussian(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b, self.c = nnx.Param(jnp.ones(2)), nnx.Param(jnp.zeros(2)), nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x):
        mean = self.c(x)
        return mean, jnp.broadcast_to(self.b[...], mean.shape), jnp.broadcast_to(self.a[...], mean.shape)


class Norms(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.LayerNorm(5, epsilon=1e-5, rngs=rngs), nnx.LayerNorm(5, epsilon=1e-5, rngs=rngs)
        self.c, self.d = nnx.Linear(5, 5, rngs=rngs), nnx.Linear(3, 5, rngs=rngs)
        self.e = nnx.Linear(5, 2, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.e(relu(self.a(self.c(relu(self.b(self.d(x)))))))


class Pixels(nnx.Module):
    def __init__(self, rngs):
        self.b = nnx.Conv(2, 4, (3, 3), strides=2, padding=1, rngs=rngs)
        self.a = nnx.Conv(4, 4, (2, 2), padding="VALID", rngs=rngs)
        self.d, self.c = nnx.Linear(24, 5, rngs=rngs), nnx.Linear(5, 2, rngs=rngs)

    def __call__(self, x):
        h = relu(self.a(relu(self.b(x)))).reshape(x.shape[0], -1)
        return self.c(relu(self.d(h)))


class Sequence(nnx.Module):
    def __init__(self, rngs):
        self.b = nnx.Conv(4, 4, (2,), padding="VALID", feature_group_count=2, rngs=rngs)
        self.a = nnx.Conv(4, 3, (2,), padding="VALID", kernel_dilation=2, rngs=rngs)

    def __call__(self, x):
        return self.a(relu(self.b(x))).mean(1)


class Tokens(nnx.Module):
    def __init__(self, rngs):
        self.table, self.out = nnx.Embed(5, 4, rngs=rngs), nnx.Linear(4, 5, rngs=rngs)

    def __call__(self, x):
        return self.out(self.table(x))


class Groups(nnx.Module):
    def __init__(self, rngs):
        self.c = nnx.Conv(2, 4, (2, 2), padding="VALID", rngs=rngs)
        self.b = nnx.GroupNorm(4, 2, epsilon=1e-5, rngs=rngs)
        self.a = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.a(relu(self.b(self.c(x))).mean((1, 2)))


class RootMeanSquare(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(3, 4, rngs=rngs)
        self.c = nnx.RMSNorm(4, epsilon=1e-5, rngs=rngs)

    def __call__(self, x):
        return self.a(self.c(self.b(x)))


class BatchMLP(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.BatchNorm(4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
        self.c, self.d = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(3, 4, rngs=rngs)

    def __call__(self, x):
        return self.a(self.c(relu(self.b(self.d(x)))))


class BatchConv(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 3, (2, 2), padding="VALID", use_bias=False, rngs=rngs)
        self.bn, self.dropout = nnx.BatchNorm(3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(relu(self.bn(self.conv(x))))


class Recurrent(nnx.Module):
    def __init__(self, cell, rngs):
        self.a, self.b, self.c = nnx.Linear(4, 2, rngs=rngs), cell(3, 4, rngs=rngs), nnx.Linear(3, 3, rngs=rngs)

    def __call__(self, x):
        state = self.b.initialize_carry(x.shape, nnx.Rngs(0))
        for _ in range(2):
            state, h = self.b(state, jnp.tanh(self.c(x)))
        return self.a(h)


class Noisy(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(3, 4, rngs=rngs)
        self.a, self.b = nnx.Param(normal(rngs(), (4, 4))), nnx.Param(normal(rngs(), (4, 4)))
        self.c, self.d = nnx.Param(normal(rngs(), (4,))), nnx.Param(normal(rngs(), (4,)))

    def __call__(self, x, eps_in, eps_out):
        f_in, f_out = (jnp.sign(e) * jnp.sqrt(jnp.abs(e)) for e in (eps_in, eps_out))
        kernel = self.b[...] + self.a[...] * jnp.outer(f_in, f_out)
        return relu(self.fc(x)) @ kernel + (self.d[...] + self.c[...] * f_out)[None]


class Tied(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.fc = nnx.Embed(6, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return self.embed.attend(relu(self.fc(self.embed(x))))


class Critic(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b, self.c = (nnx.Linear(i, o, rngs=rngs) for i, o in ((4, 1), (3, 4), (4, 4)))

    def __call__(self, x):
        return self.a(relu(self.c(relu(self.b(x)))))[:, 0]


class Critics(nnx.Module):
    def __init__(self, rngs):
        self.stacked = nnx.vmap(Critic)(rngs.split(2))

    def __call__(self, x):
        return nnx.vmap(lambda critic, x: critic(x), in_axes=(0, None))(self.stacked, x)


class Targets(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.vmap(Critic)(rngs.split(2)), nnx.vmap(Critic)(rngs.split(2))

    def __call__(self, x):
        evaluate = nnx.vmap(lambda critic, x: critic(x), in_axes=(0, None), out_axes=1)
        return evaluate(self.b, x), evaluate(self.a, x)


class StackedCritics(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Param(normal(rngs(), (2, 4))), nnx.Param(normal(rngs(), (2, 4, 1)))
        self.c, self.d = nnx.Param(normal(rngs(), (2, 1))), nnx.Param(normal(rngs(), (2, 4, 3)))

    def __call__(self, x):
        h = relu(jnp.einsum("bi,noi->nbo", x, self.d[...]) + self.a[...][:, None])
        return (jnp.einsum("nbi,nio->nbo", h, self.b[...]) + self.c[...][:, None])[..., 0]


class Dueling(nnx.Module):
    def __init__(self, rngs):
        self.trunk = nnx.Linear(4, 4, rngs=rngs)
        self.a, self.b, self.c, self.d = (nnx.Linear(4, o, rngs=rngs) for o in (4, 3, 4, 3))

    def __call__(self, x):
        h = relu(self.trunk(x))
        value, advantage = self.d(relu(self.a(h))), self.b(relu(self.c(h)))
        return value.mean(1, keepdims=True) + advantage - advantage.mean(1, keepdims=True)


class Residual(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b, self.c, self.d = (nnx.Linear(4, 4, rngs=rngs) for _ in range(4))

    def __call__(self, x):
        x = x + self.b(relu(self.d(x)))
        return x + self.a(relu(self.c(x)))


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
    "lstm": lambda rngs: Recurrent(nnx.OptimizedLSTMCell, rngs),
    "lstm_gates": lambda rngs: Recurrent(nnx.LSTMCell, rngs),
    "gru": lambda rngs: Recurrent(nnx.GRUCell, rngs),
    "noisy": Noisy,
    "tied": Tied,
    "critics": Critics,
    "stacked_critics": StackedCritics,
    "dueling": Dueling,
    "residual": Residual,
    "gaussian": Gaussian,
    "targets": Targets,
}
