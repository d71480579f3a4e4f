"""Recurrent layers over a whole sequence, in JAX."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array, lax

from .table import rule
from .values import Number

State = tuple[Array, ...]
Step = Callable[[State, Array, Array, Sequence[Array]], State]
"""(state, gates of the input, gates of the hidden state, further weights) -> state; the hidden state comes first."""


def _lstm_step(state: State, x: Array, h: Array, projection: Sequence[Array]) -> State:
    """i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c'), projected if there are weights."""
    i, f, g, o = jnp.split(x + h, 4, axis=-1)
    c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
    hidden = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (hidden @ projection[0].T if projection else hidden), c


def _gru_step(state: State, x: Array, h: Array, _: Sequence[Array]) -> State:
    """r, z, n: n = tanh(x_n + sigmoid(r) h_n), h' = n + sigmoid(z) (h - n)."""
    (xr, xz, xn), (hr, hz, hn) = jnp.split(x, 3, axis=-1), jnp.split(h, 3, axis=-1)
    new = jnp.tanh(xn + jax.nn.sigmoid(xr + hr) * hn)
    return (new + jax.nn.sigmoid(xz + hz) * (state[0] - new),)


def _layers(
    x: Array,
    states: State,
    params: Sequence[Array],
    biases: bool,
    layers: int,
    both: bool,
    batch_first: bool,
    step: Step,
) -> tuple[Array, ...]:
    """The outputs of the last layer, and the last state of each layer and direction."""
    x = jnp.swapaxes(x, 0, 1) if batch_first else x
    directions = 2 if both else 1
    each = len(params) // (layers * directions)
    last: list[State] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            k = layer * directions + direction
            weights = params[k * each : (k + 1) * each]
            state, output = _over_time(x, tuple(s[k] for s in states), weights, biases, step, direction == 1)
            outputs.append(output)
            last.append(state)
        x = jnp.concatenate(outputs, axis=-1)
    finals = (jnp.stack([state[i] for state in last]) for i in range(len(states)))
    return (jnp.swapaxes(x, 0, 1) if batch_first else x), *finals


def _over_time(
    x: Array, state: State, weights: Sequence[Array], biases: bool, step: Step, reverse: bool
) -> tuple[State, Array]:
    w_ih, w_hh, *rest = weights
    b_ih, b_hh = (rest[0][None], rest[1][None]) if biases else (jnp.zeros(()), jnp.zeros(()))
    further = rest[2:] if biases else rest
    gates = x @ w_ih.T + (b_ih[None] if biases else b_ih)

    def one(state: State, gates: Array) -> tuple[State, Array]:
        state = step(state, gates, state[0] @ w_hh.T + b_hh, further)
        return state, state[0]

    return lax.scan(one, state, gates, reverse=reverse)


@rule("lstm")
def lstm(
    x: Array,
    states: Sequence[Array],
    params: Sequence[Array],
    biases: bool,
    layers: int,
    dropout: Number,
    train: bool,
    both: bool,
    batch_first: bool,
) -> tuple[Array, ...]:
    return _layers(x, tuple(states), params, biases, layers, both, batch_first, _lstm_step)


def _of_one_state(step: Step) -> Callable[..., tuple[Array, ...]]:
    def layer(x, state, params, biases, layers, dropout, train, both, batch_first) -> tuple[Array, ...]:
        return _layers(x, (state,), params, biases, layers, both, batch_first, step)

    return layer


rule("gru")(_of_one_state(_gru_step))
rule("rnn_tanh")(_of_one_state(lambda state, x, h, _: (jnp.tanh(x + h),)))
rule("rnn_relu")(_of_one_state(lambda state, x, h, _: (jax.nn.relu(x + h),)))
