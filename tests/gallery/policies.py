"""Actors and critics in the manner of CleanRL and CORL: PPO, DDPG, TD3, SAC, IQL, EDAC; agents without `forward`, and
models as a function with parameters or as a TrainState."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from flax import linen, nnx
from flax.training.train_state import TrainState
from torch import Tensor, nn
from torch.nn import functional as F

from gallery.case import Case, haiku, keys, normal

OBSERVATIONS, ACTIONS, CRITICS = 4, 2, 3
relu = jax.nn.relu


# PPO


def torch_mlp(*sizes: int, act: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers = [part for i, o in zip(sizes, sizes[1:], strict=False) for part in (nn.Linear(i, o), act())]
    return nn.Sequential(*layers[:-1])


class PPOAgent(nn.Module):
    """Actor and critic apart; it has methods and no `forward`."""

    def __init__(self):
        super().__init__()
        self.critic, self.actor = torch_mlp(OBSERVATIONS, 8, 8, 1), torch_mlp(OBSERVATIONS, 8, 8, ACTIONS)

    def get_value(self, x: Tensor) -> Tensor:
        return self.critic(x)

    def get_action_and_value(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(x), self.critic(x)


class LinenMLP(linen.Module):
    sizes: tuple[int, ...]
    act: str = "tanh"

    @linen.compact
    def __call__(self, x):
        for size in self.sizes[:-1]:
            x = getattr(linen, self.act)(linen.Dense(size)(x))
        return linen.Dense(self.sizes[-1])(x)


class LinenPPO(linen.Module):
    act: str = "tanh"

    @linen.compact
    def __call__(self, x):
        value = LinenMLP((8, 8, 1), self.act)(x)
        return LinenMLP((8, 8, ACTIONS), self.act)(x), value


class EqxPPO(eqx.Module):
    a: eqx.nn.MLP
    b: eqx.nn.MLP

    def __init__(self):
        first, second = keys(2)
        mlp = lambda outputs, key: eqx.nn.MLP(OBSERVATIONS, outputs, 8, 2, activation=jnp.tanh, key=key)
        self.a, self.b = mlp(1, first), mlp(ACTIONS, second)

    def __call__(self, x):
        return self.b(x), self.a(x)


def train_state(whole: bool):
    module = LinenPPO()
    variables = module.init(jax.random.key(0), np.zeros((1, OBSERVATIONS)))
    params = variables if whole else variables["params"]
    return TrainState.create(apply_fn=module.apply, params=params, tx=optax.adam(1e-3))


def function():
    module = LinenPPO()
    return module.apply, module.init(jax.random.key(0), np.zeros((1, OBSERVATIONS)))


class GaussianPPO(nn.Module):
    """Continuous actions: the deviation is a parameter, observations are normalised by running statistics."""

    def __init__(self):
        super().__init__()
        self.register_buffer("obs_mean", torch.zeros(OBSERVATIONS))
        self.register_buffer("obs_var", torch.ones(OBSERVATIONS))
        self.critic, self.actor_mean = torch_mlp(OBSERVATIONS, 8, 1), torch_mlp(OBSERVATIONS, 8, ACTIONS)
        self.actor_logstd = nn.Parameter(torch.zeros(1, ACTIONS))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = ((x - self.obs_mean) / torch.sqrt(self.obs_var + 1e-8)).clamp(-10, 10)
        mean = self.actor_mean(x)
        return mean, self.actor_logstd.expand_as(mean).exp(), self.critic(x)


class LinenGaussianPPO(linen.Module):
    bound: float = 10.0

    @linen.compact
    def __call__(self, x):
        mean = self.variable("stats", "mean", lambda: jnp.zeros(OBSERVATIONS)).value
        var = self.variable("stats", "var", lambda: jnp.ones(OBSERVATIONS)).value
        log_std = self.param("log_std", linen.initializers.zeros, (ACTIONS,))
        x = jnp.clip((x - mean[None]) / jnp.sqrt(var + 1e-8)[None], -self.bound, self.bound)
        action = LinenMLP((8, ACTIONS))(x)
        return action, jnp.broadcast_to(jnp.exp(log_std), action.shape), LinenMLP((8, 1))(x)


class SharedPPO(nn.Module):
    """One trunk; observations come as a dict."""

    def __init__(self):
        super().__init__()
        self.trunk, self.actor, self.critic = nn.Linear(OBSERVATIONS + 3, 6), nn.Linear(6, 3), nn.Linear(6, 1)

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        h = F.relu(self.trunk(torch.cat([observation["joints"], observation["goal"]], -1)))
        return {"logits": self.actor(h), "value": self.critic(h)}


class LinenSharedPPO(linen.Module):
    fused: bool = False
    order: tuple[str, ...] = ("joints", "goal")

    @linen.compact
    def __call__(self, observation):
        h = relu(linen.Dense(6)(jnp.concatenate([observation[name] for name in self.order], -1)))
        if self.fused:
            both = linen.Dense(4)(h)
            return {"logits": both[:, 1:], "value": both[:, :1]}
        value = linen.Dense(1)(h)
        return {"logits": linen.Dense(3)(h), "value": value}


class NnxSharedPPO(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.c, self.a, self.b = (nnx.Linear(i, o, rngs=rngs) for i, o in ((OBSERVATIONS + 3, 6), (6, 1), (6, 3)))

    def __call__(self, observation):
        h = relu(self.c(jnp.concatenate([observation["joints"], observation["goal"]], -1)))
        return {"logits": self.b(h), "value": self.a(h)}


class FusedPPO(nn.Module):
    """Logits and value from one layer."""

    def __init__(self):
        super().__init__()
        self.trunk, self.heads = nn.Linear(OBSERVATIONS, 6), nn.Linear(6, 3 + 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        both = self.heads(F.relu(self.trunk(x)))
        return both[:, :3], both[:, 3:]


class LinenSeparateHeads(linen.Module):
    @linen.compact
    def __call__(self, x):
        h = relu(linen.Dense(6)(x))
        value = linen.Dense(1)(h)
        return linen.Dense(3)(h), value


class EqxSeparateHeads(eqx.Module):
    fc: list

    def __init__(self):
        sizes = ((6, 1), (6, 3), (OBSERVATIONS, 6))
        self.fc = [eqx.nn.Linear(i, o, key=k) for (i, o), k in zip(sizes, keys(3), strict=True)]

    def __call__(self, x):
        h = relu(self.fc[2](x))
        return self.fc[1](h), self.fc[0](h)


# DDPG, TD3, SAC


class DDPGActor(nn.Module):
    """Actions are scaled to their bounds, which are buffers."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc_mu = nn.Linear(OBSERVATIONS, 8), nn.Linear(8, 8), nn.Linear(8, ACTIONS)
        self.register_buffer("action_scale", torch.tensor([2.0, 0.5]))
        self.register_buffer("action_bias", torch.tensor([0.25, -1.0]))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        return torch.tanh(self.fc_mu(x)) * self.action_scale + self.action_bias


class LinenDDPGActor(linen.Module):
    """The bounds as attributes, as CleanRL's JAX port has them."""

    scale: tuple[float, ...]
    bias: tuple[float, ...]

    @linen.compact
    def __call__(self, x):
        x = jnp.tanh(LinenMLP((8, 8, ACTIONS), "relu")(x))
        return x * jnp.array(self.scale)[None] + jnp.array(self.bias)[None]


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(OBSERVATIONS + ACTIONS, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.cat([x, a], 1))))))


class LinenCritic(linen.Module):
    swapped: bool = False

    @linen.compact
    def __call__(self, x, a):
        return LinenMLP((8, 8, 1), "relu")(jnp.concatenate([a, x] if self.swapped else [x, a], -1))


def haiku_critic(x, a):
    return hk.nets.MLP([8, 8, 1])(jnp.concatenate([x, a], -1))


class SACActor(nn.Module):
    """Mean and deviation from one trunk, the latter squashed between bounds."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(OBSERVATIONS, 8), nn.Linear(8, 8)
        self.fc_mean, self.fc_logstd = nn.Linear(8, ACTIONS), nn.Linear(8, ACTIONS)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.fc2(F.relu(self.fc1(x))))
        return self.fc_mean(x), -5 + 0.5 * (2 - -5) * (torch.tanh(self.fc_logstd(x)) + 1)


class LinenSACActor(linen.Module):
    lowest: float = -5.0
    fused: bool = False

    @linen.compact
    def __call__(self, x):
        x = relu(linen.Dense(8)(relu(linen.Dense(8)(x))))
        if self.fused:
            log_std, mean = jnp.split(linen.Dense(2 * ACTIONS)(x), 2, -1)
        else:
            log_std, mean = linen.Dense(ACTIONS)(x), linen.Dense(ACTIONS)(x)
        return mean, self.lowest + 0.5 * (2 - self.lowest) * (jnp.tanh(log_std) + 1)


class TwinCritics(nn.Module):
    """Two critics and their targets, in one agent without `forward`."""

    def __init__(self):
        super().__init__()
        self.qf1, self.qf2, self.qf1_target, self.qf2_target = (QNetwork() for _ in range(4))

    def values(self, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        online = torch.stack([self.qf1(x, a), self.qf2(x, a)])
        return online, torch.minimum(self.qf1_target(x, a), self.qf2_target(x, a))


class LinenTwins(linen.Module):
    """Each pair as one vmapped critic."""

    @linen.compact
    def __call__(self, x, a):
        pair = lambda name: linen.vmap(
            LinenCritic, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=None, out_axes=0, axis_size=2
        )(name=name)
        target = pair("b")(x, a)
        return pair("a")(x, a), target.min(0)


# CORL


class IQL(nn.Module):
    """Policy, value and twin critics, with a deviation of its own."""

    def __init__(self):
        super().__init__()
        self.policy, self.v = torch_mlp(OBSERVATIONS, 8, 8, ACTIONS, act=nn.ReLU), torch_mlp(OBSERVATIONS, 8, 1)
        self.q1, self.q2 = (torch_mlp(OBSERVATIONS + ACTIONS, 8, 1, act=nn.ReLU) for _ in range(2))
        self.log_std = nn.Parameter(torch.zeros(ACTIONS))

    def forward(self, x: Tensor, a: Tensor) -> tuple[Tensor, ...]:
        xa = torch.cat([x, a], 1)
        deviation = self.log_std.clamp(-20.0, 2.0).exp()
        return torch.tanh(self.policy(x)), deviation, self.v(x).squeeze(-1), self.q1(xa), self.q2(xa)


class LinenIQL(linen.Module):
    lowest: float = -20.0

    @linen.compact
    def __call__(self, x, a):
        xa = jnp.concatenate([x, a], -1)
        q2, q1 = LinenMLP((8, 1), "relu")(xa), LinenMLP((8, 1), "relu")(xa)
        deviation = jnp.exp(jnp.clip(self.param("log_std", linen.initializers.zeros, (ACTIONS,)), self.lowest, 2.0))
        return jnp.tanh(LinenMLP((8, 8, ACTIONS), "relu")(x)), deviation, LinenMLP((8, 1))(x)[:, 0], q1, q2


class VectorizedLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(CRITICS, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(CRITICS, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class EDAC(nn.Module):
    """An ensemble of critics in one array for each layer."""

    def __init__(self):
        super().__init__()
        layer = VectorizedLinear
        self.critic = nn.Sequential(layer(OBSERVATIONS + ACTIONS, 8), nn.ReLU(), layer(8, 8), nn.ReLU(), layer(8, 1))

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        xa = torch.cat([x, a], -1)[None].repeat_interleave(CRITICS, 0)
        return self.critic(xa).squeeze(-1)


class LinenEnsemble(linen.Module):
    @linen.compact
    def __call__(self, x, a):
        critic = linen.vmap(
            LinenCritic,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=None,
            out_axes=0,
            axis_size=CRITICS,
        )
        return critic()(x, a)[..., 0]


class EqxEnsemble(eqx.Module):
    critics: eqx.nn.MLP

    def __init__(self):
        make = lambda key: eqx.nn.MLP(OBSERVATIONS + ACTIONS, "scalar", 8, 2, key=key)
        self.critics = eqx.filter_vmap(make)(jnp.stack(keys(CRITICS)))

    def __call__(self, x, a):
        return eqx.filter_vmap(lambda critic: critic(jnp.concatenate([x, a])))(self.critics)


class LinenList(linen.Module):
    @linen.compact
    def __call__(self, x, a):
        return jnp.stack([LinenCritic()(x, a)[:, 0] for _ in range(CRITICS)])


OBSERVED = lambda: normal(5, OBSERVATIONS)
TAKEN = lambda: (normal(5, OBSERVATIONS), normal(5, ACTIONS, seed=1))
DICT = lambda: {"joints": normal(5, OBSERVATIONS).numpy(), "goal": normal(5, 3, seed=1).numpy()}

CASES = {
    "ppo": Case(
        PPOAgent,
        OBSERVED,
        {
            "linen": LinenPPO,
            "equinox": EqxPPO,
            "function": function,
            "train state": lambda: train_state(whole=False),
            "train state of variables": lambda: train_state(whole=True),
        },
        {"relu": lambda: LinenPPO("relu")},
        options={"torch_apply": lambda agent, x: agent.get_action_and_value(x)},
    ),
    "ppo continuous": Case(
        GaussianPPO, OBSERVED, {"linen": LinenGaussianPPO}, {"bound": lambda: LinenGaussianPPO(bound=5.0)}
    ),
    "ppo of a dict": Case(
        SharedPPO,
        DICT,
        {"linen": LinenSharedPPO, "linen fused": lambda: LinenSharedPPO(fused=True), "nnx": NnxSharedPPO},
        {"order": lambda: LinenSharedPPO(order=("goal", "joints"))},
    ),
    "ppo of one head": Case(FusedPPO, OBSERVED, {"linen": LinenSeparateHeads, "equinox": EqxSeparateHeads}),
    "ddpg actor": Case(
        DDPGActor,
        OBSERVED,
        {"linen": lambda: LinenDDPGActor((2.0, 0.5), (0.25, -1.0))},
        {"scale": lambda: LinenDDPGActor((0.5, 2.0), (0.25, -1.0))},
    ),
    "critic": Case(
        QNetwork,
        TAKEN,
        {"linen": LinenCritic, "haiku": lambda: haiku(haiku_critic)},
        {"order": lambda: LinenCritic(swapped=True)},
    ),
    "sac actor": Case(
        SACActor,
        OBSERVED,
        {"linen": LinenSACActor, "linen fused": lambda: LinenSACActor(fused=True)},
        {"bound": lambda: LinenSACActor(lowest=-20.0)},
    ),
    "twin critics": Case(
        TwinCritics, TAKEN, {"linen": LinenTwins}, options={"torch_apply": lambda agent, x: agent.values(*x)}
    ),
    "iql": Case(IQL, TAKEN, {"linen": LinenIQL}, {"bound": lambda: LinenIQL(lowest=-5.0)}),
    "edac": Case(
        EDAC,
        TAKEN,
        {"linen": LinenEnsemble, "equinox": EqxEnsemble, "linen list": LinenList},
        own={"equinox": {"jax_apply": lambda model, x: jax.vmap(model, out_axes=1)(*x)}},
    ),
}
