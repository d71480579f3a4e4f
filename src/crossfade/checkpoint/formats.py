"""Weights in the formats of others: `torch.save` state dicts, safetensors, `.npz` and orbax, in and out.

Importers give NumPy arrays by name, exporters take arrays of any framework. Nothing is unpickled: torch files are read
with `weights_only=True` and `.npz` files with `allow_pickle=False`. Exporters refuse to overwrite.
"""

import os
import secrets
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping as Named
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError, UsageError, nearest
from . import bundle, manifest, store, tensorfile
from .folder import as_path, is_bundle, list_bundles
from .sides import giver, is_tensor, to_numpy
from .weights import Arrays, named_arrays, reading_mapping, recorded_mapping, store_once

PathLike = str | os.PathLike
ORBAX_MARKS = ("_CHECKPOINT_METADATA", "_METADATA")


# torch.save


def load_torch(path: PathLike) -> Any:
    """Whatever tensors and plain containers a file made by `torch.save` holds; nothing in it is executed."""
    import torch

    path = as_path(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: expected a file made by torch.save, got none.") from error
    except Exception as error:  # a damaged or hostile pickle can raise anything
        raise CheckpointError(
            f"{path}: expected a state dict that torch.load reads with weights_only=True, got {type(error).__name__}: "
            f"{str(error).partition(chr(10))[0][:200]}. Anything but tensors is refused: where the file is trusted, "
            f"load it with torch and save its `state_dict()`."
        ) from error


def import_torch(path: PathLike, entry: str | None = None) -> Arrays:
    """The state dict in a `.pt` file, or the one under `entry` of a file that holds several things."""
    found = load_torch(path)
    if entry is not None:
        if not isinstance(found, Named) or entry not in found:
            known = list(found) if isinstance(found, Named) else []
            raise UsageError(f"{path}: expected an entry {entry!r}, got {known}.{nearest(entry, map(str, known))}")
        found = found[entry]
    if not isinstance(found, Named) or not all(map(is_tensor, found.values())):
        inner = [k for k, v in found.items() if isinstance(v, Named)] if isinstance(found, Named) else []
        raise CheckpointError(
            f"{path}: expected a state dict of tensors only, got {_kinds(found)}."
            + (f" Choose one of its entries: --entry {inner[0]}" if inner else " Save `module.state_dict()`")
            + (f" (in Python entry={inner[0]!r}); there are {', '.join(map(str, inner))}." if inner else ".")
        )
    return {name: to_numpy(tensor, name) for name, tensor in named_arrays(found, None, str(path)).items()}


def _kinds(found: Any) -> str:
    if not isinstance(found, Named):
        return type(found).__name__
    return "a dict with " + ", ".join(f"{str(k)[:40]}: {type(v).__name__}" for k, v in list(found.items())[:8])


def export_torch(arrays: Named, path: PathLike) -> Path:
    """Writes a state dict that `torch.load(path, weights_only=True)` reads; tied weights stay tied."""
    import torch

    stored, aliases = store_once(dict(arrays))
    tensors = {name: giver("torch")(np.array(array), name) for name, array in stored.items()}
    tensors |= {name: tensors[first] for name, first in aliases.items()}
    return _write(path, lambda file: torch.save({name: tensors[name] for name in arrays}, file))


# safetensors


def import_safetensors(path: PathLike) -> Arrays:
    """The arrays of a safetensors file."""
    return tensorfile.read(store.read_bytes(path)[0], str(path))


def export_safetensors(arrays: Named, path: PathLike) -> Path:
    """Writes one safetensors file; every name is written, tied or not."""
    found = {name: to_numpy(value, name) for name, value in arrays.items()}
    return _write(path, lambda file: tensorfile.write(file, found))


# .npz


def import_npz(path: PathLike) -> Arrays:
    """The arrays of an `.npz` file."""
    path = as_path(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("a single array without a name")
            arrays = {name: file[name] for name in file.files}
        if odd := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
            raise ValueError(f"{odd[0]!r}, which is no array")
        return arrays
    except Exception as error:  # a damaged archive can raise anything
        raise CheckpointError(
            f"{path}: expected an .npz file of plain arrays, got {type(error).__name__}: {str(error)[:200]}."
        ) from error


def export_npz(arrays: Named, path: PathLike) -> Path:
    """Writes an `.npz` file (uncompressed); every name is written, tied or not."""
    found = {name: to_numpy(value, name) for name, value in arrays.items()}
    for name, array in found.items():
        if array.dtype.isbuiltin == 2:  # from ml_dtypes
            raise CheckpointError(
                f"{name}: .npz cannot hold {array.dtype}, NumPy would read back raw bytes; use safetensors or torch."
            )

    def write(file: Any) -> None:
        # np.savez takes names as keyword arguments, and so cannot write one called "file".
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            for name, array in found.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    return _write(path, write)


# orbax


def import_orbax(path: PathLike) -> Arrays:
    """The leaves of an orbax checkpoint by dotted path, in their stored dtypes whether or not JAX allows 64 bits."""
    import jax
    import orbax.checkpoint as ocp

    path = as_path(path)
    try:
        with ocp.PyTreeCheckpointer() as checkpointer:
            item = checkpointer.metadata(Path(path).absolute()).item_metadata
            as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), item.tree)
            found = checkpointer.restore(Path(path).absolute(), restore_args=as_numpy)
    except Exception as error:  # orbax and tensorstore raise many kinds
        raise CheckpointError(
            f"{path}: expected an orbax checkpoint of arrays, got {type(error).__name__}: {str(error)[:200]}."
        ) from error
    arrays: Arrays = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(found)[0]:
        name = jax.tree_util.keystr(keys, simple=True, separator=".")
        if name in arrays:
            raise CheckpointError(f"{path}: expected one leaf {name!r}, got two whose paths both read so.")
        arrays[name] = np.asarray(leaf)
    return arrays


def export_orbax(arrays: Named, path: PathLike) -> Path:
    """Writes an orbax checkpoint of the flat dict; `StandardCheckpointer().restore(path)` reads it."""
    import orbax.checkpoint as ocp

    found = {name: to_numpy(value, name) for name, value in arrays.items()}
    if empty := [name for name, array in found.items() if array.size == 0]:
        raise CheckpointError(f"{empty[0]}: orbax cannot hold an empty array; drop it, or use another format.")
    path = _new(path)
    probe = path.with_name(f"{path.name}.orbax-checkpoint-tmp-{secrets.token_hex(4)}")
    try:
        probe.mkdir(parents=True)  # where orbax cannot make its folder, its threads wait for it for minutes
        probe.rmdir()
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(path.absolute(), found)
    except Exception as error:  # orbax and tensorstore raise many kinds
        raise CheckpointError(
            f"{path}: expected to write an orbax checkpoint, got {type(error).__name__}: {str(error)[:200]}. Free some "
            f"space or choose another place."
        ) from error
    return path


# From any to any

_EXPORTERS: dict[str, tuple[str, Callable[[Named, PathLike], Path]]] = {
    "torch": (".pt", export_torch),
    "jax": (".jax.safetensors", export_safetensors),
    "safetensors": (".safetensors", export_safetensors),
    "npz": (".npz", export_npz),
    "orbax": (".orbax", export_orbax),
}
FORMATS = (*_EXPORTERS, "bundle")


def convert(source: PathLike, to: str, out: PathLike | None = None, entry: str | None = None) -> Path:
    """Writes the weights of any known file or folder in another format, and returns where.

    `source`: a bundle, a folder of bundles (its latest), a torch state dict, a safetensors or `.npz` file or an orbax
    folder, recognised by content. `to`:

        torch, safetensors, npz, orbax    weights under the names they have (torch names, from a bundle)
        jax                               safetensors under JAX paths and layouts if the bundle records a mapping,
                                          otherwise the same as safetensors
        bundle                            a folder with one bundle of step 0

    `entry` names the state dict in a torch file that holds several things, such as one with an optimiser in it.

    Without `out`, the result lies beside the source. What the target has no place for (optimiser, normaliser, key,
    replay) is named in a warning.
    """
    if to not in FORMATS:
        raise UsageError(f"expected one of {', '.join(FORMATS)}, got {to!r}.{nearest(to, FORMATS)}")
    source = as_path(source)
    suffix, export = _EXPORTERS.get(to, (".bundles", None))
    kind = recognise(source)
    if entry is not None and kind != "torch":
        raise UsageError(f"{source}: expected a torch file to take entry {entry!r} from, got a {kind}; leave it out.")
    chosen = "" if entry is None else f".{entry.replace(os.sep, '_')}"
    out = _beside(source, chosen + suffix) if out is None else as_path(out)
    if kind == to and entry is None:
        raise UsageError(f"{source}: expected something to convert, got a {to} already; copy it instead.")
    if kind == "torch":
        arrays = import_torch(source, entry)
    elif kind != "bundle":
        arrays = _IMPORTERS[kind](source)
    else:
        loaded = bundle.load(source, side="numpy")
        arrays = {**loaded.params, **loaded.buffers}
        if left := [part for part in ("optimizer", "normalizer", "key", "replay") if loaded.manifest[part] is not None]:
            warnings.warn(f"{to} holds weights only; left out: {', '.join(left)}", stacklevel=2)
        if to == "jax" and loaded.manifest["mapping"] is not None:
            mapping = recorded_mapping(loaded.manifest["mapping"], None, str(source))
            with reading_mapping(str(source)):
                arrays = mapping.leaves_to_jax({name: a for name, a in arrays.items() if name not in mapping.tied})
    return bundle.save(_new(out), params=arrays) if export is None else export(arrays, out)


def _beside(source: Path, suffix: str) -> Path:
    if not source.name:
        raise UsageError(f"{str(source)!r}: expected a name from which that of the result can be made; pass out=.")
    return source.with_name(source.stem + suffix)


_IMPORTERS: dict[str, Callable[[Path], Arrays]] = {
    "safetensors": import_safetensors,
    "npz": import_npz,
    "orbax": import_orbax,
}


def recognise(path: PathLike) -> str:
    """The format of a file or folder, from its content: bundle, torch, safetensors, npz or orbax."""
    path = as_path(path)
    try:
        if (kind := _format(path)) is not None:
            return kind
        found = "something else" if path.exists() else "nothing at that path"
    except OSError as error:
        found = f"an error: {error.strerror}"
    raise CheckpointError(
        f"{path}: expected a bundle, a folder of bundles, a torch state dict, a safetensors or .npz file or an orbax "
        f"folder, got {found}."
    )


def _format(path: Path) -> str | None:
    if path.is_dir():
        if (path / manifest.NAME).exists() or is_bundle(path) or list_bundles(path):
            return "bundle"
        return "orbax" if any((path / mark).exists() for mark in ORBAX_MARKS) else None
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        head = file.read(9)
    if head.startswith(b"PK"):
        names = _members(path)
        if any(name.endswith("/data.pkl") for name in names):
            return "torch"
        return "npz" if names and all(name.endswith(".npy") for name in names) else None
    if head.startswith(b"\x80"):  # a bare pickle, torch's format before 1.6
        return "torch"
    return "safetensors" if head[8:] == b"{" else None


def _members(path: Path) -> list[str]:
    """Names in a zip archive; none if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, struct.error):
        return []


def _new(path: PathLike) -> Path:
    path = as_path(path)
    if os.path.lexists(path):
        raise CheckpointError(f"{path}: expected a new name, got one that exists; remove it or choose another.")
    return path


def _write(path: PathLike, write: Callable[[Any], Any]) -> Path:
    """Writes a new file under a temporary name, then renames it."""
    path = _new(path)
    scratch = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(scratch, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    except (OSError, RuntimeError) as error:  # torch.save has RuntimeErrors for what goes wrong with its file
        raise CheckpointError(
            f"{path}: expected to write the file, got {error}; nothing was written. Free some space, get the right to "
            f"write there or choose another place."
        ) from error
    finally:
        with suppress(OSError):
            scratch.unlink()
    return path
