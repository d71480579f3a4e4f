"""Phylogenetic trees: counts, Fitch's algorithm against a recursive one, alignments."""

import math

import numpy as np
import pytest

from crossfade.envs.dag.phylo.alignment import simulate
from crossfade.envs.dag.phylo.params import COUNT, PhyloParams
from crossfade.envs.dag.registry import make
from crossfade.errors import UsageError


@pytest.mark.parametrize("n", COUNT)
def test_forests_and_trees_are_counted(n):
    params = PhyloParams(n_species=n, n_sites=2)
    assert len(params.forests) == COUNT[n]
    complete = ((params.forests < 0).sum(-1) == 1).sum()
    assert complete == math.prod(range(1, 2 * n - 2, 2))  # (2n - 3)!!


def fitch(tree, leaves):
    """Letters at the root of a nested pair, and the mutations below it."""
    if isinstance(tree, int):
        return leaves[tree], 0
    (left, mutations), (right, more) = (fitch(side, leaves) for side in tree)
    both = left & right
    return np.where(both == 0, left | right, both), mutations + more + int((both == 0).sum())


def test_mutations_are_fitchs_count_of_the_joined_trees():
    params = PhyloParams(n_species=7, n_sites=25, mutation=0.4)
    env = make(params, "numpy")
    rng = np.random.default_rng(0)
    for _ in range(20):
        state, trees = env.reset(), dict(enumerate(range(7)))
        while len(trees) > 1:
            action = rng.choice(np.flatnonzero(env.forward_mask(state)))
            i, j = params.pairs[action].tolist()
            trees[i] = (trees[i], trees.pop(j))
            state = env.step(state, action)
            count = sum(fitch(tree, params.sequences)[1] for tree in trees.values())
            assert env.mutations(state.x) == count
        assert env.log_reward(state) == pytest.approx(-count / 4)


def test_the_order_of_independent_joins_does_not_matter():
    env = make(PhyloParams(n_species=5), "numpy")
    pair = {tuple(p): k for k, p in enumerate(env.params.pairs.tolist())}

    def after(*joins):
        state = env.reset()
        for join in joins:
            state = env.step(state, np.array(pair[join]))
        return state.x.tolist()

    assert after((0, 1), (2, 3)) == after((2, 3), (0, 1))
    assert after((0, 1), (0, 2)) != after((0, 2), (0, 1))
    assert after((3, 4), (0, 3)) != after((0, 3), (0, 4))


def test_partial_rewards_add_up_to_the_whole():
    params = PhyloParams(n_species=4, constant=12.0)
    env = make(params, "numpy")
    states = env.state(np.arange(env.n_states))
    joins = (states.x >= 0).sum(-1)
    np.testing.assert_allclose(env.log_reward(states), (12 * joins / 3 - env.mutations(states.x)) / 4, atol=1e-14)


def test_simulated_sequences_differ_with_the_mutation_rate():
    assert (simulate(5, 30, 0.0, 0) == simulate(5, 30, 0.0, 0)[0]).all()
    still, moving = simulate(5, 200, 0.01, 0), simulate(5, 200, 0.5, 0)
    assert (still != still[0]).mean() < 0.1 < 0.4 < (moving[1:] != moving[0]).mean()
    assert set(np.unique(moving)) <= {1, 2, 4, 8}


def test_an_alignment_can_be_the_users(tmp_path):
    path = tmp_path / "a.fasta"
    path.write_text(">one\nACG\nT-\n>two\nacgtn\n")
    params = PhyloParams(n_species=2, file=str(path))
    assert params.sequences.tolist() == [[1, 2, 4, 8, 16], [1, 2, 4, 8, 15]]
    for text, message in [
        (">one\nACGT\n>two\nACG\n", r"expected two or more sequences of one length.*\[3, 4\]"),
        (">one\nACGX\n>two\nACGT\n", "one holds 'X'"),
        ("ACGT\n", "line 1: expected a line that starts with '>'"),
        (">one\nA\n>two\nA\n>three\nA\n", "n_species is 2, but .* holds 3 sequences"),
    ]:
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            PhyloParams(n_species=2, file=str(path))
    with pytest.raises(UsageError, match="expected a FASTA file of aligned sequences .* found none"):
        PhyloParams(file=str(tmp_path / "none"))
    with pytest.raises(UsageError, match="mutation: expected a probability"):
        PhyloParams(mutation=1.5)
