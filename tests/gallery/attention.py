"""Attention in every form: nn.MultiheadAttention, fused and split q, k, v, kernels by head, interleaved heads, encoder
layers, a small nanoGPT and CORL's Decision Transformer."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx
from torch import Tensor, nn
from torch.nn import functional as F

from gallery.case import Case, haiku, keys, normal, whole

TIME, WIDTH, HEADS, WORDS = 5, 8, 2, 7
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


# nanoGPT


class GPT(nn.Module):
    """Learned positions, norms first, one layer for q, k, v, the output tied to the embedding."""

    def __init__(self, layers: int = 2):
        super().__init__()
        block = lambda: nn.ModuleDict(
            {
                "ln_1": nn.LayerNorm(WIDTH),
                "c_attn": nn.Linear(WIDTH, 3 * WIDTH),
                "c_proj": nn.Linear(WIDTH, WIDTH),
                "ln_2": nn.LayerNorm(WIDTH),
                "c_fc": nn.Linear(WIDTH, 4 * WIDTH),
                "mlp_proj": nn.Linear(4 * WIDTH, WIDTH),
            }
        )
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(2 * TIME, WIDTH)
        self.h, self.ln_f = nn.ModuleList(block() for _ in range(layers)), nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)
        self.lm_head.weight = self.wte.weight
        self.register_buffer("mask", torch.tril(torch.ones(2 * TIME, 2 * TIME)).view(1, 1, 2 * TIME, 2 * TIME))

    def forward(self, words: Tensor) -> Tensor:
        batch, time = words.shape
        x = self.wte(words) + self.wpe(torch.arange(time))
        for block in self.h:
            q, k, v = block["c_attn"](block["ln_1"](x)).split(WIDTH, 2)
            q, k, v = (a.view(batch, time, HEADS, DEPTH).transpose(1, 2) for a in (q, k, v))
            scores = (q @ k.transpose(-2, -1)) * DEPTH**-0.5
            scores = scores.masked_fill(self.mask[:, :, :time, :time] == 0, float("-inf"))
            y = (scores.softmax(-1) @ v).transpose(1, 2).contiguous().view(batch, time, WIDTH)
            x = x + block["c_proj"](y)
            x = x + block["mlp_proj"](F.gelu(block["c_fc"](block["ln_2"](x))))
        return self.lm_head(self.ln_f(x))


class LinenGPT(linen.Module):
    layers: int = 2
    gelu: bool = True  # torch's, without approximation

    @linen.compact
    def __call__(self, words):
        embed = linen.Embed(WORDS, WIDTH)
        x = embed(words) + linen.Embed(2 * TIME, WIDTH)(jnp.arange(words.shape[1]))[None]
        mask = linen.make_causal_mask(words)
        norm = lambda x: linen.LayerNorm(epsilon=1e-5)(x)
        for _ in range(self.layers):
            x = x + linen.MultiHeadDotProductAttention(HEADS)(norm(x), mask=mask)
            h = linen.Dense(4 * WIDTH)(norm(x))
            x = x + linen.Dense(WIDTH)(exact_gelu(h) if self.gelu else jax.nn.gelu(h))
        return embed.attend(norm(x))


class EqxGPT(eqx.Module):
    """Fused as in torch, the output tied."""

    words: eqx.nn.Embedding
    places: jax.Array
    blocks: list
    norm: eqx.nn.LayerNorm

    def __init__(self):
        k = keys(10)
        linear = eqx.nn.Linear
        self.words = eqx.nn.Embedding(WORDS, WIDTH, key=k[0])
        self.places = jax.random.normal(k[1], (2 * TIME, WIDTH))
        self.blocks = [
            {
                "norms": [eqx.nn.LayerNorm(WIDTH), eqx.nn.LayerNorm(WIDTH)],
                "qkv": linear(WIDTH, 3 * WIDTH, key=k[2 + i]),
                "out": linear(WIDTH, WIDTH, key=k[4 + i]),
                "up": linear(WIDTH, 4 * WIDTH, key=k[6 + i]),
                "down": linear(4 * WIDTH, WIDTH, key=k[8 + i]),
            }
            for i in range(2)
        ]
        self.norm = eqx.nn.LayerNorm(WIDTH)

    def __call__(self, words):
        time = len(words)
        x = jax.vmap(self.words)(words) + self.places[:time]
        for block in self.blocks:
            parts = jax.vmap(block["qkv"])(jax.vmap(block["norms"][0])(x))
            q, k, v = map(by_heads, jnp.split(parts, 3, -1))
            x = x + jax.vmap(block["out"])(merged(attend(q, k, v, causal(time)[None])))
            h = exact_gelu(jax.vmap(block["up"])(jax.vmap(block["norms"][1])(x)))
            x = x + jax.vmap(block["down"])(h)
        return jax.vmap(self.norm)(x) @ self.words.weight.T


def haiku_gpt(words):
    table = hk.get_parameter("words", (WORDS, WIDTH), init=hk.initializers.RandomNormal())
    places = hk.get_parameter("places", (2 * TIME, WIDTH), init=hk.initializers.RandomNormal())
    norm = lambda x: hk.LayerNorm(-1, True, True)(x)
    x = table[words] + places[None, : words.shape[1]]
    for _ in range(2):
        attention = hk.MultiHeadAttention(HEADS, DEPTH, w_init=hk.initializers.RandomNormal(), model_size=WIDTH)
        h = norm(x)
        x = x + attention(h, h, h, mask=causal(words.shape[1])[None, None])
        x = x + hk.Linear(WIDTH)(exact_gelu(hk.Linear(4 * WIDTH)(norm(x))))
    return norm(x) @ table.T


# The Decision Transformer


class DecisionTransformer(nn.Module):
    """Returns, states and actions as tokens of one sequence, in the manner of CORL."""

    def __init__(self):
        super().__init__()
        block = lambda: nn.ModuleDict(
            {
                "norm1": nn.LayerNorm(WIDTH),
                "norm2": nn.LayerNorm(WIDTH),
                "attention": nn.MultiheadAttention(WIDTH, HEADS, 0.1, batch_first=True),
                "mlp": nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)),
            }
        )
        self.emb_norm, self.out_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.timestep_emb = nn.Embedding(9, WIDTH)
        self.state_emb, self.action_emb, self.return_emb = nn.Linear(4, WIDTH), nn.Linear(2, WIDTH), nn.Linear(1, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(2))
        self.action_head = nn.Sequential(nn.Linear(WIDTH, 2), nn.Tanh())
        self.register_buffer("causal_mask", ~torch.tril(torch.ones(3 * TIME, 3 * TIME)).to(bool))

    def forward(self, states: Tensor, actions: Tensor, returns: Tensor, steps: Tensor) -> Tensor:
        batch, time = states.shape[:2]
        when = self.timestep_emb(steps)
        tokens = (
            self.return_emb(returns[..., None]) + when,
            self.state_emb(states) + when,
            self.action_emb(actions) + when,
        )
        x = torch.stack(tokens, 1).permute(0, 2, 1, 3).reshape(batch, 3 * time, WIDTH)
        x = self.emb_norm(x)
        for block in self.blocks:
            h = block["norm1"](x)
            mask = self.causal_mask[: 3 * time, : 3 * time]
            x = x + block["attention"](h, h, h, attn_mask=mask, need_weights=False)[0]
            x = x + block["mlp"](block["norm2"](x))
        return self.action_head(self.out_norm(x)[:, 1::3])


class LinenDecisionTransformer(linen.Module):
    place: int = 1  # of the states among the tokens

    @linen.compact
    def __call__(self, states, actions, returns, steps):
        batch, time = states.shape[:2]
        norm = lambda x: linen.LayerNorm(epsilon=1e-5)(x)
        when = linen.Embed(9, WIDTH)(steps)
        tokens = [linen.Dense(WIDTH)(part) + when for part in (actions, states, returns[..., None])][::-1]
        x = norm(jnp.stack(tokens, 2).reshape(batch, 3 * time, WIDTH))
        mask = causal(3 * time)[None, None]
        for _ in range(2):
            x = x + linen.MultiHeadDotProductAttention(HEADS)(norm(x), mask=mask)
            x = x + linen.Dense(WIDTH)(exact_gelu(linen.Dense(4 * WIDTH)(norm(x))))
        return jnp.tanh(linen.Dense(2)(norm(x)[:, self.place :: 3]))


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs), nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.attention(self.norms[0](x), mask=mask)
        return x + self.down(exact_gelu(self.up(self.norms[1](x))))


class NnxDecisionTransformer(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.steps = nnx.Param(jax.random.normal(rngs(), (9, WIDTH)))
        self.layers = nnx.List([nnx.Linear(n, WIDTH, rngs=rngs) for n in (1, 4, 2)])
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs) for _ in range(2)])
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(2)])
        self.head = nnx.Linear(WIDTH, 2, rngs=rngs)

    def __call__(self, states, actions, returns, steps):
        batch, time = states.shape[:2]
        when = self.steps[...][steps]
        parts = zip(self.layers, (returns[..., None], states, actions), strict=True)
        x = jnp.stack([layer(part) + when for layer, part in parts], 2).reshape(batch, 3 * time, WIDTH)
        x = self.norms[0](x)
        for block in self.blocks:
            x = block(x, causal(3 * time)[None, None])
        return jnp.tanh(self.head(self.norms[1](x)[:, 1::3]))


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
    "nanoGPT": Case(
        GPT,
        lambda: whole(WORDS, 2, TIME),
        {"linen": LinenGPT, "equinox": EqxGPT, "haiku": lambda: haiku(haiku_gpt)},
        {"approximate GELU": lambda: LinenGPT(gelu=False)},
    ),
    "decision transformer": Case(
        DecisionTransformer,
        lambda: (normal(2, TIME, 4), normal(2, TIME, 2), normal(2, TIME), whole(9, 2, TIME)),
        {"linen": LinenDecisionTransformer, "nnx": NnxDecisionTransformer},
        {"actions of another token": lambda: LinenDecisionTransformer(place=0)},
    ),
}
