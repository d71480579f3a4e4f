"""`crossfade doctor` on ports as people write them: what is wrong is named at its line of both halves."""

import sys
import textwrap

import pytest

from crossfade.cli import main

PORTS = """
import jax, jax.numpy as jnp, torch
import equinox as eqx
from flax import linen
from torch import nn
from torch.nn import functional as F

def mlp(out):
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, out))

class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic, self.actor = mlp(1), mlp(2)
    def forward(self, x):
        value = self.critic(x)  # torch: the critic
        return self.actor(x), value.squeeze(-1)

class ActorCritic(linen.Module):
    critics: str = "tanh"
    @linen.compact
    def __call__(self, x):
        actor = critic = x
        for _ in range(2):
            actor = linen.tanh(linen.Dense(16)(actor))
        for _ in range(2):
            critic = linen.Dense(16)(critic)
            critic = getattr(linen, self.critics)(critic)  # jax: the critic
        return linen.Dense(2)(actor), linen.Dense(1)(critic)[..., 0]

port, relu_port = ActorCritic(), ActorCritic("relu")

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
    def forward(self, x):
        heads = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(*heads, is_causal=True)  # torch: attention
        return self.out(y.transpose(1, 2).flatten(2))

class EquinoxAttention(eqx.Module):
    qkv: eqx.nn.Linear
    out: eqx.nn.Linear
    causal: bool = eqx.field(static=True)
    width: int = eqx.field(static=True)
    def __init__(self, causal=True, width=4):
        one, two = jax.random.split(jax.random.key(0))
        self.qkv, self.out = eqx.nn.Linear(16, 48, key=one), eqx.nn.Linear(16, 16, key=two)
        self.causal, self.width = causal, width
    def __call__(self, x):
        q, k, v = (part.reshape(-1, 4, 4).swapaxes(0, 1) for part in jnp.split(jax.vmap(self.qkv)(x), 3, -1))
        scores = q @ k.swapaxes(1, 2) / jnp.sqrt(float(self.width))
        seen = jnp.tril(jnp.ones(scores.shape, bool)) if self.causal else jnp.ones(scores.shape, bool)
        y = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)) @ v  # jax: attention
        return jax.vmap(self.out)(y.swapaxes(0, 1).reshape(-1, 16))

attention, unmasked, all_heads = EquinoxAttention(), EquinoxAttention(causal=False), EquinoxAttention(width=16)
"""


@pytest.fixture
def ports(tmp_path, monkeypatch):
    """A user's module in the current folder."""
    (tmp_path / "ports.py").write_text(textwrap.dedent(PORTS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "ports", raising=False)


def line_of(mark: str) -> str:
    """The place that a comment marks."""
    lines = textwrap.dedent(PORTS).splitlines()
    return f"ports.py:{next(i for i, line in enumerate(lines, 1) if line.endswith(f'# {mark}'))}"


def test_a_linen_module_without_variables(ports, capsys):
    assert main(["doctor", "ports:Agent", "ports:port", "--input", "8x4"]) == 0
    assert capsys.readouterr().out.startswith("ports:Agent = ports:port: ROUNDING. The same forward pass")


def test_a_wrong_activation_in_every_layer_of_one_head(ports, capsys):
    assert main(["doctor", "ports:Agent", "ports:relu_port", "--input", "8x4"]) == 1
    out = capsys.readouterr().out
    assert "Cause: the activation: torch tanh, JAX relu." in out.splitlines()[0]
    assert f"tanh in critic.1 at {line_of('torch: the critic')}" in out
    assert f"max at {line_of('jax: the critic')}" in out


@pytest.mark.parametrize(
    ("port", "cause"),
    [
        ("unmasked", "JAX attends to later places too: it has no causal mask"),
        pytest.param("all_heads", "attention is scaled by the width of all 4 heads in JAX", marks=pytest.mark.slow),
    ],
)
def test_what_is_wrong_with_an_attention(ports, capsys, port, cause):
    assert main(["doctor", "ports:Attention", f"ports:{port}", "--input", "2x5x16"]) == 1
    out = capsys.readouterr().out
    assert f"scaled_dot_product_attention at {line_of('torch: attention')}. Cause: {cause}" in out.splitlines()[0]
    assert f"dot_general at {line_of('jax: attention')}" in out
