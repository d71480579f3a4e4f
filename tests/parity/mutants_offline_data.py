"""Planted bugs in the torch half of the offline agents: what they start from, read and do. See mutants_offline.py."""

from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import jax
import numpy as np
import torch
from mutants_iqn import patched
from mutants_offline import PRE, RESNET, whole, within

from crossfade.algos.offline import encoders, layers, modules
from crossfade.algos.offline.batch import Batch
from crossfade.algos.offline.data import draws_jax, draws_numpy, sampling_jax, sampling_numpy, statistics as normalising
from crossfade.algos.offline.data.dataset import Dataset, from_rows
from crossfade.algos.offline.data.source import Source, make_source, observation_shape
from crossfade.algos.offline.iql import agent_torch as iql
from crossfade.algos.offline.parameters import draw_parameters, laws
from crossfade.nn.initial import draw
from crossfade.parity import Twin
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.systems.offline.twin import settings

# Starts

SYNCED = ("agent=fb_repr", "corrected=unsynced_target")
scaling, xavier = layers.variance_scaling, lambda: layers.variance_scaling(1.0)
STARTS = {
    "F25 scale taken for a gain": ((layers, "variance_scaling", lambda scale: scaling(scale**2)),),
    "F29 Xavier's law for He's": ((encoders, "he_normal", xavier),),
    "F32 target critic set to its critic": (),
}


def offline_start(bug: str | None = None, plant: bool = True) -> Twin:
    """The parameters of a start: those of forward-backward representations, and of an encoder of images."""

    def parameters(words: tuple[str, ...], key: np.ndarray) -> dict[str, np.ndarray]:
        config = settings(*words)
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        own = draw_parameters(config.agent, config.sizes((2,), 2), key, dtype)
        return own | draw(laws({"images": modules.Coder(RESNET)}), key, dtype)

    wrong = patched(parameters, *(STARTS[bug] if bug and plant else ()))
    words = SYNCED if bug and plant and "target critic" in bug else SYNCED[:1]
    host = lambda _, key: wrong(words, key.numpy().astype(np.uint32))
    compiled = lambda _, key: parameters(SYNCED[:1], np.asarray(jax.random.key_data(key)))
    return Twin("offline_start", rollout=(host, compiled))


# Data


def statistics_of_float32(right, data, normalize):
    found = right(data, normalize)
    return type(found)(*(number.astype(np.float32).astype(np.float64) for number in found))


def epsilon_beside_the_root(right, data, normalize):
    shift, scale = right(data, normalize)
    return normalising.Statistics(shift, np.sqrt(scale**2 - normalising.EPS) + normalising.EPS)


def rounded_down(right, source, rows, numbers, goals, config):
    if goals.geometric:
        return right(source, rows, numbers, goals, config)
    last = source.data.last[rows]
    return np.minimum(rows + 1 + np.floor((last - rows) * numbers.offset).astype(np.int32), last)


def goals_shifted_again(right, batch, choice, config):
    found = right(batch, choice, config)
    return found._replace(value_goals=sampling_numpy.cropped(found.value_goals, choice.crops))


def global_noise(right, key, draw, steps, config):
    return np.random.default_rng(0).normal(size=draw.shape).astype(config.dtype)


HILP, CRL = ("agent=hilp", PRE), ("agent=crl_infonce",)
SHIFTED = (*CRL, "encoder=impala_debug", "p_aug=1")
PADS = ((draws_numpy, "PAD", 4), (sampling_numpy, "PAD", 4))
DATA: dict[str, tuple[tuple[str, ...], tuple[Any, ...], tuple[str, ...]]] = {
    "F35 rewards 0 and 1": (HILP, (), ("gc_negative=false",)),
    "F39 four pixels for three": (SHIFTED, PADS, ()),
    "F39 goals shifted twice": (SHIFTED, (within(sampling_numpy, "_augmented", goals_shifted_again),), ()),
    "F40 statistics in float32": (HILP, (within(normalising, "statistics", statistics_of_float32),), ()),
    "F40 epsilon beside the root": (HILP, (within(normalising, "statistics", epsilon_beside_the_root),), ()),
    "F41 uniform goals rounded down": (CRL, (within(sampling_numpy, "goal_rows", rounded_down),), ()),
    "F41 goals that are the row itself": (CRL, (), ("corrected=geometric_offset", "geometric_start=0")),
    "F44 noise of a generator of its own": (HILP, (within(draws_numpy, "_noise", global_noise),), ()),
}


@cache
def rows(image: bool) -> Dataset:
    """Four trajectories; the second number of an observation is small."""
    rng, n = np.random.default_rng(0), 40
    numbers = rng.normal(size=(n, 2)) * [1.0, 1e-3]
    return from_rows(
        rng.integers(0, 256, (n, 8, 8, 3), np.uint8) if image else numbers.astype(np.float32),
        rng.uniform(-0.9, 0.9, (n, 2)).astype(np.float32),
        (np.arange(n) % 10 == 9).astype(np.float32),
        rewards=rng.normal(size=n).astype(np.float32),
        masks=np.ones(n, np.float32),
        where="rows",
    )


def offline_data(bug: str | None = None, plant: bool = True) -> Twin:
    words, patches, other = DATA[bug] if bug else (HILP, (), ())
    patches, other = (patches, other) if plant else ((), ())

    def made(words: tuple[str, ...]) -> tuple[OfflineDataConfig, Dataset, Source]:
        config = replace(settings(*words), dtype=str(torch.get_default_dtype()).removeprefix("torch."))
        data = rows(config.encoding is not None)
        return config, data, make_source(data, normalising.statistics(data, config.normalize), config.phase(0), config)

    def host(_, key):
        config, data, source = made((*words, *other))
        given = data.steps, config.sizes(observation_shape(data, config), 2), config.phase(0), config
        return sampling_numpy.sample(source, draws_numpy.draw(key.numpy().astype(np.uint32), *given), config)

    def compiled(_, key):
        config, data, source = made(words)
        given = data.steps, config.sizes(observation_shape(data, config), 2), config.phase(0), config
        there = jax.device_put(source)
        return jax.jit(lambda key: sampling_jax.sample(there, draws_jax.draw(key, *given), config))(key)

    return Twin("offline_data", rollout=(patched(host, *patches), compiled))


# Actions, and transitions that a model imagines

MBPO = ("agent=mbpo_rebrac", "agent.rollout_steps=2")
ACTING = ("F37 actions drawn at random", "F43 rollouts that go on")


def offline_acting(bug: str | None = None, plant: bool = True) -> Twin:
    going_on = bug is not None and bug.startswith("F43")
    words = (*MBPO, "corrected=tiny_model_buffer") if going_on else ("agent=iql",)
    config = settings(*words)
    own = settings(*MBPO, "corrected=tiny_model_buffer,standing_rollouts") if going_on and plant else config
    ours, theirs = import_module(config.agent.torch), import_module(config.agent.jax)
    twin, rng = whole(*words), np.random.default_rng(0)
    batch = {"states": rng.normal(size=(5, 2)), "noise": rng.normal(size=(2, 2, 5, 2))}

    def forward(half: Any, config: OfflineDataConfig) -> Any:
        def call(policy: Any, batch: dict[str, Any]) -> Any:
            if not going_on:
                return half.act(policy, batch["states"], None, config)
            found: Batch = half.imagine(policy, batch["states"], batch["noise"], config)
            return found._asdict()

        return call

    sampled = within(iql, "policy_action", lambda right, of, _: right(of, torch.full_like(of.mean, 0.5)))
    patches = (sampled,) if plant and bug is not None and not going_on else ()
    return Twin(
        "offline_acting",
        torch=twin.torch,
        jax=twin.jax,
        mapping=twin.mapping,
        batch=batch,
        forward=(patched(forward(ours, own), *patches), forward(theirs, config)),
    )


FAMILIES = {
    offline_start: dict.fromkeys(STARTS, "rollout"),
    offline_data: dict.fromkeys(DATA, "rollout"),
    offline_acting: dict.fromkeys(ACTING, "forward"),
}
QUICK = {
    offline_start: ("F25 scale taken for a gain", "F32 target critic set to its critic"),
    offline_data: ("F35 rewards 0 and 1", "F40 epsilon beside the root"),
    offline_acting: ("F37 actions drawn at random",),
}
SLOW = {bug for make, bugs in FAMILIES.items() for bug in bugs if bug not in QUICK[make]} | {"offline_acting"}
