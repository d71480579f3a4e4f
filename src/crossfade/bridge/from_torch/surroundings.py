"""What torch is like while code is recorded: plain kernels, no checks of values, no hooks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
import torch.nn.attention
from torch import Tensor


@contextmanager
def plain_kernels() -> Iterator[None]:
    """No fused kernels, which have no parts, and no validation of distributions, which looks at values."""
    distribution = torch.distributions.Distribution
    validate, fast = distribution._validate_args, torch.backends.mha.get_fastpath_enabled()
    mkldnn = torch._C._get_mkldnn_enabled()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        distribution._validate_args = False
        torch.backends.mha.set_fastpath_enabled(False)
        torch._C._set_mkldnn_enabled(False)  # its recurrent layers are one kernel; `flags` would warn of others
        try:
            yield
        finally:
            distribution._validate_args = validate
            torch.backends.mha.set_fastpath_enabled(fast)
            torch._C._set_mkldnn_enabled(mkldnn)


@contextmanager
def said_to_compile() -> Iterator[None]:
    """`torch.compiler.is_compiling()`: libraries then leave out branches on values, as of masks without padding."""
    compiler: Any = torch.compiler
    before = compiler._is_compiling_flag
    compiler._is_compiling_flag = True
    try:
        yield
    finally:
        compiler._is_compiling_flag = before


@contextmanager
def no_hooks(refuse: Callable[[], NoReturn]) -> Iterator[None]:
    """A hook says a derivative of its own, which no record of the forward pass has."""
    before = Tensor.register_hook
    Tensor.register_hook = lambda self, hook: refuse()
    try:
        yield
    finally:
        Tensor.register_hook = before
