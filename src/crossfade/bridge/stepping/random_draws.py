"""Randomness of a torch function as data: what it draws from torch's generator, drawn before and given to it.

So a compiled step draws the numbers that the same loss would draw in torch, at the same place of torch's stream.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ...errors import UsageError

BY_VALUE = {
    "_standard_gamma": "from Gamma or one of its kin (Chi2, StudentT)",
    "_sample_dirichlet": "from Dirichlet or Beta",
    "poisson": "from Poisson",
    "binomial": "from Binomial",
}
PLAIN = ("normal", "uniform", "exponential", "random", "geometric", "log_normal", "cauchy")  # of numbers, not tensors


@dataclass(frozen=True)
class Draw:
    """One draw: an in-place operation on memory of one form, which gives the bits that torch would draw there."""

    operation: str
    arguments: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    generator: torch.Generator | None = None
    stride: tuple[int, ...] | None = None

    def __call__(self) -> Tensor:
        """New numbers."""
        if self.operation == "randperm":
            return torch.randperm(*self.arguments, dtype=self.dtype, generator=self.generator)
        form = {"size": self.shape, "dtype": self.dtype}
        empty = torch.empty(**form) if self.stride is None else torch.empty_strided(**form, stride=self.stride)
        return getattr(empty, self.operation)(*self.arguments, generator=self.generator)


@contextmanager
def unchanged_generators(draws: Iterable[Draw] = ()) -> Iterator[None]:
    """Leaves torch's generator, and those that some draws use, as they were."""
    own = {id(draw.generator): draw.generator for draw in draws if draw.generator is not None}.values()
    states = [(generator, generator.get_state()) for generator in own]
    with torch.random.fork_rng(devices=[]):
        yield
    for generator, state in states:
        generator.set_state(state)


@contextmanager
def no_other_draws(names_random: bool) -> Iterator[None]:
    """Refuses a loss that draws from NumPy's or Python's global generator: its program would keep the first numbers.

    names_random: whether its code names Python's; libraries that check types draw from it too.
    """
    states = np.random.get_state(), random.getstate()
    yield
    numpy_moved = any(map(np.any, map(np.not_equal, np.random.get_state(), states[0])))
    drawn = [numpy_moved, names_random and random.getstate() != states[1]]
    np.random.set_state(states[0])
    random.setstate(states[1])
    if any(drawn):
        raise UsageError(
            f"the loss draws from {'np.random' if drawn[0] else 'random'}, whose numbers would be compiled in. Draw "
            f"them by torch (torch.rand, torch.randn), or outside of the loss, and pass them in the batch."
        )


class Drawing(TorchDispatchMode):
    """Notes every draw of a function, in order. Generators of its own are left as they were."""

    def __init__(self):
        super().__init__()
        self.draws: list[Draw] = []
        self._states: dict[torch.Generator, Tensor] = {}

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for generator, state in self._states.items():
            generator.set_state(state)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (random := _Random.of(func, args, kwargs or {})) is None:
            return func(*args, **(kwargs or {}))
        draw = random.draw()
        if draw.generator is not None:
            self._states.setdefault(draw.generator, draw.generator.get_state())
        self.draws.append(draw)
        return random.result(draw())


class Drawn(TorchDispatchMode):
    """Gives a function the numbers of its draws, in order."""

    def __init__(self, numbers: Iterable[Tensor]):
        super().__init__()
        self._numbers = iter(numbers)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (random := _Random.of(func, args, kwargs or {})) is None:
            return func(*args, **(kwargs or {}))
        if (numbers := next(self._numbers, None)) is None:
            raise UsageError(
                "the loss draws more random numbers than when it was first run on such a batch. Draw them outside of "
                "it and pass them in the batch."
            )
        return random.result(numbers)


@dataclass(frozen=True)
class _Random:
    """A random operation: what it draws, and the result that follows from the numbers."""

    draw: Callable[[], Draw]
    result: Callable[[Tensor], Any]

    @classmethod
    def of(cls, func: Any, args: Any, kwargs: Any) -> "_Random | None":
        """None for an operation that draws nothing."""
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return None
        name = func._schema.name.removeprefix("aten::").removesuffix("_functional")
        given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
        made = _of_numbers(name, given) or _of_tensors(name, given) or _made(name, given)
        if made is None and name in BY_VALUE:
            raise UsageError(
                f"the loss draws {BY_VALUE[name]}, whose numbers torch finds by trying: how many it draws depends on "
                f"parameters that a compiled step does not know before. Draw without gradient outside of the loss "
                f"(sample() in the batch), or take a distribution that torch draws in one go: Normal, Kumaraswamy for "
                f"Beta, LogNormal for Gamma."
            )
        if made is None and not _is_still(name, given):
            raise UsageError(
                f"the loss draws random numbers by {func}, which cannot be drawn ahead. Draw them outside of the loss "
                f"and pass them in the batch."
            )
        return made


def _is_still(name: str, given: dict[str, Any]) -> bool:
    """Attention and noisy activations carry the tag of random operations also where they draw nothing."""
    can_be = any(word in name for word in ("dot_product", "rrelu", "dropout"))
    return can_be and not (given.get("dropout_p") or given.get("training") or given.get("train"))


def _of_numbers(name: str, given: dict[str, Any]) -> _Random | None:
    """x.normal_(mean, std), x.bernoulli_(p) and the like, and their twins that leave x as it is."""
    target = given.get("self")
    numbers = tuple(value for key, value in given.items() if key not in ("self", "generator"))
    plain = name.removesuffix("_")
    if not isinstance(target, Tensor) or any(isinstance(value, Tensor) for value in numbers):
        return None
    if plain not in PLAIN and name != "bernoulli_" and not (plain == "bernoulli" and numbers):
        return None
    form = (tuple(target.shape), target.dtype, given.get("generator"), tuple(target.stride()))
    in_place = name.endswith("_")
    return _Random(
        lambda: Draw(f"{plain}_", numbers, *form),
        lambda noise: target.copy_(noise) if in_place else noise.to(target.dtype),
    )


def _of_tensors(name: str, given: dict[str, Any]) -> _Random | None:
    """torch.normal(mean, std), torch.bernoulli(p), x.bernoulli_(p) and torch.multinomial(p, n): tensors of numbers."""
    generator: torch.Generator | None = given.get("generator")
    target: Any = given.get("self")
    match name:
        case "normal" if "mean" in given:
            mean, std = given["mean"], given.get("std", 1.0)
            tensors = [value for value in (mean, std) if isinstance(value, Tensor)]
            shape = torch.broadcast_shapes(*(value.shape for value in tensors)) if tensors else given["size"]
            dtype = tensors[0].dtype if tensors else given.get("dtype") or torch.get_default_dtype()
            draw = lambda: Draw("normal_", (0.0, 1.0), tuple(shape), dtype, generator)
            return _Random(draw, lambda noise: noise * std + mean)
        case "bernoulli" | "bernoulli_":
            chances = given.get("p", target)
            draw = lambda: Draw("uniform_", (0.0, 1.0), tuple(target.shape), chances.dtype, generator)
            if name.endswith("_"):
                return _Random(draw, lambda noise: target.copy_(noise < chances))
            return _Random(draw, lambda noise: (noise < chances).to(target.dtype))
        case "multinomial" if (count := given["num_samples"]) == 1 or not given.get("replacement", False):
            draw = lambda: Draw("exponential_", (1.0,), tuple(target.shape), target.dtype, generator)
            if count == 1:
                return _Random(draw, lambda noise: (target / noise).argmax(-1, keepdim=True))
            return _Random(draw, lambda noise: (target / noise).topk(count, -1).indices)
    return None


def _made(name: str, given: dict[str, Any]) -> _Random | None:
    """torch.rand(size), torch.randn_like(x), torch.randint(low, high, size), torch.randperm(n)."""
    if name == "randperm":
        dtype = given.get("dtype") or torch.int64
        draw = lambda: Draw("randperm", (given["n"],), (given["n"],), dtype, given.get("generator"))
        return _Random(draw, lambda noise: noise.to(dtype))
    plain, like = name.removesuffix("_like"), given.get("self")
    if plain not in ("rand", "randn", "randint"):
        return None
    default = torch.int64 if plain == "randint" else torch.get_default_dtype()
    dtype = given.get("dtype") or (default if like is None else like.dtype)
    operation = {"rand": "uniform_", "randn": "normal_", "randint": "random_"}[plain]
    numbers = (given.get("low", 0), given["high"]) if plain == "randint" else (0.0, 1.0)

    def draw() -> Draw:
        if like is None:
            return Draw(operation, numbers, tuple(given["size"]), dtype, given.get("generator"))
        stride = tuple(torch.empty_like(like).stride())
        return Draw(operation, numbers, tuple(like.shape), dtype, None, stride)

    return _Random(draw, lambda noise: noise.to(dtype))
