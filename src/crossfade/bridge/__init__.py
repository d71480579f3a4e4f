"""Moving parameters, arrays, optimisers and whole training steps between torch and JAX."""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .from_jax.importing import import_jax as import_jax
    from .from_torch.imported import ImportedFunction as ImportedFunction, import_torch as import_torch
    from .from_torch.stream import random_stream as random_stream
    from .mapping import Mapping as Mapping
    from .matching.match import match as match
    from .matching.proof import Verification as Verification
    from .optimizers.exchange import (
        OptaxOptimizer as OptaxOptimizer,
        OptimizerState as OptimizerState,
        to_optax as to_optax,
        to_torch_optimizer as to_torch_optimizer,
    )
    from .optimizers.plateau import with_metric as with_metric
    from .optimizers.rates import with_learning_rate as with_learning_rate
    from .rules import Rule as Rule
    from .stepping.accelerating import accelerate as accelerate
    from .stepping.step import Step as Step
    from .transfer import to_jax as to_jax, to_torch as to_torch

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "ImportedFunction": "from_torch.imported",
        "Mapping": "mapping",
        "OptaxOptimizer": "optimizers.exchange",
        "OptimizerState": "optimizers.exchange",
        "Rule": "rules",
        "Step": "stepping.step",
        "Verification": "matching.proof",
        "accelerate": "stepping.accelerating",
        "import_torch": "from_torch.imported",
        "import_jax": "from_jax.importing",
        "match": "matching.match",
        "random_stream": "from_torch.stream",
        "to_jax": "transfer",
        "to_optax": "optimizers.exchange",
        "to_torch": "transfer",
        "to_torch_optimizer": "optimizers.exchange",
        "with_learning_rate": "optimizers.rates",
        "with_metric": "optimizers.plateau",
    },
)
