"""Treasurehunt with IQN is one system in both frameworks: its game to the last bit, its learner but for rounding, and
whole runs action by action."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade import parity
from crossfade.algos.iqn import losses_jax, losses_torch
from crossfade.bridge.libraries import named_leaves
from crossfade.config import apply
from crossfade.registry import find
from crossfade.systems.treasurehunt.config import TreasurehuntConfig
from crossfade.systems.treasurehunt.twin import treasurehunt
from crossfade.trainers.making import make_trainer
from crossfade.trainers.moments_jax import read_moments, write_moments
from crossfade.trainers.system import as_saved
from crossfade.verdict import Verdict

LEARNER = ["forward", "loss", "grad", "update"]
RECORD = find("treasurehunt")


def settings(mode, *words, **changes):
    tiny = apply(TreasurehuntConfig(), (*RECORD.tiny, f"mode={mode}", "dtype=float64", "eval_every=0"))
    return replace(apply(tiny, words), **changes)


def apart(found, expected):
    """The largest distance of two arrays, relative to the scale of the second."""
    scale = np.abs(expected).max(initial=0.0)
    return np.abs(found - expected).max(initial=0.0) / (scale or 1.0)


# Levels


def test_the_learner_is_the_same_but_for_rounding():
    report = parity.check(treasurehunt(), LEARNER, dtype="float64", steps=(1,))
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert {row.level for row in report.rows if row.verdict is not None} == set(LEARNER)
    assert not report.notes, report.notes


def test_gradients_that_reach_target_networks_in_jax_alone_are_told():
    """They change no update: no optimiser owns a target network. So the levels agree, and the report has a note."""
    twin, attached = treasurehunt("env.agents=1"), treasurehunt("env.agents=1", "quirks=attached_target")
    mixed = parity.Twin(
        "mixed",
        torch=twin.torch,
        jax=twin.jax,
        mapping=twin.mapping,
        batches=twin.batches,
        loss=(twin.loss[0], attached.loss[1]),
    )
    report = parity.check(mixed, ["grad"], dtype="float64")
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert any("frozen in torch but differentiated in JAX" in note and ".target." in note for note in report.notes)


@pytest.mark.parametrize("words", [(), ("env.rule=tag", "env.sand=false", "env.wall_layers=1")], ids=["items", "tag"])
def test_games_are_equal_to_the_last_bit(words):
    report = parity.check(treasurehunt("env.agents=3", *words), ["env"], dtype="float64")
    assert report.verdict is Verdict.EQUAL, report.text()


def test_another_rule_on_one_side_is_found():
    twin = treasurehunt()
    twin.env[0].game = replace(twin.env[0].game, params=replace(twin.env[0].game.params, wall_value=-2.0))
    report = parity.check(twin, ["env"], dtype="float64")
    assert report.verdict is Verdict.DIFFERENT and report.first.level == "env"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("env.agents=3", "parameters=groups", "groups=0,1,0", "moves=simultaneous", "target=hard", "sync=3"),
        ("legacy=true", "moves=stale_obs", "order=rotated", "n_step=3"),
    ],
    ids=["sound", "groups", "legacy"],
)
def test_every_level_is_proved(words):
    report = parity.check(treasurehunt(*words))
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert all(row.status != "not given" for row in report.rows)


# A hundred single steps, each from the state of the torch half


@pytest.mark.slow  # the default run has fifty epochs
def test_every_single_step_of_a_run_is_the_same(x64):
    config = settings("torch", "clip_norm=0.5", "epsilon_decay=0.02", steps=100)
    ours, theirs = make_trainer(RECORD, config), make_trainer(RECORD, replace(config, mode="jax_full"))

    @jax.jit
    def gradients(policy, batch):
        found = []
        for number in range(config.n_models):
            of = lambda policy, number=number: losses_jax.model_loss(policy, number, batch, config)
            (value, _), gradient = jax.value_and_grad(of, has_aux=True)(policy)
            found.append((value, gradient.models[number].local))
        return found

    worst, clipped = dict.fromkeys(("loss", "gradient", "parameters", "moments"), 0.0), 0
    note = lambda what, distance: worst.update({what: max(worst[what], float(distance))})
    records = theirs.system.optimizer_records(0)
    for step in range(config.steps):
        synchronise(theirs, ours.snapshot())
        collected, ours.buffer = ours.system.collect(ours.policy, ours.buffer, step)
        batch = ours.system.tensors(collected)
        jax_losses = gradients(theirs.policy, jax.tree.map(jnp.asarray, collected.transitions))
        for number, (jax_value, jax_gradient) in enumerate(jax_losses):
            ours.policy.zero_grad()
            value, _ = losses_torch.model_loss(ours.policy, number, batch.transitions, config)
            value.backward()
            note("loss", apart(np.asarray(jax_value), value.detach().numpy()))
            own, named = dict(ours.policy.models[number].local.named_parameters()), named_leaves(jax_gradient)
            scale = max(float(p.grad.abs().max()) for p in own.values())
            clipped += float(sum(p.grad.square().sum() for p in own.values())) > config.clip_norm**2
            for name, p in own.items():
                note("gradient", np.abs(np.asarray(named[name]) - p.grad.numpy()).max() / scale)
        told, jax_told = ours.system.update(ours.policy, ours.optimizers, batch), theirs.run(step, 1)
        assert told["return"] == jax_told["return"][0] and float(told["learned"]) == jax_told["learned"][0] == 1
        note("loss", apart(jax_told["loss"][0], told["loss"].numpy()))
        for name, array in as_saved(ours.buffer).items():
            assert np.array_equal(np.asarray(getattr(theirs.buffer, name)), array), (step, name)
        found = named_leaves(theirs.policy)
        for name, array in ours.policy.state_dict().items():
            note("parameters", apart(np.asarray(found[name]), array.numpy()))
        for own, state in ours.states().items():
            moments = read_moments(theirs.opt_states[own], records[own]).moments
            for name, slots in state.moments.items():
                for slot, array in slots.items():
                    note("moments", apart(moments[name][slot], array))
    assert 20 < clipped < 180  # of 200, some and not all
    assert worst["loss"] <= 1e-12 and worst["gradient"] <= 1e-12, worst
    assert worst["parameters"] <= 1e-10 and worst["moments"] <= 1e-10, worst


def synchronise(trainer, snapshot):
    """Parameters, moments and replay as another trainer has them."""
    trainer.policy = trainer.system.make_policy(snapshot.parameters)
    trainer.buffer = trainer.system.start_buffer(snapshot.buffer)
    for name, state in snapshot.optimizers.items():
        trainer.opt_states[name] = write_moments(state, trainer.opt_states[name])


# Runs


@cache
def after(mode, *words, **changes):
    """The state at the end of a run, and what it logged."""
    config = settings(mode, *words, **changes)
    with jax.enable_x64(mode != "torch"):
        trainer = make_trainer(RECORD, config)
        metrics = [trainer.run(step, config.chunk) for step in range(0, config.steps, config.chunk)]
        return trainer.snapshot(), {name: np.concatenate([m[name] for m in metrics]) for name in metrics[0]}


@pytest.mark.parametrize("moves", ["sequential", pytest.param("simultaneous", marks=pytest.mark.slow)])
def test_fifty_epochs_have_the_same_actions(moves):
    """Replay holds all of them: 50 episodes of a gap, 6 turns and the observation after them."""
    words = f"moves={moves}", "memory=400", "lr=1e-2", "epsilon_decay=0.05", "target=hard"
    (torch_end, told), (jax_end, jax_told) = (after(mode, *words, steps=50, chunk=10) for mode in ("torch", "jax_full"))
    turn = torch_end.buffer["turn"]
    assert (turn == 0).sum() == 50 and torch_end.buffer["size"] == 300
    for name, array in torch_end.buffer.items():
        assert np.array_equal(jax_end.buffer[name], array), name
    for name, array in torch_end.parameters.items():
        assert apart(jax_end.parameters[name], array) < 1e-9, name
    assert np.array_equal(told["return"], jax_told["return"])
    np.testing.assert_allclose(jax_told["loss"], told["loss"], rtol=1e-9)
    start = settings("torch")  # learning has changed what is done: greedy actions are not those of the start
    fresh = make_trainer(RECORD, start).snapshot().parameters
    assert max(apart(torch_end.parameters[name], array) for name, array in fresh.items()) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("axis, devices", [("vmap", 1), ("unroll", 1), ("shard", 2), ("map", 2)])
def test_epochs_are_the_same_however_the_agents_run(axis, devices):
    """Two devices share the fractions that agents act by, too."""
    words = "env.agents=3", "batch_size=4", "acting_quantiles=128"
    expected, _ = after("jax_full", *words, steps=3, chunk=3)
    found, _ = after("jax_full", *words, agent_axis=axis, devices=devices, steps=3, chunk=3)
    for name, array in expected.buffer.items():
        assert np.array_equal(found.buffer[name], array), name
    for name, array in expected.parameters.items():
        assert apart(found.parameters[name], array) < 1e-12, name
    for own, state in expected.optimizers.items():
        for name, slots in state.moments.items():
            for slot, array in slots.items():
                assert apart(found.optimizers[own].moments[name][slot], array) < 1e-11, (own, name, slot)
