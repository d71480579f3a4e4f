"""Members of a population: runs that differ in a few settings and are trained by one compiled program."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from ..errors import UsageError
from ..run.settings import RunConfig

Config = TypeVar("Config")


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """The config with traced numbers in the place of its own. They cannot be checked, nor the config hashed."""
    own = copy.copy(config)
    for name, value in values.items():
        object.__setattr__(own, name, value)
    return own


def check_members(configs: Sequence[RunConfig], varying: Sequence[str]) -> None:
    """One program serves all members only if they differ in nothing else than `varying`; `agent.alpha` names a setting
    of a part."""
    if not configs:
        raise UsageError("expected at least one config for a population, got none.")
    parts = {name.partition(".")[0] for name in varying if "." in name}
    settings = [_settings(config, parts) for config in configs]
    for own in settings[1:]:
        differing = [name for name in settings[0] | own if own.get(name) != settings[0].get(name)]
        if fixed := [name for name in differing if name not in varying]:
            raise UsageError(
                f"members of a population may differ in {', '.join(varying)}, but these differ in {', '.join(fixed)}. "
                f"Make a population for each."
            )
    for name in varying:
        if len({own.get(name) is None for own in settings}) > 1:
            raise UsageError(f"{name}: expected numbers in all members of a population, or none in all; got both.")
    if configs[0].mode != "jax_full":
        raise UsageError(f"a population is trained in mode jax_full, got mode={configs[0].mode}. Leave the mode out.")
    if configs[0].devices > 1:
        raise UsageError(f"a population is trained on one device, got devices={configs[0].devices}. Leave devices out.")


def _settings(config: Any, parts: Collection[str] = ()) -> dict[str, Any]:
    """Settings by name; of those that are `parts`, what kind they are and their own settings."""
    found: dict[str, Any] = {}
    for name in (f.name for f in fields(config)):
        value = getattr(config, name)
        inner = {f"{name}.{key}": own for key, own in _settings(value).items()} if name in parts else {}
        found |= {name: type(value) if name in parts else value, **inner}
    return found
