"""Torch code in the ways RL code writes it, one row each: the function and its arguments, in float64."""

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_generator = torch.Generator().manual_seed(0)


def n(*shape: int) -> Tensor:
    """Normal numbers."""
    return torch.randn(shape, dtype=torch.float64, generator=_generator)


def u(*shape: int) -> Tensor:
    """Numbers between 0.1 and 0.9."""
    return 0.1 + 0.8 * torch.rand(shape, dtype=torch.float64, generator=_generator)


def i(high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=_generator)


def v(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def made(build: Callable[[], nn.Module], *, training: bool = True) -> nn.Module:
    """A module in float64 whose parameters are all random."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = build().double().train(training)
    for tensor in module.parameters():
        tensor.data.add_(0.1 * torch.randn(tensor.shape, dtype=torch.float64, generator=_generator))
    return module


Pair = namedtuple("Pair", "mean spread")


@dataclass(frozen=True)
class Batch:
    obs: Tensor
    weight: Tensor


def in_place(x: Tensor) -> Tensor:
    y = x * 2
    y.add_(1).mul_(x)
    y[:, 0] = x[:, 1] ** 2
    y[1:3].clamp_(-0.5, 0.5)
    z = y.view(-1)
    z[::2] += 3
    y.t()[2] = 0.0
    return y + z.view_as(x)


def written_in_a_loop(rewards: Tensor, values: Tensor, dones: Tensor) -> tuple[Tensor, Tensor]:
    """Generalised advantages, as written in one-file PPOs."""
    advantages = torch.zeros_like(rewards)
    last = 0
    for t in reversed(range(len(rewards))):
        following = values[t + 1] if t + 1 < len(rewards) else values[t]
        delta = rewards[t] + 0.99 * following * (1 - dones[t]) - values[t]
        advantages[t] = last = delta + 0.99 * 0.95 * (1 - dones[t]) * last
    return advantages, advantages + values


def masked_logits(x: Tensor, mask: Tensor) -> Tensor:
    return (
        torch.where(mask, x, torch.tensor(-1e8, dtype=x.dtype)).log_softmax(-1).gather(-1, mask.long().argmax(-1, True))
    )


def gradient_penalty(module: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().requires_grad_(True)
    (grad,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def no_grad_in_place(x: Tensor) -> Tensor:
    y = x * 3
    with torch.no_grad():
        y.mul_(2)
    return y


def through_data(x: Tensor) -> Tensor:
    y = x * 3
    y.data.clamp_(-1, 1)
    return y.sin()


def views_written(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, :2].mul_(3)
    y[0].zero_()
    y.select(1, 1).copy_(x[:, 0])
    other = y.detach()
    other[2] = 5.0
    return y * x + other


def projected(x: Tensor) -> Tensor:
    out = torch.zeros(3, 5, dtype=x.dtype)
    low = x.clamp(0, 4).floor().long()
    out.view(-1).index_add_(0, (low + 5 * torch.arange(3).unsqueeze(1)).view(-1), x.view(-1))
    return out


OPERATIONS: dict[str, tuple[Any, ...]] = {
    "arithmetic": (
        lambda x, y: (x + y) * 2 - x / (y.abs() + 1) + 1 / (x * x + 1) - torch.add(x, y, alpha=3),
        n(4, 3),
        n(3),
    ),
    "powers": (lambda x: x**2 + x.abs() ** 1.5 + 2**x + x.abs() ** x + x.square() + (x * x).sqrt() + x**-1, n(5)),
    "exponentials": (lambda x: x.exp() + x.expm1() + x.exp().log() + (x * x).log1p() + (x * x + 1).log2(), n(5)),
    "trigonometry": (lambda x: x.sin() + x.cos() * x.tan() + x.tanh().atanh() + x.atan() + x.sinh().asinh(), n(5)),
    "atan2": (lambda x, y: torch.atan2(x, y) + torch.hypot(x, y), n(5), n(5)),
    "rounding": (lambda x: x.floor() + x.ceil() * x + x.round() + x.trunc() * 2 + x.frac() + x.sign() * x, 3 * n(6)),
    "remainders": (
        lambda x: x % 2 + torch.fmod(x, 0.7) + x.detach() // 1.5 + torch.div(x, 2, rounding_mode="trunc"),
        3 * n(6),
    ),
    "special": (lambda x: x.erf() + x.erfc() + x.lgamma() + x.digamma() + torch.logit(x) + x.erfinv(), u(5)),
    "xlogy": (lambda x, y: torch.xlogy(x, y) + torch.special.entr(x) + torch.logaddexp(x, y), u(5), u(5)),
    "comparisons": (lambda x, y: (x > y).double() * x + (x <= 0.1).float() * y + ((x != y) & (y < 0)) * x, n(6), n(6)),
    "integers": (lambda a, b: (a // 3 + b % 4 - (a & b), (a > b).sum(), a.float() / b.clamp(min=1)), i(9, 5), i(9, 5)),
    "promotion": (lambda x, k: (x * k + k.float() * 2, k / 2, k + 1.5, k * True, x.float() + x), n(4), i(5, 4)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + x.clamp_max(0.2) + F.hardtanh(x), n(9)),
    "clamp by tensors": (lambda x, a, b: torch.clamp(x, a, b) + x.clip(max=b), n(9), -u(9), u(9)),
    "maximum": (lambda x, y: torch.max(x, y) + torch.minimum(x, 2 * y) + torch.fmax(x, y), n(6), n(6)),
    "where": (
        lambda x, y: torch.where(x > 0, x, y) + torch.where(y > 0, 1.0, x) + x.masked_fill(x < 0, 2.0),
        n(6),
        n(6),
    ),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3) + torch.lerp(x, y, 0.8) + torch.addcmul(x, x, y, value=2), n(6), n(6)),
    "nan_to_num": (lambda x: torch.nan_to_num(x / x.clamp(min=0), nan=1.0, posinf=3.0), v(-1.0, 0.5, 2.0)),
    "relu family": (
        lambda x: F.relu(x) + F.leaky_relu(x, 0.2) + F.elu(x) + F.celu(x, 0.7) + F.selu(x) + F.relu6(x),
        n(9),
    ),
    "smooth activations": (lambda x: F.gelu(x) + F.silu(x) + F.mish(x) + F.softplus(x, beta=2) + F.logsigmoid(x), n(9)),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), n(9)),
    "hard activations": (lambda x: F.hardswish(x) + F.hardsigmoid(x) + F.softshrink(x) + F.hardshrink(x), 3 * n(9)),
    "more activations": (lambda x: F.tanhshrink(x) + F.softsign(x) + F.threshold(x, 0.1, 2.0) + torch.sigmoid(x), n(9)),
    "glu": (lambda x: F.glu(x, -1), n(3, 6)),
    "prelu": (lambda x, w: F.prelu(x, w), n(2, 3, 4), u(3)),
    "softmax": (lambda x: F.softmax(x, -1) + F.log_softmax(x, 0) + x.softmax(1) + F.softmin(x, 1), n(3, 4)),
    "logsumexp": (lambda x: (x.logsumexp(1), torch.logsumexp(x, (0, 1), keepdim=True)), n(3, 4)),
    "sums": (lambda x: (x.sum(), x.sum(0), x.mean((0, 2), keepdim=True), x.prod(1), (x > 0).sum(-1)), n(2, 3, 4)),
    "variance": (lambda x: (x.std(), x.var(0), x.std(1, unbiased=False), *torch.var_mean(x, 1)), n(4, 5)),
    "normalised advantages": (lambda x: (x - x.mean()) / (x.std() + 1e-8), n(7)),
    "extremes": (lambda x: (x.max(), x.min(), x.max(1).values, x.min(0)[0], x.amax((0, 1)), x.argmax(1)), n(3, 4)),
    "norms": (lambda x: (x.norm(), x.norm(dim=1), torch.linalg.norm(x, 1, 0), F.normalize(x, dim=1)), n(3, 4)),
    "infinite norm": (lambda x: torch.linalg.vector_norm(x, torch.inf, 1) + torch.linalg.vector_norm(x, 3, 1), n(3, 4)),
    "cosine similarity": (lambda x, y: F.cosine_similarity(x, y), n(3, 4), n(3, 4)),
    "cumulative": (lambda x: x.cumsum(0) + x.cumprod(1) + x.cummax(1).values + x.logcumsumexp(0), n(3, 4)),
    "any all": (lambda x: ((x > 0).any(), (x > 0).all(1), torch.isfinite(x).all(), x.isnan().any()), n(3, 4)),
    "sort": (
        lambda x: (*torch.sort(x, 1, descending=True), x.argsort(0), *x.topk(2, -1), x.topk(1, 0, False)[0]),
        n(3, 4),
    ),
    "median": (lambda x: (x.median(), x.median(1).values, x.kthvalue(2, 1).values, x.quantile(0.3, dim=1)), n(3, 4)),
    "quantile huber": (
        lambda x, y, tau: (F.huber_loss(x, y, reduction="none") * (tau - ((y - x).detach() < 0).double()).abs()).sum(),
        n(3, 4),
        n(3, 4),
        u(3, 4),
    ),
    "shapes": (
        lambda x: x.view(4, -1).t().reshape(3, 2, 2).permute(2, 0, 1).unsqueeze(1).squeeze().flatten(1).transpose(0, 1),
        n(2, 6),
    ),
    "expand": (
        lambda x: x.expand(3, -1, 4).sum(2) + x.repeat(1, 3).sum() + x.broadcast_to(3, 2, 1).squeeze(-1),
        n(2, 1),
    ),
    "cat and stack": (
        lambda x, y: (torch.cat([x, y], -1), torch.stack([x, y * 2], 1), torch.hstack((x, y))),
        n(2, 3),
        n(2, 3),
    ),
    "cuts": (lambda x: (*x.chunk(2, 1), *x.split([1, 3], 1), x.unbind(0)[1], x.narrow(1, 1, 2), x[..., None]), n(3, 4)),
    "slices": (lambda x: (x[1:, ::2], x[:, -1], x[None, 0], x[..., 1:3], x[-2:].flip(0), x.roll(1, 0)), n(4, 5)),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, dim=0), n(2, 3)),
    "pads": (lambda x: F.pad(x, (1, 2)) + F.pad(x, (1, 2), value=3.0) + F.pad(x, (1, 2), mode="replicate"), n(2, 3, 4)),
    "reflect": (lambda x: F.pad(x, (1, 1, 2, 1), mode="reflect"), n(1, 2, 4, 4)),
    "triangles": (lambda x: (x.tril(), x.triu(1), x.diagonal(), torch.diag_embed(x), torch.diag(x[0])), n(4, 4)),
    "unfold": (lambda x: x.unfold(1, 3, 2), n(2, 7)),
    "gather": (
        lambda q, a: q.gather(1, a.unsqueeze(1)).squeeze(1) + torch.take_along_dim(q, a[:, None], 1)[:, 0],
        n(4, 3),
        i(3, 4),
    ),
    "advanced index": (lambda q, a: q[torch.arange(4), a] + q[a].sum(1)[:4] + q[:, a].sum(0), n(4, 4), i(4, 4)),
    "index_select": (lambda x, k: (x.index_select(0, k), x.take(k), x.index_add(0, k, 2 * x[k])), n(4, 3), i(4, 3)),
    "scatter": (
        lambda x, k, y: x.scatter(1, k, y) + x.scatter_add(1, k, y) + torch.zeros_like(x).scatter_(1, k, 1.0),
        n(3, 4),
        torch.tensor([[0, 2], [1, 3], [3, 0]]),
        n(3, 2),
    ),
    "index_put": (lambda x, k: x.clone().index_put_((k,), x[0], accumulate=True), n(4, 3), i(4, 3)),
    "mask assignment": (lambda x: _masked_assignment(x), n(4, 3)),
    "projection": (projected, n(3, 4)),
    "one_hot": (lambda k, x: (F.one_hot(k, 4).double() * x).sum(1), i(4, 3), n(3, 4)),
    "embedding": (lambda k, w: F.embedding(k, w, padding_idx=2), i(4, 3, 2), n(4, 5)),
    "searchsorted": (
        lambda x: (
            torch.searchsorted(torch.linspace(-2, 2, 5, dtype=x.dtype), x) + torch.bucketize(x, torch.tensor([0.0]))
        ),
        n(6),
    ),
    "factories": (
        lambda x: (
            x * torch.ones(3).double() + torch.zeros_like(x) + torch.full((3,), 2.0) + torch.arange(3) + torch.eye(3)[1]
        ),
        n(3),
    ),
    "new": (
        lambda x: x.new_ones(3) * x + x.new_tensor([1.0, 2.0, 3.0]) + torch.tensor([3, 4, 5]) + torch.linspace(0, 1, 3),
        n(3),
    ),
    "products": (
        lambda x, y: (x @ y, torch.mm(x, y), x[0] @ y, x @ y[:, 0], torch.dot(x[0], x[1]), torch.outer(x[0], x[1])),
        n(3, 4),
        n(4, 2),
    ),
    "batched products": (
        lambda x, y: torch.bmm(x, y) + x @ y + torch.baddbmm(x[:, :, :2], x, y, beta=0.5),
        n(2, 3, 4),
        n(2, 4, 2),
    ),
    "einsum": (
        lambda x, y: torch.einsum("bij,bjk->bki", x, y) + torch.einsum("bij,bjk->ki", x, y),
        n(2, 3, 4),
        n(2, 4, 2),
    ),
    "linear algebra": (lambda x: _factorised(x), n(3, 3)),
    "cdist": (lambda x, y: torch.cdist(x, y), n(3, 4), n(2, 4)),
    "conv1d": (
        lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1, dilation=2, groups=2),
        n(2, 4, 9),
        n(6, 2, 3),
        n(6),
    ),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding="same"), n(1, 2, 4, 4, 4), n(3, 2, 3, 3, 3)),
    "conv_transpose1d": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1, groups=2),
        n(2, 4, 5),
        n(4, 3, 3),
    ),
    "max_pool2d": (lambda x: F.max_pool2d(F.relu(x), 3, 2, 1) + F.max_pool2d(x, 2).sum(), n(2, 3, 6, 6)),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2), n(2, 3, 8)),
    "avg_pool": (lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)), n(2, 3, 6, 6)),
    "adaptive pool": (lambda x: (F.adaptive_avg_pool2d(x, (2, 4)), F.adaptive_max_pool2d(x, 3)), n(2, 3, 6, 6)),
    "upsample": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), n(1, 2, 3, 3)),
    "bilinear": (lambda x: F.interpolate(x, (5, 7), mode="bilinear", align_corners=False), n(1, 2, 3, 3)),
    "losses": (
        lambda x, y: (
            F.mse_loss(x, y),
            F.l1_loss(x, y),
            F.smooth_l1_loss(x, y, beta=0.5),
            F.huber_loss(x, y, delta=0.7),
        ),
        n(3, 4),
        n(3, 4),
    ),
    "unreduced losses": (
        lambda x, y: F.mse_loss(x, y, reduction="none") + F.smooth_l1_loss(x, y, reduction="sum"),
        n(3, 4),
        n(3, 4),
    ),
    "cross entropy": (
        lambda x, k, w: (
            F.cross_entropy(x, k),
            F.cross_entropy(x, k, w.detach(), label_smoothing=0.1),
            F.nll_loss(x.log_softmax(1), k),
        ),
        n(4, 3),
        i(3, 4),
        u(3),
    ),
    "cross entropy of sequences": (
        lambda x, k: F.cross_entropy(x, k, ignore_index=0, reduction="none"),
        n(2, 5, 3),
        i(5, 2, 3),
    ),
    "cross entropy of laws": (lambda x, y: F.cross_entropy(x, y.softmax(1)), n(4, 3), n(4, 3)),
    "binary cross entropy": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y) + F.binary_cross_entropy(x.sigmoid(), y),
        n(5),
        u(5),
    ),
    "weighted binary cross entropy": (
        lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, w.detach(), pos_weight=w.detach()),
        n(5),
        u(5),
        u(5),
    ),
    "kl_div": (lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), n(4, 3), n(4, 3)),
    "gaussian nll": (lambda x, y, s: F.gaussian_nll_loss(x, y, s), n(5), n(5), u(5)),
    "attention": (
        lambda q, k, w: F.scaled_dot_product_attention(q, k, w, is_causal=True),
        n(2, 2, 4, 3),
        n(2, 2, 4, 3),
        n(2, 2, 4, 3),
    ),
    "masked attention": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=torch.ones(4, 4).tril().bool()),
        n(2, 4, 3),
        n(2, 4, 3),
    ),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b, 1e-3), 100 + n(3, 4), n(4), n(4)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w) + F.rms_norm(x, (4,), eps=1e-6), n(3, 4), n(4)),
    "factorisations": (
        lambda x: (
            *torch.linalg.qr(x),
            torch.linalg.svdvals(x),
            torch.linalg.eigvalsh(x.T @ x),
            torch.matrix_exp(x.T @ x),
        ),
        n(4, 3),
    ),
    "tensor products": (
        lambda x, y: (torch.kron(x, y), torch.tensordot(x, y, ([1], [0])), torch.block_diag(x, y)),
        n(2, 2),
        n(2, 3),
    ),
    "differences": (lambda x: (x.diff(dim=1), x.rot90(), x.flip(0).cumsum(0).flip(0)), n(3, 4)),
    "scatter_reduce": (
        lambda x, k, y: tuple(
            x.scatter_reduce(0, k, y, how, include_self=how != "amax") for how in ("mean", "sum", "amax")
        ),
        n(4),
        torch.tensor([0, 1, 1, 3]),
        n(4),
    ),
    "grid_sample": (
        lambda x, g: (
            F.grid_sample(x, g, align_corners=False) + F.grid_sample(x, g, padding_mode="border", align_corners=True)
        ),
        n(2, 3, 4, 5),
        0.8 * n(2, 3, 3, 2),
    ),
    "im2col": (lambda x: (F.unfold(x, 3, padding=1), F.fold(F.unfold(x, 2), (5, 5), 2)), n(2, 3, 5, 5)),
    "margins": (
        lambda x, y: F.margin_ranking_loss(x, y, torch.ones(3), 0.1) + F.soft_margin_loss(x, y.sign().detach()),
        n(3),
        n(3),
    ),
    "bits": (lambda k: ((k << 1) | (k >> 1) ^ 3, torch.isin(k, torch.tensor([1, 2]))), i(9, 5)),
    "detach in place": (lambda x: (x * 2).detach_() * x, n(3)),
    "views written": (views_written, n(3, 4)),
    "in place": (in_place, n(4, 3)),
    "written in a loop": (written_in_a_loop, n(6, 2), n(6, 2), i(2, 6, 2).double()),
    "detach": (lambda x, y: x * y.detach() + (x * y).detach() * y + x.clone().detach() * 2, n(4), n(4)),
    "no_grad in place": (no_grad_in_place, n(4)),
    "data": (through_data, n(4)),
    "masked logits": (masked_logits, n(4, 3), torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 1]]).bool()),
    "trees": (
        lambda b, p, k: ({"x": Pair(b.obs * k["a"], p.spread), "n": 3}, [Batch(b.obs.sum(1), b.weight)], None),
        Batch(n(3, 2), n(2)),
        Pair(n(2), n(2)),
        {"b": 2.0, "a": 3},
    ),
    "straight through": (lambda x: (x > 0.5).double() + x - x.detach(), n(5)),
    "expectile": (lambda d: (torch.where(d > 0, 0.7, 1 - 0.7) * d**2).mean(), n(7)),
    "normal": (lambda x, m, s: _normal(x, m, s), n(5, 2), n(5, 2), u(5, 2)),
    "categorical": (lambda x, k: _categorical(x, k), n(5, 3), i(3, 5)),
    "validated law": (lambda x, s: torch.distributions.Normal(x, s, validate_args=True).log_prob(2 * x), n(3), u(3)),
    "squashed normal": (lambda x, m, s: _squashed(x, m, s), u(5, 2), n(5, 2), u(5, 2)),
    "other laws": (lambda x, a: _laws(x, a), u(5), 1 + u(5)),
    "multivariate normal": (lambda x, m, a: _multivariate(x, m, a), n(4, 3), n(3), n(3, 3)),
    "kl divergence": (lambda m, s, x: _divergence(m, s, x), n(4), u(4), n(4)),
    "mixture": (lambda w, m, x: _mixture(w, m, x), n(4, 3), n(4, 3), n(4)),
}


def _masked_assignment(x: Tensor) -> Tensor:
    y = x.clone()
    y[x < 0] = 0.5
    y[y[:, 0] > 0] = x[0]
    y[0, 1:] = 7
    return y * x


def _factorised(x: Tensor) -> tuple[Tensor, ...]:
    a = x @ x.t() + torch.eye(3, dtype=x.dtype)
    half = torch.linalg.cholesky(a)
    return half, torch.linalg.inv(a), torch.linalg.solve(a, x), torch.logdet(a), torch.det(a), torch.trace(a)


def _normal(x: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, ...]:
    law = torch.distributions.Independent(torch.distributions.Normal(mean, std), 1)
    return law.log_prob(x), law.entropy(), law.mean, law.variance, law.base_dist.cdf(x)


def _categorical(logits: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    law, other = (
        torch.distributions.Categorical(logits=logits),
        torch.distributions.Categorical(probs=logits.softmax(-1)),
    )
    return (
        law.log_prob(k),
        law.entropy(),
        other.log_prob(k),
        law.probs,
        other.logits,
        torch.distributions.OneHotCategorical(logits=logits).entropy(),
    )


def _squashed(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    law = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, std), [torch.distributions.TanhTransform(cache_size=1)]
    )
    return law.log_prob(x.tanh())


def _laws(x: Tensor, a: Tensor) -> tuple[Tensor, ...]:
    d = torch.distributions
    laws = (d.Beta(a, a + 1), d.Gamma(a, a), d.Laplace(a, a), d.Exponential(a), d.LogNormal(a, a), d.Uniform(0 * a, a))
    bernoulli = d.Bernoulli(logits=a)
    return (
        *(law.log_prob(x) + law.entropy() for law in laws),
        bernoulli.log_prob((x > 0.5).double()),
        bernoulli.entropy(),
    )


def _multivariate(x: Tensor, mean: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    law = torch.distributions.MultivariateNormal(mean, a @ a.t() + torch.eye(3, dtype=a.dtype))
    return law.log_prob(x), law.entropy()


def _divergence(mean: Tensor, std: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    d = torch.distributions
    between = d.kl_divergence(d.Normal(mean, std), d.Normal(x, 2 * std))
    return between, d.kl_divergence(d.Categorical(logits=x), d.Categorical(logits=mean))


def _mixture(weights: Tensor, means: Tensor, x: Tensor) -> Tensor:
    d = torch.distributions
    return d.MixtureSameFamily(d.Categorical(logits=weights), d.Normal(means, 1.0)).log_prob(x)
