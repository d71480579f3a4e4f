"""The torch half of the continuous GFlowNet: densities, draws, trajectories, evaluation."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.algos.gflownet.continuous import (
    acting_torch,
    density_torch,
    evaluation,
    initial_parameters,
    learner_torch,
    noise_numpy,
    vectorized,
)
from crossfade.algos.gflownet.continuous.batch import NO_MOVE
from crossfade.algos.gflownet.continuous.policy_torch import Choice
from crossfade.algos.gflownet.evaluation.evaluate import SamplingEffort
from crossfade.envs.dag.continuous_params import EDGE
from crossfade.envs.dag.cube.params import CubeParams
from crossfade.envs.dag.grid.params import GridParams
from crossfade.envs.dag.torus.params import TorusParams
from crossfade.errors import UsageError
from crossfade.random import random_numpy as random
from crossfade.systems.gflownet.continuous_torch import System

KINDS = ("beta", "von_mises")
WORLDS = [CubeParams(min_increment=0.2), TorusParams(n_turns=3, harmonics=2), CubeParams(1), TorusParams(3, 1)]
RAW = {  # of one dimension: (logit of the weight, a, b) of each component
    "beta": [[(0.0, -40.0, -40.0)], [(1.0, 40.0, -3.0)], [(0.3, -3.0, 0.0), (-0.5, 1.0, -2.0), (1.2, -5.0, -6.0)]],
    "von_mises": [[(0.0, 2.0, -40.0)], [(1.0, 9.0, 7.0)], [(0.3, -3.0, 0.0), (-0.5, 1.0, 3.0), (1.2, 0.5, -2.0)]],
}
MIXTURES = [(kind, mixture) for kind in KINDS for mixture in RAW[kind]]


def tiny(env, **settings):
    return GFlowNetConfig(env=env, **{"hidden": 8, "batch_size": 12, "components": 2, "dtype": "float64", **settings})


def started(env, flat=False, **settings):
    """A system and its fresh policy; `flat`: with wide densities, so that weights of trajectories vary little."""
    system = System(tiny(env, **settings))
    policy = system.make_policy(system.parameters())
    if flat:
        with torch.no_grad():
            for head in (policy.forward_head, policy.backward_head):
                if head is not None and policy.kind == "beta":
                    head.bias[:-1].view(-1, 3)[:, 1:] -= 4.5
    return system, policy


def components(kind, mixture):
    """Weights and scipy's distributions of the components."""
    weight, a, b = np.array(mixture).T
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    if kind == "beta":
        parts = [stats.beta(*shape) for shape in zip(1 + 100 * sigmoid(a), 1 + 100 * sigmoid(b), strict=True)]
    else:
        parts = [stats.vonmises(kappa, loc) for kappa, loc in zip(np.exp(b) + 1e-3, a, strict=True)]
    return np.exp(weight) / np.exp(weight).sum(), parts


def drawn(kind, mixture, n):
    raw = torch.tensor(mixture, dtype=torch.float64).expand(n, 1, -1, 3)
    noise = noise_numpy.draw(random.key(3), 1, n, 1, len(mixture), kind, "float64").at(0)
    noise = noise._replace(**{k: torch.from_numpy(v) for k, v in noise._asdict().items() if v is not None})
    return density_torch.draw(kind, raw, noise)[:, 0].numpy()


@pytest.mark.parametrize(("kind", "mixture"), MIXTURES)
def test_densities_are_those_of_scipy(kind, mixture):
    ratio = np.linspace(EDGE, 1 - EDGE, 101)
    raw = torch.tensor(mixture, dtype=torch.float64).expand(101, 1, -1, 3)
    ours = density_torch.log_prob(kind, raw, torch.from_numpy(ratio)[:, None]).numpy()
    weight, parts = components(kind, mixture)
    scale = 1 if kind == "beta" else 2 * math.pi
    theirs = [np.log(w * scale) + part.logpdf(scale * ratio) for w, part in zip(weight, parts, strict=True)]
    np.testing.assert_allclose(ours, np.logaddexp.reduce(theirs, axis=0), rtol=1e-11, atol=1e-11)


def test_densities_and_their_gradients_are_those_of_torch():
    raw = torch.randn(7, 2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    ratio = torch.rand(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight, a, b = raw.unbind(-1)
    parts = torch.distributions.Beta(1 + 100 * a.sigmoid(), 1 + 100 * b.sigmoid())
    mixture = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(logits=weight), parts)
    ours, theirs = density_torch.log_prob("beta", raw, ratio), mixture.log_prob(ratio).sum(-1)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(value.sum(), raw)[0] for value in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-11)


def test_von_mises_gradients_are_right():
    raw = torch.randn(4, 1, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    ratio = torch.rand(4, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.autograd.gradcheck(lambda raw: density_torch.log_prob("von_mises", raw, ratio), raw)


@pytest.mark.parametrize(("kind", "mixture"), MIXTURES)
def test_draws_have_the_density(kind, mixture):
    ratio = drawn(kind, mixture, 4000)
    assert (0 <= ratio).all() and (ratio <= 1).all()
    weight, parts = components(kind, mixture)
    if kind == "beta":
        cdf = lambda r: sum(w * part.cdf(r) for w, part in zip(weight, parts, strict=True))
    else:  # scipy counts turns: its distribution function grows by 1 with each
        cdf = lambda r: sum(w * (p.cdf(2 * math.pi * r) - p.cdf(0)) for w, p in zip(weight, parts, strict=True))
    assert stats.kstest(ratio, cdf).pvalue > 1e-3
    shifted = (ratio + 0.1) % 1
    assert len(mixture) == 1 and mixture[0][2] == -40 or stats.kstest(shifted, cdf).pvalue < 1e-3  # a guard


def test_streams_of_noise_do_not_depend_on_the_kind():
    beta, circle = (noise_numpy.draw(random.key(0), 2, 3, 2, 4, kind, "float64") for kind in KINDS)
    assert beta.circle is None and circle.normal is None and circle.accept is None
    for name in ("component", "jump", "explore", "ratio"):
        np.testing.assert_array_equal(getattr(beta, name), getattr(circle, name))


def test_a_policy_jumps_where_it_must_and_explores_as_told():
    n = 2000
    noise = noise_numpy.draw(random.key(1), 1, n, 1, 1, "beta", "float64").at(0)
    noise = noise._replace(**{k: torch.from_numpy(v) for k, v in noise._asdict().items() if v is not None})
    sharp = Choice(torch.zeros(n, 1, 1, 3).double(), torch.full((n,), 2.0).double())
    yes, no = torch.ones(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
    act = lambda choice, move, jump, epsilon: acting_torch.choose("beta", choice, move, jump, noise, epsilon)
    assert not act(sharp, yes, no, 0.0)[1].any() and act(sharp, no, yes, 0.0)[1].all()
    ratio, jump = act(sharp, yes, yes, 0.0)
    assert abs(jump.double().mean() - torch.tensor(2.0).sigmoid()) < 0.03 and ratio.std() < 0.06
    for choice, epsilon in ((sharp, 1.0), (None, 0.0)):
        ratio, jump = act(choice, yes, yes, epsilon)
        assert torch.equal(ratio, noise.ratio.clamp(EDGE, 1 - EDGE)) and abs(jump.double().mean() - 0.5) < 0.05


@pytest.mark.parametrize("params", WORLDS, ids=str)
def test_environments_one_by_one_walk_as_they_do_together(params):
    system, policy = started(params, epsilon=0.3)
    together, alone = system.collect(policy, None, 5)[0], system.collect_one_by_one(policy, None, 5)[0]
    steps = len(alone.valid)
    assert not together.valid[steps:].any() and alone.valid[-1].any()
    for name in ("observation", "log_reward", "ratio", "ratio_back", "jump", "first", "valid"):
        rows = steps + 1 if name in ("observation", "log_reward") else steps
        np.testing.assert_allclose(getattr(together, name)[:rows], getattr(alone, name), rtol=0, atol=1e-12)


def check_legal(env, trajectories):
    """From the source, by legal moves that lead where they say and can be undone, to stop; then nothing happens."""
    x, t, ratio, ratio_back, jump, valid = trajectories
    state = env.reset(x.shape[1:2], x.dtype)
    for k in range(len(valid)):
        np.testing.assert_allclose(x[k], state.x, atol=1e-9)
        np.testing.assert_array_equal(t[k], state.t)
        np.testing.assert_array_equal(valid[k], ~state.done)
        options = env.forward(state)
        assert np.where(jump[k], options.can_jump, options.can_move)[valid[k]].all() and jump[k][~valid[k]].all()
        after = env.step(state, ratio[k], jump[k])
        moved = valid[k] & ~jump[k]
        before = env.unstep(after, ratio_back[k], state.t == 0)
        np.testing.assert_allclose(before.x[moved], state.x[moved], atol=1e-9)
        assert (ratio[k][~moved] == NO_MOVE).all() and (ratio_back[k][~moved | (state.t == 0)] == NO_MOVE).all()
        state = after
    assert state.done.all()
    np.testing.assert_allclose(x[-1], state.x, atol=1e-9)


@pytest.mark.parametrize("params", WORLDS, ids=str)
def test_trajectories_are_legal_in_both_directions(params):
    system, policy = started(params, flat=True)
    there = system.sample(policy, random.key(0))
    check_legal(system.env, there)
    ends = evaluation.target_draws(params, 12, random.key(1))
    back = system.sample_back(policy, ends, random.key(2))
    check_legal(system.env, back)
    np.testing.assert_array_equal(back.x[-1], ends)
    assert len(set(back.valid.sum(0))) > 1 or isinstance(params, TorusParams) or params.n_dim == 1
    with pytest.raises(AssertionError):
        check_legal(system.env, back._replace(ratio=1 - back.ratio))


def imbalance(system, policy, n=4000):
    """Bennett's identity between log w - log Z of the policy's trajectories and of the target's, in standard errors.

    With t = log w - log Z the mean of sigmoid(t) over the former is the mean of sigmoid(-t) over the latter, exactly
    when densities, draws, the reward and its normaliser all belong together.
    """
    params, sigmoid = system.config.env, lambda t: 1 / (1 + np.exp(-t))
    own = evaluation.trajectory_ratios(system, policy, system.sample(policy, random.key(0), n)).log_weight
    ends = evaluation.target_draws(params, n, random.key(1))
    theirs = evaluation.trajectory_ratios(system, policy, system.sample_back(policy, ends, random.key(2))).log_weight
    left, right = sigmoid(own - params.log_z), sigmoid(params.log_z - theirs)
    return (left.mean() - right.mean()) / math.sqrt((left.var() + right.var()) / n)


CUBE, TORUS = WORLDS[:2]


@pytest.mark.parametrize("backward", ["shared", "fixed"])
@pytest.mark.parametrize("params", [CUBE, TORUS], ids=["cube", "torus"])
def test_densities_draws_and_normalisers_belong_together(params, backward):
    assert abs(imbalance(*started(params, flat=True, backward=backward))) < 4


def without_width(terms, batch):
    return terms._replace(log_pf=terms.log_pf + np.where(batch.jump, 0, batch.forward.log_width[:-1]))


def without_jump(terms, batch):
    return terms._replace(log_pf=np.where(batch.jump, 0, terms.log_pf))


def without_density_back(terms, batch):
    return terms._replace(log_pb=np.where(batch.jump | batch.first, terms.log_pb, -batch.backward.log_width[1:]))


@pytest.mark.parametrize("fault", [without_width, without_jump, without_density_back])
def test_a_missing_factor_is_noticed(fault, monkeypatch):
    system, policy = started(CUBE, flat=True)
    right = system.terms
    wrong = lambda policy, found: fault(right(policy, found), vectorized.to_batch(found, system.env))
    monkeypatch.setattr(system, "terms", wrong)
    assert abs(imbalance(system, policy)) > 8


@pytest.mark.parametrize(
    "params", [CubeParams(), CubeParams(mu=0.2, variance=0.5), TorusParams(alpha=2, beta=3)], ids=str
)
def test_the_target_is_drawn_and_weighed_exactly(params):
    cells = evaluation.target_cells(params)
    draws = evaluation.target_draws(params, 20_000, random.key(0))
    distance = abs(cells - evaluation.histogram(params, draws)).sum() / 2
    floor = evaluation.total_variation_floor(cells.ravel(), len(draws))
    assert abs(distance - floor) < 0.1 * floor
    other = evaluation.target_draws(CubeParams(mu=0.6) if params.source else TorusParams(beta=2), 20_000, random.key(0))
    assert abs(cells - evaluation.histogram(params, other)).sum() / 2 > 2 * floor


@pytest.mark.parametrize("params", [CUBE, TORUS, TorusParams(3, 2)], ids=str)
def test_an_evaluation_bounds_log_z(params):
    system, policy = started(params, flat=True, z_init=1.0)
    metrics = system.evaluate(policy, SamplingEffort(500)).metrics
    assert metrics["eval/elbo"] < params.log_z < metrics["eval/eubo"]
    assert metrics["eval/log_z_error"] == abs(1 - params.log_z)
    assert ("eval/histogram_tv" in metrics) == (params.n_dim == 2)
    assert metrics == system.evaluate(policy, SamplingEffort(500)).metrics  # the same draws


@pytest.mark.parametrize("loss", ["tb", "vargrad", "db", "subtb", "fldb"])
def test_every_loss_goes_down_on_a_batch_and_estimates_log_z_or_not(loss):
    system, policy = started(TORUS, loss=loss, clip_norm=100.0)
    optimizers = system.make_optimizers(policy)
    batch = system.tensors(system.collect_one_by_one(policy, None, 0)[0])
    values = [float(system.update(policy, optimizers, batch)["loss"]) for _ in range(20)]
    assert values[-1] < values[0]
    log_z = learner_torch.log_z(policy, system.env, system.config)
    assert (log_z is None) == (loss == "vargrad")


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "fm", "backward": "fixed"},
        {"loss": "mdb"},
        {"backward": "uniform"},
        {"backward": "maxent"},
        {"replay_batch": 4},
        {"data": "all", "data_batch": 4},
        {"objective": "expected"},
        {"temperature": 2.0},
        {"execution": "table"},
        {"legacy_untied_trunk": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_without_meaning_here_are_refused(settings):
    with pytest.raises(UsageError, match="cube is continuous"):
        System(tiny(CubeParams(), **settings))


def test_a_density_is_known_for_each_continuous_world_and_no_other():
    assert (
        initial_parameters.density(CubeParams()) == "beta" and initial_parameters.density(TorusParams()) == "von_mises"
    )
    with pytest.raises(UsageError, match="got GridParams"):
        initial_parameters.density(GridParams())


def test_single_precision_stays_single():
    system, policy = started(CubeParams(), dtype="float32")
    batch = system.collect(policy, None, 0)[0]
    floats = [batch.observation, batch.log_reward, batch.ratio, batch.ratio_back, batch.forward.log_width]
    assert {array.dtype.name for array in floats} == {"float32"}
    assert system.loss(policy, system.tensors(batch))[0].dtype == torch.float32
