"""`crossfade describe offline`: what it prints is what the networks are."""

import json
from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
import torch

from crossfade.algos.offline.agent import online
from crossfade.algos.offline.batch import PHASES
from crossfade.algos.offline.config import AGENTS, QUIRKS
from crossfade.algos.offline.networks_torch import make_policy
from crossfade.algos.offline.parameters import draw_parameters
from crossfade.cli import main
from crossfade.loading import load_attribute
from crossfade.random import random_numpy as random
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.systems.offline.description import describe
from crossfade.systems.offline.history import CHANGES, FAULTS, concerning

PUBLISHED = {
    "iql": (4.84, 1.62),
    "infom": (6.73, 1.09),
    "td_infonce": (10.16, 4.28),
    "fb_repr": (13.88, 5.87),
    "hilp": (10.69, 4.28),
    "crl_infonce": (5.89, 0.0),
    "mbpo_rebrac": (6.47, 2.42),
    "dino_rebrac": (7.95, 3.97),
    "rebrac": (4.84, 2.42),
}
"""Millions of parameters of the published agents, and of targets among them, at 24 numbers and 6 of an action."""
BATCH = 3


@pytest.fixture
def unchecked(monkeypatch):
    """Without checks of types, which take most of the time where many specifications are made."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def settings(agent, **fields):
    """A small agent of this name."""
    own = load_attribute(AGENTS[agent])()
    small = replace(own, latent_dim=3) if hasattr(own, "latent_dim") else own
    fields.setdefault("encoder", "mlp" if own.needs_encoder else None)
    return OfflineDataConfig(agent=small, hidden=(5, 4), encoder_hidden=(5, 4), **fields)


@pytest.mark.parametrize("agent", AGENTS)
def test_parameter_counts_are_the_published_ones(agent, unchecked, capsys):
    words = ["encoder=mlp"] if agent == "dino_rebrac" else []
    assert (
        main(["describe", "offline", f"agent={agent}", *words, "obs=24", "act=6", "--preset", "published", "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (round(found["parameters"] / 1e6, 2), round(found["targets"] / 1e6, 2)) == PUBLISHED[agent]


def arrays(reads, images):
    """Inputs of these shapes, in their order."""
    filled = lambda shape: [BATCH if axis == "batch" else axis for axis in shape]
    make = lambda name, shape: torch.zeros(filled(shape), dtype=torch.uint8 if images and len(shape) == 4 else None)
    return {name: make(name, shape) for name, shape in reads.items()}


def outputs(name, module, reads):
    """What the module gives, by the names of the description."""
    order = [array for key, array in reads.items() if key not in ("action", "latent", "goal")]
    match type(module).__name__:
        case "Param":
            return {"value": module()}
        case "Coder":
            return {"code": module(*order)}
        case "VectorField":
            return {"velocity": module(*reads.values())}
        case "IntentionEncoder":
            return dict(zip(("mean", "log_std"), module(*reads.values()), strict=True))
        case "Actor" | "GCActor":
            found = module(*reads.values())
            return {"mean": found.mean, "log_std": found.log_std}
        case "GCBilinearValue" | "GCMetricValue":
            return {"value": module(*reads.values())}
        case "GCValue":
            return {"value": module(*order, goals=reads.get("latent"), actions=reads.get("action"))}
        case _:
            return {"value": module(*reads.values())}


@pytest.mark.parametrize("encoder", [None, "mlp", "impala_debug"])
@pytest.mark.parametrize("agent", AGENTS)
def test_shapes_are_those_of_a_forward_pass(agent, encoder):
    if (agent, encoder) in (("dino_rebrac", None), ("mbpo_rebrac", "impala_debug")):
        pytest.skip("refused")
    image = encoder == "impala_debug"
    config, observation = settings(agent, encoder=encoder), (8, 8, 3) if image else (7,)
    found, sizes = describe(config, observation, 2), config.sizes(observation, 2)
    modules = config.agent.modules(sizes)
    policy = make_policy(modules, draw_parameters(config.agent, sizes, random.key(0)), "float32")
    assert [row.name for row in found.modules] == list(modules)
    for row in found.modules:
        gives = outputs(row.name, policy[row.name], arrays(row.reads, image))
        expected = {key: [BATCH if axis == "batch" else axis for axis in shape] for key, shape in row.gives.items()}
        assert {key: list(array.shape) for key, array in gives.items()} == expected, row.name
        assert row.parameters == sum(parameter.numel() for parameter in policy[row.name].parameters())


@pytest.mark.parametrize("agent", AGENTS)
def test_changes_are_named_where_revisions_differ_and_only_there(agent, unchecked):
    told = lambda spec: describe(settings(agent, spec=spec), (7,), 2)._replace(spec="")
    old, new = told("r2025-06"), told("r2026-05")
    if agent not in CHANGES:
        assert old == new
    if agent in ("infom", "fb_repr"):
        assert old != new  # td_infonce changes in a formula alone


@pytest.mark.parametrize("agent", AGENTS)
def test_every_fault_that_changes_shapes_or_data_concerns_the_agent(agent, unchecked):
    config, named = settings(agent), concerning(agent)
    base = describe(config, (7,), 2)._replace(faults={})
    assert ("foreign_next_actions" in named) == config.agent.next_actions
    assert ("geometric_offset" in named) == (config.agent.value_goals is not None)
    for quirk in QUIRKS:
        mended = describe(settings(agent, corrected=(quirk,)), (7,), 2)._replace(faults={})
        assert mended == base or quirk in named
    assert list(describe(config, (7,), 2).faults) == list(named)
    assert not describe(settings(agent, faithful=False), (7,), 2).faults[named[0]]


def test_the_faults_are_all_there():
    assert set(FAULTS) == set(QUIRKS)
    assert [fault.number for fault in FAULTS.values()] == [f"U{i}" for i in range(1, 14) if i != 11]


@pytest.mark.parametrize("agent", AGENTS)
def test_the_text_names_every_module_and_term(agent, unchecked, capsys):
    words = ["encoder=mlp"] if agent == "dino_rebrac" else []
    assert main(["describe", "offline", f"agent={agent}", *words, "obs=7", "act=2"]) == 0
    text, config = capsys.readouterr().out, settings(agent)
    modules = config.agent.modules(config.sizes((7,), 2))
    for name in (*modules, *(term for phase in PHASES for term in config.agent.terms[phase])):
        assert name in text
    assert all(f"targets that follow: {', '.join(config.agent.followed(p)) or 'none'}" in text for p in PHASES)
    assert len(online(modules)) < len(modules) or "of which targets 0" in text


def test_without_shapes_they_are_those_of_the_data(capsys):
    assert main(["describe", "offline", "env.map=umaze", "episodes=4", "frame_stack=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["observation"], found["action"]) == ([4], 2)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["gflownet"], "expected offline"),
        (["offline", "obs=24"], "act: expected it too"),
        (["offline", "act=6"], "obs: expected it too"),
        (["offline", "obs=0", "act=6"], "obs: expected an integer from 1"),
        (["offline", "obs=24", "act=-6"], "act: expected an integer from 1"),
        (["offline", "obs=64x64", "act=6"], "three for images"),
        (["offline", "obs=64xx3", "act=6"], "obs: expected an integer"),
        (["offline", "obs=9999999", "act=6"], "at most 1,000,000"),
        (["offline", "obs=24", "obs=25", "act=6"], "obs: expected it once"),
        (["offline", "obs=64x64x3", "act=6"], "encoder: expected one for images"),
        (["offline", "encoder=impala", "obs=24", "act=6"], "encoder: expected mlp or none"),
        (["offline", "agent=mbpo_rebrac", "encoder=impala", "obs=64x64x3", "act=6"], "agent: expected one that reads"),
        (["offline", "agent=ilq", "obs=24", "act=6"], "Did you mean 'iql'?"),
    ],
)
def test_bad_words_are_answered_in_words(words, hint, capsys):
    assert main(["describe", *words]) == 2
    assert hint in capsys.readouterr().err


def test_counts_are_of_arrays():
    config = settings("hilp")
    sizes = config.sizes((7,), 2)
    drawn = draw_parameters(config.agent, sizes, random.key(0))
    found = describe(config, (7,), 2)
    assert found.parameters == sum(array.size for array in drawn.values())
    assert found.targets == sum(array.size for name, array in drawn.items() if name.startswith("target_"))
    still = {row.name: row.constant for row in found.modules}
    assert still["value"] == np.prod(drawn["value.phi.layers.2.bias"].shape) + drawn["value.phi.norms.1.bias"].size
