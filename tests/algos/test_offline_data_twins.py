"""Draws, batches and rings of offline learning: NumPy and JAX agree bit for bit."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from offline_data_cases import data, source, with_goals

from crossfade.algos.offline.agent import Draw, Goals
from crossfade.algos.offline.batch import Batch
from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.crl_infonce.params import CRLInfoNCE
from crossfade.algos.offline.data import (
    draws_jax,
    draws_numpy,
    normals_numpy,
    ring_jax,
    ring_numpy,
    sampling_jax,
    sampling_numpy,
)
from crossfade.algos.offline.data.choice import Choice, GoalNumbers
from crossfade.algos.offline.data.source import observation_shape
from crossfade.algos.offline.dino_rebrac.params import DINOReBRAC
from crossfade.algos.offline.fb_repr.params import FBRepr
from crossfade.algos.offline.hilp.params import HILP
from crossfade.algos.offline.infom.params import InFOM
from crossfade.algos.offline.mbpo_rebrac.params import MBPOReBRAC
from crossfade.algos.offline.td_infonce.params import TDInfoNCE
from crossfade.random import random_numpy as random
from default_run import few_pairs

DRAWS = 50
"""Updates that are drawn and compared in each of the cases below."""
MIXED = Goals(trajectory=0.5, current=0.2)
CASES = {
    "hilp": ({"agent": HILP(latent_dim=3)}, {}),
    "hilp compact": ({"agent": HILP(latent_dim=3)}, {"compact": True}),
    "crl": ({"agent": CRLInfoNCE(latent_dim=3), "gamma": 0.5}, {}),
    "crl compact": ({"agent": CRLInfoNCE(latent_dim=3), "frame_stack": 3}, {"compact": True}),
    "td": ({"agent": TDInfoNCE(latent_dim=3), "const_std": False}, {}),
    "td corrected": ({"agent": TDInfoNCE(latent_dim=3), "faithful": False, "geometric_start": 0}, {}),
    "td compact": ({"agent": TDInfoNCE(latent_dim=3), "frame_stack": 2}, {"compact": True}),
    "fb": ({"agent": FBRepr(latent_dim=3)}, {}),
    "infom": ({"agent": InFOM(latent_dim=3, flow_goals=2), "normalize": "bounded"}, {}),
    "mbpo": ({"agent": MBPOReBRAC(rollouts=3, rollout_steps=2), "corrected": ("tiny_model_buffer",)}, {}),
    "dino": ({"agent": DINOReBRAC(), "encoder": "mlp", "encoder_hidden": (4,)}, {}),
    "mixed": ({"agent": with_goals(MIXED, MIXED._replace(geometric=False)), "gc_negative": False}, {}),
    "mixed compact": ({"agent": with_goals(MIXED._replace(geometric=False), MIXED)}, {"compact": True}),
    "images": ({"encoder": "impala_debug", "p_aug": 0.5, "agent": with_goals(MIXED)}, {"image": True}),
    "compact images": ({"encoder": "impala_debug", "p_aug": 0.5, "frame_stack": 2}, {"image": True, "compact": True}),
    "views": (
        {"encoder": "impala_debug", "agent": DINOReBRAC(), "p_aug": 1.0, "num_aug": 2, "inplace_aug": False},
        {"image": True},
    ),
}
LENGTHS = 40, 2, 90, 7
BOTH = "hilp", "td", "fb", "infom", "mbpo", "dino", "views"
"""Agents whose phases draw different numbers; of the others fine-tuning is enough."""
PAIRS = [(name, "finetuning") for name in CASES] + [(name, "pretraining") for name in BOTH]
KEPT = (
    ("hilp compact", "finetuning"),
    ("td corrected", "finetuning"),
    ("infom", "finetuning"),
    ("mbpo", "finetuning"),
    ("mixed", "finetuning"),
    ("compact images", "finetuning"),
    ("fb", "pretraining"),
    ("views", "pretraining"),
)
"""In the default run: each layout, kind of goal, draw and picture once."""


def same(ours, theirs):
    """The same structure, dtypes, shapes and bits."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for (path, one), other in zip(jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True):
        other = np.asarray(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), path
        assert one.tobytes() == other.tobytes(), path


@pytest.mark.parametrize(("name", "phase"), few_pairs(PAIRS, *KEPT))
def test_draws_and_batches_are_equal(name, phase):
    words, form = CASES[name]
    config = OfflineConfig(batch_size=8, hidden=(4,), **words)
    dataset = data(lengths=LENGTHS, numbers=3, **form)
    ours = source(config, dataset, phase)
    sizes = config.sizes(observation_shape(dataset, config), 2)

    @jax.jit
    def drawn(source, key, update):
        choice = draws_jax.draw(jax.random.fold_in(key, update), dataset.steps, sizes, phase, config)
        return choice, sampling_jax.sample(source, choice, config)

    on_device = jax.device_put(ours)
    for update in range(DRAWS):
        choice = draws_numpy.draw(random.fold_in(random.key(7), update), dataset.steps, sizes, phase, config)
        batch = sampling_numpy.sample(ours, choice, config)
        same((choice, batch), drawn(on_device, jax.random.key(7), update))


def test_twins_were_compared_a_thousand_times():
    assert len(PAIRS) * DRAWS > 1000


def test_float64_has_the_noise_of_float32(x64):
    config = OfflineConfig(batch_size=8, agent=HILP(latent_dim=3), dtype="float64")
    ours, sizes = source(config), config.sizes((2,), 2)
    choice = draws_numpy.draw(random.key(1), 9, sizes, "pretraining", config)
    theirs = draws_jax.draw(jax.random.key(1), 9, sizes, "pretraining", config)
    same(choice, theirs)
    single = draws_numpy.draw(random.key(1), 9, sizes, "pretraining", replace(config, dtype="float32"))
    assert choice.noise["latent"].dtype == np.float64
    assert choice.noise["latent"].tolist() == single.noise["latent"].tolist()
    batch = sampling_numpy.sample(ours, choice, config)
    assert batch.observations.dtype == batch.relabeled_rewards.dtype == np.float64
    same(batch, sampling_jax.sample(jax.device_put(ours), theirs, config))


def test_a_scan_draws_what_single_updates_draw():
    config = OfflineConfig(batch_size=8, agent=HILP(latent_dim=3))
    ours, sizes = source(config), config.sizes((2,), 2)

    @jax.jit
    def scanned(source, key):
        def step(carry, update):
            choice = draws_jax.draw(jax.random.fold_in(key, update), 9, sizes, "pretraining", config)
            return carry, sampling_jax.sample(source, choice, config)

        return jax.lax.scan(step, None, jnp.arange(5))[1]

    theirs = scanned(jax.device_put(ours), jax.random.key(3))
    for update in range(5):
        choice = draws_numpy.draw(random.fold_in(random.key(3), update), 9, sizes, "pretraining", config)
        same(sampling_numpy.sample(ours, choice, config), jax.tree.map(lambda x, i=update: x[i], theirs))


@pytest.mark.slow
def test_seeds_side_by_side_draw_what_each_draws_alone():
    config = OfflineConfig(batch_size=4, agent=TDInfoNCE(latent_dim=3))
    ours, sizes = source(config), config.sizes((2,), 2)
    drawn = lambda key: sampling_jax.sample(
        jax.device_put(ours), draws_jax.draw(key, 9, sizes, "pretraining", config), config
    )
    keys = jax.random.split(jax.random.key(0), 3)
    together = jax.vmap(drawn)(keys)
    for i in range(3):
        same(jax.tree.map(np.asarray, drawn(keys[i])), jax.tree.map(lambda x, i=i: x[i], together))


def test_each_field_has_a_key_of_its_own():
    config = OfflineConfig(batch_size=3, agent=CRLInfoNCE())
    key, fold = random.key(5), random.fold_in
    choice = draws_numpy.draw(key, 1000, config.sizes((2,), 2), "finetuning", config)
    assert choice.rows.tolist() == random.randint(fold(key, 0), (3,), 0, 1000).tolist()
    for field, goals in ((1, choice.value_goals), (2, choice.actor_goals)):
        inner = fold(key, field)
        assert goals.random.tolist() == random.randint(fold(inner, 0), (3,), 0, 1000).tolist()
        for i, name in enumerate(GoalNumbers._fields[1:], 1):
            assert getattr(goals, name).tolist() == random.uniform(fold(inner, i), (3,)).tolist()
    assert Choice._fields[:3] == ("rows", "value_goals", "actor_goals")

    config = OfflineConfig(batch_size=3, agent=FBRepr(latent_dim=2))
    noise = draws_numpy.draw(key, 10, config.sizes((2,), 2), "pretraining", config).noise
    inner = fold(key, Choice._fields.index("noise"))
    assert noise["latent"].tolist() == random.normal(fold(inner, 0), (3, 2)).tolist()
    assert sorted(noise["order"].tolist()) == [0, 1, 2]
    assert noise["mix"].tolist() == random.uniform(fold(inner, 2), (3,)).tolist()


@pytest.mark.parametrize("steps", [1, 7, 2**16 + 1, 2**24 + 3, 2**30 - 1])
def test_rows_are_those_of_randint_and_reach_odd_numbers_beyond_float32(steps):
    ours = draws_numpy.draw_rows(random.key(2), steps, (4096,))
    same(ours, draws_jax.draw_rows(jax.random.key(2), steps, (4096,)))
    same(ours, jax.random.randint(jax.random.key(2), (4096,), 0, steps))
    assert 0 <= ours.min() and ours.max() < steps
    if steps > 2**24:
        assert 0.45 < (ours[ours > 2**24 - steps // 2] % 2).mean() < 0.55


def test_noise_that_agents_declare():
    asking = with_goals()
    kinds = ("normal", "uniform", "permutation", "rows", "words")
    declared = {kind: Draw(kind, (50,)) for kind in kinds}
    asking = type("Declaring", (type(asking),), {"draws": lambda self, sizes, phase: declared})()
    config = OfflineConfig(batch_size=2, agent=asking)
    noise = draws_numpy.draw(random.key(0), 1000, config.sizes((2,), 2), "finetuning", config).noise
    theirs = draws_jax.draw(jax.random.key(0), 1000, config.sizes((2,), 2), "finetuning", config).noise
    same(noise, theirs)
    assert [str(noise[kind].dtype) for kind in kinds] == ["float32", "float32", "int32", "int32", "uint32"]
    assert sorted(noise["permutation"].tolist()) == list(range(50)) != noise["permutation"].tolist()
    assert 0 <= noise["rows"].min() and 20 < noise["rows"].max() < 1000 and noise["words"].max() > 2**31


@pytest.mark.slow
def test_the_table_of_normals_changes_no_bit():
    normals = normals_numpy.Normals()
    normals.drawn = 2**23
    for seed in range(20):
        expected = random.normal(random.key(seed), (300, 100))
        assert normals.draw(random.key(seed), (300, 100)).tobytes() == expected.tobytes()
    assert normals.table is not None and len(normals.table) == 2**23


def test_normals_are_looked_up_once_the_table_is_worth_it(monkeypatch):
    monkeypatch.setattr(normals_numpy, "all_normals", lambda: np.arange(2**23, dtype=np.float32))
    normals = normals_numpy.Normals()
    assert normals.draw(random.key(0), (3,)).tolist() == random.normal(random.key(0), (3,)).tolist()
    assert normals.table is None and normals.drawn == 3
    normals.drawn = 2**23
    assert normals.draw(random.key(0), (3,)).tolist() == (random.bits(random.key(0), (3,)) >> 9).tolist()


# Ring


def imagined(n, start=0):
    number = np.arange(start, start + n, dtype=np.float32)
    vectors = lambda k: np.stack([number + i / 10 for i in range(k)], 1).astype(np.float32)
    return Batch(vectors(3), vectors(2), vectors(3) + 1, number, np.ones(n, np.float32), vectors(2) - 1)


@pytest.mark.parametrize("sizes", [(3, 3, 3), (10,), (25,), (4, 25, 1), (7, 7, 7, 7), (20, 3)])
def test_a_ring_holds_the_newest_rows(sizes):
    ours, theirs = ring_numpy.start(imagined(1), 10), ring_jax.start(imagined(1), 10)
    push, take = jax.jit(ring_jax.push), jax.jit(ring_jax.sample)
    model, count = {}, 0
    for n in sizes:
        rows = imagined(n, count)
        for i in range(n):
            model[(count + i) % 10] = count + i
        count += n
        ours, theirs = ring_numpy.push(ours, rows), push(theirs, rows)
        same(ours, theirs)
        assert int(ours.size) == min(count, 10) and int(ours.place) == count % 10
        words = random.bits(random.key(count), (50,))
        found = ring_numpy.sample(ours, words)
        same(found, take(theirs, words))
        assert found.rewards.tolist() == [model[int(word) % len(model)] for word in words]
        assert found.observations[:, 0].tolist() == found.rewards.tolist()
        assert found.next_actions[:, 0].tolist() == (found.rewards - 1).tolist()
        assert found.value_goals is None


def test_pushing_leaves_the_old_ring_alone():
    before = ring_numpy.push(ring_numpy.start(imagined(1), 4), imagined(2))
    ring_numpy.push(before, imagined(3, 10))
    assert before.rows.rewards.tolist() == [0, 1, 0, 0]


def test_a_ring_is_sampled_by_numbers():
    ring = ring_numpy.push(ring_numpy.start(imagined(1), 4), imagined(2))
    assert ring_numpy.sample(ring, np.array([0, 1, 2, 3], np.int32)).rewards.tolist() == [0, 1, 0, 1]


def test_mbpo_declares_its_rollouts_once_they_are_used():
    config = partial(OfflineConfig, agent=MBPOReBRAC(rollouts=5, rollout_steps=2), batch_size=4)
    names = lambda c, phase: set(c.agent.draws(c.sizes((3,), 2), phase))
    assert names(config(), "finetuning") == {"target_action"}
    mended = config(corrected=("tiny_model_buffer",))
    assert names(mended, "pretraining") == set()
    assert names(mended, "finetuning") == {"target_action", "rollout_rows", "rollout", "imagined"}
    assert mended.agent.draws(mended.sizes((3,), 2), "finetuning")["rollout"].shape == (2, 2, 5, 2)
