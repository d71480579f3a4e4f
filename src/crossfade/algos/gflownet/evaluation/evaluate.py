"""How good a policy is: exactly where its states can be listed, by bounds and samples where they cannot.

During training an evaluation is cheap: the exact distribution over objects, or else the bounds of bounds.py. With an
`Effort`, as `crossfade eval` asks for, what samples can tell stands beside it, each figure with its standard error or
with what a perfect sampler would score. The draws come from the seed by a stream that training does not use, the same
at every evaluation, so that a curve shows how the policy changes and not how the draws do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float, Int32

from ....envs.dag.enumeration import Graph
from ....envs.dag.ground_truth import graph_of, objects_of, target_draws, target_of
from ....random import random_numpy as random
from ....ranges import INT32, Count, Range, Seed
from ....run.evaluation import Effort, Evaluation
from . import bounds, exact_numpy, noise_floor, upstream_metrics

TEST_SET = 1000  # objects whose probability is estimated one by one


@dataclass(frozen=True)
class SamplingEffort(Effort):
    """How much to sample."""

    samples: Annotated[int, Range(2, INT32)] = 10_000
    """Trajectories of the policy, and as many built backwards from objects of the target."""
    backward_samples: Count = 10
    """Trajectories by which the probability of one object is estimated."""
    seed: Seed | None = None
    """The seed of the samples; by default the run's."""


CHEAP = SamplingEffort(samples=500)


def evaluate(
    system: Any,
    policy: Any,
    log_pf: Callable[[], np.ndarray],
    log_z: float | None,
    effort: SamplingEffort | None = None,
) -> Evaluation:
    """What there is to say about a policy; without an effort, what is cheap.

    `log_pf()` is the table of log P_F over all states, asked for only where they can be listed; `log_z` the estimate of
    log Z that was trained, if one was; `system` samples, as bounds.py asks it to. Metrics: exact ones and bounds under
    `eval/`, what samples say under `sampled/`, upstream's metrics under `upstream/`. Arrays: the `distribution` over
    states or some `objects` made; and `agreement`, rows log R and log p.
    """
    params = system.config.env
    graph, target = graph_of(params), target_of(params)
    known = graph.log_z if graph is not None else target.log_z if target is not None else None
    metrics, arrays, test_set = {}, {}, ""
    if log_z is not None and known is not None:
        metrics["eval/log_z_error"] = abs(log_z - known)
    if graph is not None:
        arrays["distribution"] = exact_numpy.terminating_distribution(graph, np.asarray(log_pf(), np.float64))
        metrics |= _exact(graph, arrays["distribution"], effort is not None)
    if graph is None or effort is not None:
        sampled = _Sampled(system, policy, effort or CHEAP, known)
        metrics |= sampled.bounds()
        if effort is not None:
            metrics |= sampled.density() | sampled.agreement(effort.backward_samples)
            test_set = sampled.test_set
        if graph is None:
            arrays |= sampled.arrays
    return Evaluation(metrics, arrays, test_set)


def _exact(graph: Graph, p: Float[np.ndarray, " states"], in_full: bool) -> dict[str, float]:
    """Distances of a distribution from the target; in full, also how probabilities go with rewards."""
    found: dict[str, Any] = exact_numpy.metrics(graph, p, graph.log_z)
    del found["log_z_error"]
    if in_full:
        stops = graph.forward_mask[:, -1]
        log_p = np.log(np.maximum(p[stops], np.finfo(np.float64).tiny))
        found |= upstream_metrics.agreement(log_p, graph.log_reward[stops])
    return {f"eval/{name}": float(value) for name, value in found.items()}


class _Sampled:
    """What sampled trajectories say of a policy."""

    def __init__(self, system: Any, policy: Any, effort: SamplingEffort, log_z: float | None):
        self.system, self.policy, self.log_z = system, policy, log_z
        self.params = system.config.env
        seed = system.config.seed if effort.seed is None else effort.seed
        # A run splits its key in two, streams 0 and 1; this is stream 2.
        forward, target, backward, self.key = random.split(random.fold_in(random.key(seed), 2), 4)
        self.made = bounds.forward(system, policy, effort.samples, forward)
        self.drawn = target_draws(self.params, effort.samples, tuple(map(int, target)))
        self.built = None if self.drawn is None else bounds.backward(system, policy, self.drawn, backward)
        self.arrays = {"objects": self.made.x}
        if self.built is not None:
            self.arrays["agreement"] = np.stack([self.built.log_reward, self.built.ratio])
        self.test_set = ""

    def bounds(self) -> dict[str, float]:
        found = bounds.bounds(self.made, self.built)
        if self.log_z is not None:
            found |= {f"{name}_perfect": self.log_z for name in ("elbo", "eubo") if name in found}
        return {f"eval/{name}": value for name, value in found.items()}

    def density(self) -> dict[str, float]:
        """The histogram of the objects made against the target, and their rewards."""
        with np.errstate(over="ignore"):
            reward = np.exp(self.made.log_reward)
        n = len(reward)
        found = {
            "sampled/mean_reward": float(reward.mean()),
            "sampled/mean_reward_se": float(reward.std(ddof=1) / np.sqrt(n)),
        }
        if (objects := objects_of(self.params)) is None:
            return found
        p, size = objects.target, len(objects.x)
        q = np.bincount(objects.find(self.made.x), minlength=size) / n
        floors = (noise_floor.total_variation_floor, noise_floor.kl_floor, noise_floor.jsd_floor)
        tv_floor, kl_floor, jsd_floor = (floor(p, n) for floor in floors)
        upstream = upstream_metrics.density(p, q)
        pairs = {
            "sampled/mean_reward": (found["sampled/mean_reward"], exact_numpy.mean_reward(p, objects.log_reward)),
            "sampled/mode_coverage": (
                exact_numpy.mode_coverage(q, objects.modes),
                noise_floor.coverage_ceiling(p, objects.modes, n),
            ),
            "sampled/tv": (exact_numpy.total_variation(p, q), tv_floor),
            "sampled/l1": (exact_numpy.l1(p, q), 2 * tv_floor),
            "sampled/kl": (upstream["kl"] * size, kl_floor),
            "sampled/jsd": (exact_numpy.jsd(p, q), jsd_floor),
            "upstream/l1": (upstream["l1"], 2 * tv_floor / size),
            "upstream/kl": (upstream["kl"], kl_floor / size),
            "upstream/jsd": (upstream["jsd"], jsd_floor),
        }
        for name, (value, perfect) in pairs.items():
            found |= {name: float(value), f"{name}_perfect": float(perfect)}
        return found

    def agreement(self, repeats: int) -> dict[str, float]:
        """How the estimated probabilities of a test set go with its rewards."""
        x, drawn = self._test_objects()
        again, bootstrap = random.split(self.key)
        tried = bounds.backward(self.system, self.policy, np.repeat(x, repeats, axis=0), again)
        ratio, log_reward = tried.ratio.reshape(-1, repeats), tried.log_reward[::repeats]
        self.arrays["agreement"] = np.stack([log_reward, upstream_metrics.log_mean_exp(ratio)])
        found = upstream_metrics.estimated(ratio, log_reward, drawn, np.random.default_rng(bootstrap))
        perfect = {name: 1.0 for name in ("corr_probs_rewards", "corr_logprobs_logrewards", "spearman")}
        perfect["var_logrewards_logp"] = 0.0
        if self.log_z is not None:
            perfect["nll_tt"] = self.log_z - float(log_reward.mean())
        found |= {f"{name}_perfect": value for name, value in perfect.items()}
        return {f"{'sampled' if 'spearman' in name else 'upstream'}/{name}": value for name, value in found.items()}

    def _test_objects(self) -> tuple[Int32[np.ndarray, "n d"], bool]:
        """The objects to judge by, and whether they are a sample rather than all."""
        if (objects := objects_of(self.params)) is not None and len(objects.x) <= TEST_SET:
            self.test_set = f"all {len(objects.x)} objects"
            return objects.x, False
        if self.drawn is not None:
            x, source = self.drawn[:TEST_SET], "the target"
        else:
            x, source = np.unique(self.made.x[:TEST_SET], axis=0), "the policy"
        self.test_set = f"{len(x)} objects drawn from {source}"
        return x, True
