"""What the proof of `match` must see: wrong twins that agree at one scale of numbers, and right twins that look odd."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from flax import linen
from torch import nn

from crossfade.bridge import Mapping, match
from crossfade.errors import MappingError, NoCounterpart, UsageError

X = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))  # positive, below one
KEY = jax.random.key(0)


class Net(nn.Module):
    """fc, then a function of the hidden values and of one more vector, then out."""

    def __init__(self, function):
        super().__init__()
        self.fc, self.out, self.extra = nn.Linear(3, 5), nn.Linear(5, 2), nn.Parameter(torch.rand(5))
        self.function = function

    def forward(self, x):
        return self.out(self.function(self.fc(x), self.extra))


class JaxNet(eqx.Module):
    fc: eqx.nn.Linear
    out: eqx.nn.Linear
    extra: jax.Array
    function: object = eqx.field(static=True)

    def __init__(self, function):
        self.fc, self.out = eqx.nn.Linear(3, 5, key=KEY), eqx.nn.Linear(5, 2, key=KEY)
        self.extra, self.function = jnp.ones(5), function

    def __call__(self, x):
        return self.out(self.function(self.fc(x), self.extra))


def head(function, jax_function):
    """Twins that end in a function of the last layer's output."""

    class Headed(Net):
        def forward(self, x):
            return function(super().forward(x))

    class JaxHeaded(JaxNet):
        def __call__(self, x):
            return jax_function(super().__call__(x))

    return Headed(lambda h, extra: torch.tanh(h * extra)), JaxHeaded(lambda h, extra: jnp.tanh(h * extra))


WRONG = {
    "abs of a scale": (lambda h, s: h * s, lambda h, s: h * jnp.abs(s)),
    "relu of a gate": (lambda h, s: h * s, lambda h, s: h * jax.nn.relu(s)),
    "relu6 for relu": (lambda h, s: torch.relu(h) * s, lambda h, s: jax.nn.relu6(h) * s),
    "celu for elu": (lambda h, s: F.elu(h, 2.0) * s, lambda h, s: jax.nn.celu(h, 2.0) * s),
    "clamp of another range": (lambda h, s: h.clamp(-20, 20) * s, lambda h, s: jnp.clip(h, -10, 10) * s),
    "clamp of a parameter": (
        lambda h, s: torch.tanh(h) * s.clamp(-5, 2),
        lambda h, s: jnp.tanh(h) * jnp.clip(s, -20, 2),
    ),
    "clamp at a lower bound only one has": (lambda h, s: h * s, lambda h, s: jnp.maximum(h, -100.0) * s),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_twin_that_is_wrong_elsewhere_is_refused(name):
    function, jax_function = WRONG[name]
    with pytest.raises(MappingError, match="could not be matched"):
        match(Net(function), JaxNet(jax_function), X)


@pytest.mark.parametrize("bound", [5.0, 100.0])
def test_a_clamp_behind_a_squashed_trunk_is_reached(bound):
    module, model = head(lambda y: y.clamp(-bound, 2), lambda y: jnp.clip(y, -2 * bound, 2))
    with pytest.raises(MappingError, match="inputs times|weights"):
        match(module, model, X)


def test_a_clamp_of_the_input_is_reached():
    class Clipped(Net):
        def forward(self, x):
            return super().forward(x.clamp(-10, 10))

    module, model = Clipped(lambda h, s: torch.tanh(h) * s), JaxNet(lambda h, s: jnp.tanh(h) * s)
    with pytest.raises(MappingError, match="inputs times"):
        match(module, model, X)


RIGHT = {
    "elu is celu of alpha one": (lambda h, s: F.elu(h) * s, lambda h, s: jax.nn.celu(h) * s),
    "a positive parameter": (lambda h, s: h / s.sqrt(), lambda h, s: h * jax.lax.rsqrt(s)),
    "softplus with torch's threshold": (lambda h, s: F.softplus(h) * s, lambda h, s: jax.nn.softplus(h) * s),
    "an unstable logarithm": (
        lambda h, s: torch.log(1 - torch.tanh(h * s) ** 2),
        lambda h, s: jnp.log(1 - jnp.tanh(h * s) ** 2),
    ),
    "a sum of exponentials": (
        lambda h, s: torch.logsumexp(h, -1, keepdim=True) * s,
        lambda h, s: jnp.log(jnp.exp(h).sum(-1, keepdims=True)) * s,
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_twin_is_accepted_where_it_is_defined_and_well_conditioned(name):
    function, jax_function = RIGHT[name]
    assert match(Net(function), JaxNet(jax_function), X).verify().ok


def test_inputs_outside_torchs_domain_prove_nothing():
    class Logarithm(Net):
        def forward(self, x):
            return super().forward(x.log())

    class Guarded(JaxNet):
        def __call__(self, x):
            return super().__call__(jnp.log(jnp.maximum(x, 1e-9)))

    multiply = lambda h, s: h * s
    assert match(Logarithm(multiply), Guarded(multiply), X).verify().ok


def test_values_that_only_torch_has_are_a_difference():
    class Guarded(Net):
        def forward(self, x):
            return super().forward(x.clamp(min=1e-9).log())

    class Logarithm(JaxNet):
        def __call__(self, x):
            return super().__call__(jnp.log(x))

    multiply = lambda h, s: h * s
    with pytest.raises(MappingError, match="inputs times"):
        match(Guarded(multiply), Logarithm(multiply), X)


def test_frames_of_bytes_are_compared_in_float64():
    class Frames(Net):
        def forward(self, x):
            return super().forward(x / 255.0)

    class JaxFrames(JaxNet):
        def __call__(self, x):
            return super().__call__(x / 255.0)

    multiply = lambda h, s: torch.tanh(h) * s
    x = torch.randint(0, 256, (4, 3), dtype=torch.uint8)
    assert match(Frames(multiply), JaxFrames(lambda h, s: jnp.tanh(h) * s), x).precision == "float64"


def test_pairs_that_only_signs_tell_apart_are_found():
    """Both pairings agree as long as the numbers are positive."""

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(3))

        def forward(self, x):
            return x * self.one * self.two.abs()

    class JaxGate(eqx.Module):
        one: jax.Array
        two: jax.Array

        def __call__(self, x):
            return x * jnp.abs(self.one) * self.two

    mapping = match(Gate(), JaxGate(jnp.ones(3), jnp.ones(3)), X)
    assert {e.torch[0]: e.jax[0] for e in mapping.entries} == {"one": "two", "two": "one"}


def test_a_module_that_refuses_other_inputs_is_matched_on_the_example():
    class Table(nn.Module):
        """The first feature is an index, as float observations hold them."""

        def __init__(self):
            super().__init__()
            self.table, self.fc = nn.Embedding(2, 3), nn.Linear(2, 3)

        def forward(self, x):
            return self.table(x[:, 0].long()) + self.fc(x[:, 1:])

    class JaxTable(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Embed(2, 3)(x[:, 0].astype(int)) + linen.Dense(3)(x[:, 1:])

    x = torch.tensor([[0.0, 0.5, -1.0], [1.0, 0.3, 2.0]])
    mapping = match(Table(), (JaxTable(), JaxTable().init(KEY, x.numpy())), x)
    assert mapping.verify().ok and "IndexError" in str(mapping.verify()) and "IndexError" in mapping.explain()


def test_flags_and_counts_among_the_inputs_stay_as_they_are():
    """Done flags select the state to be reset: any other number means nothing."""

    class Reset(Net):
        def forward(self, x, done):
            return super().forward((1 - done)[:, None] * x)

    class JaxReset(JaxNet):
        def __call__(self, x, done):
            return super().__call__(jnp.where(done > 0, 0.0, x))

    multiply = lambda h, s: h * s
    example = X, torch.tensor([0.0, 1.0, 0.0, 0.0])
    assert match(Reset(multiply), JaxReset(multiply), example).verify().ok


# Masks


def masked(value: float, factor: float = 1.0, add: bool = False):
    legal = [True, False, True, True, False]

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 5)

        def forward(self, x):
            mask = torch.tensor(legal)
            return self.fc(x) + (~mask).to(x) * value if add else self.fc(x).masked_fill(~mask, value)

    class JaxMasked(linen.Module):
        @linen.compact
        def __call__(self, x):
            y, mask = factor * linen.Dense(5)(x), jnp.array(legal)
            return y + jnp.where(mask, 0.0, value)[None] if add else jnp.where(mask[None], y, value)

    return Masked(), (JaxMasked(), JaxMasked().init(KEY, X.numpy()))


@pytest.mark.parametrize(("value", "add"), [(-1e9, False), (-1e9, True), (-1e30, False), (-np.inf, False)])
def test_logits_beside_a_mask_are_held_to_their_own_scale(value, add):
    with pytest.raises(MappingError, match="could not be matched"):
        match(*masked(value, 0.7, add), X)


@pytest.mark.parametrize(("value", "add"), [(-1e9, False), (-1e9, True), (-1e30, False), (-np.inf, False)])
def test_equal_masks_are_equal(value, add):
    assert match(*masked(value, 1.0, add), X).verify().ok


def test_a_mask_in_another_place_is_refused():
    module, (model, variables) = masked(-np.inf)
    swapped = lambda m, x: jnp.flip(m[0].apply(m[1], x), -1)
    with pytest.raises(MappingError):
        match(module, (model, variables), X, jax_apply=swapped)


# Buffers


class Normalised(nn.Module):
    """Observations are normalised by running statistics, as RL code keeps them."""

    def __init__(self, mean: float = 0.0, var: float = 1.0):
        super().__init__()
        self.register_buffer("mean", torch.full((3,), mean))
        self.register_buffer("var", torch.full((3,), var))
        self.register_buffer("count", torch.tensor(1e-4))
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(((x - self.mean) / self.var.sqrt()).clamp(-10, 10))


def jax_normalised(statistics: str, clip: float = 10.0, mean: float = 0.0, var: float = 1.0):
    class JaxNormalised(linen.Module):
        @linen.compact
        def __call__(self, x):
            if statistics == "variables":
                # of one shape, and named so that names do not help
                a = self.variable("stats", "a", lambda: jnp.ones(3)).value
                b = self.variable("stats", "b", lambda: jnp.zeros(3)).value
                x = (x - b[None]) / jnp.sqrt(a)[None]
            elif statistics == "constants":
                x = (x - mean) / jnp.sqrt(var)
            return linen.Dense(2)(jnp.clip(x, -clip, clip))

    return JaxNormalised(), JaxNormalised().init(KEY, X.numpy())


def test_running_statistics_are_matched_with_random_values():
    mapping = match(Normalised(), jax_normalised("variables"), X)
    found = {e.torch[0]: e.jax[0] for e in mapping.entries}
    assert found["mean"] == "stats.b" and found["var"] == "stats.a"
    assert tuple(mapping.torch_only) == ("count",) and mapping.verify().ok


def test_the_clip_of_a_normaliser_is_reached():
    with pytest.raises(MappingError):
        match(Normalised(), jax_normalised("variables", clip=5.0), X)


def test_a_twin_without_the_normaliser_is_refused():
    with pytest.raises(NoCounterpart, match=r"mean \(3,\).*var \(3,\).*overrides=\{'mean': None, 'var': None\}"):
        match(Normalised(), jax_normalised("none"), X)


def test_a_normaliser_that_torch_does_not_have_is_refused():
    with pytest.raises(NoCounterpart, match=r"stats\.a"):
        match(Normalised().fc, jax_normalised("variables", clip=1e9), X)


def test_a_buffer_may_be_a_constant_in_jax_as_long_as_it_stays_what_it_was():
    module, model = Normalised(0.3, 2.0), jax_normalised("constants", mean=0.3, var=2.0)
    mapping = match(module, model, X)
    assert mapping.constants == ("mean", "var") and "constant in JAX" in mapping.explain()
    mapping.to_jax(module.state_dict() | {"count": torch.tensor(5.0)})
    with pytest.raises(MappingError, match="mean.*constant"):
        mapping.to_jax(module.state_dict() | {"mean": torch.ones(3)})
    assert mapping.verify().ok
    with pytest.raises(MappingError, match="could not be matched"):
        match(Normalised(0.3, 2.0), jax_normalised("constants", mean=0.4, var=2.0), X)


def test_a_buffer_of_zeros_can_be_declared_a_constant():
    module = Normalised()
    mapping = match(module, jax_normalised("constants"), X, overrides={"mean": None, "var": None})
    assert mapping.constants == ("mean", "var")
    with pytest.raises(UsageError, match=r"fc\.weight.*parameter"):
        match(module, jax_normalised("constants"), X, overrides={"fc.weight": None})


def test_buffers_that_jax_does_not_hold_keep_the_modules_values(tmp_path):
    module = Normalised()
    mapping = match(module, model := jax_normalised("variables"), X)
    with torch.no_grad():
        module.count += 100
    assert mapping.to_torch(model)["count"] == module.count
    other = Normalised()
    other.count.fill_(7)
    assert mapping.to_torch(model, like=other)["count"] == 7
    mapping.save(tmp_path / "mapping.json")
    assert Mapping.load(tmp_path / "mapping.json", model).to_torch(model, like=other)["count"] == 7


# Outputs


def two_heads(torch_keys, jax_keys):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return dict(zip(torch_keys, (self.a(x), self.b(x)), strict=True))

    class JaxHeads(eqx.Module):
        a: eqx.nn.Linear
        b: eqx.nn.Linear

        def __call__(self, x):
            outputs = self.a(x), self.b(x)
            return dict(zip(jax_keys, outputs, strict=True)) if jax_keys else outputs

    first, second = jax.random.split(KEY)
    return Heads(), JaxHeads(eqx.nn.Linear(3, 2, key=first), eqx.nn.Linear(3, 2, key=second))


def test_outputs_with_keys_are_paired_by_key():
    mapping = match(*two_heads(("actor", "critic"), ("critic", "actor")), X)
    assert {e.torch[0]: e.jax[0] for e in mapping.entries}["a.weight"] == "b.weight"


@pytest.mark.parametrize("keys", [("policy", "value"), ("actor", "value"), None])
def test_outputs_with_other_keys_are_refused(keys):
    with pytest.raises(MappingError, match=r"actor, critic.*jax_apply"):
        match(*two_heads(("actor", "critic"), keys), X)


def test_an_empty_batch_is_refused():
    with pytest.raises(UsageError, match=r"at least one row.*\(0, 3\)"):
        match(Net(lambda h, s: h * s), JaxNet(lambda h, s: h * s), X[:0])


# Precision


def test_a_proof_in_float32_says_so():
    class Rounded(Net):
        def forward(self, x):
            return super().forward(x.bfloat16().to(x.dtype))

    class JaxRounded(JaxNet):
        def __call__(self, x):
            return super().__call__(x.astype(jnp.bfloat16).astype(x.dtype))

    with pytest.warns(UserWarning, match="float32.*proves less"):
        mapping = match(Rounded(lambda h, s: h * s), JaxRounded(lambda h, s: h * s), X)
    assert mapping.precision == "float32" and "float32" in mapping.explain()
    with pytest.warns(UserWarning, match="float32"):
        verified = mapping.verify()
    assert verified.precision == "float32" and "float32" in str(verified) and verified.ok
    assert Mapping.from_json(mapping.to_json(), mapping.jax_model).precision == "float32"


def test_a_proof_in_float64_says_so_too():
    mapping = match(Net(lambda h, s: h * s), JaxNet(lambda h, s: h * s), X)
    assert mapping.precision == mapping.verify().precision == "float64"
    assert "float32" not in mapping.explain()
