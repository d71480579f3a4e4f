"""Is everything here that crossfade needs, do the user's own two models match, does their environment keep its word?"""

import importlib.metadata
import platform
import re
from typing import TYPE_CHECKING, Any

from .errors import UsageError

if TYPE_CHECKING:
    from .bridge import Mapping
    from .parity import Report

EXTRAS = {
    "torch": ("torch",),
    "jax": ("jax", "jaxlib", "equinox", "optax"),
    "flax": ("flax",),
    "haiku": ("dm-haiku",),
    "orbax": ("orbax-checkpoint",),
    "report": ("matplotlib", "tensorboard"),
}


def environment() -> dict[str, Any]:
    """Versions, devices, precision and missing extras."""
    versions = {name: _version(name) for name in ("crossfade", "numpy", "safetensors", *sum(EXTRAS.values(), ()))}
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "versions": versions,
        "missing_extras": [extra for extra, needs in EXTRAS.items() if not all(versions[n] for n in needs)],
    }
    if versions["torch"]:
        import torch

        devices = ["cpu"] + [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        found["torch"] = {
            "devices": devices,
            "threads": torch.get_num_threads(),
            "dtype": str(torch.get_default_dtype()),
        }
    if versions["jax"]:
        import jax

        found["jax"] = {
            "devices": [str(device) for device in jax.devices()],
            "x64": bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
            "compilation_cache": jax.config.jax_compilation_cache_dir,  # pyright: ignore[reportAttributeAccessIssue]
        }
    return found


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def print_environment(found: dict[str, Any]) -> int:
    """Prints what `environment` found; 1 when a framework is missing."""
    print(f"{'python':<22} {found['python']}")
    for name, version in found["versions"].items():
        print(f"{name:<22} {version or 'not installed'}")
    for framework in ("torch", "jax"):
        for what, value in found.get(framework, {}).items():
            print(f"{framework + ' ' + what:<22} {', '.join(value) if isinstance(value, list) else value}")
    for extra in found["missing_extras"]:
        print(f"missing extra          {extra}: pip install 'crossfade[{extra}]'")
    return 1 if {"torch", "jax"} & set(found["missing_extras"]) else 0


def sort(targets: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Of what the user names: the environments by name, and all the rest, which are models."""
    from .envs.dag.params import Params
    from .envs.dag.registry import ALL, params_class
    from .loading import load_attribute

    environments = {}
    for target in targets:
        value = params_class(target) if target in ALL else load_attribute(target)
        if isinstance(value, type) and issubclass(value, Params):
            value = value()
        if isinstance(value, Params):
            environments[target] = value
    return environments, tuple(target for target in targets if target not in environments)


def examine_environment(params: Any) -> dict[str, Any]:
    """The sizes of an environment, and every promise it breaks, in words."""
    from .envs.dag import conformance
    from .envs.dag.registry import make

    sizes = ("n_actions", "n_parents", "max_steps", "observation_dim", "n_states")
    problems = conformance.check(make(params, "numpy"), make(params, "jax"))
    return {"params": str(params), **{size: getattr(params, size) for size in sizes}, "problems": problems}


def print_environments(found: dict[str, dict[str, Any]]) -> None:
    """What `examine_environment` found, environment by environment."""
    for report in found.values():
        states = "states not numbered" if report["n_states"] is None else f"{report['n_states']} states"
        print(report["params"])
        print(
            f"  {report['n_actions']} actions, {report['n_parents']} backward actions, trajectories of at most "
            f"{report['max_steps']} steps, {states}"
        )
        for problem in report["problems"]:
            print(f"  BROKEN  {problem}")
        if not report["problems"]:
            print("  well: both twins keep the protocol, and they are equal")


def examine(
    models: tuple[str, ...], inputs: tuple[str, ...], jax_inputs: tuple[str, ...]
) -> "list[tuple[Mapping, Report]]":
    """Matches each torch/JAX pair and proves the match, level by level as far as the models alone allow."""
    import torch

    from . import bridge, parity
    from .loading import load_attribute

    if len(models) % 2:
        raise UsageError(
            f"expected pairs of MODULE:ATTR, torch then JAX; got {len(models)}: {', '.join(models)}. "
            f"An environment is named by its params."
        )
    pairs = list(zip(models[::2], models[1::2], strict=True))
    reports = []
    for (torch_name, jax_name), example, jax_example in zip(
        pairs, _one_each(inputs, len(pairs), "--input"), _one_each(jax_inputs, len(pairs), "--jax-input"), strict=True
    ):
        module = load_attribute(torch_name, torch.nn.Module)
        model = _jax_model(load_attribute(jax_name))
        x = _example(example, module)
        jax_x = None if jax_example is None else bridge.to_jax(_example(jax_example, module))
        mapping = bridge.match(module, model, x, jax_example=jax_x)
        call = mapping.opened.call
        twin = parity.Twin(
            name=f"{torch_name} = {jax_name}",
            torch=module,
            jax=model,
            mapping=mapping,
            batch={"torch": x, "jax": x if jax_x is None else jax_x},
            forward=(lambda m, b: m(*_args(b["torch"])), lambda m, b, call=call: call(m, b["jax"])),
        )
        reports.append((mapping, parity.check(twin, levels="forward")))
    return reports


def _one_each(values: tuple[str, ...], n: int, flag: str) -> list[str | None]:
    if len(values) not in (0, 1, n):
        raise UsageError(f"expected one {flag} for all pairs or one for each of {n}; got {len(values)}.")
    return list(values) if len(values) == n else [values[0] if values else None] * n


def _args(x: Any) -> tuple:
    return x if isinstance(x, tuple) else (x,)


def _jax_model(value: Any) -> Any:
    """A model as it is, or what a class or function makes of no arguments."""
    from .bridge.libraries import open_model

    try:
        open_model(value)
    except UsageError:
        if not callable(value):
            raise
        return value()
    return value


def _example(text: str | None, module: Any) -> Any:
    """The torch input: drawn for a shape such as 4x8, loaded from MODULE:ATTR, or guessed from the first layer."""
    import torch

    from .loading import load_attribute

    if text and ":" in text:
        value = load_attribute(text)
        return value() if callable(value) and not isinstance(value, torch.Tensor) else value
    if text:
        if not re.fullmatch(r"\d+(x\d+)*", text):
            raise UsageError(f"expected a shape such as 4x8 or MODULE:ATTR, got {text!r}.")
        shape = tuple(int(n) for n in text.split("x"))
    else:
        first = next((m for m in module.modules() if isinstance(m, torch.nn.Linear | torch.nn.Embedding)), None)
        if first is None or not isinstance(first, torch.nn.Linear) or first is not _first_layer(module):
            raise UsageError(
                "cannot tell the input from the model's first layer. Say it: --input 4x8, or --input MODULE:ATTR."
            )
        shape = (4, first.in_features)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _first_layer(module: Any) -> Any:
    return next((m for m in module.modules() if next(m.parameters(recurse=False), None) is not None), None)
