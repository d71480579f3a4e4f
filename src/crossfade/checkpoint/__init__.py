"""The neutral checkpoint: one bundle that plain torch, plain JAX and plain NumPy can open.

Importing this package, and saving or loading NumPy arrays with it, imports neither torch nor jax.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .bundle import Bundle as Bundle, load as load, save as save
    from .folder import latest as latest, list_bundles as list_bundles
    from .formats import (
        FORMATS as FORMATS,
        convert as convert,
        export_npz as export_npz,
        export_orbax as export_orbax,
        export_safetensors as export_safetensors,
        export_torch as export_torch,
        import_npz as import_npz,
        import_orbax as import_orbax,
        import_safetensors as import_safetensors,
        import_torch as import_torch,
    )

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "Bundle": "bundle",
        "FORMATS": "formats",
        "convert": "formats",
        "export_npz": "formats",
        "export_orbax": "formats",
        "export_safetensors": "formats",
        "export_torch": "formats",
        "import_npz": "formats",
        "import_orbax": "formats",
        "import_safetensors": "formats",
        "import_torch": "formats",
        "latest": "folder",
        "list_bundles": "folder",
        "load": "bundle",
        "save": "bundle",
    },
)
