"""Whole transformers: a small nanoGPT and CORL's Decision Transformer."""

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx
from torch import Tensor, nn
from torch.nn import functional as F

from gallery.attention import (
    DEPTH,
    HEADS,
    TIME,
    WIDTH,
    attend,
    by_heads,
    causal,
    exact_gelu,
    merged,
)
from gallery.case import Case, haiku, keys, normal, whole

WORDS = 7


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


CASES = {
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
