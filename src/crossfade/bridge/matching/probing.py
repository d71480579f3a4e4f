"""Compares the outputs of two models under a mapping: on the first draw of numbers, then on every probe (draws.py)."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
import torch

from ...verdict import EPS32, EPS64, NOISE_FACTOR
from ..mapping import Entry, leaves_of
from .both_models import BothModels
from .draws import PROBES, Probe, Weights, probe_draw
from .outputs import Outputs, difference

CHAOS = 1e-2  # a probe is not judged if rounding to float32 moves the outputs by a larger share of their scale


@dataclass
class Draw:
    """A probe with its weights, and torch's outputs or the reason why the probe is not judged."""

    probe: Probe
    weights: Weights
    outputs: Outputs = field(default_factory=dict)
    unjudged: str = ""


class Gap(NamedTuple):
    """The largest relative difference between the outputs, and what is allowed; `draw` is None on the first draw."""

    size: float
    allowed: float
    draw: Draw | None = None

    @property
    def excess(self) -> float:
        """The difference over the allowed one: at most 1 when the outputs agree."""
        return self.size / self.allowed


class Probing:
    """Compares both models on the first draw and on all probes; torch runs once for each probe."""

    def __init__(self, both: BothModels):
        self.both = both
        self._draws: dict[frozenset[str], list[Draw]] = {}

    def gap(self, entries: tuple[Entry, ...]) -> Gap:
        """The difference between the outputs when the JAX leaves hold torch's weights. The probes are run only if the
        outputs agree on the first draw."""
        theirs = self.both.run_jax(leaves_of(entries, self.both.weights))
        first = Gap(self.both.difference(self.both.trace.outputs, theirs), self.both.tolerance)
        if first.excess > 1:
            return first
        return max((first, *(self._gap(entries, draw) for draw in self.draws(entries))), key=lambda gap: gap.excess)

    def draws(self, entries: tuple[Entry, ...]) -> list[Draw]:
        """The probes with torch's outputs. Buffers that are in no entry keep the module's values."""
        held = frozenset(name for entry in entries for name in entry.torch) & self.both.statistics
        if held not in self._draws:
            self._draws[held] = self._draw(held)
        return self._draws[held]

    def unjudged(self, entries: tuple[Entry, ...]) -> tuple[str, ...]:
        """The probes that were not judged, with the reason."""
        return tuple(f"{draw.probe}: {draw.unjudged}" for draw in self.draws(entries) if draw.unjudged)

    def _draw(self, held: frozenset[str]) -> list[Draw]:
        both = self.both
        shapes = {n: both.shapes[n] for n in both.drawn_names(held)}
        constants = {n: both.own[n] for n in both.statistics - held}
        positive = set(both.positive)
        draws = []
        for number, probe in enumerate(PROBES):
            draw = self._run(probe, probe_draw(number, shapes, positive) | constants)
            if probe.ordinary and self._invalid(draw):  # some parameter must be positive: find out which
                alone = {n: {n: -both.weights[n]} for n in shapes if len(shapes[n]) < 2 and n not in positive}
                positive |= {n for n, negative in alone.items() if self._invalid(self._run(PROBES[0], negative))}
                draw = self._run(probe, probe_draw(number, shapes, positive) | constants)
            draws.append(draw)
        return draws

    def _run(self, probe: Probe, weights: Weights, single: bool = False) -> Draw:
        try:
            return Draw(probe, weights, self.both.run_torch(weights, probe.inputs, single))
        except Exception as error:  # whatever a module raises on numbers it is not made for
            text = (str(error).splitlines() or [""])[0]
            return Draw(probe, weights, unjudged=f"the torch module raises {type(error).__name__}: {text}")

    def _invalid(self, draw: Draw) -> bool:
        """Whether torch raises, or an output is not finite that is finite on the first draw."""
        finite = {name: np.isfinite(array) for name, array in self.both.trace.outputs.items()}
        return bool(draw.unjudged) or any(not np.isfinite(draw.outputs[n][finite[n]]).all() for n in finite)

    def _gap(self, entries: tuple[Entry, ...], draw: Draw) -> Gap:
        tolerance = self.both.tolerance
        if draw.unjudged:
            return Gap(0.0, tolerance, draw)
        try:
            theirs = self.both.run_jax(leaves_of(entries, self.both.weights | draw.weights), draw.probe.inputs)
        except jax.errors.JaxRuntimeError as error:
            draw.unjudged = f"the JAX model raises {str(error).splitlines()[0]}"
            return Gap(0.0, tolerance, draw)
        # Where torch's output is not finite, the probe is outside the domain. Large numbers may overflow in JAX alone:
        # log(exp(x)) and x are the same function until then.
        left_out = "torch" if draw.probe.ordinary else "both"
        size = self.both.difference(draw.outputs, theirs, left_out)
        if size <= tolerance:
            return Gap(size, tolerance, draw)
        noise, steady = self._rounding(draw)
        if noise > CHAOS:
            draw.unjudged = f"rounding to float32 moves the outputs by {noise:.0e} of their scale"
            return Gap(0.0, tolerance, draw)
        allowed = NOISE_FACTOR * noise * (1.0 if self.both.single else EPS64 / EPS32)
        return Gap(self.both.difference(steady, theirs, left_out), max(tolerance, allowed), draw)

    def _rounding(self, draw: Draw) -> tuple[float, Outputs]:
        """The relative difference between torch's outputs in float32 and in float64, and the outputs with NaN wherever
        float32 is not finite.

        A module that runs in float32 only is compared with itself after moving every weight by one unit in the last
        place.
        """
        weights, single = draw.weights, self.both.dtype == torch.float32
        if single:
            weights = {n: w * (1 + EPS32 * np.cos(np.arange(w.size)).reshape(w.shape)) for n, w in weights.items()}
        rough = self._run(draw.probe, weights, single=True)
        if rough.unjudged:
            return 0.0, draw.outputs
        steady = {n: np.where(np.isfinite(rough.outputs[n]), a, math.nan) for n, a in draw.outputs.items()}
        return difference(steady, rough.outputs, left_out="both"), steady
