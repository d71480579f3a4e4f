"""Is everything here that crossfade needs?"""

import importlib.metadata
import platform
from typing import Any

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
