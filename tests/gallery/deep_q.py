"""Value-based agents in the manner of CleanRL: DQN, C51, quantiles, dueling streams, NoisyNet, and frames of Atari."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx
from torch import Tensor, nn
from torch.nn import functional as F

from crossfade.nn import NoisyLinear as EqxNoisyLinear
from crossfade.nn.noisy_torch import NoisyLinear as CrossfadeNoisyLinear
from gallery.case import Case, frames, haiku, keys, normal

ACTIONS, ATOMS = 3, 5
relu = jax.nn.relu


class QNetwork(nn.Module):
    def __init__(self, outputs: int = ACTIONS):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


class LinenQ(linen.Module):
    outputs: int = ACTIONS
    kink: str = "relu"

    @linen.compact
    def __call__(self, x):
        act = getattr(jax.nn, self.kink)
        return linen.Dense(self.outputs)(act(linen.Dense(8)(act(linen.Dense(12)(x)))))


class EqxQ(eqx.Module):
    layers: list

    def __init__(self, outputs: int = ACTIONS):
        sizes = ((4, 12), (12, 8), (8, outputs))
        self.layers = [eqx.nn.Linear(i, o, key=k) for (i, o), k in zip(sizes, keys(3), strict=True)]

    def __call__(self, x):
        return self.layers[2](relu(self.layers[1](relu(self.layers[0](x)))))


class NnxQ(nnx.Module):
    def __init__(self, outputs: int = ACTIONS):
        sizes = ((4, 12), (12, 8), (8, outputs))
        self.c, self.b, self.a = (nnx.Linear(i, o, rngs=nnx.Rngs(0)) for i, o in sizes)

    def __call__(self, x):
        return self.a(relu(self.b(relu(self.c(x)))))


def haiku_q(outputs: int = ACTIONS):
    return haiku(lambda x: hk.nets.MLP([12, 8, outputs])(x))


class NatureQ(nn.Module):
    """Frames of bytes, three convolutions, a flat layer; here smaller."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 6, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(6, 8, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(8, 5, 2, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(5 * 2 * 3, 16),
            nn.ReLU(),
            nn.Linear(16, ACTIONS),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x / 255.0)


class LinenNature(linen.Module):
    padding: str = "VALID"

    @linen.compact
    def __call__(self, x):
        x = x / 255.0
        for features, kernel, stride in ((6, 4, 2), (8, 3, 2), (5, 2, 1)):
            x = relu(linen.Conv(features, (kernel, kernel), strides=stride, padding=self.padding)(x))
        return linen.Dense(ACTIONS)(relu(linen.Dense(16)(x.reshape(len(x), -1))))


class EqxNature(eqx.Module):
    convs: list
    flat: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self):
        k = keys(5)
        self.convs = [
            eqx.nn.Conv2d(4, 6, 4, stride=2, key=k[0]),
            eqx.nn.Conv2d(6, 8, 3, stride=2, key=k[1]),
            eqx.nn.Conv2d(8, 5, 2, key=k[2]),
        ]
        self.flat, self.out = eqx.nn.Linear(30, 16, key=k[3]), eqx.nn.Linear(16, ACTIONS, key=k[4])

    def __call__(self, x):
        x = x / 255.0
        for conv in self.convs:
            x = relu(conv(x))
        return self.out(relu(self.flat(x.ravel())))


def haiku_nature(x):
    x = x / 255.0
    for features, kernel, stride in ((6, 4, 2), (8, 3, 2), (5, 2, 1)):
        x = relu(hk.Conv2D(features, kernel, stride=stride, padding="VALID")(x))
    return hk.Linear(ACTIONS)(relu(hk.Linear(16)(hk.Flatten()(x))))


class C51(nn.Module):
    """Probabilities of returns, with the support as a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("atoms", torch.linspace(-10, 10, ATOMS))
        self.network = QNetwork(ACTIONS * ATOMS).network

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(x)
        probabilities = torch.softmax(logits.view(len(x), ACTIONS, ATOMS), dim=2)
        return probabilities, (probabilities * self.atoms).sum(2)


class LinenC51(linen.Module):
    axis: int = -1

    @linen.compact
    def __call__(self, x):
        atoms = self.variable("support", "atoms", lambda: jnp.linspace(-10, 10, ATOMS)).value
        logits = LinenQ(ACTIONS * ATOMS)(x).reshape(len(x), ACTIONS, ATOMS)
        probabilities = jax.nn.softmax(logits, self.axis)
        return probabilities, (probabilities * atoms[None, None]).sum(2)


class Quantiles(QNetwork):
    """Quantiles of each action, the atoms before the actions in memory."""

    def __init__(self):
        super().__init__(ACTIONS * ATOMS)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).view(len(x), ATOMS, ACTIONS).transpose(1, 2)


class LinenQuantiles(linen.Module):
    """Actions first: the last kernel has its columns in another order."""

    @linen.compact
    def __call__(self, x):
        return LinenQ(ACTIONS * ATOMS)(x).reshape(len(x), ACTIONS, ATOMS)


class LinenQuantileKernels(linen.Module):
    """The last kernel has an axis of actions and one of atoms."""

    @linen.compact
    def __call__(self, x):
        h = relu(linen.Dense(8)(relu(linen.Dense(12)(x))))
        return linen.DenseGeneral((ACTIONS, ATOMS))(h)


class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.advantage = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, ACTIONS))
        self.value = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.features(x)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(1, keepdim=True)


class LinenDueling(linen.Module):
    best: bool = False  # subtracts the largest advantage: another function

    @linen.compact
    def __call__(self, x):
        h = relu(linen.Dense(8)(x))
        value = linen.Dense(1)(relu(linen.Dense(6)(h)))
        advantage = linen.Dense(ACTIONS)(relu(linen.Dense(6)(h)))
        middle = advantage.max(1, keepdims=True) if self.best else advantage.mean(1, keepdims=True)
        return value + advantage - middle


class LinenFusedDueling(linen.Module):
    """The first layers of both streams in one."""

    @linen.compact
    def __call__(self, x):
        both = relu(linen.Dense(12)(relu(linen.Dense(8)(x))))
        advantage = linen.Dense(ACTIONS)(both[:, 6:])
        return linen.Dense(1)(both[:, :6]) + advantage - advantage.mean(1, keepdims=True)


class NoisyLayer(nn.Module):
    """Noise is kept in buffers and takes part in training mode."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight_mu = nn.Parameter(torch.empty(outputs, inputs))
        self.weight_sigma = nn.Parameter(torch.empty(outputs, inputs))
        self.register_buffer("weight_epsilon", torch.zeros(outputs, inputs))
        self.bias_mu, self.bias_sigma = nn.Parameter(torch.empty(outputs)), nn.Parameter(torch.empty(outputs))
        self.register_buffer("bias_epsilon", torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return F.linear(x, self.weight_mu, self.bias_mu)
        weight = self.weight_mu + self.weight_sigma * self.weight_epsilon
        return F.linear(x, weight, self.bias_mu + self.bias_sigma * self.bias_epsilon)


class NoisyQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.noisy1, self.noisy2 = nn.Linear(4, 6), NoisyLayer(6, 5), NoisyLayer(5, ACTIONS)

    def forward(self, x: Tensor) -> Tensor:
        return self.noisy2(F.relu(self.noisy1(F.relu(self.fc(x)))))


class LinenNoisyLayer(linen.Module):
    features: int

    @linen.compact
    def __call__(self, x):
        shape = x.shape[-1], self.features
        init = linen.initializers.normal()
        mu, sigma = (self.param(f"kernel_{name}", init, shape) for name in ("mu", "sigma"))
        bias, bias_sigma = (self.param(f"bias_{name}", init, shape[1:]) for name in ("mu", "sigma"))
        noise = self.variable("noise", "kernel", lambda: jnp.zeros(shape)).value
        bias_noise = self.variable("noise", "bias", lambda: jnp.zeros(shape[1:])).value
        return x @ (mu + sigma * noise) + (bias + bias_sigma * bias_noise)[None]


class LinenNoisy(linen.Module):
    @linen.compact
    def __call__(self, x):
        h = relu(LinenNoisyLayer(5)(relu(linen.Dense(6)(x))))
        return LinenNoisyLayer(ACTIONS)(h)


class NoiseGiven(nn.Module):
    """Noise is an input."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(4, 6), CrossfadeNoisyLinear(6, ACTIONS)

    def forward(self, x: Tensor, noise_in: Tensor, noise_out: Tensor) -> Tensor:
        return self.head(F.relu(self.fc(x)), noise_in, noise_out)


class EqxNoiseGiven(eqx.Module):
    fc: eqx.nn.Linear
    head: EqxNoisyLinear

    def __init__(self):
        k = keys(2)
        self.fc, self.head = eqx.nn.Linear(4, 6, key=k[0]), EqxNoisyLinear(6, ACTIONS, key=k[1])

    def __call__(self, x, noise_in, noise_out):
        return self.head(relu(self.fc(x)), noise_in, noise_out)


CASES = {
    "dqn": Case(
        QNetwork,
        lambda: normal(5, 4),
        {"linen": LinenQ, "equinox": EqxQ, "nnx": NnxQ, "haiku": haiku_q},
        {"tanh": lambda: LinenQ(kink="tanh"), "relu6": lambda: LinenQ(kink="relu6")},
    ),
    "dqn atari": Case(
        NatureQ,
        lambda: frames(2, 4, 18, 22),
        {"linen": LinenNature, "equinox": EqxNature, "haiku": lambda: haiku(haiku_nature)},
    ),
    "c51": Case(C51, lambda: normal(5, 4), {"linen": LinenC51}, {"axis": lambda: LinenC51(axis=1)}),
    "quantiles": Case(Quantiles, lambda: normal(5, 4), {"linen": LinenQuantiles, "linen axes": LinenQuantileKernels}),
    "dueling": Case(
        Dueling,
        lambda: normal(5, 4),
        {"linen": LinenDueling, "linen fused": LinenFusedDueling},
        {"best": lambda: LinenDueling(best=True)},
    ),
    "noisy": Case(NoisyQ, lambda: normal(5, 4), {"linen": LinenNoisy}, options={"training": True}),
    "noise given": Case(
        NoiseGiven,
        lambda: (normal(5, 4), normal(6, seed=1), normal(ACTIONS, seed=2)),
        {"equinox": EqxNoiseGiven},
        options={"jax_apply": lambda model, x: jax.vmap(model, (0, None, None))(*x)},
    ),
}
