"""Small offline agents with random numbers in every parameter, and their networks in NumPy, for tests of JAX."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from crossfade.algos.offline.batch import Batch, Phase
from crossfade.algos.offline.config import AGENTS, OfflineConfig
from crossfade.algos.offline.networks_jax import Modules, make_policy
from crossfade.algos.offline.parameters import laws
from crossfade.loading import load_attribute

OBSERVATION, ACTION, BATCH, LATENT = 3, 2, 4, 3
Arrays = dict[str, np.ndarray]


def small(agent: str, *, faithful: bool = True, **settings) -> OfflineConfig:
    """Settings of the agent and of the config, told apart by the agent's fields."""
    cls = load_attribute(AGENTS[agent])
    fields = cls.__dataclass_fields__
    own = {key: value for key, value in settings.items() if key in fields}
    rest = {key: value for key, value in settings.items() if key not in fields}
    if "latent_dim" in fields:
        own.setdefault("latent_dim", LATENT)
    sizes = {"hidden": (5, 4), "encoder_hidden": (5, 4), "batch_size": BATCH, "dtype": "float64", "gamma": 0.9}
    return OfflineConfig(agent=cls(**own), faithful=faithful, **{**sizes, **rest})


def specs_of(config: OfflineConfig, observation: tuple[int, ...] = (OBSERVATION,)):
    return config.agent.modules(config.sizes(observation, ACTION))


def parameters_of(config: OfflineConfig, observation: tuple[int, ...] = (OBSERVATION,), seed: int = 0) -> Arrays:
    """Normal numbers for all of them, norms and biases too."""
    rng = np.random.default_rng(seed)
    return {name: 0.7 * rng.normal(size=shape) for name, (_, shape) in laws(specs_of(config, observation)).items()}


def policy_of(config: OfflineConfig, observation: tuple[int, ...] = (OBSERVATION,), seed: int = 0) -> Modules:
    return make_policy(specs_of(config, observation), parameters_of(config, observation, seed), config.dtype)


def batch_of(
    config: OfflineConfig,
    phase: Phase,
    *,
    full: bool = True,
    seed: int = 1,
    observation: tuple[int, ...] = (OBSERVATION,),
) -> Batch:
    """Random numbers in every field that an agent of this config may read, in NumPy."""
    rng = np.random.default_rng(seed)
    rows = lambda *shape: rng.normal(size=(BATCH, *shape))
    inside = lambda: rng.uniform(-0.9, 0.9, size=(BATCH, ACTION))
    noise = {}
    for name, (kind, shape) in config.agent.draws(config.sizes(observation, ACTION), phase).items():
        kinds = {"normal": rng.normal, "uniform": rng.uniform}
        noise[name] = rng.permutation(*shape) if kind == "permutation" else kinds[kind](size=shape)
    batch = Batch(rows(OBSERVATION), inside(), rows(OBSERVATION), rows(), np.array([1.0, 0.0, 1.0, 1.0]), inside())
    return batch._replace(
        value_goals=rows(OBSERVATION),
        actor_goals=rows(OBSERVATION),
        relabeled_rewards=np.array([-1.0, -1.0, 0.0, -1.0]),
        relabeled_masks=np.array([1.0, 1.0, 0.0, 1.0]),
        noise=noise,
        latent=None if phase == "pretraining" else rng.normal(size=LATENT),
        bounds=np.array([[-0.8] * OBSERVATION, [0.7] * OBSERVATION]),
        full=None if phase == "pretraining" else full,
    )


def on_device(batch: Batch) -> Batch:
    return jax.tree.map(jnp.asarray, batch)


def name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def named(tree) -> Arrays:
    return {name(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


# Networks in NumPy: `p` has all parameters by name


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def linear(p: Arrays, at: str, x: np.ndarray, member: int | None = None) -> np.ndarray:
    weight, bias = p[f"{at}.weight"], p[f"{at}.bias"]
    if member is not None:
        weight, bias = weight[member], bias[member]
    return np.einsum("...i,oi->...o", x, weight) + bias


def norm(p: Arrays, at: str, x: np.ndarray, member: int | None = None) -> np.ndarray:
    weight, bias = p[f"{at}.weight"], p[f"{at}.bias"]
    if member is not None:
        weight, bias = weight[member], bias[member]
    mean = x.sum(-1, keepdims=True) / x.shape[-1]
    variance = ((x - mean) ** 2).sum(-1, keepdims=True) / x.shape[-1]
    return weight * (x - mean) / np.sqrt(variance + 1e-6) + bias


def mlp(p: Arrays, at: str, *parts: np.ndarray, final: bool = False) -> np.ndarray:
    """The net called `at`, on the parts one behind the other; members in front if it has them."""
    depth = 1 + max(int(key.split(".")[at.count(".") + 2]) for key in p if key.startswith(f"{at}.layers."))

    def of(member):
        x = np.concatenate(parts, -1)
        for i in range(depth):
            x = linear(p, f"{at}.layers.{i}", x, member)
            if final or i < depth - 1:
                x = gelu(x)
                x = norm(p, f"{at}.norms.{i}", x, member) if f"{at}.norms.{i}.weight" in p else x
        return x

    shape = p[f"{at}.layers.0.weight"].shape
    return of(None) if len(shape) == 2 else np.stack([of(member) for member in range(shape[0])])


def value(p: Arrays, module: str, *parts: np.ndarray) -> np.ndarray:
    return mlp(p, f"{module}.value_net", *parts)[..., 0]


def actor(p: Arrays, module: str, *parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and log std."""
    features = mlp(p, f"{module}.actor_net", *parts, final=True)
    mean = linear(p, f"{module}.mean_net", features)
    return mean, np.clip(np.zeros_like(mean) + p.get(f"{module}.log_stds", 0.0), -5, 2)


def log_prob(mean: np.ndarray, log_std: np.ndarray, action: np.ndarray) -> np.ndarray:
    z = (action - mean) / np.exp(log_std)
    return (-(z**2) / 2 - log_std - np.log(2 * np.pi) / 2).sum(-1)


def expectile(u: np.ndarray, x: np.ndarray, k: float) -> np.ndarray:
    return np.abs(k - (u < 0)) * x**2


@cache
def directions(names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> Arrays:
    rng = np.random.default_rng(7)
    return {name: rng.normal(size=shape) for name, shape in zip(names, shapes, strict=True)}
