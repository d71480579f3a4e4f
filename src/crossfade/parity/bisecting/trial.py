"""Trial: the torch half at one level, run again and again with something changed, against what the JAX half gave."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from ...bridge.libraries import named_leaves
from ...bridge.mapping import Mapping as Names
from ...verdict import elementwise, largest, scale
from ..arrays import leaves, precision, torch_tree
from ..levels import Levels, program_of
from ..side_torch import Quantities, TorchSide, split_info
from ..twin import Twin
from ..weights import Weights
from .equations import Program, record, trace
from .points import Point
from .watching import Change, Watch

SAME = 1e-9  # of a leaf's scale: a difference that has vanished
MOST = 1000  # runs of one part of a search
PATIENCE = 60.0  # seconds of a processor: then nothing more is tried
NEVER = 1_000_000
Leaf = tuple[str, str]  # quantity and name


class WatchedSide(TorchSide):
    """The torch half under a watch."""

    def __init__(self, twin: Twin, mapping: Names, batches: Callable[[int], Any], watch: Watch):
        super().__init__(twin, mapping, "float64")
        self.watch, self.batches = watch, batches
        self.results: dict[Leaf, Any] = {}  # tensors by the names of what is compared
        self.module: nn.Module | None = None

    @property
    def batch(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._batch_at(0)

    def _batch_at(self, i: int) -> Any:
        with self.watch.paused():
            tree = jax.tree.map(torch.clone, self.batches(i))
        self.watch.name_batch(tree)
        return tree

    def _module(self, weights: Weights) -> nn.Module:
        with self.watch.paused():
            self.module = super()._module(weights)
        self.watch.name_module(self.module)
        return self.module

    def forward(self, weights: Weights) -> Quantities:
        module, own = self._module(weights), self.twin.half("forward", "torch")
        inputs = None if own is not None else torch_tree(self.twin.inputs, self.dtype)
        self.watch.name_batch(inputs)
        with torch.no_grad():
            if own is not None:
                found = own(module, self.batch)
            else:
                found = module(*inputs) if isinstance(inputs, tuple) else module(inputs)
        return self._told({"output": (found, "output")})

    def loss(self, weights: Weights) -> Quantities:
        value, info = split_info(self.twin.half("loss", "torch")(self._module(weights), self.batch))
        return self._told({"loss": (value, "loss")} | ({} if info is None else {"info": (info, "")}))

    def _state(self, module: nn.Module) -> Weights:
        with self.watch.paused():
            return super()._state(module)

    def _metrics(self, metrics: Any) -> Weights:
        return self._told({"metrics": (metrics, "")})["metrics"]

    def _moments(self, optimizer: torch.optim.Optimizer | None, module: nn.Module) -> Quantities:
        with self.watch.paused():
            return super()._moments(optimizer, module)

    def _told(self, parts: dict[str, tuple[Any, str]]) -> Quantities:
        with self.watch.paused():
            for quantity, (tree, root) in parts.items():
                names = {".".join(filter(None, (root, path))): leaf for path, leaf in named_leaves(tree).items()}
                self.results |= {(quantity, name): leaf for name, leaf in names.items()}
            return {quantity: leaves(tree, root) for quantity, (tree, root) in parts.items()}


class Trial:
    """Both halves of a twin at one level, in float64."""

    def __init__(self, twin: Twin, mapping: Names, level: str, steps: tuple[int, ...] = (1,)):
        self.twin, self.mapping, self.level, self.steps = twin, mapping, level, steps
        self.levels = Levels(twin, mapping, "float64", steps)
        self.weights = self.levels.weights
        self.runs = 0
        self.began = time.process_time()
        self.refused: Counter[str] = Counter()  # changes that could not be run, by the error that they raised
        self._batches: dict[int, Any] = {}
        if twin.torch is not None:
            self.levels.torch.frozen = {name for name, p in twin.torch.named_parameters() if not p.requires_grad}
        with precision("float64"):
            self.expected: Quantities = self.levels.call("jax", level, self.weights)
        self.ignored = set(self.levels.rounding_only()) if level.startswith("update") else set()

    def run(
        self,
        changes: Mapping[int, Change] | None = None,
        *,
        write: bool = False,
        weights: Weights | None = None,
        batches: Callable[[Any], Any] | None = None,
        twin: Twin | None = None,
        watch: Watch | None = None,
    ) -> tuple[Quantities, WatchedSide]:
        """The torch half with some calls, weights, batches or fields of the twin changed."""
        self.runs += 1
        watch = Watch(changes, write=write) if watch is None else watch
        give = self._batch if batches is None else lambda i: batches(self._batch(i))
        side = WatchedSide(self.twin if twin is None else twin, self.mapping, give, watch)
        extra = (self.steps,) if self.level == "updates" else ()
        with precision("float64"), torch.enable_grad(), watch:
            found = getattr(side, self.level)(dict(self.weights if weights is None else weights), *extra)
        return found, side

    def attempt(
        self, changes: Mapping[int, Change] | None = None, **others: Any
    ) -> tuple[Quantities, WatchedSide] | None:
        """`run`, or None where the change cannot be run: it may make the user's code raise anything."""
        if self.is_over:
            return None
        try:
            return self.run(changes, **others)
        except Exception as error:
            self.refused[type(error).__name__] += 1
            return None

    @property
    def is_over(self) -> bool:
        """Whether the search has taken so long that it is to end with what it knows."""
        return time.process_time() - self.began > PATIENCE

    def heals(self, changes: Mapping[int, Change] | None = None, **others: Any) -> bool:
        """Whether the difference vanishes with a change."""
        return self.left(changes, **others) == 0

    def left(self, changes: Mapping[int, Change] | None = None, **others: Any) -> int:
        """How much still differs with a change; very much when it cannot be run."""
        if self.runs > MOST or self.is_over:
            return NEVER
        done = self.attempt(changes, **others)
        return NEVER if done is None else len(self.differences(done[0]))

    def differences(self, found: Quantities, expected: Quantities | None = None) -> list[Leaf]:
        """What differs from the JAX half, or from what it might give."""
        apart: list[Leaf] = []
        expected = self.expected if expected is None else expected
        for quantity in (*found, *(name for name in expected if name not in found)):
            ours, theirs = found.get(quantity, {}), expected.get(quantity)
            if theirs is None or quantity not in found:
                if self.levels.jax.unread is None:
                    apart.append((quantity, ""))
                continue
            floor = max(1e-14, 1e-12 * largest(ours, theirs))
            if quantity.startswith("change"):
                floor = max(floor, SAME * largest(self.weights))
            for name in (*ours, *(name for name in theirs if name not in ours)):
                if name in self.ignored and quantity.startswith("change"):
                    continue
                if not _same(ours.get(name), theirs.get(name), floor):
                    apart.append((quantity, name))
        return apart

    def agreeing(self, found: Quantities) -> list[Leaf]:
        """What agrees with the JAX half."""
        apart = set(self.differences(found))
        return [(q, name) for q, part in found.items() for name in part if (q, name) not in apart]

    def _batch(self, i: int) -> Any:
        if i not in self._batches:
            tree = self.twin.batch_at(i) if self.twin.batches is not None or self.twin.batch is None else None
            data = self.twin.first_batch if tree is None else tree
            self._batches[i] = torch_tree(data, "float64")
        return self._batches[i]

    # The JAX half as equations

    def equations(self) -> tuple[Program, dict[int, Point]]:
        """The program of this level, and every value of it."""
        with precision("float64"):
            function, args = self._function()
            program = trace(function, *args)
            return program, record(program, jax.tree.leaves(args))

    def _function(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self.level in ("forward", "loss", "grad"):
            return program_of(self.levels, "forward" if self.level == "forward" else "loss", self.weights)
        side = self.levels.jax
        if self.level == "rollout":
            model = side.model(self.weights) if self.twin.jax is not None else None
            return lambda key: self.twin.half("rollout", "jax")(model, key), (jax.random.key(self.twin.seed),)
        return self._training()

    def _training(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        from ...bridge.libraries import open_model

        side = self.levels.jax
        model = open_model(side.model(self.weights))
        tx, opt_state = side._optimizer
        if opt_state is None and tx is not None:
            opt_state = tx.init(model.params)
        step = self.twin.half("update", "jax") or side._default_update

        def train(state, batches):
            params, rest, opt_state = state
            told = []
            for batch in batches:
                made, opt_state, metrics = step(model.build(params, rest), tx, opt_state, batch)
                after = open_model(made)
                params, rest = after.params, after.state
                told.append(metrics)
            return params, rest, opt_state, told

        batches = [side._batch_at(i) for i in range(max(self.steps) if self.level == "updates" else 1)]
        return train, ((model.params, model.state, opt_state), batches)


def _same(a: np.ndarray | None, b: np.ndarray | None, floor: float) -> bool:
    if a is None or b is None or a.shape != b.shape or (a.dtype.kind == "f" and a.dtype != b.dtype):
        return False
    allowed = max(SAME * scale(a, b), floor) if a.dtype.kind == "f" else 0.0
    return float(elementwise(a, b).max(initial=0.0)) <= allowed


@contextmanager
def quiet() -> Iterator[None]:
    """Trials divide by zero, overflow and broadcast: their warnings say nothing."""
    import warnings

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def without(twin: Twin, *fields: str) -> Twin:
    """The twin without some of its fields."""
    return replace(twin, **dict.fromkeys(fields))
