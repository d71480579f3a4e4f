"""Configs: words, YAML, choices, presets, help rows; and the messages for everything that does not fit."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings, strategies as st

from crossfade import config as cf
from crossfade.errors import UsageError


@dataclass(frozen=True)
class Grid:
    length: int = 8
    """Cells along each side."""
    sides: tuple[int, ...] = (8, 8)

    def __post_init__(self):
        if self.length < 2:
            raise UsageError(f"length: expected at least 2, got {self.length}.")


@dataclass(frozen=True)
class Ring:
    size: int
    """Cells in all; has no default."""
    box: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Adam:
    lr: float = 1e-3
    """Step size."""
    betas: tuple[float, float] = (0.9, 0.999)


@dataclass(frozen=True)
class Sgd:
    lr: float = 0.1


@dataclass(frozen=True)
class Replay:
    capacity: int = 100


@dataclass(frozen=True)
class Base:
    seed: int = 0
    """The one source of randomness,
    for every mode."""


@dataclass(frozen=True)
class Train(Base):
    """A config with every kind of field."""

    env: Any = cf.choice({"grid": f"{__name__}:Grid", "ring": Ring}, default="grid")
    """The world."""
    optimizer: Adam | Sgd = field(default_factory=Adam)
    replay: Replay | None = None
    fixed: Adam = field(default_factory=Adam)
    mode: Literal["torch", "jax_full"] = "torch"
    steps: int = 1000
    legacy: bool = False
    clip: float | None = None
    label: str | None = None
    data: Path | None = None
    every: int | str = "auto"
    batch: int = 4
    minibatch: int = 2

    def __post_init__(self):
        if self.batch % self.minibatch:
            raise UsageError(f"batch: expected a multiple of minibatch={self.minibatch}, got {self.batch}.")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["steps=5000"], {"steps": 5000}),
        (["steps=1e3"], {"steps": 1000}),
        (["seed=18446744073709551615"], {"seed": 2**64 - 1}),
        (["legacy=true"], {"legacy": True}),
        (["mode=jax_full"], {"mode": "jax_full"}),
        (["clip=1"], {"clip": 1.0}),
        (["clip=none"], {"clip": None}),
        (["label=a=b"], {"label": "a=b"}),
        (["data=some/file.npz"], {"data": Path("some/file.npz")}),
        (["every=10"], {"every": 10}),
        (["every=auto"], {"every": "auto"}),
        (["env.sides=4,5,6"], {"env": Grid(sides=(4, 5, 6))}),
        (["env.sides=(4,)"], {"env": Grid(sides=(4,))}),
        (["env=ring", "env.size=5"], {"env": Ring(5)}),
        (["env.size=5", "env=ring", "env.box=-1,1"], {"env": Ring(5, (-1.0, 1.0))}),
        (["optimizer=sgd", "optimizer.lr=1e-2"], {"optimizer": Sgd(0.01)}),
        (["fixed.lr=5"], {"fixed": Adam(5.0)}),
        (["replay=replay", "replay.capacity=7"], {"replay": Replay(7)}),
        (["minibatch=3", "batch=9"], {"minibatch": 3, "batch": 9}),
    ],
    ids=" ".join,
)
def test_words_set_fields_by_their_type_in_any_order(words, expected):
    for order in (words, words[::-1]):
        assert cf.apply(Train(), order) == Train(**expected)


def test_naming_a_choice_gives_its_defaults():
    config = cf.apply(Train(), ["env.length=16"])
    assert cf.apply(config, ["steps=5"]).env == Grid(16)
    assert cf.apply(config, ["env=grid"]).env == Grid(8)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stps=5"], "unknown key 'stps'. Did you mean 'steps'? Known: seed, env, optimizer"),
        (["env.lenght=5"], "unknown key 'env.lenght'. Did you mean 'env.length'? Known: env.length, env.sides."),
        (["betas=1,2"], "Did you mean 'optimizer.betas'?"),
        (["env=rng"], "env: unknown choice 'rng'. Did you mean 'ring'? Known: grid, ring."),
        (["env=ring"], "env.size: no value given and no default"),
        (["env.length=1"], "length: expected at least 2, got 1."),
        (["steps=1.5"], "steps: expected int, got '1.5'."),
        (["steps=inf"], "steps: expected int, got 'inf'."),
        (["steps=ten"], "steps: expected int, got 'ten'."),
        (["steps=true"], "steps: expected int, got 'true'."),
        (["legacy=1"], "legacy: expected true | false, got '1'."),
        (["clip=high"], "clip: expected float | none, got 'high'."),
        (["mode=jaxfull"], "expected one of torch | jax_full, got 'jaxfull'. Did you mean 'jax_full'?"),
        (["optimizer.betas=0.9"], "optimizer.betas: expected 2 values (float,float), got 1"),
        (["steps.x=5"], "steps has no fields"),
        (["fixed=adam"], "fixed has no value of its own, got 'adam'; set its fields: fixed.lr, fixed.betas."),
        (["replay.capacity=5"], "replay is none and has no fields; choose one first: replay=replay."),
        (["steps=5", "steps=6"], "steps is given twice, as '5' and as '6'"),
        (["env=grid", "env.length=4", "env=ring"], "env is given twice, as 'grid' and as 'ring'"),
        (["steps"], "expected key=value, for example steps=1000; got 'steps'."),
        (["=5"], "expected key=value"),
        (["env.=5"], "expected key=value"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_fit_is_refused_with_advice(words, message):
    with pytest.raises(UsageError) as caught:
        cf.apply(Train(), words)
    assert message in str(caught.value)


FINITE = st.floats(allow_nan=False, allow_infinity=False)
CONFIGS = st.builds(
    Train,
    seed=st.integers(0, 2**64 - 1),
    env=st.builds(Grid, st.integers(2, 99), st.lists(st.integers()).map(tuple)) | st.builds(Ring, st.integers()),
    optimizer=st.builds(Adam, FINITE) | st.builds(Sgd, FINITE),
    replay=st.none() | st.builds(Replay),
    legacy=st.booleans(),
    clip=st.none() | FINITE,
    label=st.none()
    | st.text()
    | st.sampled_from(["none", "null", "5", "1e3", "true", "~", "a: b", "#", "\x85", "\r\n"]),
    data=st.none() | st.just(Path("a/b.npz")),
    every=st.integers() | st.sampled_from(["auto", "5", "5.0"]),
)


@settings(max_examples=60, deadline=None)
@given(CONFIGS)
def test_yaml_round_trip_is_exact(config):
    text = cf.to_yaml(config)
    assert cf.from_yaml(text, Train) == config
    assert cf.to_yaml(cf.from_yaml(text, Train())) == text


@settings(max_examples=25, deadline=None)
@given(CONFIGS.filter(lambda c: c.label is None and c.every != "5" and c.every != "5.0"))
def test_described_values_are_words_that_give_the_config_back(config):
    words = [f"{row.key}={row.default}" for row in cf.describe(config)]
    assert cf.apply(Train(), words) == config


def test_yaml_reads_well():
    assert cf.to_yaml(Train()).splitlines()[:5] == [
        "seed: 0",
        "env:",
        "  kind: grid",
        "  length: 8",
        "  sides: [8, 8]",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stps: 5", "file.yaml: unknown key 'stps'. Did you mean 'steps'?"),
        ("steps: 5\nsteps: 6", "the same key twice: steps"),
        ("steps: true", "steps: expected int, got True."),
        ("steps: null", "steps: expected int, got None."),
        ("label: 5", "label: expected str | none, got 5."),
        ("env: {kind: rng}", "unknown choice 'rng'"),
        ("steps: {a: 1}", "steps has no fields"),
        ("[1, 2]", "expected `key: value` lines, got list"),
        ("a: [", "expected YAML"),
        ("steps: !!python/object/apply:os.system ['true']", "expected YAML"),
    ],
)
def test_bad_yaml_is_refused_with_the_file_named(text, message, tmp_path):
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        cf.resolve(Train(), file=path)
    assert message in str(caught.value) and "file.yaml" in str(caught.value)


def test_yaml_may_write_small_numbers_as_people_do():
    config = cf.from_yaml("optimizer: {lr: 1e-4}\nsteps: 1e3\nenv: {kind: ring, size: 3}\n", Train())
    assert (config.optimizer.lr, config.steps, config.env) == (1e-4, 1000, Ring(3))


def test_later_layers_win(tmp_path):
    presets = {"small": ("steps=1", "seed=1", "batch=6", "env.length=3")}
    (tmp_path / "c.yaml").write_text("seed: 2\nbatch: 8\n")
    config = cf.resolve(Train(), presets=presets, preset="small", file=tmp_path / "c.yaml", words=["batch=10"])
    assert config == Train(steps=1, seed=2, batch=10, env=Grid(3))


def test_unknown_presets_and_missing_files_are_named(tmp_path):
    with pytest.raises(UsageError, match="unknown preset 'smal'. Did you mean 'small'"):
        cf.resolve(Train(), presets={"small": ()}, preset="smal")
    with pytest.raises(UsageError, match="found none"):
        cf.resolve(Train(), file=tmp_path / "absent.yaml")


def test_help_rows_carry_types_defaults_and_docs():
    rows = {row.key: row for row in cf.describe(Train)}
    assert rows["seed"] == ("seed", "int", "0", "The one source of randomness, for every mode.", "")
    assert rows["env"] == ("env", "grid | ring", "grid", "The world.", "")
    assert rows["env.length"] == ("env.length", "int", "8", "Cells along each side.", "")
    assert rows["optimizer"][1:3] == ("adam | sgd", "adam")
    assert rows["fixed.lr"][2:4] == ("0.001", "Step size.")
    assert rows["mode"][1] == "torch | jax_full"
    assert "env.size" in {row.key for row in cf.describe(cf.apply(Train(), ["env=ring", "env.size=3"]))}


def test_a_choice_may_be_nothing_or_have_no_default():
    @dataclass(frozen=True)
    class Open:
        loss: Adam | Sgd
        replay: Any = cf.choice({"off": None, "fifo": Replay}, default="off")

    assert [row[:3] for row in cf.describe(Open)] == [("loss", "adam | sgd", ""), ("replay", "off | fifo", "off")]
    with pytest.raises(UsageError, match="loss: no value given"):
        cf.from_yaml("", Open)
    with pytest.raises(UsageError, match="choose one first: loss=adam, loss=sgd"):
        cf.from_yaml("loss: {lr: 1}", Open)
    for config in (Open(Sgd()), Open(Adam(), Replay(3))):
        assert cf.from_yaml(cf.to_yaml(config), Open) == config


def test_two_names_for_one_class_and_a_field_named_kind_are_refused():
    @dataclass(frozen=True)
    class Kind:
        kind: str = "x"

    for table, message in [({"a": Ring, "b": Ring}, "one class under two names"), ({"a": Kind}, "clashes")]:

        @dataclass(frozen=True)
        class Broken:
            env: Any = cf.choice(table, default="a")

        with pytest.raises(UsageError, match=message):
            Broken()
