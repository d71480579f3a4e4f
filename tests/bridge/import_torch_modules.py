"""Modules in the manner of public code: each row a function and its arguments."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bridge.import_torch_cases import i, made, n, u


def mlp(inputs: int, outputs: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, outputs))


def call(module: nn.Module, *args: Any) -> Any:
    return module(*args)


class NatureCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 8, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(8, 8, 4, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8 * 3 * 3, 16),
            nn.ReLU(),
            nn.Linear(16, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x / 255.0)


class ResidualBlock(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv0 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv1(F.relu(self.conv0(F.relu(x))))


class NoisyLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight_mu = nn.Parameter(torch.randn(outputs, inputs))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), 0.1))
        self.bias_mu = nn.Parameter(torch.randn(outputs))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), 0.1))
        self.register_buffer("weight_epsilon", torch.randn(outputs, inputs))
        self.register_buffer("bias_epsilon", torch.randn(outputs))

    def reset_noise(self) -> None:
        f = lambda size: (lambda x: x.sign().mul_(x.abs().sqrt_()))(torch.randn(size, dtype=self.weight_mu.dtype))
        epsilon_in, epsilon_out = f(self.weight_mu.shape[1]), f(self.weight_mu.shape[0])
        self.weight_epsilon.copy_(epsilon_out.outer(epsilon_in))
        self.bias_epsilon.copy_(epsilon_out)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            weight = self.weight_mu + self.weight_sigma * self.weight_epsilon
            return F.linear(x, weight, self.bias_mu + self.bias_sigma * self.bias_epsilon)
        return F.linear(x, self.weight_mu, self.bias_mu)


class CausalSelfAttention(nn.Module):
    """As in a small GPT: one projection for query, key and value, an explicit mask."""

    def __init__(self, width: int, heads: int, length: int):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.n_head, self.n_embd = heads, width
        self.register_buffer("bias", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, width: int = 8, heads: int = 2, length: int = 6):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, length)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Two blocks, the output layer tied to the embedding."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.h, self.ln_f = nn.ModuleList([Block() for _ in range(2)]), nn.LayerNorm(8)
        self.lm_head = nn.Linear(8, 11, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        position = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(position)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class DecisionTransformer(nn.Module):
    """Returns, states and actions interleaved; nn.MultiheadAttention with a boolean mask."""

    def __init__(self, states: int = 3, actions: int = 2, width: int = 8, length: int = 4):
        super().__init__()
        self.timestep_emb = nn.Embedding(10, width)
        self.state_emb, self.action_emb = nn.Linear(states, width), nn.Linear(actions, width)
        self.return_emb, self.emb_norm = nn.Linear(1, width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, 0.0, batch_first=True)
        self.norm, self.head = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, actions), nn.Tanh())
        self.register_buffer("causal_mask", ~torch.tril(torch.ones(3 * length, 3 * length)).to(bool))

    def forward(self, states: Tensor, actions: Tensor, returns: Tensor, steps: Tensor, padding: Tensor) -> Tensor:
        b, t = states.shape[:2]
        time = self.timestep_emb(steps)
        state, action = self.state_emb(states) + time, self.action_emb(actions) + time
        ret = self.return_emb(returns.unsqueeze(-1)) + time
        sequence = torch.stack([ret, state, action], dim=1).permute(0, 2, 1, 3).reshape(b, 3 * t, -1)
        mask = torch.stack([padding, padding, padding], dim=1).permute(0, 2, 1).reshape(b, 3 * t)
        out = self.emb_norm(sequence)
        attended, _ = self.attention(
            out, out, out, attn_mask=self.causal_mask[: 3 * t, : 3 * t], key_padding_mask=mask, need_weights=False
        )
        out = self.norm(out + attended)
        return self.head(out[:, 1::3]) * 2.0


class VectorizedLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int, members: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(members, inputs, outputs) * 0.3)
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


MODULES: dict[str, tuple[Any, ...]] = {
    "mlp": (call, made(lambda: mlp(4, 2)), n(3, 4)),
    "nature cnn": (call, made(NatureCNN), 100 * u(2, 4, 36, 36)),
    "residual conv": (
        call,
        made(lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.MaxPool2d(3, 2, 1), ResidualBlock(3))),
        n(2, 2, 7, 7),
    ),
    "conv transpose": (call, made(lambda: nn.ConvTranspose2d(3, 4, 4, 2, 1, 1)), n(2, 3, 4, 4)),
    "lstm": (call, made(lambda: nn.LSTM(3, 4, num_layers=2, batch_first=True)), n(2, 5, 3)),
    "lstm with state": (call, made(lambda: nn.LSTM(3, 4)), n(5, 2, 3), (n(1, 2, 4), n(1, 2, 4))),
    "bidirectional lstm": (call, made(lambda: nn.LSTM(3, 4, bidirectional=True, proj_size=2)), n(3, 2, 3)),
    "gru": (call, made(lambda: nn.GRU(3, 4, batch_first=True)), n(2, 5, 3), n(1, 2, 4)),
    "rnn": (call, made(lambda: nn.RNN(3, 4)), n(4, 2, 3)),
    "lstm cell": (call, made(lambda: nn.LSTMCell(3, 4)), n(2, 3), (n(2, 4), n(2, 4))),
    "gru cell": (call, made(lambda: nn.GRUCell(3, 4)), n(2, 3), n(2, 4)),
    "multihead attention": (
        lambda m, x: m(x, x, x),
        made(lambda: nn.MultiheadAttention(8, 2, batch_first=True)),
        n(2, 5, 8),
    ),
    "attention of a mask": (
        lambda m, x, mask: m(x, x, x, key_padding_mask=mask, need_weights=False)[0],
        made(lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True)),
        n(5, 2, 8),
        torch.tensor([[False, False, True, False, True], [False, True, False, False, False]]),
    ),
    "encoder layer": (call, made(lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)), n(2, 5, 8)),
    "encoder layer, judged": (
        call,
        made(
            lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.1, F.gelu, batch_first=True, norm_first=True), training=False
        ),
        n(2, 5, 8),
    ),
    "transformer": (call, made(lambda: nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)), n(2, 4, 8), n(2, 3, 8)),
    "layer norm": (call, made(lambda: nn.LayerNorm((3, 4))), n(2, 3, 4)),
    "group norm": (call, made(lambda: nn.GroupNorm(2, 4)), n(2, 4, 3, 3)),
    "rms norm": (call, made(lambda: nn.RMSNorm(4)), n(2, 4)),
    "instance norm": (call, made(lambda: nn.InstanceNorm2d(3, affine=True)), n(2, 3, 4, 4)),
    "batch norm": (call, made(lambda: nn.BatchNorm1d(4)), n(5, 4)),
    "batch norm, judged": (call, made(lambda: nn.BatchNorm2d(3), training=False), n(2, 3, 4, 4)),
    "embedding": (call, made(lambda: nn.Embedding(5, 3, padding_idx=1)), i(5, 4)),
    "noisy": (call, made(lambda: nn.Sequential(NoisyLinear(4, 3), nn.ReLU(), NoisyLinear(3, 2))), n(3, 4)),
    "bilinear": (call, made(lambda: nn.Bilinear(3, 4, 2)), n(5, 3), n(5, 4)),
    "weight norm": (call, made(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))), n(5, 3)),
    "gpt block": (call, made(Block), n(2, 5, 8)),
    "gpt, tied": (call, made(GPT), i(11, 2, 6), i(11, 2, 6)),
    "decision transformer": (
        call,
        made(DecisionTransformer),
        n(2, 4, 3),
        n(2, 4, 2),
        n(2, 4),
        i(10, 2, 4),
        torch.tensor([[False, False, False, False], [False, False, False, True]]),
    ),
    "ensemble": (
        call,
        made(lambda: nn.Sequential(VectorizedLinear(4, 5, 3), nn.ReLU(), VectorizedLinear(5, 1, 3))),
        n(3, 6, 4),
    ),
}
