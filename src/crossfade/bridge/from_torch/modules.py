"""The tensors of an nn.Module by name, and stand-ins for them while the module is recorded."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters, then buffers; a tensor that several places share has the first of its names."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def tensor_at(module: nn.Module, name: str) -> Tensor | None:
    """What a parameter or buffer is at this moment."""
    path, _, own = name.rpartition(".")
    part = module.get_submodule(path)
    found = part._parameters.get(own)
    return part._buffers.get(own) if found is None else found


def modes(module: nn.Module) -> tuple[bool, ...]:
    """Which parts of the module are in training mode."""
    return tuple(part.training for part in module.modules())


@contextmanager
def replaced(modules: Iterable[nn.Module], stand_ins: Mapping[int, Tensor]) -> Iterator[None]:
    """The modules with a stand-in for each tensor, given by the tensor's id.

    Afterwards all attributes of all their parts are as before, whatever was assigned to them meanwhile.
    """
    parts = list({id(part): part for module in modules for part in module.modules()}.values())
    before = [(part, dict(part.__dict__), *map(dict, _registered(part))) for part in parts]
    try:
        for part in parts:
            for registered in _registered(part)[:2]:
                for name, old in registered.items():
                    if old is not None:
                        registered[name] = stand_ins[id(old)]
        yield
    finally:
        for part, attributes, *registers in before:
            part.__dict__.clear()
            part.__dict__.update(attributes)
            for registered, old in zip(_registered(part), registers, strict=True):
                registered.clear()
                registered.update(old)


def _registered(part: nn.Module) -> tuple[dict, dict, dict]:
    return part._parameters, part._buffers, part._modules
