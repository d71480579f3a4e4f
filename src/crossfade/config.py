"""Configs are frozen dataclasses; this file sets their fields from `key=value` words and from YAML.

    @dataclass(frozen=True)
    class Train:
        env: Any = choice({"grid": "my.grid:Params", "ring": Ring}, default="grid")
        \"\"\"The world to learn in.\"\"\"
        steps: int = 5000
        \"\"\"Updates in all.\"\"\"

    apply(Train(), ["env=ring", "env.size=8", "steps=1e3"])

A field with choices is switched by name, which gives the choice's defaults; in YAML the name is the key `kind`. Where
the field allows it, a user's own class is named `module:Class`. A union of dataclasses is a field with choices too, its
names being the lower-case class names. All words are applied at once, so their
order does not matter and a config is validated (`__post_init__`) only in its final form. Precedence, lowest first:
defaults, preset, file, words. No framework is imported here.
"""

import ast
import dataclasses
import functools
import inspect
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import yaml

from .config_values import Mismatch, format_value, is_union, read_value, type_name
from .errors import UsageError, nearest
from .loading import load_attribute, theirs
from .ranges import check_value, kinds, range_of
from .reading import read_text

KIND = "kind"
NONE = "none"
MOST_LEVELS = 30  # of settings within settings, in YAML

Config = TypeVar("Config")
Choices = Mapping[str, type | str | None]
Tree = dict[str, Any]


class Row(NamedTuple):
    """One setting, as help text shows it."""

    key: str
    type: str
    default: str
    doc: str
    range: str = ""
    """The numbers that it may hold, in words; empty for what is no number."""


def choice(table: Choices | Callable[[], Choices], default: str) -> Any:
    """A field that holds one of several dataclasses, named by `table`: name -> class, "module:Class" or None.

    It may also hold a frozen dataclass of the user's own, named by its place, "module:Class".
    """

    def make() -> Any:
        cls = _load_choices(table)[default]
        return None if cls is None else cls()

    return dataclasses.field(default_factory=make, metadata={"choices": table})


def apply(config: Config, words: Iterable[str]) -> Config:
    """The config with `key=value` words applied; text is read by the annotation of the field it is meant for."""
    return _build(config, _tree_of_words(words), "", text=True)


def from_yaml(text: str, base: Config | type[Config], source: str = "YAML") -> Config:
    """`base`, a config or its class, with the settings of a YAML document applied."""
    tree = read_tree(text, source)
    try:
        return _build(base, tree, "", text=False)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{source}: expected settings in a few levels, got levels without end.") from error


def read_tree(text: str, source: str) -> Tree:
    """The settings of a YAML document as they stand there."""
    try:
        tree = yaml.load(text, _Loader)
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{source}: expected YAML, got {error}") from error  # a wrong `!!tag` can raise any of these
    if not isinstance(tree, dict | NoneType):
        raise UsageError(f"{source}: expected `key: value` lines, got {type(tree).__name__}.")
    return tree or {}


def to_yaml(config: Any) -> str:
    """Every setting, in the order of declaration; `from_yaml` gives back an equal config."""
    return yaml.dump(_tree_of_config(config), Dumper=_Dumper, sort_keys=False, width=1000)


def resolve(
    default: Config,
    *,
    presets: Mapping[str, Sequence[str]] | None = None,
    preset: str | None = None,
    file: Path | None = None,
    words: Iterable[str] = (),
) -> Config:
    """default < preset < file < words."""
    config = default
    if preset is not None:
        presets = presets or {}
        if preset not in presets:
            raise UsageError(f"unknown preset {preset!r}.{nearest(preset, presets)} Known: {_listed(presets)}.")
        config = apply(config, presets[preset])
    if file is not None:
        config = from_yaml(read_text(file, "a YAML file"), config, source=str(file))
    return apply(config, words)


def describe(config: Any, prefix: str = "") -> list[Row]:
    """Every key with its type, present value and doc: the string under the field, or `doc` in its metadata.

    Takes a config or its class. Of a field with choices, the fields of the present choice are listed.
    """
    rows = []
    for name, spot in _spots(config).items():
        key, doc = prefix + name, spot.field.metadata.get("doc") or _docs(_class(config)).get(name, "")
        if not spot.nested:
            shown = "" if spot.value is dataclasses.MISSING else format_value(spot.value)
            bounds, kind = range_of(spot.annotation), type_name(spot.type)
            allowed = "" if bounds is None else (str(bounds) or "finite") + (", or none" if "none" in kind else "")
            rows.append(Row(key, kind, shown, doc, allowed))
            continue
        if spot.choices:
            rows.append(Row(key, " | ".join(spot.choices), spot.kind(key), doc))
        if spot.value not in (None, dataclasses.MISSING):
            rows += describe(spot.value, f"{key}.")
    return rows


# Spots: the fields of a config, seen as places for values


@dataclasses.dataclass(frozen=True)
class _Spot:
    """One field of a config: its type, its present value (or class, or MISSING) and the choices it allows."""

    field: Any
    type: Any
    value: Any
    choices: dict[str, Any]
    annotation: Any
    """The type as it is declared, its range included."""

    @property
    def open(self) -> bool:
        """Whether users may bring a choice of their own."""
        return "choices" in self.field.metadata

    @property
    def nested(self) -> bool:
        return bool(self.choices) or dataclasses.is_dataclass(self.type)

    def kind(self, key: str) -> str:
        """The name of the present choice; empty while there is none."""
        if self.value is dataclasses.MISSING:
            return ""
        present = None if self.value is None else type(self.value)
        for name, cls in self.choices.items():
            if cls is present:
                return name
        if self.open and present is not None:
            return f"{present.__module__}:{present.__qualname__}"
        raise UsageError(f"{key}: expected one of {_listed(self.choices)}; got a {type(self.value).__name__}.")


def _spots(config: Any) -> dict[str, _Spot]:
    """The settable fields of a config, or of a config class with its defaults."""
    cls = _class(config)
    hints, annotations, spots = get_type_hints(cls), kinds(cls), {}
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        if config is not cls:
            value = getattr(config, field.name)
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        elif field.default is dataclasses.MISSING and dataclasses.is_dataclass(hints[field.name]):
            value = hints[field.name]
        else:
            value = field.default
        kind = hints[field.name]
        spots[field.name] = _Spot(field, kind, value, _choices(field, kind), annotations[field.name])
    return spots


def _choices(field: Any, kind: Any) -> dict[str, Any]:
    if "choices" in field.metadata:
        return _load_choices(field.metadata["choices"])
    members = get_args(kind) if is_union(kind) else ()
    if not any(dataclasses.is_dataclass(member) for member in members):
        return {}
    return {NONE if m is NoneType else m.__name__.lower(): None if m is NoneType else m for m in members}


def _load_choices(table: Any) -> dict[str, Any]:
    table = table() if callable(table) else table
    loaded = {name: load_attribute(item) if isinstance(item, str) else item for name, item in table.items()}
    if len(set(loaded.values())) < len(loaded):
        raise UsageError(f"expected a class of its own for each choice, got one class under two names: {loaded}.")
    for name, cls in loaded.items():
        if cls is not None:
            _check_fields(name, cls)
    return loaded


def _load_own(name: str, key: str) -> type:
    """The user's own class at `module:Class`."""
    cls = load_attribute(name)
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise UsageError(f"{key}: expected {name} to be a class under @dataclass(frozen=True), got {cls!r}.")
    if not cls.__dataclass_params__.frozen:  # pyright: ignore[reportAttributeAccessIssue]
        raise UsageError(f"{key}: {name} can be changed after it was made; write @dataclass(frozen=True) above it.")
    _check_fields(name, cls)
    return cls


def _check_fields(name: str, cls: Any) -> None:
    if KIND in {field.name for field in dataclasses.fields(cls)}:
        raise UsageError(f"choice {name!r}: a field named {KIND!r} clashes with the choice's own name; rename it.")


# Building a config from a tree of settings


def _build(base: Any, tree: Tree, path: str, *, text: bool) -> Any:
    """`base`, a config or a class, with the settings of `tree`; `text` says that values are words, not YAML."""
    cls, spots, changes = _class(base), _spots(base), {}
    for name, value in tree.items():
        key = f"{path}{name}"
        if name not in spots:
            raise UsageError(f"unknown key {key!r}.{_hint(key, base, path)} Known: {_listed(path + n for n in spots)}.")
        changes[name] = (_nested if spots[name].nested else _leaf)(spots[name], value, key, text)
    if base is not cls:
        return theirs(cls.__module__, f"making a {cls.__name__}", lambda: dataclasses.replace(base, **changes))
    unset = [path + n for n, spot in spots.items() if spot.value is dataclasses.MISSING and n not in changes]
    if unset:
        raise UsageError(f"{_listed(unset)}: no value given and no default; set it, for example {unset[0]}=...")
    return theirs(cls.__module__, f"making a {cls.__name__}", lambda: base(**changes))


def _leaf(spot: _Spot, value: Any, key: str, text: bool) -> Any:
    if isinstance(value, dict):
        raise UsageError(f"{key} has no fields, got {', '.join(f'{key}.{name}' for name in value)}; set {key} itself.")
    try:
        found = read_value(value, spot.type, text=text)
    except Mismatch as error:
        raise UsageError(f"{key}: {error}") from error
    check_value(key, found, spot.annotation)
    return found


def _nested(spot: _Spot, value: Any, key: str, text: bool) -> Any:
    """The new sub-config: another choice where one is named, then the settings of its own fields."""
    tree = dict(value) if isinstance(value, dict) else {KIND: value}
    base = spot.value
    if KIND in tree:
        name = tree.pop(KIND)
        name = NONE if name is None else str(name)
        if not spot.choices:
            fields = _listed(f"{key}.{n}" for n in _spots(spot.value))
            raise UsageError(f"{key} has no value of its own, got {name!r}; set its fields: {fields}.")
        base = _chosen(spot, name, key)
    if base is dataclasses.MISSING or (base is None and tree):
        others = _listed(f"{key}={name}" for name, cls in spot.choices.items() if cls is not None)
        raise UsageError(f"{key}.{next(iter(tree), '')}: {key} is none and has no fields; choose one first: {others}.")
    return None if base is None else _build(base, tree, f"{key}.", text=text)


def _chosen(spot: _Spot, name: str, key: str) -> Any:
    if name in spot.choices:
        return spot.choices[name]
    if spot.open and ":" in name:
        return _load_own(name, key)
    own = f" A class of your own is named by its place: {key}=my_module:MyClass." if spot.open else ""
    raise UsageError(
        f"{key}: unknown choice {name!r}.{nearest(name, spot.choices)} Known: {_listed(spot.choices)}.{own}"
    )


def _tree_of_words(words: Iterable[str]) -> Tree:
    """`["env=ring", "env.size=8"]` -> `{"env": {"kind": "ring", "size": "8"}}`."""
    tree: Tree = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not all(key.split(".")):
            raise UsageError(f"expected key=value, for example steps=1000; got {word!r}.")
        node, (*parents, last) = tree, key.split(".")
        for name in parents:
            child = node.setdefault(name, {})
            if not isinstance(child, dict):
                child = node[name] = {KIND: child}
            node = child
        if isinstance(node.get(last), dict):
            node, last = node[last], KIND
        if last in node:
            raise UsageError(f"{key} is given twice, as {node[last]!r} and as {value!r}; leave one out.")
        node[last] = value
    return tree


def _tree_of_config(config: Any) -> Tree:
    tree: Tree = {}
    for name, spot in _spots(config).items():
        if not spot.nested:
            tree[name] = str(spot.value) if isinstance(spot.value, Path) else spot.value
        else:
            kind = {KIND: spot.kind(name)} if spot.choices else {}
            tree[name] = kind | _tree_of_config(spot.value) if spot.value is not None else kind[KIND]
    return tree


def _hint(key: str, base: Any, path: str) -> str:
    """The nearest known key; a field of a sub-config is found by its own name too (`lr` for `optimizer.lr`)."""
    keys = [row.key for row in describe(base, path)]
    same = [known for known in keys if known.rpartition(".")[2] == key.rpartition(".")[2]]
    return f" Did you mean {same[0]!r}?" if same else nearest(key, keys)


def _class(config: Any) -> Any:
    return config if isinstance(config, type) else type(config)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


@functools.cache
def _docs(cls: type) -> dict[str, str]:
    """The string literal under each field; empty for a class typed at a prompt, whose source is not kept."""
    docs = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            tree: Any = ast.parse(textwrap.dedent(inspect.getsource(base)))  # pyright: ignore[reportArgumentType]
        except OSError:
            continue
        for field, below in pairwise(tree.body[0].body):
            literal = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if literal and isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                docs[field.target.id] = " ".join(str(below.value.value).split())  # pyright: ignore
    return docs


class _Dumper(yaml.SafeDumper):
    """Tuples on one line, each written out where it stands."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(tuple, lambda dumper, value: dumper.represent_sequence("tag:yaml.org,2002:seq", value, True))


class _Loader(yaml.SafeLoader):
    """Safe loading that refuses what settings never need.

    A key given twice, of which YAML would keep the last; keys that are no text; aliases, a few lines of which can stand
    for more values than fit into memory; and many levels.
    """

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(None, None, "an alias (*name); write the value out instead", mark)
        if self.depth == MOST_LEVELS:
            raise yaml.MarkedYAMLError(None, None, f"more than {MOST_LEVELS} levels", mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> dict:
        counts = Counter(str(key.value) for key, _ in node.value)
        if twice := sorted(key for key, count in counts.items() if count > 1):
            raise yaml.MarkedYAMLError(None, None, f"the same key twice: {', '.join(twice)}", node.start_mark)
        found = super().construct_mapping(node, deep)
        if odd := [key for key in found if not isinstance(key, str)]:
            raise yaml.MarkedYAMLError(None, None, f"a key that is no text: {odd[0]!r}; quote it", node.start_mark)
        return found
