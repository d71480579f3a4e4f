"""Moving parameters, arrays, optimisers and whole training steps between torch and JAX."""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .accelerating import accelerate as accelerate
    from .from_jax.importing import import_jax as import_jax
    from .from_torch.imported import ImportedFunction as ImportedFunction, import_torch as import_torch
    from .from_torch.stream import random_stream as random_stream
    from .mapping import Mapping as Mapping
    from .matching import match as match
    from .optimizers import (
        OptaxOptimizer as OptaxOptimizer,
        OptimizerState as OptimizerState,
        to_optax as to_optax,
        to_torch_optimizer as to_torch_optimizer,
    )
    from .plateau import with_metric as with_metric
    from .proof import Verification as Verification
    from .rates import with_learning_rate as with_learning_rate
    from .rules import Rule as Rule
    from .step import Step as Step
    from .transfer import to_jax as to_jax, to_torch as to_torch

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "ImportedFunction": "from_torch.imported",
        "Mapping": "mapping",
        "OptaxOptimizer": "optimizers",
        "OptimizerState": "optimizers",
        "Rule": "rules",
        "Step": "step",
        "Verification": "proof",
        "accelerate": "accelerating",
        "import_torch": "from_torch.imported",
        "import_jax": "from_jax.importing",
        "match": "matching",
        "random_stream": "from_torch.stream",
        "to_jax": "transfer",
        "to_optax": "optimizers",
        "to_torch": "transfer",
        "to_torch_optimizer": "optimizers",
        "with_learning_rate": "rates",
        "with_metric": "plateau",
    },
)
