"""Aligned sequences as bit sets, simulated on a random tree or read from a FASTA file. NumPy only.

One bit for each of A, C, G, T and the gap; N and ? may be any of the four letters.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Int32

from .... import random
from ....errors import UsageError
from ....reading import read_text

BITS = {"A": 1, "C": 2, "G": 4, "T": 8, "-": 16, "N": 15, "?": 15}


def simulate(n_species: int, n_sites: int, mutation: float, seed: int) -> Int32[np.ndarray, "species sites"]:
    """Sequences at the leaves of a random tree; along a branch each site changes with probability `mutation`.

    The tree grows from the root: a leaf chosen at random splits in two, and both halves mutate, until there are enough.
    """
    key = random.numpy.key(seed)
    sequences = random.numpy.randint(random.numpy.fold_in(key, 0), (1, n_sites), 0, 4)
    for n in range(1, n_species):
        choose, change, shift = random.numpy.split(random.numpy.fold_in(key, n), 3)
        parent = int(random.numpy.randint(choose, (), 0, n))
        changes = random.numpy.bernoulli(change, mutation, (2, n_sites))
        children = (sequences[parent] + changes * random.numpy.randint(shift, (2, n_sites), 1, 4)) % 4
        sequences = np.concatenate([sequences[:parent], sequences[parent + 1 :], children])
    return (1 << sequences).astype(np.int32)


def read(file: str) -> Int32[np.ndarray, "species sites"]:
    """The sequences of a FASTA file, which must be of equal length."""
    path = Path(file)
    lines = read_text(path, "a FASTA file of aligned sequences (or leave `file` out)").splitlines()
    names, sequences = [], []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text.startswith(">"):
            names.append(text[1:])
            sequences.append("")
        elif text and not sequences:
            raise UsageError(
                f"{path.name}, line {number}: expected a line that starts with '>' first, got {text[:20]!r}."
            )
        elif text:
            sequences[-1] += text.upper()
    for name, sequence in zip(names, sequences, strict=True):
        wrong = sorted(set(sequence) - set(BITS))
        if wrong:
            raise UsageError(f"{path.name}: {name} holds {wrong[0]!r}; expected only the letters {' '.join(BITS)}.")
    lengths = sorted({len(sequence) for sequence in sequences})
    if len(sequences) < 2 or len(lengths) != 1 or not lengths[0]:
        raise UsageError(
            f"{path.name}: expected two or more sequences of one length above 0 (an alignment), got {len(sequences)} "
            f"of lengths {lengths}."
        )
    return np.array([[BITS[letter] for letter in sequence] for sequence in sequences], np.int32)
