"""The kinds of models, examples and messages that `match` knows beyond the zoo and the gallery."""

import io
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import linen
from flax.training.train_state import TrainState
from torch import nn

from bridge import zoo_linen
from bridge.zoo import ZOO
from crossfade.bridge import match
from crossfade.bridge.matching import program_jax, waiting
from crossfade.bridge.matching.waiting import Waiting
from crossfade.errors import CrossfadeError, MappingError, NoCounterpart, UsageError
from default_run import few
from gallery.case import normal, whole
from gallery.deep_q import CASES as VALUES, LinenNoisy
from gallery.transformers import GPT, LinenGPT

X = normal(4, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class LinenNet(linen.Module):
    kink: str = "relu"

    @linen.compact
    def __call__(self, x):
        h = getattr(linen, self.kink)(linen.Dense(5)(x))
        return linen.Dense(2)(h)


def tree():
    """Weights in a list of pairs, and a counter."""
    k = jax.random.split(jax.random.key(0), 2)
    sizes = ((3, 5), (5, 2))
    return {
        "layers": [(jax.random.normal(key, s), jnp.zeros(s[1])) for key, s in zip(k, sizes, strict=True)],
        "n": jnp.array(3),
    }


def apply_tree(params, x):
    (w1, b1), (w2, b2) = params["layers"]
    return jax.nn.relu(x @ w1 + b1[None]) @ w2 + b2[None]


# Models


def test_a_tree_of_arrays_needs_a_function_that_calls_it():
    with pytest.raises(UsageError, match="jax_apply"):
        match(Net(), tree(), X)
    mapping = match(Net(), tree(), X, jax_apply=apply_tree)
    assert mapping.jax_only == ("n",) and mapping.verify().ok
    module = Net()
    model = mapping.to_jax(module.state_dict())
    assert model["n"] == 3
    np.testing.assert_allclose(apply_tree(model, X.numpy()), module(X).detach(), rtol=1e-5, atol=1e-6)


def test_a_function_and_its_parameters_are_a_model():
    mapping = match(Net(), (apply_tree, tree()), X)
    function, params = mapping.to_jax(Net().state_dict())
    assert function is apply_tree and params["n"] == 3


def test_a_linen_module_alone_is_initialised_on_the_example():
    mapping = match(Net(), LinenNet(), X)
    module, variables = mapping.to_jax(Net().state_dict())
    assert isinstance(module, LinenNet) and variables["params"]["Dense_0"]["kernel"].shape == (3, 5)
    bound = LinenNet().bind(variables)
    assert match(Net(), bound, X).entries == mapping.entries


def test_a_train_state_keeps_its_optimiser():
    variables = LinenNet().init(jax.random.key(0), X.numpy())
    state = TrainState.create(apply_fn=LinenNet().apply, params=variables["params"], tx=optax.adam(1e-3))
    module = Net()
    after = match(module, state, X).to_jax(module.state_dict())
    assert isinstance(after, TrainState) and after.tx is state.tx
    assert jax.tree.structure(after.opt_state) == jax.tree.structure(state.opt_state)
    assert np.array_equal(after.params["Dense_0"]["kernel"], module.first.weight.detach().numpy().T)


def test_statistics_beside_the_parameters_of_a_train_state_are_matched():
    class State(TrainState):
        batch_stats: dict

    case = ZOO["batchnorm_mlp"]
    module, variables = case.jax("linen")
    fields = {"params": variables["params"], "batch_stats": variables["batch_stats"]}
    state = State.create(apply_fn=module.apply, tx=optax.sgd(0.1), **fields)
    mapping = match(case.torch(), state, case.example())
    found = {e.torch[0]: e.jax[0] for e in mapping.entries}
    assert found["bn1.running_mean"] == "batch_stats.BatchNorm_0.mean" and mapping.verify().ok


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside torch, at the first use of torch.compile
def test_a_compiled_part_of_a_module_runs_as_it_is():
    class Compiled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.compile(Net())

        def forward(self, x):
            return self.net(x)

    mapping = match(nn.DataParallel(Compiled()), LinenNet(), X)
    plain = {f"net.{name}": tensor for name, tensor in Net().state_dict().items()}
    model = mapping.to_jax(plain)
    assert np.array_equal(model[1]["params"]["Dense_0"]["kernel"], plain["net.first.weight"].numpy().T)


# Examples


def test_an_example_may_be_made_of_numpy_arrays():
    assert match(Net(), LinenNet(), X.numpy()).verify().ok


@pytest.mark.parametrize("library", few(("linen", "haiku"), "linen"))
def test_the_channels_of_an_image_are_moved_without_being_asked(library):
    case = ZOO["pixels"]
    mapping = match(case.torch(), case.jax(library), case.example())
    assert mapping.verify().ok and "permute(2, 3, 1, 0)" in mapping.explain()


def test_an_image_that_fits_no_layout_is_refused_once_torch_has_run():
    with pytest.raises(RuntimeError, match="channels") as error:
        match(ZOO["pixels"].torch(), zoo_linen.MODULES["pixels"](), normal(2, 3, 6, 8))
    assert "the torch module" in error.value.__notes__[0]


def test_noise_in_buffers_takes_part_in_training_mode_only():
    case = VALUES["noisy"]
    with pytest.raises(CrossfadeError):
        match(case.module(), LinenNoisy(), case.example())
    mapping = match(case.module(), LinenNoisy(), case.example(), training=True)
    assert mapping.unproved == () and mapping.verify().ok


# Messages


def test_a_refusal_begins_with_its_conclusion_and_lists_what_holds():
    with pytest.raises(MappingError) as error:
        match(Net(), LinenNet("tanh"), X)
    first, *rest = str(error.value).splitlines()
    assert first.startswith("2 of 4 pairs hold, but the functions differ at aten.relu (test_match_models.py:")
    line = int(first.partition("test_match_models.py:")[2].partition(")")[0])
    assert "torch.relu" in Path(__file__).read_text().splitlines()[line - 1]
    text = "\n".join(rest)
    assert "first.weight (5, 3) -> Dense_0.kernel" in text and "second.weight" not in text


def test_what_comes_after_the_last_pair_is_named():
    class Twice(Net):
        def forward(self, x):
            return 2 * super().forward(x)

    with pytest.raises(MappingError, match=r"^all 4 pairs were found, but the functions differ at aten\.mul \(test_"):
        match(Twice(), LinenNet(), X)


def test_what_has_nothing_to_go_to_comes_first():
    class NoBias(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(2)(linen.relu(linen.Dense(5, use_bias=False)(x)))

    with pytest.raises(NoCounterpart, match=r"^first\.bias has nothing to go to"):
        match(Net(), NoBias(), X)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "patience", "seen"), [(Terminal, 0.0, True), (Terminal, 1e9, False), (io.StringIO, 0.0, False)]
)
def test_a_line_of_progress_is_for_those_who_wait_at_a_terminal(stream, patience, seen, monkeypatch):
    monkeypatch.setattr(waiting, "PATIENCE", patience)
    monkeypatch.setattr(sys, "stderr", stream())
    progress = Waiting("pairs")
    progress(3, 34)
    assert ("pairs: 3 of 34" in sys.stderr.getvalue()) == seen
    progress.close()
    assert sys.stderr.getvalue().endswith("\r") == seen


# Cost


@pytest.mark.slow
def test_the_work_grows_with_the_depth_and_no_faster(monkeypatch):
    counts, run = [], program_jax._run
    monkeypatch.setattr(program_jax, "_run", lambda *args: counts.append(1) or run(*args))
    done = []
    for layers in (1, 3):
        counts.clear()
        match(GPT(layers), LinenGPT(layers), whole(7, 2, 5))
        done.append(len(counts))
    assert done[1] < 4 * done[0]


# The evaluation of equations


def many(w, b, x):
    h = x @ w + b[None]
    h = jnp.where(h > 0, jnp.tanh(h), jnp.expm1(jnp.minimum(h, 0.0))) * jax.nn.sigmoid(h)
    h = jnp.concatenate([h, jax.lax.rsqrt(h**2 + 1)], 1)[:, 1:-1:2]
    first, second = jnp.split(jnp.flip(h, 1), [1], 1)
    h = (
        jax.nn.softmax(second, -1)
        + jax.nn.softplus(first)
        + jnp.clip(h.sum(), -1, 1)
        + jnp.abs(h).max(1, keepdims=True)
    )
    return jnp.einsum("bi,ci->bc", h, h).T.reshape(-1), jnp.linalg.norm(h, axis=0), h.prod(1) ** 0.5


def test_equations_are_evaluated_as_jax_does(x64):
    args = [np.random.default_rng(0).normal(size=shape) for shape in ((3, 4), (4,), (5, 3))]
    closed = jax.make_jaxpr(many)(*args)
    program = program_jax.Program(closed, ["w", "b"])
    wave = program.begin(args[2:])
    wave, early = program.advance(wave, {"b": args[1]})
    assert not any(value.shape == (5, 4) for value in early)  # waits for w
    wave, _ = program.advance(wave, {"w": args[0]})
    for slot, wanted in zip(program.outputs, many(*args), strict=True):
        np.testing.assert_allclose(wave.slots[slot], wanted, rtol=1e-13)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def get_value(self, x):
        return self.net(x)


def test_an_agent_without_forward_is_told_what_to_pass():
    with pytest.raises(UsageError, match=r"got Agent with get_value.*torch_apply=lambda module, x: module.get_value"):
        match(Agent(), LinenNet(), X)
