"""The metrics of upstream's evaluator under upstream's names, and Spearman's correlation, which the literature adds.

Two of the names promise more than they hold: upstream's l1 and kl are means over the objects, not sums, so they shrink
with the size of the world. They are kept as they are; the sums stand beside them in evaluate.py.
"""

import numpy as np
from jaxtyping import Float, Shaped

from .noise_floor import SMOOTHING

Objects = Float[np.ndarray, " objects"]
BOOTSTRAPS = 1000
"""Times that trajectories are drawn again for the spread of single probabilities; a tenth of them for the rest."""


def density(p: Objects, q: Objects) -> dict[str, float]:
    """l1, kl and jsd of a sample histogram q against the target p: upstream's smoothing, upstream's means."""
    log_p, log_q = np.log(p + SMOOTHING), np.log(q + SMOOTHING)
    log_middle = np.logaddexp(log_p, log_q) - np.log(2)
    return {
        "l1": float(np.abs(p - q).mean()),
        "kl": float((p * (log_p - log_q)).mean()),
        "jsd": float((p * (log_p - log_middle)).sum() + (q * (log_q - log_middle)).sum()) / 2,
    }


def agreement(log_p: Objects, log_reward: Objects) -> dict[str, float]:
    """How log-probabilities of a test set go with its rewards: likelihood, correlations, variance of log R - log p."""
    return {
        "nll_tt": float(-log_p.mean()),
        "corr_probs_rewards": correlation(np.exp(log_p - log_p.max()), np.exp(log_reward - log_reward.max())),
        "corr_logprobs_logrewards": correlation(log_p, log_reward),
        "var_logrewards_logp": float(np.var(log_reward - log_p, ddof=1)),
        "spearman": spearman(log_p, log_reward),
    }


def estimated(
    ratio: Float[np.ndarray, "objects trajectories"], log_reward: Objects, drawn: bool, rng: np.random.Generator
) -> dict[str, float]:
    """`agreement` by estimates log p = log mean exp(ratio), and its standard errors by the bootstrap.

    The bootstrap draws trajectories again, and the objects too where they were `drawn` and are not all there are. The
    last three are upstream's own: how far log p and p of an object vary when its trajectories are drawn again.
    """
    objects, trajectories = ratio.shape
    log_p, top = log_mean_exp(ratio), ratio.max(-1, keepdims=True)
    share = rng.multinomial(trajectories, np.full(trajectories, 1 / trajectories), BOOTSTRAPS) / trajectories
    log_again = np.log(np.exp(ratio - top) @ share.T) + top
    found = agreement(log_p, log_reward)
    again = []
    for column in log_again.T[: BOOTSTRAPS // 10]:
        rows = rng.integers(objects, size=objects) if drawn else np.arange(objects)
        again.append(list(agreement(column[rows], log_reward[rows]).values()))
    errors = np.std(again, axis=0, ddof=1)
    log_std = log_again.std(-1)
    return {
        **found,
        **{f"{name}_se": float(error) for name, error in zip(found, errors, strict=True)},
        "mean_logprobs_std": float(log_std.mean()),
        "mean_probs_std": float(np.exp(log_again).std(-1).mean()),
        "logprobs_std_nll_ratio": float((-log_std / log_p).mean()),
    }


def correlation(a: Shaped[np.ndarray, " objects"], b: Shaped[np.ndarray, " objects"]) -> float:
    """Pearson's correlation; not a number where one side is constant."""
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a**2).sum() * (b**2).sum())
    return float((a * b).sum() / size) if size > 0 else float("nan")


def spearman(a: Objects, b: Objects) -> float:
    """Pearson's correlation of the ranks; numbers equal to 9 decimals share one."""
    return correlation(_ranks(a), _ranks(b))


def log_mean_exp(ratio: Float[np.ndarray, "objects trajectories"]) -> Objects:
    """The estimate of log p of each object."""
    return np.logaddexp.reduce(ratio, axis=-1) - np.log(ratio.shape[-1])


def _ranks(values: Objects) -> Objects:
    _, place, count = np.unique(np.round(values, 9), return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]
