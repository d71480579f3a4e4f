"""Checkpoints of offline agents go from one framework to the other and back without a changed bit, and runs go on."""

from functools import cache
from itertools import permutations

import numpy as np
import pytest
from contract import HALF, PACE, Whole, assert_close, assert_equal, everything

from crossfade import checkpoint
from crossfade.config import apply
from crossfade.registry import find
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.saving import snapshot_of
from default_run import few

AGENTS = {
    "iql": (),
    "infom": ("agent.latent_dim=3", "agent.flow_goals=2", "agent.flow_steps=2"),
    "fb_repr": ("agent.latent_dim=3",),
    "mbpo_rebrac": ("corrected=tiny_model_buffer,standing_rollouts", "agent.rollouts=6", "agent.model_buffer=20"),
    "dino_rebrac": ("corrected=constant_center", "encoder=mlp", "encoder_hidden=8,6"),
}
QUICK_MODES, SLOW_MODES = ("torch", "jax_policy", "jax_full"), ("torch_pure", "jax_minimal")
pairs = [(first, second) for first, second in permutations(QUICK_MODES, 2) if "torch" in (first, second)]
SWITCHES = [
    *pairs,
    *(
        pytest.param(first, second, marks=pytest.mark.slow)
        for mode in SLOW_MODES
        for first, second in (("jax_full", mode), (mode, "jax_full"))
    ),
]


def settings(agent, mode):
    tiny = [word for word in find("offline").tiny if not word.startswith("agent")]
    words = (*tiny, *PACE, f"agent={agent}", *AGENTS[agent], f"mode={mode}", "dtype=float64")
    return apply(OfflineDataConfig(), words)


@cache
def whole(agent, mode, middle=HALF):
    config = settings(agent, mode)
    with precision(config):
        trainer = make_trainer(find("offline"), config)
        start = trainer.snapshot()
        first, state = run(trainer, 0, middle), trainer.snapshot()
        return Whole(start, first, state, run(trainer, middle, 2 * HALF - middle), trainer.snapshot())


def run(trainer, step, n):
    """Updates from `step` on, in calls that end where a phase does."""
    ends = sorted({HALF, step + n} & set(range(step + 1, step + n + 1)))
    found = [trainer.run(a, b - a) for a, b in zip((step, *ends), ends, strict=False)]
    return {name: np.concatenate([told[name] for told in found if name in told]) for told in found for name in told}


def go_on(agent, mode, snapshot, middle):
    config = settings(agent, mode)
    with precision(config):
        trainer = make_trainer(find("offline"), config, snapshot, middle)
        return run(trainer, middle, 2 * HALF - middle), trainer.snapshot()


def through(agent, mode, snapshot, step, folder):
    """A snapshot, saved by the trainer of a mode that has taken it over, and read again."""
    config = settings(agent, mode)
    with precision(config):
        taken = make_trainer(find("offline"), config, snapshot, step).snapshot()
    checkpoint.save(
        folder,
        params=taken.parameters,
        optimizer=taken.optimizers["policy"],
        replay={"buffer": taken.buffer},
        step=step,
    )
    return snapshot_of(checkpoint.load(folder, side="numpy"))


@pytest.mark.parametrize(("first", "second"), [("torch", "jax_full"), ("jax_full", "torch")])
@pytest.mark.parametrize("agent", few(AGENTS, "mbpo_rebrac"))
def test_there_and_back_is_the_same_to_the_last_bit(agent, first, second, tmp_path):
    state = whole(agent, first).middle
    there = through(agent, second, state, HALF, tmp_path / "there")
    back = through(agent, first, there, HALF, tmp_path / "back")
    assert_equal(everything(there), everything(state))
    assert_equal(everything(back), everything(state))
    assert back.optimizers["policy"].groups == state.optimizers["policy"].groups
    moments = state.optimizers["policy"].moments
    assert all(int(slots["step"]) == HALF for slots in moments.values()) and any(
        s["exp_avg"].any() for s in moments.values()
    )


@pytest.mark.parametrize(("first", "second"), SWITCHES)
@pytest.mark.parametrize("agent", few(AGENTS, "mbpo_rebrac"))
def test_going_on_in_another_mode_is_as_not_to_switch(agent, first, second):
    metrics, end = go_on(agent, second, whole(agent, first).middle, HALF)
    assert_close(metrics, whole(agent, "torch").second)
    assert_close(everything(end), everything(whole(agent, "torch").end))


@pytest.mark.parametrize(
    "agent", [*(pytest.param(agent, marks=pytest.mark.slow) for agent in AGENTS if agent != "fb_repr"), "fb_repr"]
)
def test_a_mode_may_change_while_it_pre_trains(agent):
    """The phase then ends in the other framework: there latents are inferred and targets reset."""
    metrics, end = go_on(agent, "jax_full", whole(agent, "torch", 2).middle, 2)
    assert_close(everything(end), everything(whole(agent, "torch").end))
    assert {name for name in metrics if name.endswith("loss")} == {
        name for phase in ("first", "second") for name in getattr(whole(agent, "torch"), phase) if name.endswith("loss")
    }


def test_what_is_compared_moves():
    """Imagined transitions, a latent, a centre: what an agent has beside its networks is there and is not zero."""
    buffer = lambda agent: everything(whole(agent, "torch").end)
    assert np.abs(buffer("mbpo_rebrac")["/buffer/imagined/rows/observations"]).sum() > 0
    assert np.abs(buffer("fb_repr")["/buffer/latent"]).sum() > 0
    assert np.abs(buffer("dino_rebrac")["/parameters/target_repr_center.array"]).sum() > 0
