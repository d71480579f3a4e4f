"""Other ways to clip gradients than torch's, tried while the torch half runs."""

import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from ...bridge.source_lines import is_search, is_users
from .trial import Trial

Clipping = tuple[str, Any, str]  # words, what is exchanged, the user's line that clips


def other_clipping(trial: Trial) -> Iterator[Clipping]:
    """Each other way, for as long as its context is entered."""
    lines: list[str] = []
    norms = _norms(trial, lines)
    if not norms:
        return
    together = float(np.linalg.norm(norms))
    kinds = {
        "clipping: JAX adds no epsilon to the norm": _clip_without_eps,
        "clipping: JAX clips each tensor by its own norm": _clip_each,
        "clipping: JAX clips each tensor by its root mean square": _clip_blocks,
        "clipping: JAX clips every number": _clip_values,
        "clipping: JAX does not clip": lambda parameters, max_norm, *_, **__: torch.zeros(()),
        "clipping: JAX divides by the norm even where it is small": _clip_always,
    }
    if len(norms) > 1:
        text = f"clipping: JAX has one norm for all, torch {len(norms)} norms"
        kinds |= {
            text: _clip_together(together, 1e-6),
            f"{text}, and JAX adds no epsilon": _clip_together(together, 0.0),
        }
    for text, function in kinds.items():
        doing = patch.object(nn.utils, "clip_grad_norm_", function)
        yield text, doing, next(iter(lines), "")


def _norms(trial: Trial, lines: list[str]) -> list[float]:
    """What torch clips by, call by call, while nothing is clipped; and the user's lines that call it."""
    norms: list[float] = []

    def see(parameters: Any, max_norm: float, *_: Any, **__: Any) -> Tensor:
        norm = _norm(_grads(list(parameters)))
        norms.append(float(norm))
        frame = sys._getframe(1)
        while frame is not None and not is_users(frame.f_code.co_filename) and not is_search(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None and is_users(frame.f_code.co_filename):
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return norm

    with patch.object(nn.utils, "clip_grad_norm_", see):
        trial.attempt()
    return norms


def _clip_together(norm: float, eps: float) -> Callable[..., Tensor]:
    def clip(parameters: Any, max_norm: float, *_: Any, **__: Any) -> Tensor:
        for g in _grads(list(parameters)):
            g.mul_(min(max_norm / (norm + eps), 1.0))
        return torch.tensor(norm)

    return clip


def _grads(parameters: Any) -> list[Tensor]:
    return [p.grad for p in ([parameters] if isinstance(parameters, Tensor) else parameters) if p.grad is not None]


def _norm(grads: list[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))


def _clip_without_eps(parameters: Any, max_norm: float, *_: Any, **__: Any) -> Tensor:
    grads = _grads(list(parameters))
    norm = _norm(grads)
    for g in grads:
        g.mul_(torch.clamp(max_norm / norm, max=1.0))
    return norm


def _clip_always(parameters: Any, max_norm: float, *_: Any, **__: Any) -> Tensor:
    grads = _grads(list(parameters))
    norm = _norm(grads)
    for g in grads:
        g.mul_(max_norm / norm)
    return norm


def _clip_each(parameters: Any, max_norm: float, *_: Any, **__: Any) -> Tensor:
    grads = _grads(list(parameters))
    for g in grads:
        g.mul_(torch.clamp(max_norm / torch.linalg.vector_norm(g), max=1.0))
    return _norm(grads)


def _clip_blocks(parameters: Any, max_norm: float, *_: Any, **__: Any) -> Tensor:
    grads = _grads(list(parameters))
    for g in grads:
        g.div_(torch.clamp(g.square().mean().sqrt() / max_norm, min=1.0))
    return _norm(grads)


def _clip_values(parameters: Any, max_norm: float, *_: Any, **__: Any) -> Tensor:
    grads = _grads(list(parameters))
    for g in grads:
        g.clamp_(-max_norm, max_norm)
    return _norm(grads)
