"""Attention in every form: nn.MultiheadAttention, fused and split q, k, v, kernels by head, interleaved heads, encoder
layers."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx
from torch import Tensor, nn
from torch.nn import functional as F

from gallery.case import Case, haiku, keys, normal

TIME, WIDTH, HEADS = 5, 8, 2
DEPTH = WIDTH // HEADS
relu = jax.nn.relu
exact_gelu = lambda x: jax.nn.gelu(x, approximate=False)
causal = lambda time: jnp.tril(jnp.ones((time, time), bool))


def attend(q, k, v, mask=None):
    """(..., heads, time, depth) arrays."""
    scores = jnp.einsum("...qd,...kd->...qk", q, k) / jnp.sqrt(q.shape[-1])
    scores = scores if mask is None else jnp.where(mask, scores, -jnp.inf)
    return jnp.einsum("...qk,...kd->...qd", jax.nn.softmax(scores), v)


def by_heads(x):
    """(..., time, width) -> (..., heads, time, depth)."""
    return jnp.swapaxes(x.reshape(*x.shape[:-1], HEADS, DEPTH), -2, -3)


def merged(x):
    """The reverse of `by_heads`."""
    return jnp.swapaxes(x, -2, -3).reshape(*x.shape[:-3], x.shape[-2], WIDTH)


# Self-attention


class Packed(nn.Module):
    """nn.MultiheadAttention on one sequence, between two layers."""

    def __init__(self):
        super().__init__()
        self.embed, self.attention = nn.Linear(3, WIDTH), nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        return self.head(h + self.attention(h, h, h, need_weights=False)[0])


class Fused(nn.Module):
    """One layer for q, k and v, as in nanoGPT; `order` says how the features are read."""

    def __init__(self, order: str = "parts first"):
        super().__init__()
        self.order = order
        self.embed, self.qkv = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.project, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        batch, time, _ = h.shape
        if self.order == "parts first":
            q, k, v = (a.view(batch, time, HEADS, DEPTH) for a in self.qkv(h).chunk(3, -1))
        elif self.order == "heads first":
            q, k, v = self.qkv(h).view(batch, time, HEADS, 3, DEPTH).unbind(3)
        else:
            q, k, v = self.qkv(h).view(batch, time, HEADS, 3 * DEPTH).chunk(3, -1)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return self.head(h + self.project(y.transpose(1, 2).reshape(batch, time, WIDTH)))


class Split(nn.Module):
    """A layer for each of q, k and v."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        q, k, v = (
            layer(h).view(len(x), TIME, HEADS, DEPTH).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        weights = (q @ k.transpose(-1, -2) / DEPTH**0.5).softmax(-1)
        return self.head(h + self.project((weights @ v).transpose(1, 2).reshape(len(x), TIME, WIDTH)))


class Kernels(nn.Module):
    """Kernels with an axis of heads, by einsum."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 2)
        self.q, self.k, self.v = (nn.Parameter(torch.empty(WIDTH, HEADS, DEPTH)) for _ in range(3))
        self.o = nn.Parameter(torch.empty(HEADS, DEPTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        q, k, v = (torch.einsum("bte,ehd->bhtd", h, kernel) for kernel in (self.q, self.k, self.v))
        weights = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) / DEPTH**0.5, -1)
        return self.head(h + torch.einsum("bhtd,hde->bte", weights @ v, self.o))


class LinenAttention(linen.Module):
    """The layer that Flax has, with kernels by head."""

    bias: bool = True
    scale: float = 1.0
    mask: bool = False

    @linen.compact
    def __call__(self, x):
        h = linen.Dense(WIDTH)(x)
        attention = linen.MultiHeadDotProductAttention(HEADS, use_bias=self.bias)
        mask = jnp.broadcast_to(causal(TIME), (len(x), 1, TIME, TIME)) if self.mask else None
        return linen.Dense(2)(h + attention(self.scale * h, h, h, mask=mask))


class LinenFused(linen.Module):
    """One kernel for q, k and v; `order` says how its columns are read."""

    order: str = "parts first"
    swapped: bool = False  # k in the place of q: another function

    @linen.compact
    def __call__(self, x):
        h = linen.Dense(WIDTH)(x)
        both = linen.Dense(3 * WIDTH)(h)
        if self.order == "parts first":
            q, k, v = map(by_heads, jnp.split(both, 3, -1))
        else:
            parts = both.reshape(*both.shape[:-1], HEADS, 3, DEPTH)
            q, k, v = (jnp.swapaxes(parts[..., i, :], -2, -3) for i in range(3))
        weighted = attend(q, q, v) if self.swapped else attend(q, k, v)
        return linen.Dense(2)(h + linen.Dense(WIDTH)(merged(weighted)))


class LinenStacked(linen.Module):
    """One kernel with an axis for q, k and v."""

    @linen.compact
    def __call__(self, x):
        h = linen.Dense(WIDTH)(x)
        q, k, v = jnp.moveaxis(linen.DenseGeneral((3, HEADS, DEPTH))(h), (2, 3), (0, 2))
        return linen.Dense(2)(h + linen.Dense(WIDTH)(merged(attend(q, k, v))))


class LinenKernels(linen.Module):
    @linen.compact
    def __call__(self, x):
        h = linen.Dense(WIDTH)(x)
        init = linen.initializers.normal()
        k, v, q = (self.param(name, init, (HEADS, WIDTH, DEPTH)) for name in "abc")
        out = self.param("d", init, (WIDTH, HEADS, DEPTH))
        q, k, v = (jnp.einsum("bte,hed->bhtd", h, kernel) for kernel in (q, k, v))
        return linen.Dense(2)(h + jnp.einsum("bhtd,ehd->bte", attend(q, k, v), out))


class NnxAttention(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.a, self.c = nnx.Linear(3, WIDTH, rngs=rngs), nnx.Linear(WIDTH, 2, rngs=rngs)
        self.b = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)

    def __call__(self, x):
        h = self.a(x)
        return self.c(h + self.b(h))


class EqxAttention(eqx.Module):
    a: eqx.nn.MultiheadAttention
    b: eqx.nn.Linear
    c: eqx.nn.Linear

    def __init__(self, bias: bool = True):
        k = keys(3)
        biased = dict.fromkeys(("use_query_bias", "use_key_bias", "use_value_bias", "use_output_bias"), bias)
        self.a = eqx.nn.MultiheadAttention(HEADS, WIDTH, **biased, key=k[0])
        self.b, self.c = eqx.nn.Linear(WIDTH, 2, key=k[1]), eqx.nn.Linear(3, WIDTH, key=k[2])

    def __call__(self, x):
        h = jax.vmap(self.c)(x)
        return jax.vmap(self.b)(h + self.a(h, h, h))


class EqxFused(eqx.Module):
    """One layer for q, k and v, heads first."""

    fc: list

    def __init__(self):
        sizes = ((3, WIDTH), (WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 2))
        self.fc = [eqx.nn.Linear(i, o, key=k) for (i, o), k in zip(sizes, keys(4), strict=True)]

    def __call__(self, x):
        h = jax.vmap(self.fc[0])(x)
        parts = jax.vmap(self.fc[1])(h).reshape(TIME, HEADS, 3, DEPTH)
        q, k, v = (jnp.swapaxes(parts[:, :, i], 0, 1) for i in range(3))
        return jax.vmap(self.fc[3])(h + jax.vmap(self.fc[2])(merged(attend(q, k, v))))


def haiku_attention(x):
    h = hk.Linear(WIDTH)(x)
    attention = hk.MultiHeadAttention(HEADS, DEPTH, w_init=hk.initializers.RandomNormal(), model_size=WIDTH)
    return hk.Linear(2)(h + attention(h, h, h))


def tree_attention():
    """A dict of arrays and a function: no library at all."""
    k = keys(7)
    make = lambda key, *shape: jax.random.normal(key, shape)
    layers = {"in": (3, WIDTH), "q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "o": (WIDTH, WIDTH)}
    layers["out"] = (WIDTH, 2)
    return {n: {"w": make(key, *s), "b": make(key, s[1])} for (n, s), key in zip(layers.items(), k, strict=False)}


def tree_apply(params, x):
    dense = lambda name, x: x @ params[name]["w"] + params[name]["b"][None, None]
    h = dense("in", x)
    q, k, v = (by_heads(dense(name, h)) for name in "qkv")
    return dense("out", h + dense("o", merged(attend(q, k, v))))


# Two sequences


class Cross(nn.Module):
    """Queries from one sequence, keys and values from another."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.attention(x, memory, memory, need_weights=False)[0]


class LinenCross(linen.Module):
    @linen.compact
    def __call__(self, x, memory):
        return linen.MultiHeadDotProductAttention(HEADS)(x, memory)


class EqxCross(eqx.Module):
    attention: eqx.nn.MultiheadAttention

    def __init__(self):
        biased = dict.fromkeys(("use_query_bias", "use_key_bias", "use_value_bias", "use_output_bias"), True)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, **biased, key=keys(1)[0])

    def __call__(self, x, memory):
        return self.attention(x, memory, memory)


# Whole layers


def encoder(norm_first: bool):
    layer = lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 12, dropout=0.1, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer(), 2, enable_nested_tensor=False)


class LinenEncoder(linen.Module):
    norm_first: bool = False

    @linen.compact
    def __call__(self, x):
        norm = lambda x: linen.LayerNorm(epsilon=1e-5)(x)
        dense = lambda x: linen.Dense(WIDTH)(relu(linen.Dense(12)(x)))
        for _ in range(2):
            if self.norm_first:
                x = x + linen.MultiHeadDotProductAttention(HEADS)(norm(x))
                x = x + dense(norm(x))
            else:
                x = norm(x + linen.MultiHeadDotProductAttention(HEADS)(x))
                x = norm(x + dense(x))
        return x


class EqxEncoder(eqx.Module):
    attention: list
    norms: list
    dense: list

    def __init__(self):
        k = keys(6)
        biased = dict.fromkeys(("use_query_bias", "use_key_bias", "use_value_bias", "use_output_bias"), True)
        self.attention = [eqx.nn.MultiheadAttention(HEADS, WIDTH, **biased, key=key) for key in k[:2]]
        self.norms = [eqx.nn.LayerNorm(WIDTH) for _ in range(4)]
        self.dense = [
            eqx.nn.Linear(i, o, key=key) for key, (i, o) in zip(k[2:], [(WIDTH, 12), (12, WIDTH)] * 2, strict=True)
        ]

    def __call__(self, x):
        for i in range(2):
            x = jax.vmap(self.norms[2 * i])(x + self.attention[i](x, x, x))
            h = jax.vmap(self.dense[2 * i + 1])(relu(jax.vmap(self.dense[2 * i])(x)))
            x = jax.vmap(self.norms[2 * i + 1])(x + h)
        return x


SEQUENCES = lambda: normal(2, TIME, 3)

SELF = {
    "linen": LinenAttention,
    "linen fused": LinenFused,
    "linen heads first": lambda: LinenFused("heads first"),
    "linen stacked": LinenStacked,
    "nnx": NnxAttention,
    "equinox": EqxAttention,
    "equinox fused": EqxFused,
    "haiku": lambda: haiku(haiku_attention),
    "pytree": tree_attention,
}
TREE = {"pytree": {"jax_apply": tree_apply}}
WRONG = {
    "keys for queries": lambda: LinenFused(swapped=True),
    "scaled queries": lambda: LinenAttention(scale=1.01),
    "masked": lambda: LinenAttention(mask=True),
    "no bias": lambda: LinenAttention(bias=False),
}

CASES = {
    "multihead attention": Case(Packed, SEQUENCES, SELF, WRONG, own=TREE),
    "fused attention": Case(Fused, SEQUENCES, SELF, WRONG, own=TREE),
    "heads first": Case(lambda: Fused("heads first"), SEQUENCES, SELF, WRONG, own=TREE),
    "heads, then chunks": Case(lambda: Fused("chunks of heads"), SEQUENCES, SELF, own=TREE),
    "split attention": Case(Split, SEQUENCES, SELF, WRONG, own=TREE),
    "kernels by head": Case(
        Kernels,
        SEQUENCES,
        {
            "linen": LinenKernels,
            "linen attention": lambda: LinenAttention(bias=False),
            "equinox": lambda: EqxAttention(bias=False),
        },
    ),
    "cross attention": Case(
        Cross, lambda: (normal(2, 4, WIDTH), normal(2, TIME, WIDTH, seed=1)), {"linen": LinenCross, "equinox": EqxCross}
    ),
    "encoder layers": Case(
        lambda: encoder(False),
        lambda: normal(2, TIME, WIDTH),
        {"linen": LinenEncoder, "equinox": EqxEncoder},
        {"norm first": lambda: LinenEncoder(norm_first=True)},
    ),
    "encoder layers, norm first": Case(
        lambda: encoder(True),
        lambda: normal(2, TIME, WIDTH),
        {"linen": lambda: LinenEncoder(norm_first=True)},
        {"norm last": LinenEncoder},
    ),
}
