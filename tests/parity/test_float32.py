"""Bugs that exist in float32 alone are found, and rounding that one half has more of raises no alarm."""

import math

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from parity_halves import draw, linear, make_twin, seeded
from torch import nn

from crossfade.parity import Twin, Verdict, check
from default_run import few

WORDS = np.array([[3, 70_000, 9], [120_001, 5, 65_537]])


class Hashed(nn.Module):
    """A linear layer, and a table read at hashed words."""

    def __init__(self):
        super().__init__()
        self.fc, self.table = nn.Linear(6, 6), nn.Parameter(torch.randn(17))


def layer(bug: str | None = None) -> Twin:
    """The bug shows in float32 alone: in float64 JAX has 64-bit integers, and nothing is cast."""

    def torch_forward(net, b):
        words = b["words"].long()
        return torch.tanh(net.fc(b["x"])), net.table[words * words % 17]

    def jax_forward(p, b):
        x, words = b["x"], b["words"]
        single = x.dtype == jnp.float32
        if bug == "bfloat16 cast" and single:
            x = x.astype(jnp.bfloat16).astype(x.dtype)
        if bug == "float16 accumulation" and single:
            y = (x.astype(jnp.float16) @ p["fc"]["weight"].T.astype(jnp.float16)).astype(x.dtype) + p["fc"]["bias"][
                None
            ]
        else:
            y = linear(p["fc"], x)
        rest = words % 17
        square = words * words if bug == "int32 overflow" else rest * rest
        return jnp.tanh(y), p["table"][square % 17]

    return make_twin(
        "layer", seeded(Hashed), batch={"x": draw(5, 6), "words": WORDS}, forward=(torch_forward, jax_forward)
    )


@pytest.mark.parametrize("bug", [None, "bfloat16 cast", "float16 accumulation", "int32 overflow"])
def test_a_bug_that_only_float32_has_does_not_pay_for_itself(bug):
    report = check(layer(bug))
    assert (report.verdict is Verdict.DIFFERENT) == (bug is not None), report.text()
    if bug is not None:
        assert report.first is not None and (report.first.level, report.first.dtype) == ("forward", "float32")
        assert "In float64 the halves agree" in str(report.first) and not any("less care" in n for n in report.notes)
        assert next(row for row in report.rows if row.level == "forward").float64.size < 1e-12


class CounterNumpy:
    """A counter of ticks, and a linear congruence of it."""

    def reset(self, key):
        return {"ticks": np.int64(60_000)}

    def step(self, state, action):
        ticks = state["ticks"] + int(action)
        return {"ticks": ticks}, {"slot": ticks * ticks % 7, "phase": float(ticks % 10) / 10}


class CounterJax:
    def __init__(self, overflows: bool):
        self.overflows = overflows

    def reset(self, key):
        return {"ticks": jnp.array(60_000)}

    def step(self, state, action):
        ticks = state["ticks"] + action
        rest = ticks if self.overflows else ticks % 7
        return {"ticks": ticks}, {"slot": rest * rest % 7, "phase": (ticks % 10) / 10}


@pytest.mark.parametrize("overflows", [False, True])
def test_an_environment_whose_integers_overflow_is_different(overflows):
    report = check(Twin("counter", env=(CounterNumpy(), CounterJax(overflows)), actions=np.arange(1, 6)))
    assert (report.verdict is Verdict.DIFFERENT) == overflows, report.text()


@pytest.mark.parametrize("careless", ["torch", "jax"])
def test_less_care_for_rounding_on_either_side_is_rounding(careless):
    module = seeded(lambda: nn.Linear(2, 1, bias=False))
    fast = lambda x: (x * x).mean(-1) - x.mean(-1) ** 2
    twin = make_twin(
        "variance",
        module,
        batch=300 + draw(4, 8),
        forward=(
            lambda m, x: (fast(x) if careless == "torch" else x.var(-1, correction=0)) + m.weight.sum(),
            lambda p, x: (fast(x) if careless == "jax" else x.var(-1)) + p["weight"].sum(),
        ),
    )
    assert check(twin).verdict is Verdict.ROUNDING


@pytest.mark.parametrize(
    ("rate", "b2"),
    [
        pytest.param(0.1, 0.999, marks=pytest.mark.slow),
        (1e-3, 0.999),
        pytest.param(1.0, 0.9999, marks=pytest.mark.slow),
    ],
)
def test_optax_bias_correction_is_rounding(rate, b2):
    """1 - b2 in float32 loses as many digits as b2 is close to one; torch computes it in Python, in float64."""
    module = seeded(lambda: nn.Linear(3, 2))
    twin = make_twin(
        "adam",
        module,
        batch={"x": draw(5, 3)},
        loss=(lambda m, b: m(b["x"]).square().mean(), lambda p, b: jnp.square(linear(p, b["x"])).mean()),
        optimizer=(lambda p: torch.optim.Adam(p, lr=rate, betas=(0.9, b2)), optax.adam(rate, b2=b2)),
    )
    report = check(twin, steps=(1, 10))
    assert report.verdict is Verdict.ROUNDING, report.text()


def first_minibatch(bug: str | None = None, actions: int = 60, estimator: str = "k1") -> Twin:
    """PPO before its first update: old and new log-probabilities are equal but for rounding, and so is their KL."""

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.log_std = nn.Linear(3, actions), nn.Parameter(torch.linspace(-4, 1, actions))

    module = seeded(Policy)
    obs, noise = draw(6, 3), draw(6, actions, seed=1)

    def torch_log_prob(net, b):
        mean, std = net.mean(b["obs"]), net.log_std.exp()
        return torch.distributions.Normal(mean, std).log_prob(b["action"]).sum(-1)

    def torch_loss(net, b):
        log_ratio = torch_log_prob(net, b) - b["old"]
        kl = -log_ratio.mean() if estimator == "k1" else (log_ratio.exp() - 1 - log_ratio).mean()
        return (log_ratio.exp() * b["advantage"]).mean(), {"approx_kl": kl}

    def jax_loss(p, b):
        mean, log_std = linear(p["mean"], b["obs"]), p["log_std"][None]
        z = (b["action"] - mean) * jnp.exp(-log_std)
        log_prob = (-0.5 * z * z - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
        log_ratio = log_prob - b["old"]
        kl = -log_ratio.mean() if estimator == "k1" else (jnp.expm1(log_ratio) - log_ratio).mean()
        if bug == "sum over the batch":
            kl = kl * len(obs) + 1e-9 * mean.sum()
        return (jnp.exp(log_ratio) * b["advantage"]).mean(), {"approx_kl": kl + 1e-10 * (bug == "a constant")}

    with torch.no_grad():
        action = module.mean(torch.tensor(obs)) + module.log_std.exp() * torch.tensor(noise)
        batch = {"obs": obs, "action": action.numpy(), "advantage": draw(6, seed=2)}
        batch["old"] = torch_log_prob(module.double(), {k: torch.tensor(v).double() for k, v in batch.items()}).numpy()
    module.float()
    batch["advantage"] -= batch["advantage"].mean()
    return make_twin("first minibatch", module, batch=batch, loss=(torch_loss, jax_loss))


@pytest.mark.parametrize("estimator", ["k1", "k3"])
@pytest.mark.parametrize("actions", few((2, 60, 600), 600))
@pytest.mark.parametrize("dtype", ["both", "float32"])
def test_a_kl_of_rounding_alone_raises_no_alarm(estimator, actions, dtype):
    report = check(first_minibatch(actions=actions, estimator=estimator), dtype=dtype)
    assert report.verdict is Verdict.ROUNDING, report.text()


@pytest.mark.parametrize("bug", ["sum over the batch", "a constant"])
def test_a_kl_that_is_wrong_is_found_though_it_is_near_zero(bug):
    first = check(first_minibatch(bug), dtype="float64").first
    assert first is not None and (first.level, first.leaf) == ("loss", "approx_kl")
