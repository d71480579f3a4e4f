"""A small world for Brax, and a small environment of Brax's for us."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp

from crossfade.envs.world import Continuous


class Where(NamedTuple):
    x: Any
    t: Any


class Terms(NamedTuple):
    near: Any
    effort: Any


class Came(NamedTuple):
    reward: Any
    terminated: Any
    truncated: Any
    terms: Terms


@dataclass(frozen=True)
class DriftParams:
    """x' = x + a / 2 from somewhere in [-2, 2]; reward -x'^2 - a^2 / 10; beyond 3 it ends."""

    numpy: ClassVar[str] = ""
    jax: ClassVar[str] = "brax_cases:Drift"


@dataclass(frozen=True)
class Drift:
    params: DriftParams
    observation_dim, action_space, start_numbers = 2, Continuous(1), 1

    def begin(self, data, settings, uniform):
        x = 4 * uniform[..., 0] - 2
        return Where(x, jnp.zeros(x.shape, "int32"))

    def observe(self, data, settings, state):
        return jnp.stack([state.x, (state.t / 8).astype("float32")], -1)

    def mask(self, data, settings, state):
        return None

    def step(self, data, settings, state, action):
        x, t = state.x + 0.5 * action[..., 0], (state.t + 1).astype("int32")
        terms = Terms(-x * x, -0.1 * action[..., 0] ** 2)
        out = jnp.abs(x) > 3
        return Where(x, t), Came(terms.near + terms.effort, out, (t >= 8) & ~out, terms)


def slide() -> Any:
    """An environment of Brax: a point on a line that its actions accelerate; beyond 1 it is done."""
    import jax
    from brax.envs.base import Env, State

    class Slide(Env):
        observation_size, action_size, backend = 2, 1, "none"

        def reset(self, rng):
            obs = jax.random.uniform(rng, (2,), minval=-0.5, maxval=0.5)
            return State({"place": obs}, obs, jnp.zeros(()), jnp.zeros(()), {"speed": obs[1]}, {"rng": rng})

        def step(self, state, action):
            speed = 0.9 * state.obs[1] + 0.1 * action[0]
            obs = jnp.stack([state.obs[0] + 0.1 * speed, speed])
            done = (jnp.abs(obs[0]) > 1).astype(jnp.float32)
            info = {"rng": jax.random.split(state.info["rng"])[0]}
            found = state.replace(pipeline_state={"place": obs}, obs=obs, reward=-(obs[0] ** 2), done=done, info=info)
            return found.replace(metrics={**state.metrics, "speed": speed})

    return Slide()


class PushCart:
    """The face of MuJoCo Playground's environments, which are none of Brax's classes: a cart that a force pushes."""

    action_size = 1

    @property
    def observation_size(self):
        import jax

        return jax.eval_shape(self.reset, jax.random.PRNGKey(0)).obs.shape[-1]

    def reset(self, rng):
        import jax

        x = jax.random.uniform(rng, (2,), minval=-0.2, maxval=0.2)
        return CartState({"qpos": x[:1], "qvel": x[1:]}, x, jnp.zeros(()), jnp.zeros(()), {}, {"rng": rng})

    def step(self, state, action):
        speed = state.data["qvel"] + 0.1 * action
        place = state.data["qpos"] + 0.1 * speed
        obs = jnp.concatenate([place, speed])
        done = (jnp.abs(place[0]) > 0.5).astype(jnp.float32)
        return state._replace(data={"qpos": place, "qvel": speed}, obs=obs, reward=1 - jnp.abs(place[0]), done=done)


class CartState(NamedTuple):
    data: Any
    obs: Any
    reward: Any
    done: Any
    metrics: Any
    info: Any


class Registry:
    """That of a package which stands in for MuJoCo Playground."""

    ALL_ENVS = ("PushCart", "Unused")

    @staticmethod
    def load(name, config=None, config_overrides=None):
        assert (name, config_overrides) == ("PushCart", {"impl": "jax"})
        return PushCart()
