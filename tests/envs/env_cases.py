"""Small instances of every registered environment, for the tests that hold for all of them."""

from crossfade.envs.registry import ENVS, make, params_class

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
}

CASES = [params_class(name)(**words) for name in ENVS for words in WORDS[name]]
ENUMERABLE = [params for params in CASES if params.n_states is not None]


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
