"""Every number that a user can set has a range, which is printed, and nothing outside it is accepted."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import numpy as np
import pytest

from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.cli import GENERAL, main
from crossfade.config import apply, describe, from_yaml
from crossfade.config_values import is_union
from crossfade.envs.dag.grid.params import GridParams
from crossfade.envs.dag.params import countable
from crossfade.errors import UsageError
from crossfade.loading import load_attribute
from crossfade.ranges import Count, Positive, Probability, Range, check, check_value, kinds, range_of
from crossfade.registry import systems
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.judging.firms import Firm
from crossfade.systems.trading.judging.stage import StudyEffort


def _nested(cls: type) -> Iterator[type]:
    """A dataclass and those that its fields can hold."""
    yield cls
    for field in dataclasses.fields(cls):
        kind = kinds(cls).get(field.name)
        kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        table = field.metadata.get("choices", {})
        inner = [load_attribute(place) if isinstance(place, str) else place for place in table.values()]
        inner += [member for member in (get_args(kind) if is_union(kind) else [kind]) if member is not None]
        for member in inner:
            member = get_args(member)[0] if get_origin(member) is Annotated else member
            if dataclasses.is_dataclass(member):
                yield from _nested(member)


def _settable() -> dict[str, type]:
    """Every dataclass that users set: configs, environments, efforts, verbs."""
    roots: list[type] = [*GENERAL.values(), Firm]
    for record in systems().values():
        roots += [load_attribute(record.config), load_attribute(record.effort)]
        roots += [load_attribute(item.target) for item in record.verbs.values()]
    found = itertools.chain.from_iterable(_nested(root) for root in roots)
    return {f"{cls.__module__}.{cls.__qualname__}": cls for cls in found}


def _is_number(kind: Any) -> bool:
    if get_origin(kind) is Annotated or is_union(kind) or get_origin(kind) is tuple:
        return any(_is_number(member) for member in get_args(kind) if not isinstance(member, Range))
    return kind in (int, float)


def _holds_several(kind: Any) -> bool:
    """Whether a field is a tuple of numbers, whatever is said of it around that."""
    if get_origin(kind) is Annotated:
        return _holds_several(get_args(kind)[0])
    return get_origin(kind) is tuple or (is_union(kind) and any(map(_holds_several, get_args(kind))))


SETTABLE = _settable()
NUMBERS = [(cls, name, kind) for cls in SETTABLE.values() for name, kind in kinds(cls).items() if _is_number(kind)]


def test_the_walk_finds_configs_environments_efforts_and_verbs():
    names = {name.rpartition(".")[2] for name in SETTABLE}
    assert {"GFlowNetConfig", "TradingConfig", "Curriculum", "TradingParams", "Rules", "GridParams"} <= names
    assert {"SamplingEffort", "StudyEffort", "Climb", "Walk", "Facts", "Audit", "Explain", "TorusParams"} <= names
    assert len(NUMBERS) > 100


@pytest.mark.parametrize(("cls", "name", "kind"), NUMBERS, ids=[f"{cls.__name__}.{name}" for cls, name, _ in NUMBERS])
def test_every_number_declares_its_range_and_keeps_it(cls, name, kind):
    bounds = range_of(kind)
    assert bounds is not None, f"{cls.__name__}.{name} declares no range"
    outside = [math.nan, math.inf, -math.inf]
    outside += [] if bounds.least is None else [bounds.least - 1]
    outside += [] if bounds.most is None else [bounds.most + 1]
    outside += [bound for bound in (bounds.above, bounds.below) if bound is not None]
    wrap = (lambda value: (value,)) if _holds_several(kind) else (lambda value: value)
    for value in outside:
        with pytest.raises(UsageError) as refused:
            check_value(name, wrap(value), kind)
        message = str(refused.value)
        assert message.startswith(f"{name}: expected") and str(bounds) in message and f"got {value!r}" in message
    (field,) = (field for field in dataclasses.fields(cls) if field.name == name)
    if field.default not in (dataclasses.MISSING, None):
        check_value(name, field.default, kind)


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (GFlowNetConfig, word)
        for word in (
            "clip_norm=-1",
            "clip_norm=0",
            "temperature=nan",
            "lr_gamma=-1",
            "subtb_lambda=-1",
            "lr_z=-1",
            "lr=nan",
            "keep=0",
            "seed=4294967296",
            "steps=1e10",
            "layers=1e6",
            "env.mu=nan",
            "z_init=inf",
        )
    ]
    + [
        (TradingConfig, word)
        for word in (
            "clip=-1",
            "lr_final=-1",
            "stop_cap=0",
            "markets=ES,ES",
            "adam_eps=0",
            "value_coef=nan",
            "target_kl=0",
            "lock=-1",
            "env.window=62",
            "curriculum.drawdown=0:nan",
            "curriculum.forced=0:2",
            "curriculum.forced=nan:1",
        )
    ],
)
def test_settings_that_mean_nothing_are_refused_by_their_full_name(config, word):
    with pytest.raises(UsageError, match=rf"^{word.partition('=')[0]}: expected .*, got"):
        apply(config(), [word])


def test_the_same_holds_in_yaml_and_in_python():
    with pytest.raises(UsageError, match="settings.yaml: env.length: expected an integer from 2 to 1,000,000, got 1"):
        from_yaml("env: {kind: grid, length: 1}", GFlowNetConfig(), source="settings.yaml")
    with pytest.raises(UsageError, match="lr: expected a finite number above 0, got nan"):
        GFlowNetConfig(lr=math.nan)
    with pytest.raises(UsageError, match="block: expected a finite number of at least 1, got nan"):
        StudyEffort(block=math.nan)


def test_a_range_is_said_in_words():
    words = {
        Range(): "",
        Range(1): "at least 1",
        Range(above=0): "above 0",
        Range(0, 1): "from 0 to 1",
        Range(above=0, most=100): "above 0 and at most 100",
        Range(least=0, below=1): "at least 0 and below 1",
        Range(1, 2**31 - 1): "from 1 to 2^31 - 1",
    }
    assert {bounds: str(bounds) for bounds in words} == words


def test_numbers_of_a_users_own_config_are_held_to_its_ranges():
    @dataclasses.dataclass(frozen=True)
    class Own:
        rate: Positive = 0.1
        sizes: tuple[Count, ...] = (1,)
        share: Probability | None = None
        free: float = 0.0

    check(Own())
    for word, message in {
        "rate=0": "rate: expected a finite number above 0, got 0.0",
        "sizes=3,0": "sizes: expected an integer from 1 to 2.31 - 1, got 0",
        "share=1.5": "share: expected a probability from 0 to 1, got 1.5",
        "free=nan": "free: expected a finite number, got nan",
    }.items():
        with pytest.raises(UsageError, match=message):
            apply(Own(), [word])
    assert apply(Own(), ["share=none", "sizes="]) == Own(sizes=())
    assert [row.range for row in describe(Own)] == ["above 0", "from 1 to 2^31 - 1", "from 0 to 1, or none", ""]


def test_ranges_are_listed(capsys):
    assert main(["list", "trading"]) == 0
    assert "above 0 and at most 1,000,000" in capsys.readouterr().out


@pytest.mark.parametrize(("n_dim", "most", "dims"), [(2, 1, 1), (3, 2, 2), (3, 1, 3), (4, 3, 1)])
def test_a_grids_moves_are_in_the_order_of_a_product(n_dim, most, dims):
    params = GridParams(n_dim=n_dim, max_increment=most, max_dim_per_action=dims)
    vectors = itertools.product(range(most + 1), repeat=n_dim)
    expected = [v for v in vectors if 1 <= np.count_nonzero(v) <= dims]
    np.testing.assert_array_equal(params.increments, expected)
    assert params.n_actions == len(expected) + 1


def test_many_dimensions_are_counted_without_listing_them():
    params = GridParams(n_dim=500)
    assert params.n_states is None and params.increments.shape == (500, 500)
    assert countable(itertools.repeat(2**20)) is None and countable([3, 4]) == 7
