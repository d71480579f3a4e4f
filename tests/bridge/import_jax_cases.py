"""JAX functions of float64 arrays that torch must compute, with their gradients: name -> (function, arguments)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import lax

_rng = np.random.default_rng(0)


def normal(*shape):
    return _rng.normal(size=shape)


def positive(*shape):
    return _rng.uniform(0.5, 2.0, size=shape)


def unit(*shape):
    return _rng.uniform(-0.9, 0.9, size=shape)


@jax.custom_jvp
def doubled_slope(x):
    return jnp.sin(x)


doubled_slope.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 2 * jnp.cos(primals[0]) * tangents[0]))


@jax.custom_vjp
def clipped_gradient(x):
    return x**3


clipped_gradient.defvjp(lambda x: (x**3, x), lambda x, g: (jnp.clip(g * x, -0.1, 0.1),))


def gae(values, rewards, continues, gamma=0.99, lam=0.95):
    """Generalised advantage estimation by a scan from the end."""

    def step(after, now):
        value, next_value, reward, goes_on = now
        after = reward + gamma * goes_on * next_value - value + gamma * lam * goes_on * after
        return after, after

    inputs = (values[:-1], values[1:], rewards, continues)
    return lax.scan(step, jnp.zeros_like(values[0]), inputs, reverse=True)[1]


def recurrent(weights, bias, inputs):
    step = lambda h, x: (jnp.tanh(x @ weights[0] + h @ weights[1] + bias),) * 2
    final, states = lax.scan(step, jnp.zeros(4), inputs)
    return final, states.sum()


def twin_critics(weights, observation, action):
    """Two critics side by side, and the smaller value."""

    def critic(layers, x):
        for w, b in layers[:-1]:
            x = jax.nn.relu(x @ w + b)
        return (x @ layers[-1][0] + layers[-1][1])[0]

    x = jnp.concatenate([observation, action], -1)
    values = jax.vmap(jax.vmap(critic, (None, 0)), (0, None))(weights, x)
    return values.min(0), values


def newton(x):
    """A square root by a while loop, whose derivative is given by hand."""

    @jax.custom_jvp
    def root(x):
        unfinished = lambda y: jnp.abs(y * y - x) > 1e-14
        return lax.while_loop(unfinished, lambda y: (y + x / y) / 2, x)

    root.defjvp(lambda primals, tangents: ((y := root(*primals)), tangents[0] / (2 * y)))
    return jax.vmap(root)(x)


def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    scores = jnp.where(jnp.broadcast_to(mask, scores.shape), scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)


def layer_norm(x, scale, offset):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale[None] + offset[None]


def conv(x, kernel, strides=(1, 1), padding="SAME", numbers=("NHWC", "HWIO", "NHWC"), **options):
    return lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=numbers, **options)


def pool(x, how, window, strides, padding="VALID"):
    return how(x, window, strides, padding)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.LayerNorm()(nn.Dense(8)(x)))
        return nn.Dense(2)(nn.GroupNorm(2)(x))


def linen(*leaves):
    tree = jax.tree.structure(jax.eval_shape(Net().init, jax.random.key(0), jnp.zeros((3, 5))))
    return Net().apply(jax.tree.unflatten(tree, leaves[:-1]), leaves[-1])


def linen_arguments():
    shapes = jax.eval_shape(Net().init, jax.random.key(0), jnp.zeros((3, 5)))
    return (*(normal(*leaf.shape) for leaf in jax.tree.leaves(shapes)), normal(3, 5))


def gru(weights, hidden_weights, bias, bias_n, inputs):
    cell = eqx.nn.GRUCell(3, 4, key=jax.random.key(0))
    where = lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n)
    cell = eqx.tree_at(where, cell, (weights, hidden_weights, bias, bias_n))
    return lax.scan(lambda h, x: (cell(x, h),) * 2, jnp.zeros(4), inputs)[1]


INDEX = np.array([2, 0, 2, 1])
TABLE = np.array([[0, 3], [1, -1], [4, 2]])  # some outside an axis of 3

ELEMENTWISE = {
    "trigonometry": (lambda x: jnp.sin(x) * jnp.cos(x) + jnp.tan(x / 3), (normal(4, 3),)),
    "inverse trigonometry": (lambda x: jnp.arcsin(x) + jnp.arccos(x) ** 2 + jnp.arctan(x), (unit(4, 3),)),
    "hyperbolic": (lambda x: jnp.sinh(x) + jnp.cosh(x) + jnp.tanh(x), (normal(4, 3),)),
    "inverse hyperbolic": (lambda x: jnp.arcsinh(x) + jnp.arctanh(x) + jnp.arccosh(x + 3), (unit(4, 3),)),
    "exponentials": (lambda x: jnp.exp(x) + jnp.exp2(x) + jnp.expm1(x), (normal(4, 3),)),
    "logarithms": (lambda x: jnp.log(x) + jnp.log1p(x) + jnp.log2(x), (positive(4, 3),)),
    "powers": (lambda x, y: x**y + x**3 + x**-2 + jnp.sqrt(x) + lax.rsqrt(x) + jnp.cbrt(x), (positive(4), normal(4))),
    "error functions": (lambda x: lax.erf(x) + lax.erfc(x) + lax.erf_inv(x), (unit(4, 3),)),
    "gamma functions": (lambda x: lax.lgamma(x) + lax.digamma(x), (positive(4, 3),)),
    "polygamma": (lambda x: lax.polygamma(jnp.full_like(x, 2.0), x), (positive(4),)),
    "bessel functions": (lambda x: jax.scipy.special.i0e(x) + jax.scipy.special.i1e(x), (normal(5),)),
    "division": (lambda x, y: x / y + jnp.fmod(x, y) + x // y, (normal(5), positive(5))),
    "atan2": (jnp.arctan2, (normal(5), normal(5))),
    "rounding": (lambda x: x * jnp.round(x) + jnp.floor(x) * x + jnp.ceil(x) + jnp.sign(x) * x, (3 * normal(6),)),
    "where": (lambda x, y: jnp.where(x > y, x * y, jnp.where(x < -1, y, -x)), (normal(7), normal(7))),
    "clip": (lambda x: jnp.clip(x, -0.5, 0.7) + lax.clamp(-1.0, 2 * x, 1.0), (normal(9),)),
    "maximum and minimum": (lambda x, y: jnp.maximum(x, y) * jnp.minimum(x, 2 * y), (normal(7), normal(7))),
    "activations": (
        lambda x: sum(f(x) for f in (jax.nn.relu, jax.nn.elu, jax.nn.silu, jax.nn.softplus, jax.nn.celu, jax.nn.mish)),
        (normal(4, 3),),
    ),
    "gelu": (lambda x: jax.nn.gelu(x) + jax.nn.gelu(x, approximate=False), (normal(4, 3),)),
    "more activations": (
        lambda x: sum(f(x) for f in (jax.nn.leaky_relu, jax.nn.selu, jax.nn.hard_tanh, jax.nn.relu6, jax.nn.sigmoid)),
        (3 * normal(4, 3),),
    ),
    "through integers": (lambda x: x * jnp.asarray(x * 4, jnp.int32) + (x > 0) * x, (normal(6),)),
    "through float32": (lambda x: x * x.astype(jnp.float32).astype(x.dtype), (np.float64(np.float32(normal(5))),)),
    "complex inside": (lambda x, y: jnp.abs((x + 1j * y) ** 2) + jnp.real(jnp.exp(1j * x)), (normal(5), positive(5))),
}

KINKS = {
    "abs": (jnp.abs, (np.array([-1.0, 0.0, 0.0, 2.0]),)),
    "relu": (jax.nn.relu, (np.array([-1.0, 0.0, 3.0]),)),
    "clip": (lambda x: jnp.clip(x, -1.0, 1.0), (np.array([-2.0, -1.0, 0.0, 1.0, 2.0]),)),
    "clamp": (lambda x: lax.clamp(-1.0, x, 1.0), (np.array([-2.0, -1.0, 0.0, 1.0, 2.0]),)),
    "maximum": (jnp.maximum, (np.array([1.0, 2.0]), np.array([1.0, 3.0]))),
    "minimum": (jnp.minimum, (np.array([1.0, 2.0]), np.array([1.0, 3.0]))),
    "max of equals": (lambda x: x.max(0), (np.array([[1.0, 2.0], [1.0, 0.0], [1.0, 2.0]]),)),
    "min of equals": (lambda x: x.min(), (np.array([1.0, 1.0, 2.0]),)),
    "sort of equals": (lambda x, w: jnp.sort(x) @ w, (np.array([1.0, 0.0, 1.0]), np.array([1.0, 2.0, 4.0]))),
    "max pool of equals": (lambda x: nn.max_pool(x, (2, 2), (2, 2)), (np.ones((1, 4, 4, 1)),)),
    "sign": (lambda x: jnp.sign(x) * x, (np.array([-1.0, 0.0, 1.0]),)),
    "square root of 0": (lambda x: jnp.sqrt(x), (np.array([0.0, 4.0]),)),
    "norm of 0": (lambda x: jnp.linalg.norm(x), (np.zeros(3),)),
    "power of 0": (lambda x, y: x**y, (np.array([0.0, 0.0, 2.0]), np.array([2.0, 1.0, 0.0]))),
    "median": (jnp.median, (np.array([3.0, 1.0, 1.0, 2.0]),)),
}

REDUCTIONS = {
    "sums": (lambda x: x.sum((0, 2)) * x.mean(1).sum() + x.sum(), (normal(2, 3, 2),)),
    "products": (lambda x: x.prod(1) + x.prod(), (positive(3, 2),)),
    "extremes": (lambda x: x.max(0) - x.min(0) + x.max() + jnp.ptp(x, 1).sum(), (normal(4, 3),)),
    "variance": (lambda x: x.var(0) + x.std(0, ddof=1), (normal(4, 3),)),
    "log sum exp": (lambda x: jax.nn.logsumexp(x, axis=1) + jnp.logaddexp(x[:, 0], x[:, 1]), (5 * normal(4, 3),)),
    "softmax": (lambda x: jax.nn.softmax(x, 1) * jax.nn.log_softmax(x, 1), (normal(4, 3),)),
    "cumulative": (
        lambda x: jnp.cumsum(x, 0) + jnp.cumprod(x, 1) + lax.cumlogsumexp(x, 0, reverse=True),
        (normal(4, 3),),
    ),
    "cumulative extremes": (lambda x: lax.cummax(x, 0) + lax.cummin(x, 1, reverse=True), (normal(4, 3),)),
    "norms": (lambda x: jnp.linalg.norm(x, axis=1) + jnp.linalg.norm(x, ord=1, axis=1), (normal(4, 3),)),
    "any and all": (lambda x: x * (x > 1).any(0)[None] + x * (x > -1).all(1)[:, None], (normal(4, 3),)),
    "arg max": (lambda x: x[jnp.argmax(x, 0), jnp.arange(3)] + x[jnp.argmin(x, 0), jnp.arange(3)], (normal(4, 3),)),
    "sort": (lambda x: jnp.sort(x, 0) * jnp.arange(4.0)[:, None], (normal(4, 3),)),
    "sort by another": (lambda x, y: y[jnp.argsort(x)] * jnp.arange(5.0), (normal(5), normal(5))),
    "sort by two": (lambda x: lax.sort((jnp.floor(x), -x, x * x), num_keys=2)[2] * jnp.arange(6.0), (2 * normal(6),)),
    "top k": (lambda x: lax.top_k(x, 2)[0] * jnp.array([[1.0, 3.0]]), (normal(4, 5),)),
    "quantile": (lambda x: jnp.quantile(x, jnp.array([0.25, 0.6]), axis=0), (normal(7, 2),)),
    "entropy": (lambda x: -(jax.nn.softmax(x) * jax.nn.log_softmax(x)).sum(-1), (normal(4, 3),)),
    "huber": (lambda x: jnp.where(jnp.abs(x) <= 1, 0.5 * x**2, jnp.abs(x) - 0.5).mean(), (2 * normal(9),)),
}

MOVES = {
    "reshape": (lambda x: x.T.reshape(2, 6)[::-1] * jnp.arange(6.0)[None], (normal(4, 3),)),
    "slices": (lambda x: x[1:, ::2] * x[:-1, 1:3] + jnp.flip(x[1:, :2], 0), (normal(4, 4),)),
    "pad": (lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=2.0) ** 2, (normal(3, 2),)),
    "pad between and cut": (lambda x: lax.pad(x, 0.5, ((-1, 2, 1), (1, -1, 0))) ** 2, (normal(3, 3),)),
    "pad modes": (lambda x: jnp.pad(x, 2, mode="reflect") * jnp.pad(x, 2, mode="edge"), (normal(4),)),
    "join": (
        lambda x, y: jnp.concatenate([x, y], 1) @ jnp.concatenate(jnp.stack([x, x, y])[1:], 1).T,
        (normal(3, 2), normal(3, 2)),
    ),
    "split": (lambda x: jnp.split(x, 3, 1)[0] * jnp.split(x, [2, 4], 1)[1], (normal(2, 6),)),
    "tile and repeat": (lambda x: jnp.tile(x, (2, 2)) * jnp.repeat(jnp.repeat(x, 2, 0), 2, 1), (normal(2, 2),)),
    "roll": (lambda x: jnp.roll(x, 2, 0) * jnp.roll(x, -1, 1), (normal(4, 3),)),
    "diagonal": (lambda x: jnp.diag(x) * jnp.trace(x) + jnp.tril(x).sum(0), (normal(3, 3),)),
    "meshgrid": (lambda x, y: jnp.multiply(*jnp.meshgrid(x, y)), (normal(3), normal(2))),
}

INDEXING = {
    "take": (lambda x: jnp.take(x, INDEX, axis=0) * x[INDEX], (normal(3, 4),)),
    "take along an axis": (lambda x: jnp.take_along_axis(x, INDEX[:, None], 1), (normal(4, 3),)),
    "outside": (lambda x: x[TABLE] + jnp.take(x, TABLE, mode="clip"), (normal(3),)),
    "outside filled": (lambda x: jnp.take(x, TABLE, axis=0, mode="fill", fill_value=7.0), (normal(3, 2),)),
    "two indices": (lambda x: x[INDEX, :, INDEX[::-1]] * 2, (normal(3, 2, 3),)),
    "one of each row": (lambda x: jax.vmap(lambda row, i: row[i])(x, INDEX), (normal(4, 3),)),
    "slices of each row": (
        lambda x: jax.vmap(lambda row, i: lax.dynamic_slice(row, (i,), (2,)))(x, jnp.asarray(INDEX)),
        (normal(4, 3),),
    ),
    "boolean": (lambda x: jnp.where(x > 0, x, 0)[np.array([True, False, True])], (normal(3, 2),)),
    "set": (lambda x, y: x.at[INDEX[1:]].set(y) * 3, (normal(4, 2), normal(3, 2))),
    "add": (lambda x, y: x.at[INDEX].add(y), (normal(3, 2), normal(4, 2))),
    "add outside": (lambda x, y: x.at[TABLE].add(y), (normal(3), normal(3, 2))),
    "subtract": (lambda x, y: x.at[INDEX].subtract(y), (normal(3), normal(4))),
    "multiply": (lambda x, y: x.at[jnp.array([0, 2])].multiply(y, unique_indices=True), (normal(3), normal(2))),
    "min": (lambda x: jnp.zeros(3).at[jnp.array([0, 2])].min(x), (np.array([-1.0, 2.0]),)),
    "set in a column": (lambda x, y: x.at[:, 1].set(y).at[0, 0].add(y[0]), (normal(3, 2), normal(3))),
    "dynamic slice": (lambda x: lax.dynamic_slice(x, (2, 0), (2, 2)) * 2, (normal(3, 4),)),
    "dynamic update": (lambda x, y: lax.dynamic_update_slice(x, y, (1, 5)) ** 2, (normal(3, 4), normal(2, 2))),
    "segments": (lambda x: jax.ops.segment_sum(x, jnp.asarray(INDEX), 3), (normal(4, 2),)),
    "one hot": (lambda x: (jax.nn.one_hot(INDEX, 3) * x).sum(-1), (normal(4, 3),)),
}

PRODUCTS = {
    "vectors": (lambda x, y: x @ y + jnp.outer(x, y).sum(), (normal(3), normal(3))),
    "matrices": (lambda x, y: x @ y.T, (normal(4, 3), normal(2, 3))),
    "batches": (lambda x, y: jnp.einsum("bij,bkj->bik", x, y), (normal(2, 3, 4), normal(2, 5, 4))),
    "several axes": (lambda x, y: jnp.tensordot(x, y, ((0, 2), (1, 0))), (normal(2, 3, 4), normal(4, 2, 3))),
    "einsum": (lambda x, y: jnp.einsum("abc,dcb,a->ad", x, y, x[:, 0, 0]), (normal(2, 3, 4), normal(2, 4, 3))),
    "vmapped": (lambda x, y: jax.vmap(jnp.dot, (0, None))(x, y), (normal(2, 3, 4), normal(4, 2))),
    "attention": (attention, (normal(2, 2, 3, 4), normal(2, 2, 3, 4), normal(2, 2, 3, 4))),
    "convolution": (conv, (normal(2, 5, 5, 3), normal(3, 3, 3, 4))),
    "strides": (lambda x, k: conv(x, k, (2, 3), "VALID"), (normal(2, 7, 8, 2), normal(3, 2, 2, 4))),
    "uneven padding": (lambda x, k: conv(x, k, (2, 2), ((0, 1), (2, -1))), (normal(1, 5, 6, 2), normal(3, 3, 2, 2))),
    "dilation": (lambda x, k: conv(x, k, rhs_dilation=(2, 1)), (normal(1, 6, 6, 2), normal(2, 2, 2, 3))),
    "transposed": (lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), (normal(1, 4, 4, 2), normal(3, 3, 2, 3))),
    "groups": (lambda x, k: conv(x, k, feature_group_count=2), (normal(1, 4, 4, 4), normal(3, 3, 2, 6))),
    "depthwise": (lambda x, k: conv(x, k, feature_group_count=3), (normal(2, 4, 4, 3), normal(2, 2, 1, 6))),
    "one axis": (
        lambda x, k: conv(x, k, (2,), "SAME", ("NCH", "OIH", "NCH")),
        (normal(2, 3, 7), normal(4, 3, 3)),
    ),
    "three axes": (
        lambda x, k: conv(x, k, (1, 2, 1), "VALID", ("NDHWC", "DHWIO", "NDHWC")),
        (normal(1, 4, 4, 3, 2), normal(2, 2, 2, 2, 3)),
    ),
    "vmapped kernels": (lambda x, k: jax.vmap(conv, (None, 0))(x, k), (normal(1, 4, 4, 2), normal(2, 3, 3, 2, 2))),
    "max pool": (lambda x: pool(x, nn.max_pool, (3, 2), (2, 1), "SAME"), (normal(2, 5, 4, 2),)),
    "average pool": (lambda x: pool(x, nn.avg_pool, (2, 2), (2, 2)), (normal(1, 4, 4, 2),)),
    "min pool": (lambda x: -nn.max_pool(-x, (2, 2), (1, 1)), (normal(1, 3, 3, 2),)),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + 3 * jnp.eye(3)), (normal(3, 3),)),
    "solve": (lambda x, y: jnp.linalg.solve(x + 4 * jnp.eye(3), y), (normal(3, 3), normal(3))),
    "determinant": (lambda x: jnp.linalg.slogdet(x)[1] + jnp.linalg.det(x), (normal(3, 3),)),
    "inverse": (lambda x: jnp.linalg.inv(x + 4 * jnp.eye(2)[None]), (normal(2, 2, 2),)),
    "eigenvalues": (lambda x: jnp.linalg.eigvalsh(x + x.T), (normal(3, 3),)),
}

SPECTRA = {
    "power": (lambda x: jnp.abs(jnp.fft.rfft(x)) ** 2, (normal(3, 8),)),
    "there and back": (
        lambda x, y: jnp.fft.irfft(jnp.fft.rfft(x, axis=0) * y, n=7, axis=0),
        (normal(7, 2), normal(1, 2)),
    ),
    "of complex numbers": (lambda x: jnp.fft.ifft(jnp.fft.fft(x, norm="ortho") * (0.5 + 2j)).real, (normal(2, 5),)),
    "of two axes": (lambda x: jnp.fft.rfft2(x).imag + jnp.fft.fft2(x).real[:, :4], (normal(4, 6),)),
}

CONTROL = {
    "advantages": (gae, (normal(6, 2), normal(5, 2), np.float64(_rng.random((5, 2)) < 0.8))),
    "recurrent net": (recurrent, ((normal(3, 4), normal(4, 4)), normal(4), normal(5, 3))),
    "recurrent cell": (gru, (normal(12, 3), normal(12, 4), normal(12), normal(4), normal(5, 3))),
    "twin critics": (
        twin_critics,
        ([(normal(2, 5, 8), normal(2, 8)), (normal(2, 8, 1), normal(2, 1))], normal(6, 3), normal(6, 2)),
    ),
    "for": (lambda x: lax.fori_loop(0, 4, lambda i, y: y * x + i, x), (unit(3),)),
    "while": (newton, (positive(3),)),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, lambda y: y**2, x), (normal(3),)),
    "cond of each row": (lambda x: jax.vmap(lambda y: lax.cond(y > 0, jnp.sin, jnp.exp, y))(x), (normal(5),)),
    "switch": (lambda x: lax.switch(7, [jnp.sin, jnp.cos, jnp.exp], x), (normal(3),)),
    "scan of nothing": (lambda x: lax.scan(lambda c, y: (c * y, c), x, jnp.zeros((0, 3)))[0] + x, (normal(3),)),
    "map": (lambda x: lax.map(lambda row: row * row.sum(), x), (normal(4, 3),)),
    "associative scan": (lambda x: lax.associative_scan(jnp.multiply, x), (positive(7),)),
    "jit": (lambda x: jax.jit(lambda y: jnp.sin(y) * x)(x), (normal(3),)),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), (normal(3),)),
    "custom jvp": (doubled_slope, (normal(4),)),
    "custom vjp": (clipped_gradient, (normal(4),)),
    "custom vjp in a scan": (
        lambda x: lax.scan(lambda c, y: (clipped_gradient(c * y), c), jnp.ones(()), x)[0],
        (positive(4),),
    ),
    "stop gradient": (lambda x: x * lax.stop_gradient(x) + lax.stop_gradient(x.sum()), (normal(3),)),
    "barrier": (lambda x: lax.optimization_barrier(x * x) * 2, (normal(3),)),
    "gradient inside": (lambda x: jax.grad(lambda y: jnp.sin(y @ y))(x), (normal(3),)),
    "gradient penalty": (lambda x, w: (jax.jacrev(lambda y: jnp.tanh(y @ w))(x) ** 2).sum(), (normal(3), normal(3, 2))),
    "forward mode inside": (lambda x: jax.jvp(jnp.exp, (x,), (x * x,))[1], (normal(3),)),
    "linear solve": (
        lambda a, b: lax.custom_linear_solve(
            lambda x: (a @ a.T + jnp.eye(3)) @ x,
            b,
            lambda f, y: jnp.linalg.solve(a @ a.T + jnp.eye(3), y),
            symmetric=True,
        ),
        (normal(3, 3), normal(3)),
    ),
    "layer norm": (layer_norm, (normal(4, 3), normal(3), normal(3))),
    "linen net": (linen, linen_arguments()),
}

CASES = {
    f"{family}: {name}": case
    for family, cases in {
        "elementwise": ELEMENTWISE,
        "kinks": KINKS,
        "reductions": REDUCTIONS,
        "moves": MOVES,
        "indexing": INDEXING,
        "products": PRODUCTS,
        "spectra": SPECTRA,
        "control": CONTROL,
    }.items()
    for name, case in cases.items()
}
