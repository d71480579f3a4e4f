"""The environments by name: strings only, so that listing them imports no framework."""

from dataclasses import dataclass
from typing import Any

from ...errors import UsageError, nearest
from ...loading import load_attribute


@dataclass(frozen=True)
class Entry:
    """Where an environment lives: the package `crossfade.envs.dag.<package>` and the name its classes share."""

    help: str
    package: str
    stem: str
    """The twins are the modules `<stem>_numpy` and `<stem>_jax`."""
    name: str
    """The twins' class; its params are `<name>Params` in the module `params`."""


ENVS = {
    "grid": Entry("upstream's grid: Gaussian corners, increments and dimensions per action", "grid", "grid", "Grid"),
    "hypergrid": Entry("corners, cosine, deceptive and sparse rewards", "hypergrid", "hypergrid", "Hypergrid"),
    "toy": Entry("upstream's graph of eleven nodes", "toy", "toy", "Toy"),
    "set": Entry("sets built item by item", "set_addition", "set_addition", "SetAddition"),
    "bits": Entry(
        "bit sequences near hidden modes, written in any of three orders", "words", "bit_sequence", "BitSequence"
    ),
    "sequence": Entry("fixed-length sequences over a landscape, synthetic or yours", "words", "sequence", "Sequence"),
    "ising": Entry("spins on a torus, set in any order", "words", "ising", "Ising"),
    "bayesnet": Entry("structures of Bayesian networks, scored on data", "bayesnet", "bayesnet", "BayesNet"),
    "phylo": Entry("phylogenetic trees under parsimony", "phylo", "phylo", "Phylo"),
}
"""Discrete environments, which keep the protocol of base_numpy.py."""

CONTINUOUS = {
    "cube": Entry("points of a cube, Gaussian corners", "cube", "cube", "Cube"),
    "torus": Entry("angles in a fixed number of turns", "torus", "torus", "Torus"),
}
"""Continuous environments, which keep the protocol of continuous_numpy.py."""

ALL = ENVS | CONTINUOUS


def params_class(name: str) -> type:
    """The params dataclass of the named environment; of one's own, named `module:Class`."""
    return load_attribute(name if ":" in name else _place(_entry(name), "params", "Params"))


def make(params: Any, framework: str) -> Any:
    """The environment these params describe, in the given framework: "numpy" or "jax".

    A user's own params say where their twins are: `numpy = "my_env:LineNumpy"` and `jax = "my_env:LineJax"`, attributes
    of the class and not fields.
    """
    if framework not in ("numpy", "jax"):
        raise UsageError(f"unknown framework {framework!r} for an environment: 'numpy' or 'jax' expected.")
    return load_attribute(_twin(type(params), framework))(params)


def _twin(cls: type, framework: str) -> str:
    """The place of a twin: as the params class says, or as registered."""
    if isinstance(own := getattr(cls, framework, None), str):
        return own
    for entry in ALL.values():
        if f"{cls.__module__}:{cls.__qualname__}" == _place(entry, "params", "Params"):
            return _place(entry, f"{entry.stem}_{framework}")
    raise UsageError(
        f"no environment is registered for params of type {cls.__name__}. Expected one of "
        f"{', '.join(f'{entry.name}Params' for entry in ALL.values())}; your own class says where its twins are: "
        f'{framework} = "my_module:MyClass".'
    )


def _entry(name: str) -> Entry:
    if name not in ALL:
        raise UsageError(f"unknown environment {name!r}.{nearest(name, ALL)} Known: {', '.join(ALL)}.")
    return ALL[name]


def _place(entry: Entry, module: str, suffix: str = "") -> str:
    return f"{__package__}.{entry.package}.{module}:{entry.name}{suffix}"
