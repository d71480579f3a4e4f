"""`crossfade doctor` on the user's own models: each pair is examined by itself, on the same numbers in both layouts."""

import json
import sys
import textwrap

import pytest

from crossfade.cli import main

MODELS = """
import jax, jax.numpy as jnp, torch
from flax import linen, nnx
from torch import nn

class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5)
    def forward(self, x):
        return {"image": torch.relu(self.drop(self.norm(self.conv(x)))), "size": x.square().mean((1, 2, 3))}

class LinenConv(linen.Module):
    slope: float = 0.0
    @linen.compact
    def __call__(self, x):
        y = linen.BatchNorm(True, epsilon=1e-5)(linen.Conv(4, (3, 3))(x))
        return {"image": linen.leaky_relu(y, self.slope), "size": jnp.square(x).mean((1, 2, 3))}

def linen_conv(slope=0.0):
    return LinenConv(slope), LinenConv(slope).init(jax.random.key(0), jnp.zeros((1, 4, 4, 3)))

def leaky_conv():
    return linen_conv(0.1)

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(4, 2)
        self.register_buffer("scale", torch.tensor([0.1, 2.0]))
        self.register_buffer("bias", torch.tensor([0.0, 0.25]))
    def forward(self, x):
        return torch.tanh(self.mean(x)) * self.scale + self.bias

class LinenScaled(linen.Module):
    scale: float = 0.1
    @linen.compact
    def __call__(self, x):
        return jnp.tanh(linen.Dense(2)(x)) * jnp.array([[self.scale, 2.0]]) + jnp.array([[0.0, 0.25]])

class Bounded(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.log_std = nn.Linear(4, 2), nn.Parameter(torch.zeros(2))
    def forward(self, x):
        return self.mean(x), self.log_std.clamp(-20, 2).exp()

class LinenBounded(linen.Module):
    low: float = -20
    @linen.compact
    def __call__(self, x):
        log_std = self.param("log_std", linen.initializers.zeros, (2,))
        return linen.Dense(2)(x), jnp.exp(jnp.clip(log_std, self.low, 2))

def other_bound():
    return LinenBounded(-5)

def other_scale():
    return LinenScaled(0.1 + 1e-7)

class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor, self.critic, self.spare = nn.Linear(4, 2), nn.Linear(4, 1), nn.Linear(4, 4)
    def get_action_and_value(self, x, action):
        chosen = torch.distributions.Categorical(logits=self.actor(x))
        return chosen.log_prob(action), chosen.entropy(), self.critic(x)

def call_agent(agent, x):
    return agent.get_action_and_value(*x)

def policy(agent, x):
    return torch.distributions.Categorical(logits=agent.actor(x[0]))

def arrays():
    key = jax.random.key(0)
    sizes = {"actor": 2, "critic": 1, "spare": 4}
    return {n: {"w": jax.random.normal(key, (4, k)), "b": jnp.zeros(k)} for n, k in sizes.items()}

def call_arrays(params, x, sign=-1):
    x, action = x
    layer = lambda name: x @ params[name]["w"] + params[name]["b"][None]
    log_p = jax.nn.log_softmax(layer("actor"))
    entropy = sign * (jnp.exp(log_p) * log_p).sum(-1)
    return jnp.take_along_axis(log_p, action[:, None], 1)[:, 0], entropy, layer("critic")

def call_arrays_wrongly(params, x):
    return call_arrays(params, x, sign=1)

def step():
    return torch.linspace(-1, 1, 20).reshape(5, 4), torch.tensor([0, 1, 1, 0, 1])

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 2)
    def forward(self, words):
        return self.head(self.table(words))

class NnxWords(nnx.Module):
    # its table computes in float32 whatever it is given
    def __init__(self, bias=0.0):
        rngs = nnx.Rngs(0)
        self.table, self.head, self.bias = nnx.Embed(7, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs), bias
    def __call__(self, words):
        return self.head(self.table(words)) + self.bias

def shifted_words():
    return NnxWords(1e-6)  # seen in float64 alone

def words():
    return torch.arange(6).reshape(2, 3)

def raises():
    raise OSError("the weights are on another disk")

frames = torch.linspace(-1, 1, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
jax_frames = frames.permute(0, 2, 3, 1).numpy()
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A user's module in the current folder."""
    (tmp_path / "conv_models.py").write_text(textwrap.dedent(MODELS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "conv_models", raising=False)


PAIR = ["conv_models:Conv", "conv_models:linen_conv"]


@pytest.mark.parametrize(
    ("shape", "jax_shape"),
    [
        pytest.param("2x3x4x5", "2x4x5x3", marks=pytest.mark.slow),
        ("2x3x3x3", "2x3x3x3"),  # every axis is as long as any other: NHWC is found by trying
        ("conv_models:frames", "2x4x5x3"),
        ("conv_models:frames", "conv_models:jax_frames"),
    ],
)
def test_a_pair_of_another_layout_is_examined_on_the_same_numbers(shape, jax_shape, models, capsys):
    assert main(["doctor", *PAIR, "--input", shape, "--jax-input", jax_shape]) == 0
    out = capsys.readouterr().out
    assert "conv.weight (4, 3, 3, 3)" in out and "ROUNDING" in out and "worst leaf" in out


@pytest.mark.parametrize(
    ("shape", "jax_shape", "message"),
    [
        ("2x3x4x4", "2x4x4x5", "the axes of 2x3x4x4 in another order"),
        ("2x3x4x5", "conv_models:jax_frames", "--input MODULE:ATTR"),
    ],
)
def test_inputs_that_cannot_be_the_same_numbers_are_refused(shape, jax_shape, message, models, capsys):
    assert main(["doctor", *PAIR, "--input", shape, "--jax-input", jax_shape]) == 2
    assert message in capsys.readouterr().err


def test_one_bad_pair_does_not_discard_the_others(models, capsys):
    broken = ["conv_models:Conv", "conv_models:raises", "conv_models:Conv", "conv_models:leaky_conv"]
    words = ["doctor", *broken, *PAIR, "--input", "2x3x4x5", "--jax-input", "2x4x5x3"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "OSError: the weights are on another disk" in out
    assert "conv_models:Conv = conv_models:leaky_conv: DIFFERENT." in out
    assert "Cause: the activation: torch relu, JAX leaky_relu with slope 0.1" in out
    assert "parity of conv_models:Conv = conv_models:linen_conv: ROUNDING" in out
    assert main([*words, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [pair["verdict"] for pair in found] == ["FAILED", "DIFFERENT", "ROUNDING"]
    assert found[0]["name"] == "conv_models:Conv = conv_models:raises" and "OSError" in found[0]["error"]


def test_the_conclusion_comes_first_with_both_lines_and_a_page_is_written(models, capsys, tmp_path):
    words = ["doctor", "conv_models:Conv", "conv_models:leaky_conv", "--input", "2x3x4x5", "--jax-input", "2x4x5x3"]
    assert main([*words, "--html", str(tmp_path / "found" / "doctor.html")]) == 1
    out = capsys.readouterr().out
    first = out.splitlines()[0]
    assert "DIFFERENT" in first and "relu at conv_models.py:" in first and "Cause:" in first
    assert 'return {"image": linen.leaky_relu(y, self.slope)' in out and "torch.relu(self.drop(" in out
    page = (tmp_path / "found" / "doctor.html").read_text()
    assert "JAX leaky_relu with slope 0.1" in page and page.count("<h1>") == 1


def test_a_page_must_end_in_html(models, capsys):
    assert main(["doctor", *PAIR, "--html", "doctor.pdf"]) == 2
    assert "ends in .html" in capsys.readouterr().err


def test_buffers_that_jax_has_as_constants_stay_as_they_are(models, capsys):
    """The range of actions, a buffer in CleanRL's actors and a constant of their JAX ports."""
    assert main(["doctor", "conv_models:Scaled", "conv_models:LinenScaled"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("conv_models:Scaled = conv_models:LinenScaled: ROUNDING")
    assert "holds 0.10000000149011612 in float32, compared as 0.1" in out
    assert main(["doctor", "conv_models:Scaled", "conv_models:other_scale"]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert (
        "DIFFERENT" in first and "the constant scale, farthest at [0]: torch 0.1" in first and "JAX 0.1000001." in first
    )


def test_images_are_given_to_jax_with_their_channels_last_and_it_is_said(models, capsys):
    assert main(["doctor", *PAIR, "--input", "2x3x4x5"]) == 0
    assert "note: the JAX model was given the input with its channels last, 2x4x5x3" in capsys.readouterr().out
    assert main(["doctor", "conv_models:Conv", "conv_models:leaky_conv", "--input", "2x3x4x5"]) == 1
    assert "JAX leaky_relu with slope 0.1" in capsys.readouterr().out.splitlines()[0]


AGENT = ["conv_models:Agent", "conv_models:arrays", "--input", "conv_models:step"]
HOW = ["--torch-apply", "conv_models:call_agent", "--jax-apply"]


@pytest.mark.slow
def test_an_agent_without_forward_is_called_by_a_function_of_the_users(models, capsys):
    assert main(["doctor", *AGENT, *HOW, "conv_models:call_arrays"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "ROUNDING. The same forward pass" in first
    assert "Not proved, for the outputs do not depend on them here: spare.weight, spare.bias." in first
    assert main(["doctor", *AGENT, *HOW, "conv_models:call_arrays_wrongly"]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert "DIFFERENT" in first and "output.1 differs" in first


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 1, "On the command line torch_apply is --torch-apply MODULE:FUNCTION"),
        (["--torch-apply", "conv_models:Agent.get_action_and_value"], 1, "Give all arguments: --input MODULE:ATTR"),
        (["--torch-apply", "conv_models:policy"], 1, "of a distribution its mean and stddev"),
        (HOW[:2], 1, "On the command line jax_apply is --jax-apply MODULE:FUNCTION"),
        ([*HOW, "conv_models:frames"], 2, "--jax-apply conv_models:frames: expected a function (model, x) -> outputs"),
        ([*HOW, "call_arrays"], 2, "--jax-apply: expected MODULE:FUNCTION, got 'call_arrays'"),
        ([*HOW, "conv_models:call_array"], 2, "Did you mean 'call_arrays'?"),
    ],
)
def test_functions_that_are_missing_or_none_are_named(words, code, message, models, capsys):
    assert main(["doctor", *AGENT, *words]) == code
    said = capsys.readouterr()
    assert message in said.out + said.err and "Traceback" not in said.out + said.err


@pytest.mark.slow
def test_a_port_whose_layers_compute_in_float32_is_proved_in_float64(models, capsys):
    words = ["--input", "conv_models:words"]
    assert main(["doctor", "conv_models:Words", "conv_models:NnxWords", *words]) == 0
    out = capsys.readouterr().out
    assert "apart in float64" in out.splitlines()[0] and "note: the JAX half computes in float32" in out
    assert main(["doctor", "conv_models:Words", "conv_models:shifted_words", *words]) == 1
    assert "DIFFERENT" in capsys.readouterr().out.splitlines()[0]


def test_a_bound_that_the_models_own_weights_do_not_reach_is_named(models, capsys):
    assert main(["doctor", "conv_models:Bounded", "conv_models:LinenBounded"]) == 0
    capsys.readouterr()
    assert main(["doctor", "conv_models:Bounded", "conv_models:other_bound"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT" in out.splitlines()[0] and "clamp at conv_models.py" in out.splitlines()[0]
    assert "note: the models agree on their own weights and this input; they differ with" in out


def test_what_match_has_refused_is_never_the_same(models, capsys, monkeypatch):
    """A report that could not look closely enough does not overrule it."""
    from crossfade import parity
    from crossfade.verdict import Verdict

    monkeypatch.setattr(parity, "check", lambda twin, **_: parity.Report(twin.name, Verdict.ROUNDING, ()))
    assert main(["doctor", "conv_models:Scaled", "conv_models:other_scale"]) == 1
    assert "DIFFERENT: all 2 pairs were found, but the functions differ at" in capsys.readouterr().out
