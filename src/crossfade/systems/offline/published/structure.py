"""Which agent parameters belong to, and of which sizes, by their names and shapes alone. Framework-free."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from ....algos.offline.agent import Agent, Sizes
from ....algos.offline.config import AGENTS
from ....algos.offline.encoders import Impala, encoder
from ....algos.offline.modules import Module
from ....algos.offline.parameters import laws
from ....errors import CheckpointError
from ....loading import load_attribute
from ....nn.initial import Shape

IMPALAS = ("impala", "impala_small", "impala_large", "impala_debug")
SIDE = 64
"""Height and width of images where parameters do not depend on it."""
ADVICE = "Agents of the published code have networks of one list of widths (value, actor and reward alike)."


class Structure(NamedTuple):
    """An agent and its sizes."""

    name: str
    agent: Agent
    sizes: Sizes

    @property
    def modules(self) -> dict[str, Module]:
        return self.agent.modules(self.sizes)

    @property
    def words(self) -> list[str]:
        """The settings of a config that such parameters fit."""
        said = [f"agent={self.name}", f"hidden={','.join(map(str, self.sizes.widths))}"]
        own = vars(self.agent)
        if "latent_dim" in own:
            said.append(f"agent.latent_dim={own['latent_dim']}")
        if own.get("value_layer_norm") is not None:
            said.append(f"agent.value_layer_norm={str(own['value_layer_norm']).lower()}")
        if self.sizes.encoder is not None:
            said.append(f"encoder={self.sizes.encoder}")
        if self.sizes.encoder == "mlp":
            said.append(f"encoder_hidden={','.join(map(str, self.sizes.encoder_widths))}")
        return said if self.sizes.const_std else [*said, "const_std=false"]


def structure(shapes: Mapping[str, Shape], label: str) -> Structure:
    """The agent whose parameters have these names and shapes, checked one by one."""
    name, agent = _agent({key.split(".")[0] for key in shapes}, label)
    found = _Found(shapes, label)
    actor = agent.actor
    changes: dict[str, object] = {}
    if hasattr(agent, "latent_dim"):
        changes["latent_dim"] = found.last(_latent_place(name, found))
    if hasattr(agent, "value_layer_norm"):
        changes["value_layer_norm"] = "critic.value_net.norms.0.weight" in shapes
    agent = replace(agent, **changes)
    kind, observation, encoder_widths = _encoder(found)
    if observation is None:
        inputs = found.shape(f"{actor}.actor_net.layers.0.weight")[-1]
        observation = (inputs - (int(str(changes["latent_dim"])) if agent.infers_latent else 0),)
    sizes = Sizes(
        observation,
        found.last(f"{actor}.mean_net.bias"),
        1,
        found.widths(f"{actor}.actor_net.layers"),
        kind,
        encoder_widths,
        "r2026-05",
        f"{actor}.log_stds" not in shapes,
        (),
    )
    result = Structure(name, agent, sizes)
    if observation[0] < 1:
        raise CheckpointError(f"{label}: expected an actor that reads observations, got none. {ADVICE}")
    _check(shapes, result, label)
    return result


class _Found(NamedTuple):
    """Shapes that are asked for by name."""

    shapes: Mapping[str, Shape]
    label: str

    def shape(self, name: str) -> Shape:
        if name not in self.shapes or 0 in self.shapes[name] or not self.shapes[name]:
            got = self.shapes.get(name, "nothing")
            raise CheckpointError(f"{self.label}: {name}: expected an array with numbers, got {got}. {ADVICE}")
        return self.shapes[name]

    def last(self, name: str) -> int:
        return self.shape(name)[-1]

    def widths(self, prefix: str) -> tuple[int, ...]:
        """The widths of the layers of an MLP."""
        count = sum(re.fullmatch(rf"{re.escape(prefix)}\.\d+\.bias", name) is not None for name in self.shapes)
        return tuple(self.last(f"{prefix}.{i}.bias") for i in range(max(count, 1)))


def _agent(modules: set[str], label: str) -> tuple[str, Agent]:
    """The agent with just these modules."""
    for name, place in AGENTS.items():
        agent = load_attribute(place)()
        for kind in (None, "mlp"):
            sizes = Sizes((1,), 1, 1, (1,), kind, (1,), "r2026-05", True, ())
            if (kind or not agent.needs_encoder) and set(agent.modules(sizes)) == modules:
                return name, agent
    known = ", ".join(sorted(modules))[:200]
    raise CheckpointError(f"{label}: expected the modules of one of {', '.join(AGENTS)}, got {known}.")


def _latent_place(name: str, found: _Found) -> str:
    """A parameter whose last axis is the latent."""
    last = lambda prefix: f"{prefix}.{len(found.widths(prefix)) - 1}.bias"
    match name:
        case "infom":
            return "intention_encoder.mean_net.bias"
        case "fb_repr":
            return last("backward_repr.value_net.layers")
        case "hilp":
            return last("value.phi.layers")
        case _:
            return last("critic.phi.layers")


def _encoder(found: _Found) -> tuple[str | None, Shape | None, tuple[int, ...]]:
    """Its name, the shape of observations, and its widths if it is an MLP; None where there is no encoder."""
    places = [re.match(r"\w+\.(?:encoder|state_encoder)\.", name) for name in found.shapes]
    if not (heads := [match[0] for match in places if match is not None]):
        return None, None, (1,)
    head = heads[0]
    if f"{head}stem.weight" in found.shapes:
        return "resnet_34", (SIDE, SIDE, found.shape(f"{head}stem.weight")[1] - 2), (1,)
    if f"{head}stacks.0.conv.weight" not in found.shapes:
        widths = found.widths(f"{head}mlp.layers")
        return "mlp", (found.last(f"{head}mlp.layers.0.weight"),), widths
    return _impala(found, head)


def _impala(found: _Found, head: str) -> tuple[str, Shape, tuple[int, ...]]:
    """The variant by its convolutions, and an image that leaves as many numbers as its last layer reads."""
    channels = found.shape(f"{head}stacks.0.conv.weight")[1]
    names = {name.removeprefix(head) for name in found.shapes if name.startswith(head)}
    for kind in IMPALAS:
        spec = encoder(kind, (SIDE, SIDE, channels))
        assert isinstance(spec, Impala)
        same = lambda name, law: name.startswith("mlp.") or found.shapes.get(head + name) == law[1]
        if set(spec.laws) == names and all(same(name, law) for name, law in spec.laws.items()):
            cells, factor = found.last(f"{head}mlp.layers.0.weight") // spec.stacks[-1], 2 ** len(spec.stacks)
            height = next((n for n in range(math.isqrt(cells), 0, -1) if cells % n == 0), 1)
            return kind, (height * factor, cells // height * factor, channels), (1,)
    raise CheckpointError(f"{found.label}: {head}stacks: expected one of {', '.join(IMPALAS)}, got other convolutions.")


def _check(shapes: Mapping[str, Shape], found: Structure, label: str) -> None:
    expected = {name: shape for name, (_, shape) in laws(found.modules).items()}
    if missing := [name for name in expected if name not in shapes]:
        raise CheckpointError(f"{label}: {missing[0]}: expected it in {found.name}, got nothing. {ADVICE}")
    if more := [name for name in shapes if name not in expected]:
        raise CheckpointError(f"{label}: {more[0]}: expected no such parameter in {found.name}, got one. {ADVICE}")
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise CheckpointError(
                f"{label}: {name}: expected {shape} by the sizes of the actor, got {shapes[name]}. {ADVICE}"
            )
