"""Evaluation: exact draws from targets, bounds on log Z, estimated probabilities, upstream's metrics, the verb."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from crossfade.algos.gflownet.batch import Noise
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.algos.gflownet.evaluation import (
    bounds,
    evaluate,
    exact_numpy,
    noise_floor,
    object_probability,
    upstream_metrics,
)
from crossfade.algos.gflownet.sampling import vectorized
from crossfade.cli import main
from crossfade.config import apply
from crossfade.envs.dag import ground_truth
from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.grid.params import GridParams
from crossfade.envs.dag.hypergrid.params import HypergridParams
from crossfade.envs.dag.registry import make
from crossfade.envs.dag.target import products
from crossfade.envs.dag.toy.params import ToyParams
from crossfade.envs.dag.words.params import BitSequenceParams, IsingParams, SequenceParams
from crossfade.errors import UsageError
from crossfade.random import random_numpy as random
from crossfade.registry import find
from crossfade.trainers.making import make_trainer

LANDSCAPES = ("corners", "cosine", "deceptive", "sparse")
DRAWN = [
    GridParams(3, 5),
    *(HypergridParams(n_dim, length, reward) for reward in LANDSCAPES for n_dim, length in ((1, 9), (3, 8), (2, 3))),
    IsingParams(2, 0.3, 0.1),
    IsingParams(3, 0.2, -0.3),
    IsingParams(3, -0.2),
    BitSequenceParams(8, 2, n_modes=4, beta=0.7, normalise=False),
]


class Tabular:
    """A system, as evaluation sees it, whose policies are tables of log P_F and log P_B."""

    def __init__(self, params, seed=0):
        self.config = SimpleNamespace(env=params, seed=seed)
        self.env, self.graph = make(params, "numpy"), enumerate_states(make(params, "numpy"))
        self.log_pb = exact_numpy.uniform_backward(self.graph)

    def perfect(self):
        return exact_numpy.optimal_policy(self.graph, self.log_pb)[1]

    def random(self, seed=0, spread=1.0):
        logits = spread * np.random.default_rng(seed).normal(size=self.graph.forward_mask.shape)
        logits = np.where(self.graph.forward_mask, logits, -np.inf)
        return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)

    def sample(self, policy, key, n=None, explore=True):
        assert not explore
        gumbel = random.gumbel(key, (self.env.max_steps, n, self.env.n_actions), np.float64)

        def choose(state, gumbel, explore):
            return (policy[self.env.index(state)] + gumbel).argmax(-1)

        return vectorized.sample(choose, self.env, Noise(gumbel, np.zeros(gumbel.shape[:2])))

    def sample_back(self, policy, x, key):
        gumbel = random.gumbel(key, (self.env.max_steps, len(x), self.env.n_parents), np.float64)
        return vectorized.sample_back(
            lambda state, gumbel: (self.log_pb[self.env.index(state)] + gumbel).argmax(-1), self.env, x, gumbel
        )

    def terms(self, policy, trajectories):
        x, action, parent, valid = trajectories
        index = self.env.index(self.env.reset(x.shape[:2])._replace(x=x))
        stop = valid & (action == self.env.n_actions - 1)
        log_pf = np.where(valid, policy[index[:-1], action], 0)
        log_pb = np.where(valid & ~stop, self.log_pb[index[1:], parent], 0)
        return SimpleNamespace(log_pf=log_pf, log_pb=log_pb, log_reward=self.graph.log_reward[index[-1]])

    def evaluate(self, policy, effort=None, log_z=None):
        return evaluate.evaluate(self, policy, lambda: policy, log_z, effort)


@pytest.fixture
def unlisted(monkeypatch):
    """Evaluation as if there were too many states to list."""
    monkeypatch.setattr(evaluate, "graph_of", lambda params: None)


@pytest.mark.parametrize("params", DRAWN, ids=str)
def test_targets_are_drawn_exactly(params):
    env, n = make(params, "numpy"), 20_000
    graph, target = enumerate_states(env), params.target
    if target.log_z is not None:
        assert target.log_z == pytest.approx(graph.log_z, abs=1e-12)
    x = target.draw(random.key(1), n)
    assert x.dtype == np.int32
    q = np.bincount(env.index(env.reset((n,))._replace(x=x)), minlength=env.n_states) / n
    floor = noise_floor.total_variation_floor(graph.target, n)
    assert exact_numpy.total_variation(graph.target, q) < 1.25 * floor + 2e-3
    assert (q[graph.target == 0] == 0).all()


def test_a_wrong_target_is_noticed_by_its_draws():
    params = GridParams(2, 8)
    wrong = products(np.tile(np.exp(1.1 * params.log_density), (1, 2, 1)))
    env, graph = make(params, "numpy"), enumerate_states(make(params, "numpy"))
    q = (
        np.bincount(env.index(env.reset((20_000,))._replace(x=wrong.draw(random.key(1), 20_000))), minlength=64)
        / 20_000
    )
    floor = noise_floor.total_variation_floor(graph.target, 20_000)
    assert exact_numpy.total_variation(graph.target, q) > 1.25 * floor + 2e-3


@pytest.mark.parametrize(
    "params", [IsingParams(3), SequenceParams(3, "ab"), ToyParams(), HypergridParams(2, 3)], ids=str
)
def test_objects_are_those_that_may_stop(params):
    graph, env, objects = ground_truth.graph_of(params), make(params, "numpy"), ground_truth.objects_of(params)
    index = env.index(env.reset((len(objects.x),))._replace(x=objects.x))
    assert sorted(index) == np.flatnonzero(graph.forward_mask[:, -1]).tolist()
    assert objects.log_z == pytest.approx(graph.log_z, abs=1e-12)
    if (listed := params.objects(10**6)) is not None:
        assert {tuple(x) for x in listed} == {tuple(x) for x in objects.x}
        assert params.objects(len(listed) - 1) is None


def test_a_torus_of_spins_too_large_to_list_has_a_known_log_z():
    four = ground_truth.objects_of(IsingParams(4, 0.2, 0.1))  # 65 536 objects of 43 million states
    assert ground_truth.graph_of(IsingParams(4, 0.2, 0.1)) is None
    assert IsingParams(4, 0.2, 0.1).target.log_z == pytest.approx(four.log_z, abs=1e-11)
    assert IsingParams(6, 0.0).target.log_z == pytest.approx(36 * np.log(2))
    assert IsingParams(8, 0.2).target.draw(random.key(0), 3).shape == (3, 64)


WORLDS = [HypergridParams(2, 4), IsingParams(2, 0.3), ToyParams()]


@pytest.mark.parametrize("params", WORLDS, ids=str)
def test_bounds_of_a_perfect_policy_are_log_z(params, unlisted):
    system = Tabular(params)
    found = system.evaluate(system.perfect(), evaluate.SamplingEffort(200, 3), log_z=system.graph.log_z).metrics
    for name in ("eval/elbo", "eval/eubo"):
        assert found[name] == pytest.approx(system.graph.log_z, abs=1e-12)
    assert found["eval/gap_se"] < 1e-12 and found["eval/log_z_error"] < 1e-12
    assert found["upstream/var_logrewards_logp"] < 1e-20
    assert found["upstream/nll_tt"] == pytest.approx(found["upstream/nll_tt_perfect"], abs=1e-12)


@pytest.mark.parametrize("params", WORLDS, ids=str)
def test_bounds_hold_log_z_between_them(params, unlisted):
    system = Tabular(params)
    found = system.evaluate(system.random(), evaluate.SamplingEffort(2000)).metrics
    assert found["eval/elbo"] + 4 * found["eval/elbo_se"] < system.graph.log_z
    assert found["eval/eubo"] - 4 * found["eval/eubo_se"] > system.graph.log_z
    policy, graph = system.random(), system.graph
    p = exact_numpy.terminating_distribution(graph, policy)
    stops = graph.forward_mask[:, -1]
    # log Z - ELBO is a divergence of trajectories, so it is no less than that of the objects they end with.
    assert graph.log_z - found["eval/elbo"] > exact_numpy.kl(p[stops], graph.target[stops]) - 4 * found["eval/elbo_se"]
    assert found["eval/eubo"] - graph.log_z > exact_numpy.kl(graph.target, p) - 4 * found["eval/eubo_se"]


@pytest.mark.parametrize("params", WORLDS, ids=str)
def test_probabilities_are_estimated_without_bias(params):
    system = Tabular(params)
    policy, stops = system.random(spread=0.5), np.flatnonzero(system.graph.forward_mask[:, -1])
    exact = exact_numpy.terminating_distribution(system.graph, policy)[stops]
    x = np.repeat(system.env.state(stops).x, 500, axis=0)
    p = np.exp(bounds.backward(system, policy, x, random.key(0)).ratio.reshape(len(stops), -1))
    assert (np.abs(p.mean(-1) - exact) < 5 * p.std(-1) / np.sqrt(500) + 1e-12).all()


@pytest.mark.parametrize("params", [*WORLDS, GridParams(2, 4, 2, 2)], ids=str)
def test_single_objects_have_their_exact_probability(params):
    system = Tabular(params)
    policy, stops = system.random(), np.flatnonzero(system.graph.forward_mask[:, -1])
    exact = np.log(exact_numpy.terminating_distribution(system.graph, policy)[stops])
    found = [object_probability.log_probability(system, policy, x) for x in system.env.state(stops).x]
    np.testing.assert_allclose(found, exact, atol=1e-12)


def test_an_object_above_too_many_states_is_refused():
    system = Tabular(HypergridParams(2, 4))
    with pytest.raises(UsageError, match="more than 8 states lie below"):
        object_probability.log_probability(system, system.random(), np.array([2, 2], np.int32), most=8)


def test_exact_and_sampled_metrics_agree():
    system = Tabular(HypergridParams(2, 8))
    policy = system.random(spread=0.3)
    found = system.evaluate(policy, evaluate.SamplingEffort(5000, 30), log_z=1.0).metrics
    assert found["sampled/tv"] == pytest.approx(found["eval/tv"], abs=found["sampled/tv_perfect"])
    assert abs(found["sampled/mean_reward"] - found["eval/mean_reward"]) < 4 * found["sampled/mean_reward_se"]
    for name in ("nll_tt", "corr_probs_rewards", "corr_logprobs_logrewards", "var_logrewards_logp"):
        assert abs(found[f"upstream/{name}"] - found[f"eval/{name}"]) < 5 * found[f"upstream/{name}_se"] + 0.01
    assert found["upstream/l1"] * 64 == pytest.approx(found["sampled/l1"]) == pytest.approx(2 * found["sampled/tv"])
    assert found["upstream/kl"] * 64 == pytest.approx(found["sampled/kl"])
    assert found["upstream/jsd"] == pytest.approx(found["sampled/jsd"], abs=1e-6)
    assert found["eval/log_z_error"] == pytest.approx(system.graph.log_z - 1)


def test_a_perfect_sampler_scores_what_is_printed_beside_it():
    system = Tabular(HypergridParams(2, 5))
    policy, names = system.perfect(), ("sampled/tv", "sampled/kl", "sampled/jsd", "sampled/mode_coverage")
    many = [system.evaluate(policy, evaluate.SamplingEffort(200, 1, seed)).metrics for seed in range(20)]
    for name in names:
        scores = [found[name] for found in many]
        error = np.std(scores) / np.sqrt(len(scores))
        assert abs(np.mean(scores) - many[0][f"{name}_perfect"]) < 4 * error + 1e-4, name
    worse = system.evaluate(system.random(), evaluate.SamplingEffort(200, 1)).metrics
    assert worse["sampled/tv"] > 1.5 * worse["sampled/tv_perfect"]


def test_density_metrics_by_hand():
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    found = upstream_metrics.density(p, q)
    assert found["l1"] == pytest.approx(0.5 / 3)
    assert found["kl"] == pytest.approx((0.5 * np.log(2) - 0.25 * np.log(2)) / 3, abs=1e-7)
    assert found["jsd"] == pytest.approx(exact_numpy.jsd(p, q), abs=1e-7)


def test_agreement_metrics_by_hand():
    log_reward = np.log([1.0, 2.0, 4.0, 4.0])
    found = upstream_metrics.agreement(log_reward - np.log(11), log_reward)
    assert found["nll_tt"] == pytest.approx(np.log(11) - log_reward.mean())
    assert found["corr_probs_rewards"] == pytest.approx(1) == found["spearman"]
    assert found["var_logrewards_logp"] == pytest.approx(0, abs=1e-25)
    assert upstream_metrics.spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 2.0])) == pytest.approx(0.5)
    assert upstream_metrics.spearman(np.array([1.0, 1.0, 2.0]), np.array([3.0, 5.0, 9.0])) == pytest.approx(
        np.sqrt(3) / 2
    )
    assert np.isnan(upstream_metrics.correlation(np.ones(3), np.arange(3.0)))


def test_bootstrap_errors_are_those_of_repeated_estimates():
    rng = np.random.default_rng(0)
    log_reward = rng.normal(size=30)
    noise = 0.4 * rng.normal(size=(200, 30, 20))
    scores = [upstream_metrics.estimated(log_reward[:, None] + row, log_reward, False, rng) for row in noise[::20]]
    spread = np.std([-upstream_metrics.log_mean_exp(log_reward[:, None] + row).mean() for row in noise])
    assert np.mean([score["nll_tt_se"] for score in scores]) == pytest.approx(spread, rel=0.3)
    single = np.std([upstream_metrics.log_mean_exp(row)[0] for row in noise])
    assert np.mean([score["mean_logprobs_std"] for score in scores]) == pytest.approx(single, rel=0.3)


def test_evaluations_repeat_and_do_not_touch_the_streams_of_training(unlisted):
    system = Tabular(HypergridParams(2, 4))
    policy, keys = system.random(), []
    sample = system.sample
    system.sample = lambda policy, key, *rest, **more: (keys.append(key), sample(policy, key, *rest, **more))[1]
    first = system.evaluate(policy).metrics
    assert system.evaluate(policy).metrics == first
    assert system.evaluate(policy, evaluate.SamplingEffort(500, seed=1)).metrics["eval/elbo"] != first["eval/elbo"]
    training = random.split(random.key(0))[0]
    streams = [random.fold_in(training, step).tolist() for step in range(1000)]
    assert not any(key.tolist() in streams for key in keys)


def test_an_evaluation_during_training_is_cheap(unlisted):
    system, asked = Tabular(HypergridParams(2, 4)), []
    terms = system.terms
    system.terms = lambda policy, trajectories: (
        asked.append(trajectories.valid.shape[1]),
        terms(policy, trajectories),
    )[1]
    found = system.evaluate(system.random())
    assert sum(asked) == 2 * evaluate.CHEAP.samples
    assert {"eval/elbo", "eval/eubo", "eval/gap"} <= found.metrics.keys()
    assert found.arrays["objects"].shape == (500, 2) and found.arrays["agreement"].shape == (2, 500)


def test_without_exact_draws_there_is_an_elbo_and_no_eubo(unlisted, monkeypatch):
    monkeypatch.setattr(evaluate, "target_of", lambda params: None)
    monkeypatch.setattr(evaluate, "objects_of", lambda params: None)
    monkeypatch.setattr(evaluate, "target_draws", lambda *arguments: None)
    system = Tabular(HypergridParams(2, 4))
    found = system.evaluate(system.random(), evaluate.SamplingEffort(50), log_z=0.0)
    assert "eval/elbo" in found.metrics and "upstream/nll_tt" in found.metrics
    assert not {"eval/eubo", "eval/log_z_error", "sampled/tv", "upstream/nll_tt_perfect"} & found.metrics.keys()
    assert "drawn from the policy" in found.test_set


@pytest.mark.parametrize("bad", [{"samples": 1}, {"backward_samples": 0}])
def test_an_effort_of_nothing_is_refused(bad):
    with pytest.raises(UsageError, match="expected an integer from"):
        evaluate.SamplingEffort(**bad)


SMALL = ["hidden=8", "batch_size=4", "steps=2", "chunk=2", "log_every=2", "mode=torch", "backward=uniform"]


@pytest.mark.slow
def test_crossfade_eval_judges_a_world_that_cannot_be_listed(tmp_path, capsys):
    words = ["env=ising", "env.side=4", *SMALL]
    assert main(["train", "gflownet", *words, "--runs-dir", str(tmp_path), "--quiet"]) == 0
    assert "eval/gap" in capsys.readouterr().out
    (run,) = (tmp_path / "gflownet").iterdir()
    flags = ["--samples", "50", "--backward-samples", "2", "--seed", "3"]
    assert main(["eval", str(run), *flags]) == 0
    out = capsys.readouterr().out
    assert "if perfect" in out and "sampled/tv" in out and "50 objects drawn from the target" in out
    assert main(["eval", str(run), *flags, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((run / "eval" / "0000000002.json").read_text())
    assert printed["samples"] == 50 and printed["seed"] == 3
    assert printed["eval/elbo"] < printed["eval/elbo_perfect"] < printed["eval/eubo"]
    assert np.load(run / "eval" / "agreement.npy").shape == (2, 50)
    assert main(["report", "--runs-dir", str(tmp_path), "--quiet"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "What was learned: IsingParams" in page and "log p against log R" in page and "eval/gap_se over" not in page


def test_both_frameworks_are_judged_by_the_same_trajectories(x64):
    from crossfade.systems.gflownet.discrete_jax import System as JaxSystem
    from crossfade.systems.gflownet.discrete_torch import System as TorchSystem

    config = GFlowNetConfig(env=IsingParams(4), hidden=4, layers=1, dtype="float64", epsilon=0.5, temperature=2.0)
    found = []
    for system in (TorchSystem(config), JaxSystem(config)):
        policy = system.make_policy(system.parameters())
        found.append(system.evaluate(policy, evaluate.SamplingEffort(40, 2)))
    ours, theirs = found
    assert ours.metrics.keys() == theirs.metrics.keys()
    for name in ours.metrics:
        assert theirs.metrics[name] == pytest.approx(ours.metrics[name], rel=1e-9, abs=1e-9), name
    assert (ours.arrays["objects"] == theirs.arrays["objects"]).all()


@pytest.mark.slow
def test_a_world_too_large_to_list_is_learned():
    """Spins on a 4 x 4 torus, 43 million states. Measured: gap 0.057 +- 0.004 around log Z 14.5611, 50 CPU seconds."""
    words = ("env=ising", "env.side=4", "backward=uniform", "batch_size=128", "lr=3e-3", "lr_period=1500")
    trainer = make_trainer(find("gflownet"), apply(GFlowNetConfig(), (*words, "lr_gamma=0.3", "execution=dense")))
    before = trainer.evaluate(evaluate.SamplingEffort(2000)).metrics
    assert before["eval/gap"] > 5
    trainer.run(0, 5000)
    found = trainer.evaluate(evaluate.SamplingEffort(10_000)).metrics
    assert found["eval/gap"] + 3 * found["eval/gap_se"] < 0.1
    assert found["eval/elbo"] - 3 * found["eval/elbo_se"] < found["eval/elbo_perfect"]
    assert found["eval/eubo"] + 3 * found["eval/eubo_se"] > found["eval/eubo_perfect"]
    assert found["eval/log_z_error"] < 0.05
    assert found["sampled/tv"] < 1.05 * found["sampled/tv_perfect"]
    assert found["upstream/corr_logprobs_logrewards"] > 0.99


def test_pictures_show_what_a_run_left(tmp_path):
    pytest.importorskip("matplotlib")
    from crossfade.systems.gflownet.pictures import heat, pictures, scatter

    config = GFlowNetConfig(env=HypergridParams(3, 4))
    assert pictures(config, {"torch": tmp_path}) == []
    (tmp_path / "eval").mkdir()
    np.save(tmp_path / "eval" / "distribution.npy", ground_truth.graph_of(config.env).target)
    marginals, agreement = pictures(config, {"torch": tmp_path})
    assert "marginals; exact" in marginals[1] and marginals[0].startswith("<svg")
    assert "exact, for every object" in agreement[1]
    large = GFlowNetConfig(env=GridParams(8, 8))
    np.save(tmp_path / "eval" / "objects.npy", large.env.target.draw(random.key(0), 50))
    np.save(tmp_path / "eval" / "agreement.npy", np.ones((2, 50)))
    marginals, agreement = pictures(large, {"torch": tmp_path})
    assert "50 of torch" in marginals[1] and "estimated" in agreement[1]
    titles = [axes.get_title() for axes in heat({"a": [np.eye(2)] * 2, "b": [np.eye(2)] * 2}, [("x", "y")] * 2).axes]
    assert titles[:4] == ["a", "b", "", ""]
    assert len(scatter({"a": np.random.default_rng(0).normal(size=(2, 5000))}, 1.0).axes[0].lines) == 1
