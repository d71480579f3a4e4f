"""The zoo: every architecture in every library is matched without help, and the mapping is right.

Right is checked here without anything `match` uses for its own proof: other weights, another input, the library's own
call, and the pairs a reader of both sources expects.
"""

from dataclasses import replace
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from bridge.zoo import CELLS, REFUSED, ZOO
from crossfade.bridge import Mapping, match
from crossfade.bridge.libraries import open_model
from crossfade.bridge.matching.outputs import difference, torch_outputs
from crossfade.errors import NoCounterpart


def _jax_forward(case, library, mapping, seed):
    """The JAX model's own inference call on a fresh input, compiled once: model -> outputs by name."""
    wide = lambda a: jnp.asarray(a.astype(np.float64) if a.dtype.kind == "f" else a)
    x = jax.tree.map(wide, case.jax_example(library, seed))
    opened = mapping.opened
    call = case.options(library).get("jax_apply", opened.call)
    run = jax.jit(lambda params, state: call(opened.inference(opened.build(params, state)), x))

    def forward(model, names):
        parts = open_model(model)
        return dict(zip(names, map(np.asarray, jax.tree.leaves(run(parts.params, parts.state))), strict=True))

    return forward


def _torch_forward(case, module, seed):
    inputs = case.example(seed)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    with torch.no_grad():
        return torch_outputs(module.eval()(*(t.double() if t.is_floating_point() else t for t in inputs)))


def _swaps(mapping: Mapping):
    """The mapping with two entries of one shape and rule exchanged, for every such two."""
    for one, other in combinations(mapping.entries, 2):
        if one.rule == other.rule and [mapping.shapes[n] for n in one.torch] == [
            mapping.shapes[n] for n in other.torch
        ]:
            swapped = {one: replace(one, jax=other.jax), other: replace(other, jax=one.jax)}
            yield replace(mapping, entries=tuple(swapped.get(entry, entry) for entry in mapping.entries))


# Most architectures in one library, and every library with several; the rest of the product is slow. What is left out
# of the default run is dear and made of layers that others have too; an LSTM is matched in `test_mapping.py`.
DEAR = ("mlp", "layernorm", "pixels", "groupnorm", "lstm", "critics", "targets")
LIBRARIES_OF = {name: [library for of, library in CELLS if of == name] for name in ZOO}
FAST = [(name, found[i % len(found)]) for i, (name, found) in enumerate(LIBRARIES_OF.items()) if name not in DEAR]


@pytest.mark.parametrize(
    ("name", "library"),
    [pytest.param(*cell, marks=[] if cell in FAST else pytest.mark.slow) for cell in CELLS],
)
def test_match_is_right(name, library, x64):
    case = ZOO[name]
    mapping = match(case.torch(), case.jax(library), case.example(), **case.options(library))

    assert mapping.unproved == () and mapping.precision == "float64"
    found = {entry.torch[0]: entry.jax[0] for entry in mapping.entries}
    expected = case.pairs.get(library, {})
    assert {torch_name: found.get(torch_name) for torch_name in expected} == expected
    assert any(entry.rule.lossy for entry in mapping.entries) == (library in case.lossy)

    module = case.torch(seed=1).double()
    state = {n: t.clone() for n, t in module.state_dict().items()}
    model = mapping.to_jax(state)
    ours = _torch_forward(case, module, seed=1)
    forward = _jax_forward(case, library, mapping, seed=1)
    assert difference(ours, forward(model, ours), case.image) <= (1e-6 if mapping.widened else 1e-9)

    for wrong in _swaps(mapping):
        assert difference(ours, forward(wrong.to_jax(state), ours), case.image) > 1e-6

    _assert_round_trip(case, library, mapping, state, model)


def _assert_round_trip(case, library, mapping, state, model):
    """Bit-equal from torch; from JAX where two torch arrays were summed; rounded where a constant is added."""
    back = mapping.to_torch(model)
    lossy = {name for entry in mapping.entries if entry.rule.lossy for name in entry.torch}
    kept = set(mapping.torch_only)
    for name in state.keys() - lossy - kept:
        assert torch.equal(back[name], state[name]), name
    again = open_model(mapping.to_jax(back)).leaves()
    for path, leaf in open_model(model).leaves().items():
        if library in case.rounds:
            np.testing.assert_allclose(again[path], leaf, rtol=0, atol=1e-15)
        elif not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            assert np.array_equal(again[path], leaf), path


@pytest.mark.parametrize(
    ("name", "library"), [REFUSED[0], *(pytest.param(*c, marks=pytest.mark.slow) for c in REFUSED[1:])]
)
def test_a_cell_that_cannot_hold_the_parameters_is_refused_by_name(name, library):
    case = ZOO[name]
    with pytest.raises(NoCounterpart, match=r"cell\.bias_hh.*(dense_i\.bias|gru\.b).*crossfade\.nn\.GRUCell"):
        match(case.torch(), case.jax(library), case.example())


def test_the_zoo_is_large_enough():
    assert len(ZOO) >= 12 and len(CELLS) >= 48
