"""The greedy policy of a run as an ONNX model, for `crossfade convert RUN --to onnx`: observation in, action out.

The normaliser is part of the model, so that it is given what the robot sees and gives what its motors are told. What is
written is read back, checked, and compared with the network on random observations before the file is there.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ... import checkpoint
from ...errors import CheckpointError, UsageError
from ...run import RunDir
from ...run.files import write_bytes
from .config import RobotConfig

OPSET = 17
CLIP = 10.0  # of normalised observations, as nn/normalizer_*.py clips them
SAMPLES = 64
TOLERANCE = {"float32": 1e-4, "float64": 1e-12}
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class OnnxFormat:
    """Written only: an ONNX model does not hold what a run goes on from."""

    help: str
    suffix: str = "onnx"

    def open(self, path: Path) -> None:
        return None

    def to_bundle(self, found: None, folder: Path) -> tuple[Path, dict[str, Any]]:
        raise UsageError("an ONNX model holds a policy alone and cannot become a checkpoint.")

    def from_bundle(self, source: Path, out: Path) -> Path:
        return export(source, out)


FORMATS = {"onnx": OnnxFormat("ONNX, the greedy policy of a robot")}


def export(source: Path, out: Path) -> Path:
    """Writes the policy of the run whose checkpoints these are; UsageError for those of another system."""
    run = RunDir.open(source.parent)
    if run.system != "robot":
        raise UsageError(f"--to onnx: expected a run of robot, got one of {run.system}.")
    config, bundle = run.read_config(RobotConfig), checkpoint.load(source, side="numpy")
    if config.trainer != "own":
        raise UsageError(f"--to onnx: expected a run with trainer=own, got trainer={config.trainer}: other networks.")
    parameters = {**bundle.params, **bundle.buffers}
    model = build(config, parameters)
    verify(config, parameters, model)
    return write_bytes(out, model.SerializeToString())


def build(config: RobotConfig, parameters: Arrays) -> Any:
    """The ONNX model: normalise, trunk, actor, and what the world is given for its mean."""
    onnx = _onnx()
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(config.dtype))
    nodes, constants, name = [], [], "observation"

    def constant(label: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(array.astype(config.dtype)), label))
        return label

    def then(operation: str, *inputs: str, **attributes: Any) -> None:
        nonlocal name
        label = f"{operation.lower()}_{len(nodes)}"
        nodes.append(helper.make_node(operation, [name, *inputs], [label], **attributes))
        name = label

    if config.normalize_observations:
        mean, spread = _normalizer(parameters)
        then("Sub", constant("mean", mean))
        then("Div", constant("spread", spread))
        then("Clip", constant("least", np.array(-CLIP)), constant("most", np.array(CLIP)))
    layers = list(_layers(parameters))
    for i, (label, activated) in enumerate(layers):
        weight, bias = parameters[f"{label}.weight"], parameters[f"{label}.bias"]
        if i == len(layers) - 1:
            weight, bias = weight[: _joints(parameters)], bias[: _joints(parameters)]
        then("Gemm", constant(f"{label}.weight", weight), constant(f"{label}.bias", bias), transB=1)
        if activated and config.activation == "swish":
            x = name
            then("Sigmoid")
            then("Mul", x)
        elif activated:
            then({"tanh": "Tanh", "relu": "Relu"}[config.activation])
    if config.squashed:
        then("Tanh")
    else:
        then("Clip", constant("lowest", np.array(-1.0)), constant("highest", np.array(1.0)))
    nodes[-1].output[0] = "action"
    seen = _seen(parameters)
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", kind, ["n", seen])],
        [helper.make_tensor_value_info("action", kind, ["n", _joints(parameters)])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="crossfade")
    model.ir_version = 8
    return model


def verify(config: RobotConfig, parameters: Arrays, model: Any) -> float:
    """The largest difference between the model, read back, and the network; CheckpointError if that is too much."""
    onnx, reference = _onnx(), import_module("onnx.reference")
    read = onnx.load_from_string(model.SerializeToString())
    onnx.checker.check_model(read, full_check=True)
    observation = np.random.default_rng(0).normal(size=(SAMPLES, _seen(parameters)))
    observation = observation.astype(config.dtype)
    (found,) = reference.ReferenceEvaluator(read).run(None, {"observation": observation})
    away = float(np.abs(found - act(config, parameters, observation)).max())
    if not away <= TOLERANCE[config.dtype]:
        raise CheckpointError(
            f"the ONNX model gives other actions than the network, by {away:.3g}: nothing is written."
        )
    return away


def act(config: RobotConfig, parameters: Arrays, observation: Float[np.ndarray, "n o"]) -> Float[np.ndarray, "n nu"]:
    """What the greedy policy does, in NumPy."""
    x = observation
    if config.normalize_observations:
        mean, spread = _normalizer(parameters)
        x = np.clip((x - mean) / spread, -CLIP, CLIP)
    phi = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "swish": lambda x: x / (1 + np.exp(-x))}
    for label, activated in _layers(parameters):
        x = x @ parameters[f"{label}.weight"].T + parameters[f"{label}.bias"]
        x = phi[config.activation](x) if activated else x
    mean = x[:, : _joints(parameters)]
    return np.tanh(mean) if config.squashed else np.clip(mean, -1, 1)


def _layers(parameters: Arrays) -> list[tuple[str, bool]]:
    """Names of the layers from observation to action, and whether they are activated; the last gives the outputs."""
    part = lambda name: sorted(
        (key.removesuffix(".weight") for key in parameters if key.startswith(f"{name}.") and key.endswith(".weight")),
        key=lambda key: int(key.rpartition(".")[2]),
    )
    names = [*part("trunk"), *part("actor")]
    return [(name, i < len(names) - 1) for i, name in enumerate(names)]


def _seen(parameters: Arrays) -> int:
    """Numbers of an observation."""
    return parameters[f"{_layers(parameters)[0][0]}.weight"].shape[1]


def _joints(parameters: Arrays) -> int:
    """Numbers of an action: the actor's outputs, of which half are deviations where these are not free."""
    outputs = len(parameters[f"{_layers(parameters)[-1][0]}.bias"])
    return outputs if "log_std" in parameters else outputs // 2


def _normalizer(parameters: Arrays) -> tuple[np.ndarray, np.ndarray]:
    mean, var = parameters["normalizer.mean"], parameters["normalizer.var"]
    return mean, np.sqrt(var + mean.dtype.type(1e-8))


def _onnx() -> Any:
    try:
        return import_module("onnx")
    except ModuleNotFoundError as error:
        raise UsageError("--to onnx needs ONNX: pip install 'crossfade[onnx]'.") from error
