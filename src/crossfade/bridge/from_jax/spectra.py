"""The rule of Fourier transforms."""

import torch
from jax.extend.core import JaxprEqn
from jax.lax import FftType

from .elementwise import Rule, Run


def _fft(eqn: JaxprEqn) -> Run:
    """Over the last axes, as many as there are lengths."""
    lengths = tuple(eqn.params["fft_lengths"])
    dim = tuple(range(-len(lengths), 0))
    match FftType(eqn.params["fft_type"]):
        case FftType.FFT:
            return lambda x: torch.fft.fftn(x, dim=dim)
        case FftType.IFFT:
            return lambda x: torch.fft.ifftn(x, dim=dim)
        case FftType.RFFT:
            return lambda x: torch.fft.rfftn(x, dim=dim)
        case FftType.IRFFT:
            return lambda x: torch.fft.irfftn(x, lengths, dim=dim)


RULES: dict[str, Rule] = {"fft": _fft}
