"""What defines bit sequences, fixed-length sequences and Ising spins: framework-free. `WordsParams` is their base."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from jaxtyping import Float64, Int32

from .... import random
from ....errors import UsageError
from ....ranges import Finite, NotNegative, Positive, Range, Seed
from ..target import Target, products, thinned
from . import landscape, transfer
from .base_params import Order, WordsParams

BLOCKS = ("00000000", "11111111", "11110000", "00001111", "00111100")


@dataclass(frozen=True)
class BitSequenceParams(WordsParams):
    """Bit strings of `n_bits`, written in words of `word_bits`; good ones are near one of the modes.

    Modes: `n_modes` different concatenations of n_bits / 8 blocks of BLOCKS, drawn from `seed`.
    Word w stands for its word_bits binary digits, the most significant first.
    Reward: with h the least Hamming distance to a mode, log R = -beta h / n_bits, or -beta h without `normalise`. Where
        words are missing, h counts the written bits only (a string is laid against the left end of the modes).
    State, actions and the rest: see `WordsParams`, with n_words = n_bits / word_bits and n_symbols = 2^word_bits.
    """

    n_bits: Annotated[int, Range(8, 10**5)] = 120
    """Length n of an object, a multiple of 8."""
    word_bits: Annotated[int, Range(1, 16)] = 8
    """Bits k per word, a divisor of n_bits."""
    order: Order = "append"
    """How words are written: append, prepend_append or free."""
    n_modes: Annotated[int, Range(1, 10**6)] = 60
    """Number of modes."""
    beta: NotNegative = 3.0
    """Inverse temperature."""
    normalise: bool = True
    """Whether distances are divided by n_bits."""
    seed: Seed = 0
    """Seed of the modes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_bits % 8 or self.n_bits % self.word_bits:
            raise UsageError(
                f"n_bits must be a multiple of 8 and of word_bits; got n_bits={self.n_bits}, "
                f"word_bits={self.word_bits}."
            )
        most = len(BLOCKS) ** (self.n_bits // 8)
        if self.n_modes > most:
            raise UsageError(f"n_modes must be at most {most} for n_bits={self.n_bits}, got {self.n_modes}.")

    @property
    def n_words(self) -> int:
        return self.n_bits // self.word_bits

    @property
    def n_symbols(self) -> int:
        return 2**self.word_bits

    @property
    def footprint(self) -> int:
        return 4 * self.n_modes * (self.n_bits + self.n_words * self.n_symbols)

    @cached_property
    def modes(self) -> Int32[np.ndarray, "n_modes n_bits"]:
        """The bits of the modes, all different."""
        chosen: dict[tuple[int, ...], None] = {}
        key, draw = random.numpy.key(self.seed), 0
        while len(chosen) < self.n_modes:
            rows = random.numpy.randint(
                random.numpy.fold_in(key, draw), (self.n_modes, self.n_bits // 8), 0, len(BLOCKS)
            )
            chosen |= dict.fromkeys(map(tuple, rows.tolist()))
            draw += 1
        texts = ["".join(BLOCKS[block] for block in row) for row in list(chosen)[: self.n_modes]]
        return np.array([[int(bit) for bit in text] for text in texts], np.int32)

    @cached_property
    def distance(self) -> Int32[np.ndarray, "n_words n_symbols n_modes"]:
        """Hamming distance of each word at each position to the mode's word there."""
        weights = 2 ** np.arange(self.word_bits - 1, -1, -1)
        mode_words = self.modes.reshape(self.n_modes, self.n_words, self.word_bits) @ weights
        different = np.arange(self.n_symbols)[None, :, None] ^ mode_words.T[:, None, :]
        return np.bitwise_count(different).astype(np.int32)

    @property
    def slope(self) -> float:
        """What one wrong bit takes from the log-reward."""
        return self.beta / self.n_bits if self.normalise else self.beta

    @property
    def target(self) -> Target:
        """R is the largest of `n_modes` products over the words; their sum lies above it, `n_modes` times at most."""
        factor = np.exp(-self.slope * np.moveaxis(self.distance, -1, 0))

        def log_ratio(x: Int32[np.ndarray, "n d"]) -> Float64[np.ndarray, " n"]:
            log_term = -self.slope * self.distance[np.arange(self.n_words), x].sum(-2)
            return log_term.max(-1) - np.logaddexp.reduce(log_term, axis=-1)

        return thinned(products(factor), log_ratio)


@dataclass(frozen=True)
class SequenceParams(WordsParams):
    """Sequences of fixed `length` over `letters`, rewarded by a table over all of them.

    Reward: R = max(floor, scale y^exponent), y(sequence) from `file`, or without one a synthetic landscape: fields and
        pairwise couplings drawn from N(0, 1) and N(0, coupling^2), the sum over a sequence mapped linearly so that the
        worst has y = 0 and the best y = 1. An unfinished sequence has R = 1 (log R = 0) where a loss asks for it.
    File: CSV with rows `sequence,value` (a header row is allowed), sequences spelt in `letters`; or NPZ with arrays
        `sequence` (rows of letter numbers, from 0) and `value`. Every sequence must be there exactly once, no value
        below 0.
    State, actions and the rest: see `WordsParams`, with n_words = length and n_symbols = the number of letters.
    TFBind8 has this shape (the defaults); QM9's is letters="abcdefghijk", length=5, order=prepend_append, exponent=5,
    scale=100.
    """

    length: Annotated[int, Range(1, 24)] = 8
    """Letters per sequence."""
    letters: str = "ACGT"
    """The alphabet, one character per letter."""
    order: Order = "append"
    """How letters are written: append, prepend_append or free."""
    file: str | None = None
    """The user's landscape, CSV or NPZ; None draws a synthetic one."""
    exponent: Positive = 3.0
    """Sharpens the landscape."""
    scale: Positive = 10.0
    """Reward of a sequence with y = 1."""
    floor: Positive = 1e-3
    """Least reward."""
    coupling: NotNegative = 0.5
    """Standard deviation of the synthetic pairwise couplings."""
    seed: Seed = 0
    """Seed of the synthetic landscape."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.letters)) != len(self.letters) or len(self.letters) < 2:
            raise UsageError(f"letters must be two or more different characters, got {self.letters!r}.")
        if len(self.letters) ** self.length > landscape.LARGEST:
            raise UsageError(
                f"a landscape is a table over all sequences, at most {landscape.LARGEST}; got {len(self.letters)} "
                f"letters to the power length={self.length}. Use a shorter sequence."
            )
        if self.file is not None:
            _ = self.log_table  # a bad file is refused now, not in the middle of a run

    @property
    def n_words(self) -> int:
        return self.length

    @property
    def n_symbols(self) -> int:
        return len(self.letters)

    @cached_property
    def log_table(self) -> Float64[np.ndarray, " sequences"]:
        """Log-reward of every complete sequence, numbered by its letters, the first the most significant."""
        if self.file is None:
            y = landscape.synthetic(self.length, self.n_symbols, self.coupling, self.seed)
        else:
            y = landscape.read(self.file, self.letters, self.length)
        with np.errstate(divide="ignore"):  # y = 0 gets the floor
            return np.maximum(np.log(self.floor), np.log(self.scale) + self.exponent * np.log(y))


@dataclass(frozen=True)
class IsingParams(WordsParams):
    """Spins on a `side` x `side` torus, set one by one in any order.

    Reward: with s_i = 2 x_i - 1 for a spin that is set and 0 for one that is not, and A the 0/1 adjacency matrix of the
        torus, log R = coupling s' A s + field sum s: every bond counts twice. Unfinished states have the same formula.
    State, actions and the rest: see `WordsParams` with order=free, n_words = side^2, n_symbols = 2: action 2 i sets
        spin i (row-major) down, 2 i + 1 up; backward action i clears it.
    """

    side: Annotated[int, Range(2, 64)] = 3
    """Rows and columns of the torus."""
    coupling: Finite = 0.2
    """Strength J of a bond; negative favours opposite neighbours."""
    field: Finite = 0.0
    """Strength h of the outer field."""
    order = "free"  # not a field: no other order is meant

    @property
    def n_words(self) -> int:
        return self.side**2

    @property
    def n_symbols(self) -> int:
        return 2

    @property
    def footprint(self) -> int:
        return 8 * self.n_words**2

    @cached_property
    def bonds(self) -> Float64[np.ndarray, "spins spins"]:
        """coupling times the adjacency matrix."""
        spin = np.arange(self.n_words).reshape(self.side, self.side)
        adjacent = np.zeros((self.n_words, self.n_words))
        for axis in (0, 1):
            neighbour = np.roll(spin, 1, axis)
            adjacent[spin, neighbour] = adjacent[neighbour, spin] = 1
        return self.coupling * adjacent

    @property
    def target(self) -> Target | None:
        return transfer.spins(self.side, self.coupling, self.field) if self.side <= transfer.WIDEST else None
