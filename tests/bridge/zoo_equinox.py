"""The zoo in Equinox; names are chosen to be of no help."""

import equinox as eqx
import jax
import jax.numpy as jnp
from equinox import nn

from crossfade.nn import NoisyLinear

relu = jax.nn.relu


def keys(n: int):
    return jax.random.split(jax.random.key(1), n)


class MLP(eqx.Module):
    net: nn.MLP

    def __init__(self):
        k = keys(3)
        self.net = eqx.tree_at(
            lambda m: (m.layers[1], m.layers[2]),
            nn.MLP(3, 2, 8, 2, key=k[0]),
            (nn.Linear(8, 6, key=k[1]), nn.Linear(6, 2, key=k[2])),
        )

    def __call__(self, x):
        return self.net(x)


class Shuffled(eqx.Module):
    layers: dict

    def __init__(self):
        self.layers = {name: nn.Linear(4, 4, key=k) for name, k in zip("dbac", keys(4), strict=True)}

    def __call__(self, x):
        for name in "cadb":
            x = self.layers[name](x) if name == "b" else relu(self.layers[name](x))
        return x


class ActorCritic(eqx.Module):
    a: nn.Linear
    b: nn.Linear
    c: nn.Linear
    d: jax.Array

    def __init__(self):
        k = keys(3)
        self.a, self.b, self.c = nn.Linear(6, 2, key=k[0]), nn.Linear(3, 6, key=k[1]), nn.Linear(6, 2, key=k[2])
        self.d = jnp.zeros(2)

    def __call__(self, x):
        h = relu(self.b(x))
        value = self.a(h)
        return {"value": value, "policy": self.c(h) * jnp.exp(self.d)}


class Gaussian(eqx.Module):
    a: jax.Array
    b: jax.Array
    c: nn.Linear

    def __init__(self):
        self.a, self.b, self.c = jnp.ones(2), jnp.zeros(2), nn.Linear(3, 2, key=keys(1)[0])

    def __call__(self, x):
        return self.c(x), self.b, self.a


class Norms(eqx.Module):
    fc: list
    norm: list

    def __init__(self):
        k = keys(3)
        self.fc = [nn.Linear(5, 2, use_bias=False, key=k[0]), nn.Linear(5, 5, key=k[1]), nn.Linear(3, 5, key=k[2])]
        self.norm = [nn.LayerNorm(5), nn.LayerNorm(5)]

    def __call__(self, x):
        h = relu(self.norm[0](self.fc[2](x)))
        return self.fc[0](relu(self.norm[1](self.fc[1](h))))


class Pixels(eqx.Module):
    convs: list
    fcs: list

    def __init__(self):
        k = keys(4)
        self.convs = [nn.Conv2d(2, 4, 3, stride=2, padding=1, key=k[0]), nn.Conv2d(4, 4, 2, key=k[1])]
        self.fcs = [nn.Linear(24, 5, key=k[2]), nn.Linear(5, 2, key=k[3])]

    def __call__(self, x):
        h = relu(self.convs[1](relu(self.convs[0](x)))).ravel()
        return self.fcs[1](relu(self.fcs[0](h)))


class Sequence(eqx.Module):
    a: nn.Conv1d
    b: nn.Conv1d

    def __init__(self):
        k = keys(2)
        self.a, self.b = nn.Conv1d(4, 3, 2, dilation=2, key=k[0]), nn.Conv1d(4, 4, 2, groups=2, key=k[1])

    def __call__(self, x):
        return self.a(relu(self.b(x))).mean(1)


class Tokens(eqx.Module):
    table: nn.Embedding
    out: nn.Linear

    def __init__(self):
        k = keys(2)
        self.table, self.out = nn.Embedding(5, 4, key=k[0]), nn.Linear(4, 5, key=k[1])

    def __call__(self, x):
        return self.out(self.table(x))


class Groups(eqx.Module):
    a: nn.Conv2d
    b: nn.GroupNorm
    c: nn.Linear

    def __init__(self):
        k = keys(2)
        self.a, self.b, self.c = nn.Conv2d(2, 4, 2, key=k[0]), nn.GroupNorm(2, 4), nn.Linear(4, 3, key=k[1])

    def __call__(self, x):
        return self.c(relu(self.b(self.a(x))).mean((1, 2)))


class RootMeanSquare(eqx.Module):
    a: nn.Linear
    b: nn.Linear
    c: nn.RMSNorm

    def __init__(self, use_bias: bool = False):
        k = keys(2)
        self.a, self.b = nn.Linear(4, 4, key=k[0]), nn.Linear(3, 4, key=k[1])
        self.c = nn.RMSNorm(4, eps=1e-5, use_bias=use_bias)

    def __call__(self, x):
        return self.a(self.c(self.b(x)))


class BatchMLP(eqx.Module):
    fc: list
    bn: list

    def __init__(self):
        k = keys(2)
        self.fc = [nn.Linear(4, 4, key=k[0]), nn.Linear(3, 4, key=k[1])]
        self.bn = [nn.BatchNorm(4, "batch", mode="ema"), nn.BatchNorm(4, "batch", mode="batch")]

    def __call__(self, x, state):
        h, state = self.bn[1](self.fc[1](x), state)
        return self.bn[0](self.fc[0](relu(h)), state)


class BatchConv(eqx.Module):
    conv: nn.Conv2d
    bn: nn.BatchNorm

    def __init__(self):
        self.conv = nn.Conv2d(2, 3, 2, use_bias=False, key=keys(1)[0])
        self.bn = nn.BatchNorm(3, "batch", mode="batch")

    def __call__(self, x, state):
        h, state = self.bn(self.conv(x), state)
        return relu(h), state


class Recurrent(eqx.Module):
    a: nn.Linear
    b: eqx.Module
    c: nn.Linear
    pair: bool = eqx.field(static=True)

    def __init__(self, cell: type, pair: bool):
        k = keys(3)
        self.a, self.b, self.c = nn.Linear(4, 2, key=k[0]), cell(3, 4, key=k[1]), nn.Linear(3, 3, key=k[2])
        self.pair = pair

    def __call__(self, x):
        state = (jnp.zeros(4), jnp.zeros(4)) if self.pair else jnp.zeros(4)
        for _ in range(2):
            state = self.b(jnp.tanh(self.c(x)), state)
        return self.a(state[0] if self.pair else state)


class Noisy(eqx.Module):
    a: NoisyLinear
    b: nn.Linear

    def __init__(self):
        k = keys(2)
        self.a, self.b = NoisyLinear(4, 4, key=k[0]), nn.Linear(3, 4, key=k[1])

    def __call__(self, x, eps_in, eps_out):
        return self.a(relu(self.b(x)), eps_in, eps_out)


class Tied(eqx.Module):
    shared: nn.Shared
    fc: nn.Linear

    def __init__(self):
        k = keys(3)
        pair = (nn.Embedding(6, 4, key=k[0]), nn.Linear(4, 6, use_bias=False, key=k[1]))
        self.shared = nn.Shared(pair, lambda p: p[1].weight, lambda p: p[0].weight)
        self.fc = nn.Linear(4, 4, key=k[2])

    def __call__(self, x):
        embed, head = self.shared()
        return head(relu(self.fc(embed(x))))


class Critic(eqx.Module):
    fc: list

    def __init__(self, key):
        k = jax.random.split(key, 3)
        self.fc = [nn.Linear(4, "scalar", key=k[0]), nn.Linear(3, 4, key=k[1]), nn.Linear(4, 4, key=k[2])]

    def __call__(self, x):
        return self.fc[0](relu(self.fc[2](relu(self.fc[1](x)))))


class Critics(eqx.Module):
    stacked: Critic

    def __init__(self):
        self.stacked = eqx.filter_vmap(Critic)(keys(2))

    def __call__(self, x):
        return eqx.filter_vmap(lambda critic: critic(x))(self.stacked)


class Targets(eqx.Module):
    a: Critic
    b: Critic

    def __init__(self):
        self.a, self.b = eqx.filter_vmap(Critic)(keys(2)), eqx.filter_vmap(Critic)(keys(2))

    def __call__(self, x):
        evaluate = eqx.filter_vmap(lambda critic: critic(x))
        return evaluate(self.b), evaluate(self.a)


class CriticList(eqx.Module):
    """A list of critics, against torch's one array for all."""

    critics: list

    def __init__(self):
        build = lambda k: [nn.Linear(3, 4, key=k), nn.Linear(4, "scalar", key=k)]
        self.critics = [build(k) for k in keys(2)]

    def __call__(self, x):
        return jnp.stack([second(relu(first(x))) for first, second in self.critics])


class StackedCritics(eqx.Module):
    v: jax.Array
    w: jax.Array
    a: jax.Array
    b: jax.Array

    def __init__(self):
        self.v, self.w = jnp.ones((2, 4, 1)), jnp.ones((2, 4, 3))
        self.a, self.b = jnp.ones((2, 1)), jnp.ones((2, 4))

    def __call__(self, x):
        h = relu(jnp.einsum("noi,i->no", self.w, x) + self.b)
        return (jnp.einsum("nio,ni->no", self.v, h) + self.a)[:, 0]


class Dueling(eqx.Module):
    a: list
    b: list
    trunk: nn.Linear

    def __init__(self):
        k = keys(5)
        stream = lambda first, second: [nn.Linear(4, 4, key=first), nn.Linear(4, 3, key=second)]
        self.a, self.b, self.trunk = stream(k[0], k[1]), stream(k[2], k[3]), nn.Linear(4, 4, key=k[4])

    def __call__(self, x):
        h = relu(self.trunk(x))
        value, advantage = self.a[1](relu(self.a[0](h))), self.b[1](relu(self.b[0](h)))
        return value.mean() + advantage - advantage.mean()


class Residual(eqx.Module):
    fc: list

    def __init__(self):
        self.fc = [nn.Linear(4, 4, key=k) for k in keys(4)]

    def __call__(self, x):
        x = x + self.fc[0](relu(self.fc[3](x)))
        return x + self.fc[1](relu(self.fc[2](x)))


MAKERS = {
    "mlp": MLP,
    "shuffled": Shuffled,
    "actor_critic": ActorCritic,
    "layernorm": Norms,
    "pixels": Pixels,
    "sequence": Sequence,
    "tokens": Tokens,
    "groupnorm": Groups,
    "rmsnorm": RootMeanSquare,
    "batchnorm_mlp": lambda: nn.make_with_state(BatchMLP)(),
    "batchnorm_conv": lambda: nn.make_with_state(BatchConv)(),
    "lstm": lambda: Recurrent(nn.LSTMCell, True),
    "gru": lambda: Recurrent(nn.GRUCell, False),
    "noisy": Noisy,
    "tied": Tied,
    "critics": Critics,
    "stacked_critics": StackedCritics,
    "dueling": Dueling,
    "residual": Residual,
    "gaussian": Gaussian,
    "targets": Targets,
}
