"""What a continuous GFlowNet starts from: settings that make sense for it, and the same parameters in both frameworks.

The networks are those of the discrete GFlowNet. Only the width of a head differs: for each dimension and each component
of its mixture a logit of the component's weight and two raw parameters of its density, then one logit of a jump.
"""

from typing import Any, NamedTuple

import numpy as np

from ....envs.dag.cube.params import CubeParams
from ....envs.dag.torus.params import TorusParams
from ....errors import UsageError
from .. import initial_parameters
from ..config import GFlowNetConfig
from .batch import Kind

ASKED = {  # of these settings a continuous world knows only the values named
    "loss": ("tb", "vargrad", "db", "subtb", "fldb"),
    "backward": ("shared", "learned", "fixed"),
    "backward_logits": ((),),
    "objective": ("sampled",),
    "replay_batch": (0,),
    "data_batch": (0,),
    "temperature": (1.0,),
    "execution": ("auto", "dense"),
    "legacy_double_step": (False,),
    "legacy_finished_mask": (False,),
    "legacy_untied_trunk": (False,),
}


class Sizes(NamedTuple):
    """What the discrete GFlowNet asks of an environment to size its networks."""

    observation_dim: int
    n_actions: int
    n_parents: int


def check(config: GFlowNetConfig) -> None:
    """Refuses settings that mean nothing in a continuous world."""
    for name, values in ASKED.items():
        if (value := getattr(config, name)) not in values:
            raise UsageError(
                f"{name}={value}: {type(config.env).__name__.removesuffix('Params').lower()} is continuous, and there "
                f"{name} can only be {' or '.join(map(str, values))}. Leave it out, or choose a discrete environment."
            )


def density(params: Any) -> Kind:
    """The density of a ratio that suits an environment: one on a circle for angles, else one on an interval."""
    if isinstance(params, CubeParams):
        return "beta"
    if isinstance(params, TorusParams):
        return "von_mises"
    raise UsageError(f"expected CubeParams or TorusParams, got {type(params).__name__}: use a discrete GFlowNet there.")


def n_outputs(n_dim: int, components: int) -> int:
    """Width of a head: d, c and (weight logit, raw a, raw b) in this order, then the logit of a jump."""
    return n_dim * components * 3 + 1


def parameters(config: GFlowNetConfig, env: Any, key: np.ndarray, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Drawn by the law of the discrete GFlowNet, under the same names."""
    width = n_outputs(env.params.n_dim, config.components)
    return initial_parameters.parameters(config, Sizes(env.params.observation_dim, width, width), key, dtype)
