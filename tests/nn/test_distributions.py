"""Action distributions: against SciPy and torch.distributions, the twins against each other, gradients too."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from crossfade.errors import UsageError
from crossfade.nn import categorical_jax, categorical_torch, gaussian_jax, gaussian_torch
from crossfade.nn.distribution import Distribution

N, DIM = 200, 3
RNG = np.random.default_rng(0)
MEAN, LOG_STD_OF, NOISE = RNG.normal(size=(N, DIM)), RNG.normal(0, 0.5, (N, DIM)), RNG.normal(size=(N, DIM))
OUTPUTS = np.concatenate([MEAN, LOG_STD_OF], -1)
LOGITS, GUMBEL = 30 * RNG.normal(size=(N, DIM)), RNG.gumbel(size=(N, DIM))
MASK = RNG.random((N, DIM)) < 0.5
MASK[:, 1] = True
KINDS = {
    "categorical": lambda c, g: c.Categorical(DIM),
    "floor": lambda c, g: c.Categorical(DIM, 0.05),
    "largest floor": lambda c, g: c.Categorical(DIM, 1 / DIM),
    "gaussian": lambda c, g: g.Gaussian(DIM),
    "squashed": lambda c, g: g.Gaussian(DIM, squashed=True),
}
kinds = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def pair(make):
    """Both twins of a distribution."""
    return make(categorical_torch, gaussian_torch), make(categorical_jax, gaussian_jax)


def given(distribution: Distribution):
    """Outputs, mask and noise for it."""
    discrete = distribution.noise == "gumbel"
    return (LOGITS, MASK, GUMBEL) if discrete else (OUTPUTS, None, NOISE)


@kinds
def test_the_twins_agree_to_rounding_and_gradients_too(make, x64):
    ours, theirs = pair(make)
    assert isinstance(ours, Distribution) and isinstance(theirs, Distribution) and hash(ours) == hash(theirs)
    assert (ours.n_outputs, ours.n_free, ours.noise, ours.noise_dim) == (
        theirs.n_outputs,
        theirs.n_free,
        theirs.noise,
        theirs.noise_dim,
    )
    raw, mask, noise = given(ours)
    leaf = torch.tensor(raw, requires_grad=True)
    outputs = ours.masked(leaf, None if mask is None else torch.tensor(mask))
    action = ours.sample(outputs, torch.tensor(noise))
    arrays = None if mask is None else jnp.asarray(mask)
    restrict = lambda raw: theirs.masked(raw, arrays)
    restricted = restrict(jnp.asarray(raw))
    chosen = theirs.sample(restricted, jnp.asarray(noise))
    close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    close(chosen, action.detach())
    close(theirs.mode(restricted), ours.mode(outputs).detach())
    close(theirs.executed(chosen), ours.executed(action).detach())
    taken, same = action.detach(), jnp.asarray(action.detach().numpy())
    for mine, other in (
        (ours.log_prob(outputs, taken), lambda raw: theirs.log_prob(restrict(raw), same)),
        (ours.entropy(outputs), lambda raw: theirs.entropy(restrict(raw))),
    ):
        close(other(jnp.asarray(raw)), mine.detach())
        (slope,) = torch.autograd.grad(mine.sum(), leaf, retain_graph=True)
        found = jax.grad(lambda raw, other=other: other(raw).sum())(jnp.asarray(raw))
        close(found, slope)
        assert np.isfinite(found).all()


@kinds
def test_what_is_computed_together_is_what_is_computed_apart(make):
    ours, theirs = pair(make)
    raw, mask, noise = given(ours)
    for actions, array in ((ours, torch.tensor), (theirs, jnp.asarray)):
        outputs, numbers = actions.masked(array(raw), None if mask is None else array(mask)), array(noise)
        action = actions.sample(outputs, numbers)
        apart = action, actions.log_prob(outputs, action), actions.log_prob(outputs, action), actions.entropy(outputs)
        together = *actions.sample_with_log_prob(outputs, numbers), *actions.log_prob_and_entropy(outputs, action)
        assert all(map(np.array_equal, together, apart)) and not np.array_equal(apart[1], apart[3])


@pytest.mark.parametrize("floor", [0.0, 0.05, 1 / DIM])
def test_a_categorical_is_its_definition_on_legal_actions(floor):
    actions = categorical_torch.Categorical(DIM, floor)
    outputs = actions.masked(torch.tensor(LOGITS), torch.tensor(MASK))
    p = actions.log_probs(outputs).exp().numpy()
    soft = np.where(MASK, np.exp(LOGITS - np.where(MASK, LOGITS, -np.inf).max(-1, keepdims=True)), 0)
    soft /= soft.sum(-1, keepdims=True)
    np.testing.assert_allclose(
        p, np.where(MASK, (1 - floor * MASK.sum(-1, keepdims=True)) * soft + floor, 0), atol=1e-14
    )
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-12)
    assert not p[~MASK].any() and (p[MASK] >= floor - 1e-15).all()
    expected = [scipy.stats.entropy(row[row > 0]) for row in p]
    np.testing.assert_allclose(actions.entropy(outputs), expected, atol=1e-12)
    action = actions.sample(outputs, torch.tensor(GUMBEL)).numpy()
    assert MASK[np.arange(N), action].all()
    np.testing.assert_allclose(actions.log_prob(outputs, torch.tensor(action)).exp(), p[np.arange(N), action])
    np.testing.assert_array_equal(actions.mode(outputs), np.where(MASK, LOGITS, -np.inf).argmax(-1))
    assert np.array_equal(actions.masked(torch.tensor(LOGITS), None), LOGITS)


def test_gumbel_noise_draws_by_the_probabilities():
    logits = torch.tensor([0.3, -1.0, 1.2]).double().expand(20_000, 3)
    actions = categorical_torch.Categorical(3, 0.1)
    noise = torch.tensor(np.random.default_rng(1).gumbel(size=(20_000, 3)))
    shares = np.bincount(actions.sample(logits, noise), minlength=3) / 20_000
    np.testing.assert_allclose(shares, actions.log_probs(logits[0]).exp(), atol=4 * 0.5 / np.sqrt(20_000))


def test_what_is_not_a_number_is_not_taken_for_illegal():
    broken = np.full((1, 3), np.nan)
    assert categorical_torch.Categorical(3).log_prob(torch.tensor(broken), torch.tensor([0])).isnan().all()
    assert np.isnan(categorical_jax.Categorical(3).log_prob(jnp.asarray(broken), jnp.array([0]))).all()


@pytest.mark.parametrize("squashed", [False, True])
def test_a_gaussian_is_that_of_scipy_and_of_torch(squashed):
    actions = gaussian_torch.Gaussian(DIM, squashed)
    outputs = torch.tensor(OUTPUTS)
    u = actions.sample(outputs, torch.tensor(NOISE))
    np.testing.assert_allclose(u, MEAN + np.exp(LOG_STD_OF) * NOISE, rtol=1e-12, atol=1e-15)
    plain = Independent(Normal(torch.tensor(MEAN), torch.tensor(LOG_STD_OF).exp()), 1)
    by_scipy = scipy.stats.norm.logpdf(u, MEAN, np.exp(LOG_STD_OF)).sum(-1)
    if squashed:
        whole = TransformedDistribution(plain, [TanhTransform(cache_size=1)])
        y = whole.transforms[0](u)  # its cache spares torch the inverse
        np.testing.assert_allclose(actions.log_prob(outputs, u), whole.log_prob(y), rtol=1e-10)
        near = (u.abs() < 3).all(-1)  # further out 1 - tanh^2 has lost its digits
        direct = by_scipy - np.log(1 - np.tanh(u.numpy()) ** 2).sum(-1)
        np.testing.assert_allclose(actions.log_prob(outputs, u)[near], direct[near], rtol=1e-9)
        assert np.array_equal(actions.executed(u), u.tanh())
    else:
        np.testing.assert_allclose(actions.log_prob(outputs, u), by_scipy, rtol=1e-12)
        assert np.array_equal(actions.executed(u), np.clip(u.numpy(), -1, 1))
    np.testing.assert_allclose(actions.entropy(outputs), plain.entropy(), rtol=1e-12)
    np.testing.assert_allclose(actions.entropy(outputs), scipy.stats.norm.entropy(MEAN, np.exp(LOG_STD_OF)).sum(-1))
    np.testing.assert_array_equal(actions.mode(outputs), MEAN)


def test_a_squashed_density_integrates_to_one_and_its_entropy_bound_is_one():
    """On a grid of u, with y = tanh(u) and dy = (1 - y^2) du."""
    actions = gaussian_torch.Gaussian(1, squashed=True)
    u = torch.linspace(-15, 15, 20_001, dtype=torch.float64)[:, None]
    outputs = torch.tensor([[0.4, -0.3]], dtype=torch.float64).expand(len(u), 2)
    log_p, width = actions.log_prob(outputs, u).numpy(), 1 / np.cosh(u.numpy()[:, 0]) ** 2 * 30 / 20_000
    assert (np.exp(log_p) * width).sum() == pytest.approx(1, rel=1e-9)
    entropy = -(np.exp(log_p) * log_p * width).sum()
    assert entropy < actions.entropy(outputs)[0]


def test_far_out_a_squashed_density_and_its_gradient_stay_finite(x64):
    far = np.array([[30.0, -400.0, 0.0]])
    u = torch.tensor(far, requires_grad=True)
    outputs = np.concatenate([far, np.zeros((1, 3))], -1)
    found = gaussian_torch.Gaussian(DIM, squashed=True).log_prob(torch.tensor(outputs), u)
    found.sum().backward()
    expected = 3 * scipy.stats.norm.logpdf(0) - 2 * (np.log(2) - 30 + np.log(2) - 400)
    assert float(found.detach()) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(u.grad, [[2.0, -2.0, 0.0]], atol=1e-12)
    theirs = lambda u: gaussian_jax.Gaussian(DIM, squashed=True).log_prob(jnp.asarray(outputs), u).sum()
    np.testing.assert_allclose(jax.grad(theirs)(jnp.asarray(far)), u.grad, atol=1e-12)


def test_a_deviation_has_bounds():
    actions = gaussian_torch.Gaussian(1)
    low, high = gaussian_torch.LOG_STD
    outputs = torch.tensor([[0.0, -1e3], [0.0, 1e3]], dtype=torch.float64)
    np.testing.assert_allclose(actions.sample(outputs, torch.ones(2, 1).double())[:, 0], np.exp([low, high]))


@pytest.mark.parametrize("module", [gaussian_torch, gaussian_jax], ids=["torch", "jax"])
def test_continuous_actions_have_no_mask(module):
    array = {gaussian_torch: torch.tensor, gaussian_jax: jnp.asarray}[module]
    with pytest.raises(UsageError, match="no mask"):
        module.Gaussian(DIM).masked(array(OUTPUTS), array(MASK))


def test_free_deviations_are_told_apart_from_those_of_the_state():
    assert gaussian_torch.Gaussian(DIM).n_free == DIM and gaussian_jax.Gaussian(DIM, log_std="state").n_free == 0
