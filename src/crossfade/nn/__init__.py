"""Equinox layers with exactly torch's parameters, where Equinox's own differ; everything else is Equinox's.

`NoisyLinear`, which torch lacks, has its torch twin in `crossfade.nn.noisy_torch`.
"""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from .batchnorm_jax import BatchNorm as BatchNorm, BatchStats as BatchStats
    from .conv_jax import Conv1d as Conv1d, Conv2d as Conv2d
    from .noisy_jax import NoisyLinear as NoisyLinear
    from .recurrent_jax import GRUCell as GRUCell, LSTMCell as LSTMCell

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "BatchNorm": "batchnorm_jax",
        "BatchStats": "batchnorm_jax",
        "Conv1d": "conv_jax",
        "Conv2d": "conv_jax",
        "GRUCell": "recurrent_jax",
        "LSTMCell": "recurrent_jax",
        "NoisyLinear": "noisy_jax",
    },
)
