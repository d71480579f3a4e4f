"""The tree of a robot as chains, so that few loops go over many links at once. Framework-free.

A chain is a run of links without branches: it ends where a link has no child, several, or feet. Chains of one length
that hang equally deep are a group, and computed side by side, link by link from the base outwards: of a biped that is a
torso, and two legs. Batches come last in all arrays, which is fast on CPUs: first the axes of vectors and matrices,
then that of chains, then one of length 1 for robots.
"""

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from .model import Foot, Link, RobotModel


@dataclass(frozen=True, eq=False)
class Group:
    """Chains of equal length: numbers and constants of their links."""

    links: tuple[tuple[int, ...], ...]
    """Numbers of the links, (depth, chains)."""
    parents: tuple[int, ...]
    """Of each chain the link that it hangs from: the base, or the end of a chain of an earlier group."""
    position: Float[np.ndarray, "depth 3 chains 1"]
    rotation: Float[np.ndarray, "depth 3 3 chains 1"]
    straight: bool
    """Whether every rotation is the identity."""
    axis: Float[np.ndarray, "depth 3 chains 1"]
    turn: Float[np.ndarray, "depth 3 3 chains 1"]
    """K, with K v = axis x v: a joint turns by 1 + sin(q) K + (1 - cos(q)) K^2."""
    turn2: Float[np.ndarray, "depth 3 3 chains 1"]
    """K^2."""
    damping: Float[np.ndarray, "depth chains 1"]
    armature: Float[np.ndarray, "depth chains 1"]
    lower: Float[np.ndarray, "depth chains 1"]
    upper: Float[np.ndarray, "depth chains 1"]

    @property
    def ends(self) -> tuple[int, ...]:
        """Of each chain its last link."""
        return self.links[-1]

    @property
    def joints(self) -> np.ndarray:
        """Of each link the place of its joint among all joints, (depth, chains)."""
        return np.array(self.links) - 1


@dataclass(frozen=True, eq=False)
class Masses:
    """Constants of all links: of the base, then group by group those of all chains, from the base outwards."""

    mass: Float[np.ndarray, "links 1"]
    com: Float[np.ndarray, "3 links 1"]
    inertia: Float[np.ndarray, "3 3 links 1"]


@dataclass(frozen=True, eq=False)
class Soles:
    """The spheres of the feet, by the links that carry them; links with fewer than others have some that weigh 0."""

    links: tuple[int, ...]
    position: Float[np.ndarray, "3 spheres links 1"]
    radius: Float[np.ndarray, "spheres links 1"]
    weight: Float[np.ndarray, "spheres links 1"]
    """1 for a sphere, 0 for none."""


@cache
def groups(model: RobotModel, dtype: str = "float64") -> tuple[Group, ...]:
    """The chains of a robot, parents before children; constants in this dtype."""
    if dtype != "float64":
        return tuple(_cast(group, dtype) for group in groups(model))
    chains = _chains(model)
    generation: dict[int, int] = {0: 0}
    sorted_out: dict[tuple[int, int], list[list[int]]] = {}
    for chain in chains:
        age = generation[model.links[chain[0]].parent] + 1
        generation[chain[-1]] = age
        sorted_out.setdefault((age, len(chain)), []).append(chain)
    return tuple(_group(model, sorted_out[key]) for key in sorted(sorted_out))


@cache
def masses(model: RobotModel, dtype: str = "float64") -> Masses:
    """The masses of a robot; constants in this dtype."""
    links = [model.links[0], *(model.links[number] for group in groups(model) for row in group.links for number in row)]
    table = lambda field: np.moveaxis(np.array([getattr(link, field) for link in links], dtype), 0, -1)[..., None]
    return Masses(table("mass"), table("com"), table("inertia"))


@cache
def soles(model: RobotModel, dtype: str = "float64") -> Soles:
    """The feet of a robot; constants in this dtype."""
    if dtype != "float64":
        return _cast(soles(model), dtype)
    links = sorted({foot.link for foot in model.feet})
    of_link: list[list[Foot]] = [[foot for foot in model.feet if foot.link == link] for link in links]
    most = max(map(len, of_link))
    position, radius = np.zeros((3, most, len(links), 1)), np.zeros((most, len(links), 1))
    weight = np.zeros_like(radius)
    for column, feet in enumerate(of_link):
        for row, foot in enumerate(feet):
            position[:, row, column, 0], radius[row, column, 0], weight[row, column, 0] = foot.position, foot.radius, 1
    return Soles(tuple(links), position, radius, weight)


def _chains(model: RobotModel) -> list[list[int]]:
    children = {number: 0 for number in range(len(model.links))}
    for link in model.links[1:]:
        children[link.parent] += 1
    footed = {foot.link for foot in model.feet}
    goes_on = lambda number: number > 0 and children[number] == 1 and number not in footed
    chains: list[list[int]] = []
    of_link: dict[int, list[int]] = {}
    for number, link in enumerate(model.links[1:], 1):
        if goes_on(link.parent):
            of_link[number] = of_link[link.parent]
            of_link[number].append(number)
        else:
            of_link[number] = [number]
            chains.append(of_link[number])
    return chains


def _group(model: RobotModel, chains: list[list[int]]) -> Group:
    depths = tuple(zip(*chains, strict=True))
    links = [[model.links[number] for number in row] for row in depths]

    def table(*fields: str) -> tuple[np.ndarray, ...]:
        return tuple(_constants(links, field) for field in fields)

    axis, rotation = table("axis", "rotation")
    turn = np.stack([np.cross(axis, unit, axisa=1, axisc=1) for unit in np.eye(3)], 2)
    position, damping, armature, lower, upper = table("position", "damping", "armature", "lower", "upper")
    return Group(
        links=depths,
        parents=tuple(model.links[chain[0]].parent for chain in chains),
        position=position,
        rotation=rotation,
        straight=bool(np.all(rotation[..., 0] == np.eye(3)[:, :, None])),
        axis=axis,
        turn=turn,
        turn2=np.einsum("dijcb,djkcb->dikcb", turn, turn),
        damping=damping,
        armature=armature,
        lower=lower,
        upper=upper,
    )


def _constants(links: list[list[Link]], field: str) -> np.ndarray:
    """A field of all links, (depth, *its own axes, chains, 1)."""
    return np.moveaxis(np.array([[getattr(link, field) for link in row] for row in links]), 1, -1)[..., None]


Constants = TypeVar("Constants", Group, Soles)


def _cast(constants: Constants, dtype: str) -> Constants:
    arrays = {name: value for name, value in vars(constants).items() if isinstance(value, np.ndarray)}
    return dataclasses.replace(constants, **{name: value.astype(dtype) for name, value in arrays.items()})
