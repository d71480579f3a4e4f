"""Recurrent nets over whole sequences: PPO with an LSTM, GRUs, several layers, both directions, cells of one's own."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx
from torch import Tensor, nn

import crossfade.nn as cfnn
from gallery.case import Case, haiku, keys, normal

HIDDEN = 4


class PPOLstm(nn.Module):
    """Encoder, LSTM over time (time first), two heads; no `forward`."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(3, 5), nn.ReLU())
        self.lstm = nn.LSTM(5, HIDDEN)
        self.actor, self.critic = nn.Linear(HIDDEN, 2), nn.Linear(HIDDEN, 1)

    def get_states(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden, state = self.lstm(self.network(x), state)
        return hidden, state

    def get_action_and_value(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden, (last, _) = self.get_states(x, (h[None], c[None]))
        return self.actor(hidden), self.critic(hidden), last[0]


class LinenPPOLstm(linen.Module):
    """The cell scanned over time by Flax's own transformation."""

    cell: type = linen.LSTMCell
    order: str = "c h"

    @linen.compact
    def __call__(self, x, h, c):
        x = linen.relu(linen.Dense(5)(x))
        scan = linen.scan(self.cell, variable_broadcast="params", split_rngs={"params": False}, in_axes=0, out_axes=0)
        carry = (c, h) if self.order == "c h" else (h, c)
        carry, hidden = scan(HIDDEN)(carry, x)
        return linen.Dense(2)(hidden), linen.Dense(1)(hidden), carry[1]


class EqxPPOLstm(eqx.Module):
    fc: list
    cell: eqx.Module

    def __init__(self, cell: type = eqx.nn.LSTMCell):
        k = keys(4)
        self.fc = [eqx.nn.Linear(i, o, key=key) for (i, o), key in zip([(4, 1), (4, 2), (3, 5)], k, strict=False)]
        self.cell = cell(5, HIDDEN, key=k[3])

    def __call__(self, x, h, c):
        step = lambda state, x: (lambda new: (new, new[0]))(self.cell(jax.nn.relu(self.fc[2](x)), state))
        (last, _), hidden = jax.lax.scan(step, (h, c), x)
        return jax.vmap(self.fc[1])(hidden), jax.vmap(self.fc[0])(hidden), last


def haiku_ppo_lstm(x, h, c):
    core = hk.LSTM(HIDDEN)
    hidden, state = hk.dynamic_unroll(core, jax.nn.relu(hk.Linear(5)(x)), hk.LSTMState(h, c))
    return hk.Linear(2)(hidden), hk.Linear(1)(hidden), state.hidden


class Layers(nn.Module):
    """nn.LSTM or nn.GRU with the batch first, and a head on what it gives at every step."""

    def __init__(self, kind: type[nn.RNNBase], **options):
        super().__init__()
        self.rnn = kind(3, HIDDEN, batch_first=True, **options)
        self.head = nn.Linear(HIDDEN * (1 + self.rnn.bidirectional), 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


class LinenRNN(linen.Module):
    """Flax's stock layer."""

    cell: type = linen.LSTMCell
    layers: int = 1
    reverse: bool = False

    @linen.compact
    def __call__(self, x):
        for _ in range(self.layers):
            x = linen.RNN(self.cell(HIDDEN), reverse=self.reverse, keep_order=True)(x)
        return linen.Dense(2)(x)


class LinenBoth(linen.Module):
    """Both directions."""

    @linen.compact
    def __call__(self, x):
        both = linen.Bidirectional(linen.RNN(linen.LSTMCell(HIDDEN)), linen.RNN(linen.LSTMCell(HIDDEN)))
        return linen.Dense(2)(both(x))


class NnxRNN(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.rnn = nnx.RNN(nnx.LSTMCell(3, HIDDEN, rngs=rngs))
        self.head = nnx.Linear(HIDDEN, 2, rngs=rngs)

    def __call__(self, x):
        return self.head(self.rnn(x))


class EqxRNN(eqx.Module):
    cells: list
    head: eqx.nn.Linear
    pair: bool = eqx.field(static=True)

    def __init__(self, cell: type, layers: int = 1, pair: bool = True):
        k = keys(layers + 1)
        self.cells = [cell(HIDDEN if i else 3, HIDDEN, key=k[i]) for i in range(layers)]
        self.head, self.pair = eqx.nn.Linear(HIDDEN, 2, key=k[-1]), pair

    def __call__(self, x):
        start = (jnp.zeros(HIDDEN), jnp.zeros(HIDDEN)) if self.pair else jnp.zeros(HIDDEN)
        for cell in self.cells:
            step = lambda s, x, cell=cell: (lambda new: (new, new[0] if self.pair else new))(cell(x, s))
            _, x = jax.lax.scan(step, start, x)
        return jax.vmap(self.head)(x)


def haiku_rnn(x):
    core = hk.LSTM(HIDDEN)
    hidden, _ = hk.dynamic_unroll(core, jnp.swapaxes(x, 0, 1), core.initial_state(len(x)))
    return jnp.swapaxes(hk.Linear(2)(hidden), 0, 1)


class Gates(nn.Module):
    """A cell written out, with a layer for each gate, run over a short sequence."""

    def __init__(self):
        super().__init__()
        layers = lambda: nn.ModuleDict({gate: nn.Linear(HIDDEN, HIDDEN) for gate in ("r", "z", "n")})
        self.embed, self.x, self.h = nn.Linear(3, HIDDEN), layers(), layers()

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), HIDDEN, dtype=x.dtype)
        for t in range(x.shape[1]):
            e = self.embed(x[:, t])
            reset = torch.sigmoid(self.x["r"](e) + self.h["r"](h))
            update = torch.sigmoid(self.x["z"](e) + self.h["z"](h))
            new = torch.tanh(self.x["n"](e) + reset * self.h["n"](h))
            h = (1 - update) * new + update * h
        return h


class LinenGates(linen.Module):
    """The same with one layer for all gates; `order` is that of the gates in its columns."""

    order: tuple[int, ...] = (0, 1, 2)

    @linen.compact
    def __call__(self, x):
        embed, of_x, of_h = linen.Dense(HIDDEN), linen.Dense(3 * HIDDEN), linen.Dense(3 * HIDDEN)
        h = jnp.zeros((len(x), HIDDEN))
        for t in range(x.shape[1]):
            ours, theirs = jnp.split(of_x(embed(x[:, t])), 3, -1), jnp.split(of_h(h), 3, -1)
            ours, theirs = ([parts[i] for i in self.order] for parts in (ours, theirs))
            reset, update = (jax.nn.sigmoid(ours[i] + theirs[i]) for i in (0, 1))
            h = (1 - update) * jnp.tanh(ours[2] + reset * theirs[2]) + update * h
        return h


SEQUENCES = lambda: normal(2, 4, 3)
STATES = lambda: (normal(4, 2, 3), normal(2, HIDDEN, seed=1), normal(2, HIDDEN, seed=2))
TIME_FIRST = {"jax_apply": lambda m, x: jax.vmap(m, (1, 0, 0), (1, 1, 0))(*x)}
PPO = {"torch_apply": lambda agent, x: agent.get_action_and_value(*x)}

CASES = {
    "ppo lstm": Case(
        PPOLstm,
        STATES,
        {
            "linen": LinenPPOLstm,
            "linen optimized": lambda: LinenPPOLstm(linen.OptimizedLSTMCell),
            "equinox": EqxPPOLstm,
            "equinox two biases": lambda: EqxPPOLstm(cfnn.LSTMCell),
            "haiku": lambda: haiku(haiku_ppo_lstm),
        },
        {"state in the wrong order": lambda: LinenPPOLstm(order="h c")},
        options=PPO,
        own=dict.fromkeys(("equinox", "equinox two biases"), TIME_FIRST),
    ),
    "lstm": Case(
        lambda: Layers(nn.LSTM),
        SEQUENCES,
        {
            "linen": LinenRNN,
            "linen optimized": lambda: LinenRNN(linen.OptimizedLSTMCell),
            "nnx": NnxRNN,
            "equinox": lambda: EqxRNN(eqx.nn.LSTMCell),
            "haiku": lambda: haiku(haiku_rnn),
        },
        {"backwards": lambda: LinenRNN(reverse=True), "gru": lambda: LinenRNN(linen.GRUCell)},
    ),
    "lstm of two layers": Case(
        lambda: Layers(nn.LSTM, num_layers=2),
        SEQUENCES,
        {"linen": lambda: LinenRNN(layers=2), "equinox": lambda: EqxRNN(eqx.nn.LSTMCell, 2)},
    ),
    "lstm of both directions": Case(lambda: Layers(nn.LSTM, bidirectional=True), SEQUENCES, {"linen": LinenBoth}),
    "gru": Case(
        lambda: Layers(nn.GRU),
        SEQUENCES,
        {"linen": lambda: LinenRNN(linen.GRUCell), "equinox": lambda: EqxRNN(eqx.nn.GRUCell, pair=False)},
    ),
    "gates": Case(
        Gates,
        SEQUENCES,
        {"linen": LinenGates, "linen other order": lambda: LinenGates((2, 0, 1))},
    ),
}
