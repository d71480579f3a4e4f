"""Models in the shapes of public code are matched without overrides, and wrong ports of them are refused."""

import pytest

from crossfade.bridge import match
from crossfade.errors import MappingError, NoCounterpart
from default_run import few_pairs
from gallery import attention, deep_q, images, policies, recurrent, transformers

GALLERY = deep_q.CASES | policies.CASES | attention.CASES | transformers.CASES | images.CASES | recurrent.CASES
PAIRS = [(name, library) for name, case in GALLERY.items() for library in case.jax]
WRONG = [(name, port) for name, case in GALLERY.items() for port in case.wrong]


@pytest.mark.parametrize(
    ("name", "library"),
    few_pairs(
        PAIRS,
        ("fused attention", "linen heads first"),
        ("split attention", "linen fused"),
        ("quantiles", "linen"),
        ("ppo", "train state"),
        ("ppo of a dict", "linen fused"),
        ("lstm", "linen"),
        ("lstm", "nnx"),
    ),
)
def test_a_model_in_the_shape_of_public_code_is_matched(name, library):
    case = GALLERY[name]
    mapping = match(case.module(), case.jax[library](), case.example(), **case.options, **case.own.get(library, {}))
    verified = mapping.verify()
    assert verified.ok, verified
    assert set(mapping.unproved) <= {"key.bias"}  # softmax takes the same number from all keys
    assert mapping.precision == "float64"


@pytest.mark.parametrize(("name", "port"), few_pairs(WRONG, ("dqn", "relu6"), ("fused attention", "keys for queries")))
def test_a_wrong_port_is_refused(name, port):
    case = GALLERY[name]
    with pytest.raises((MappingError, NoCounterpart)):
        match(case.module(), case.wrong[port](), case.example(), **case.options)


def test_the_gallery_is_large_enough():
    assert len(GALLERY) >= 30 and len(PAIRS) >= 80 and len(WRONG) >= 30
