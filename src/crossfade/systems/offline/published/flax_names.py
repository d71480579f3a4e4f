"""Names and layouts of chongyi-zheng/infom's parameters, which are flax's, beside ours. Framework-free.

modules_critic/value_net/Dense_0/kernel (members, in, out)     critic.value_net.layers.0.weight (members, out, in)
modules_critic/value_net/LayerNorm_0/scale                     critic.value_net.norms.0.weight
modules_critic/encoder/stack_blocks_0/Conv_2/kernel, HWIO      critic.encoder.stacks.0.blocks.0.conv_1.weight, OIHW
modules_skill_critic/gc_encoder/state_encoder/...              skill_critic.encoder...
modules_encoder/Dense_0/kernel                                 encoder.encoder.mlp.layers.0.weight
modules_target_repr_center/value                               target_repr_center.array
"""

import re

import numpy as np

from ....algos.offline.encoders import Impala, ResNet34
from ....algos.offline.modules import Coder, GCActor, GCValue, Module

PREFIX = "modules_"
CODERS = ("encoder", "critic_vf_encoder")
"""Modules that are encoders themselves."""
ENCODERS = ("encoder", "state_encoder", "goal_encoder")
STAGES = ResNet34.stages
ALIKE = {"stem": "conv_init", "stem_norm": "norm_init", "shortcut": "conv_proj", "shortcut_norm": "norm_proj"}


def theirs(name: str, module: Module) -> str:
    """The flax path of a parameter of ours; `module` is the one that it belongs to."""
    owner, *parts = name.split(".")
    *parts, leaf = parts
    path = []
    if parts and parts[0] in ENCODERS:
        place, *parts = parts
        path = ["gc_encoder", "state_encoder"] if isinstance(module, GCValue | GCActor) else [place]
        path = [] if isinstance(module, Coder) else path
        impala = isinstance(getattr(module, "encoder", None), Impala)
        parts = ["MLP_0", *parts] if impala and parts[0] == "mlp" else parts
    text = ".".join(parts).replace("mlp.", "")
    text = re.sub(r"stacks\.(\d+)\.conv$", r"stack_blocks_\1.Conv_0", text)
    text = re.sub(r"stacks\.(\d+)\.blocks\.(\d+)\.conv_(\d)", _stacked, text)
    text = re.sub(r"stages\.(\d+)\.(\d+)", lambda m: f"ResNetBlock_{sum(STAGES[: int(m[1])]) + int(m[2])}", text)
    text = re.sub(r"layers\.(\d+)", r"Dense_\1", text)
    text = re.sub(r"norms\.(\d+)", r"LayerNorm_\1", text)
    text = re.sub(r"\bconv_(\d)", r"Conv_\1", text)
    text = re.sub(r"\bnorm_(\d)", r"GroupNorm_\1", text)
    *before, last = text.split(".")
    path += [*before, ALIKE.get(last, last)] if text else []
    ending = {"weight": "scale" if "norm" in last.lower() else "kernel", "array": "value"}.get(leaf, leaf)
    return "/".join([PREFIX + owner, *path, ending])


def ours(path: str) -> str:
    """Our name of a parameter, by its flax path alone; what is none of theirs keeps parts of its path."""
    owner, *parts = path.removeprefix(PREFIX).split("/")
    *parts, leaf = parts or [""]
    text = "/".join(parts).replace("gc_encoder/state_encoder", "encoder")
    if owner.removeprefix("target_") in CODERS:
        text = f"encoder/{text}"
    encoded = text.partition("/")[0] in ENCODERS
    text = re.sub(r"MLP_0/", "", text)
    text = re.sub(r"stack_blocks_(\d+)/Conv_(\d+)", _unstacked, text)
    text = re.sub(r"ResNetBlock_(\d+)", _stage, text)
    text = re.sub(r"Dense_(\d+)", r"mlp.layers.\1" if encoded else r"layers.\1", text)
    text = re.sub(r"LayerNorm_(\d+)", r"mlp.norms.\1" if encoded else r"norms.\1", text)
    text = re.sub(r"Conv_(\d)", r"conv_\1", text)
    text = re.sub(r"GroupNorm_(\d)", r"norm_\1", text)
    for own, flax in ALIKE.items():
        text = re.sub(rf"\b{flax}$", own, text)
    ending = {"kernel": "weight", "scale": "weight", "value": "array"}.get(leaf, leaf)
    return ".".join(part for part in (owner, *text.split("/"), ending) if part)


def to_ours(path: str, array: np.ndarray) -> np.ndarray:
    """An array in our layout: matrices (out, in), convolutions OIHW."""
    if not path.endswith("/kernel"):
        return array
    return array.transpose(3, 2, 0, 1) if _is_convolution(path) else array.swapaxes(-1, -2)


def to_theirs(path: str, array: np.ndarray) -> np.ndarray:
    """An array in flax's layout: matrices (in, out), convolutions HWIO."""
    if not path.endswith("/kernel"):
        return array
    return array.transpose(2, 3, 1, 0) if _is_convolution(path) else array.swapaxes(-1, -2)


def axes(path: str) -> tuple[int, ...]:
    """How many axes an array of this path may have; kernels of ensembles have one more than 2."""
    if not path.endswith("/kernel"):
        return 1, 2
    return (4,) if _is_convolution(path) else (2, 3)


def _is_convolution(path: str) -> bool:
    layer = path.split("/")[-2] if "/" in path else ""
    return layer.startswith("Conv_") or layer in ("conv_init", "conv_proj")


def _stacked(found: re.Match[str]) -> str:
    stack, block, conv = map(int, found.groups())
    return f"stack_blocks_{stack}.Conv_{1 + 2 * block + conv}"


def _unstacked(found: re.Match[str]) -> str:
    stack, conv = map(int, found.groups())
    block = f"blocks.{(conv - 1) // 2}.conv_{(conv - 1) % 2}"
    return f"stacks.{stack}.{'conv' if conv == 0 else block}"


def _stage(found: re.Match[str]) -> str:
    number, stage = int(found[1]), 0
    while stage < len(STAGES) - 1 and number >= STAGES[stage]:
        number, stage = number - STAGES[stage], stage + 1
    return f"stages.{stage}.{number}"
