"""The zoo in Haiku: functions, transformed."""

import haiku as hk
import jax
import jax.numpy as jnp

relu = jax.nn.relu
ones = hk.initializers.RandomNormal()


def mlp(x):
    return hk.nets.MLP([8, 6, 2])(x)


def shuffled(x):
    layers = [hk.Linear(4) for _ in range(4)]
    return layers[0](relu(layers[2](relu(layers[3](relu(layers[1](x)))))))


def actor_critic(x):
    h = relu(hk.Linear(6)(x))
    value = hk.Linear(2)(h)
    return {
        "value": value,
        "policy": hk.Linear(2)(h) * jnp.exp(hk.get_parameter("log_std", (2,), init=jnp.zeros))[None],
    }


def gaussian(x):
    mean = hk.Linear(2)(x)
    bound, log_std = (hk.get_parameter(name, (2,), init=ones) for name in "ab")
    return mean, jnp.broadcast_to(log_std, mean.shape), jnp.broadcast_to(bound, mean.shape)


def layernorm(x):
    norms = [hk.LayerNorm(-1, True, True) for _ in range(2)]
    h = relu(norms[1](hk.Linear(5)(x)))
    return hk.Linear(2, with_bias=False)(relu(norms[0](hk.Linear(5)(h))))


def pixels(x):
    h = relu(hk.Conv2D(4, 3, stride=2, padding=((1, 1), (1, 1)))(x))
    return hk.Linear(2)(relu(hk.Linear(5)(hk.Flatten()(relu(hk.Conv2D(4, 2, padding="VALID")(h))))))


def sequence(x):
    h = relu(hk.Conv1D(4, 2, padding="VALID", feature_group_count=2)(x))
    return hk.Conv1D(3, 2, padding="VALID", rate=2)(h).mean(1)


def tokens(x):
    return hk.Linear(5)(hk.Embed(5, 4)(x))


def groupnorm(x):
    h = hk.GroupNorm(2, eps=1e-5)(hk.Conv2D(4, 2, padding="VALID")(x))
    return hk.Linear(3)(relu(h).mean((1, 2)))


def rmsnorm(x):
    return hk.Linear(4)(hk.RMSNorm(-1, eps=1e-5)(hk.Linear(4)(x)))


def batchnorm_mlp(x, train=False):
    h = hk.BatchNorm(True, True, 0.9)(hk.Linear(4)(x), train)
    return hk.BatchNorm(True, True, 0.9)(hk.Linear(4)(relu(h)), train)


def batchnorm_conv(x, train=False):
    return relu(hk.BatchNorm(True, True, 0.9)(hk.Conv2D(3, 2, padding="VALID", with_bias=False)(x), train))


def recurrent(core, x):
    cell, fc = core(4), hk.Linear(3)
    state = cell.initial_state(x.shape[0])
    for _ in range(2):
        h, state = cell(jnp.tanh(fc(x)), state)
    return hk.Linear(2)(h)


def noisy(x, eps_in, eps_out):
    h = relu(hk.Linear(4)(x))
    mu, sigma = (hk.get_parameter(name, (4, 4), init=ones) for name in ("b", "a"))
    bias, bias_sigma = (hk.get_parameter(name, (4,), init=ones) for name in ("d", "c"))
    f_in, f_out = (jnp.sign(e) * jnp.sqrt(jnp.abs(e)) for e in (eps_in, eps_out))
    return h @ (mu + sigma * jnp.outer(f_in, f_out)) + (bias + bias_sigma * f_out)[None]


def tied(x):
    embed = hk.Embed(6, 4)
    return relu(hk.Linear(4)(embed(x))) @ embed.embeddings.T


def critic(x):
    return hk.nets.MLP([4, 4, 1])(x)[:, 0]


def targets(x):
    def ensemble(name):
        h = jnp.stack([x, x])
        for i, (inputs, outputs) in enumerate([(3, 4), (4, 4), (4, 1)]):
            w = hk.get_parameter(f"{name}{i}", (2, inputs, outputs), init=ones)
            b = hk.get_parameter(f"{name}{i}_bias", (2, outputs), init=ones)
            h = jnp.einsum("nbi,nio->nbo", relu(h) if i else h, w) + b[:, None]
        return h[..., 0].T

    target, online = ensemble("a"), ensemble("b")
    return online, target


def stacked_critics(x):
    w, b = hk.get_parameter("w", (2, 3, 4), init=ones), hk.get_parameter("b", (2, 4), init=ones)
    v, a = hk.get_parameter("v", (2, 1, 4), init=ones), hk.get_parameter("a", (2, 1), init=ones)
    h = relu(jnp.einsum("bi,nio->nbo", x, w) + b[:, None])
    return (jnp.einsum("nbi,noi->nbo", h, v) + a[:, None])[..., 0]


def dueling(x):
    h = relu(hk.Linear(4)(x))
    value = hk.Linear(3)(relu(hk.Linear(4)(h)))
    advantage = hk.Linear(3)(relu(hk.Linear(4)(h)))
    return value.mean(1, keepdims=True) + advantage - advantage.mean(1, keepdims=True)


def residual(x):
    layers = [hk.Linear(4) for _ in range(4)]
    x = x + layers[1](relu(layers[3](x)))
    return x + layers[0](relu(layers[2](x)))


FUNCTIONS = {
    "mlp": mlp,
    "shuffled": shuffled,
    "actor_critic": actor_critic,
    "layernorm": layernorm,
    "pixels": pixels,
    "sequence": sequence,
    "tokens": tokens,
    "groupnorm": groupnorm,
    "rmsnorm": rmsnorm,
    "batchnorm_mlp": batchnorm_mlp,
    "batchnorm_conv": batchnorm_conv,
    "lstm": lambda x: recurrent(hk.LSTM, x),
    "gru": lambda x: recurrent(hk.GRU, x),
    "noisy": noisy,
    "tied": tied,
    "critics": critic,
    "stacked_critics": stacked_critics,
    "dueling": dueling,
    "residual": residual,
    "gaussian": gaussian,
    "targets": targets,
}
