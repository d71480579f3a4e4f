"""Small instances of every registered environment, for the tests that hold for all of them."""

from crossfade.envs.dag.registry import ENVS, make, params_class

WORDS = {
    "grid": [
        {"n_dim": 2, "length": 4},
        {"n_dim": 3, "length": 4, "max_increment": 2, "max_dim_per_action": 2},
        {"n_dim": 1, "length": 5, "max_increment": 4},
    ],
    "hypergrid": [
        {"n_dim": 2, "length": 8},
        {"n_dim": 3, "length": 4, "reward": "cosine"},
        {"n_dim": 2, "length": 11, "reward": "deceptive"},
        {"n_dim": 3, "length": 5, "reward": "sparse"},
    ],
    "toy": [{}],
    "set": [
        {"n_items": 6, "max_size": 3},
        {"n_items": 5, "max_size": 5, "fixed_size": True},
        {"n_items": 40, "max_size": 20},
    ],
    "bits": [
        {"n_bits": 8, "word_bits": 2, "n_modes": 3},
        {"n_bits": 8, "word_bits": 4, "n_modes": 2, "order": "prepend_append", "normalise": False},
        {"n_bits": 8, "word_bits": 2, "n_modes": 4, "order": "free"},
        {"n_bits": 120, "word_bits": 4, "order": "prepend_append"},
    ],
    "sequence": [
        {"length": 3, "letters": "ACGT"},
        {"length": 4, "letters": "ab", "order": "prepend_append"},
        {"length": 3, "letters": "abc", "order": "free"},
    ],
    "ising": [{"side": 2, "coupling": 0.3, "field": 0.1}, {"side": 5}],
    "bayesnet": [{"n_nodes": 3}, {"n_nodes": 4, "score": "linear_gaussian"}, {"n_nodes": 7, "n_samples": 20}],
    "phylo": [{"n_species": 4}, {"n_species": 5, "constant": 30.0, "n_sites": 12}, {"n_species": 9, "n_sites": 8}],
}

CASES = [params_class(name)(**words) for name in ENVS for words in WORDS[name]]
ENUMERABLE = [params for params in CASES if params.n_states is not None]
# One of each environment, for the tests that compile a program for each; the others are slow there.
QUICK = list({type(params): params for params in reversed(ENUMERABLE)}.values())


def name(params) -> str:
    """A test id."""
    given = {k: v for k, v in vars(params).items() if k in type(params).__dataclass_fields__}
    defaults = {k: f.default for k, f in type(params).__dataclass_fields__.items()}
    return type(params).__name__.removesuffix("Params") + "".join(
        f"-{k}={v}" for k, v in given.items() if v != defaults[k]
    )


def twins(params):
    """The NumPy and the JAX environment."""
    return make(params, "numpy"), make(params, "jax")
