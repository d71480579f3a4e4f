"""The arithmetic that an update of an offline agent needs: multiplications and additions of its matrix products.

With W the weights of a network, all members together, W_1 those of its first layer and W_i those of its first layer
that read the i inputs through which a gradient passes, n rows cost, in multiply-adds,

    forward    n W
    learn      n (W + W + W - W_1 + W_i)     forward, gradient of the weights, gradient of what every layer reads
    through    n (W + W - W_1 + W_i)         the same without weights: a detached module between actor and value

A value that stands in several terms is counted once: what IQL's actor weighs by is known from value and critic. All
pairs of n states and n goals with d numbers are e n^2 d for e members, and as many for the gradient of either side.
InFOM's flow of K steps has its conditions c = (s, a, z) in the first layer once, W_c, and the rest K times:

    euler      n_c W_c + K n (W - W_c)       n rows of n_c conditions

Two operations each. Norms, activations, Adam and targets are not counted, nor imagined transitions.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...algos.offline.agent import Sizes
from ...algos.offline.batch import Phase
from ...algos.offline.layers import MLP
from ...algos.offline.modules import (
    Actor,
    Coder,
    GCActor,
    GCBilinearValue,
    GCMetricValue,
    GCValue,
    IntentionEncoder,
    Module,
    Value,
    VectorField,
)
from .config import OfflineDataConfig

Modules = Mapping[str, Module]


def flops(config: OfflineDataConfig, phase: Phase, observation: int, action: int) -> int:
    """Operations of an update, in fine-tuning of a full one, without encoders but DINO's own."""
    sizes = config.sizes((observation,), action)
    return 2 * COUNTS[config.agent_name][phase](config.agent.modules(sizes), config.agent, sizes)


def weights(mlp: MLP) -> int:
    """W."""
    sizes = zip((mlp.inputs, *mlp.widths), mlp.widths, strict=False)
    return mlp.members * sum(fan_in * fan_out for fan_in, fan_out in sizes)


def forward(mlp: MLP, n: int) -> int:
    """n W."""
    return n * weights(mlp)


def learn(mlp: MLP, n: int, inputs: int = 0) -> int:
    """n (W + W + W - W_1 + W_i), where a gradient passes through `inputs` of what it reads."""
    return n * weights(mlp) + through(mlp, n, inputs)


def through(mlp: MLP, n: int, inputs: int) -> int:
    """n (W + W - W_1 + W_i)."""
    return n * (2 * weights(mlp) - mlp.members * (mlp.inputs - inputs) * mlp.widths[0])


def pairs(members: int, n: int, d: int) -> int:
    """e n^2 d."""
    return members * n * n * d


def euler(mlp: MLP, n: int, conditions: int, n_conditions: int, steps: int) -> int:
    """n_c W_c + K n (W - W_c)."""
    once = conditions * mlp.widths[0]
    return n_conditions * once + steps * n * (weights(mlp) - once)


def net(module: Module) -> MLP:
    """The layers of a module with a single network, heads side by side as one layer."""
    match module:
        case Value() | GCValue():
            return module.value_net
        case Actor() | GCActor():
            return _headed(module.actor_net, module.actions)
        case IntentionEncoder():
            return _headed(module.trunk_net, 2 * module.latent)
        case VectorField():
            return module.vector_field_net
        case GCMetricValue():
            return module.phi
        case Coder():
            return MLP(module.encoder.inputs, module.encoder.widths)  # pyright: ignore[reportAttributeAccessIssue]
        case _:
            raise ValueError(module)


def _headed(mlp: MLP, outputs: int) -> MLP:
    return replace(mlp, widths=(*mlp.widths, outputs))


def _clone(modules: Modules, agent: Any, sizes: Sizes) -> int:
    return learn(net(modules["actor"]), sizes.batch_size)


def _iql(modules: Modules, agent: Any, sizes: Sizes, prefix: str = "") -> int:
    """V at s and s', Q, its target, the actor."""
    n, value, critic = sizes.batch_size, net(modules[f"{prefix}value"]), net(modules[f"{prefix}critic"])
    actor = net(modules[f"{prefix}actor"])
    return learn(value, n) + forward(value, n) + learn(critic, n) + forward(critic, n) + learn(actor, n)


def _rebrac(modules: Modules, agent: Any, sizes: Sizes) -> int:
    """Q, target actor and target critic at s'; the actor through Q."""
    n, critic, actor = sizes.batch_size, net(modules["critic"]), net(modules["actor"])
    targets = forward(actor, n) + forward(critic, n)
    return targets + learn(critic, n) + learn(actor, n) + through(critic, n, sizes.action)


def _mbpo_pretraining(modules: Modules, agent: Any, sizes: Sizes) -> int:
    return learn(net(modules["transition"]), sizes.batch_size) + _clone(modules, agent, sizes)


def _mbpo(modules: Modules, agent: Any, sizes: Sizes) -> int:
    models = sum(learn(net(modules[name]), sizes.batch_size) for name in ("transition", "reward"))
    return models + _rebrac(modules, agent, sizes)


def _dino_pretraining(modules: Modules, agent: Any, sizes: Sizes) -> int:
    """Two views by student and teacher; the code of s for the actor."""
    n, encoder = sizes.batch_size, net(modules["encoder"])
    return learn(encoder, 2 * n) + forward(encoder, 2 * n) + forward(encoder, n) + _clone(modules, agent, sizes)


def _dino(modules: Modules, agent: Any, sizes: Sizes) -> int:
    return forward(net(modules["encoder"]), 2 * sizes.batch_size) + _rebrac(modules, agent, sizes)


def _bilinear(modules: Modules) -> GCBilinearValue:
    critic = modules["critic"]
    assert isinstance(critic, GCBilinearValue)
    return critic


def _crl_pretraining(modules: Modules, agent: Any, sizes: Sizes) -> int:
    n, critic = sizes.batch_size, _bilinear(modules)
    contrast = learn(critic.phi, n) + learn(critic.psi, n) + 3 * pairs(critic.members, n, critic.latent)
    return contrast + _clone(modules, agent, sizes)


def _td_pretraining(modules: Modules, agent: Any, sizes: Sizes) -> int:
    """psi at s' and at the goals; the targets of both."""
    n, critic = sizes.batch_size, _bilinear(modules)
    contrast = learn(critic.phi, n) + learn(critic.psi, 2 * n) + 3 * pairs(critic.members, n, critic.latent)
    targets = forward(critic.phi, n) + forward(critic.psi, n) + pairs(critic.members, n, critic.latent)
    return contrast + targets + _clone(modules, agent, sizes)


def _contrastive(modules: Modules, agent: Any, sizes: Sizes) -> int:
    """What fine-tuning adds: rewards at s and at the actor's goals, the actor through phi."""
    n, critic, reward = sizes.batch_size, _bilinear(modules), net(modules["reward"])
    values = through(critic.phi, n, sizes.action) + forward(critic.psi, n) + 2 * pairs(critic.members, n, critic.latent)
    return learn(reward, n) + forward(reward, n) + values


def _crl(modules: Modules, agent: Any, sizes: Sizes) -> int:
    return _crl_pretraining(modules, agent, sizes) + _contrastive(modules, agent, sizes)


def _td(modules: Modules, agent: Any, sizes: Sizes) -> int:
    """With next actions of the policy."""
    chosen = forward(net(modules["actor"]), sizes.batch_size)
    return _td_pretraining(modules, agent, sizes) + chosen + _contrastive(modules, agent, sizes)


def _fb_pretraining(modules: Modules, agent: Any, sizes: Sizes) -> int:
    """B at s for latents, pi at s', F and B with their targets, all pairs of both, C; the actor through F."""
    n, d, actor = sizes.batch_size, agent.latent_dim, net(modules["actor"])
    f, b = net(modules["forward_repr"]), net(modules["backward_repr"])
    targets = forward(actor, n) + forward(f, n) + forward(b, n) + pairs(f.members, n, d)
    products = learn(f, n) + learn(b, n) + 3 * pairs(f.members, n, d) + 2 * pairs(1, n, d)
    return forward(b, n) + targets + products + learn(actor, n) + through(f, n, sizes.action)


def _hilp_pretraining(modules: Modules, agent: Any, sizes: Sizes) -> int:
    """phi at s and the goals, its target at s' too; the first member of phi at s' for directions; IQL."""
    n, phi = sizes.batch_size, net(modules["value"])
    members = 1 if "first_member" in sizes.faithful else phi.members
    metric = learn(phi, 2 * n) + forward(phi, 3 * n) + forward(replace(phi, members=members), n)
    return metric + _hilp(modules, agent, sizes)


def _hilp(modules: Modules, agent: Any, sizes: Sizes) -> int:
    return _iql(modules, agent, sizes, "skill_")


def _flow(modules: Modules, agent: Any, sizes: Sizes) -> int:
    """The intention, the field at x and x', its target along the flow and at x'."""
    n, field, d = sizes.batch_size, net(modules["critic_vf"]), agent.latent_dim
    conditions = sizes.code + sizes.action + d
    matched = learn(field, n, d) + learn(field, n)
    return matched + learn(net(modules["intention_encoder"]), n) + euler(field, n, conditions, n, agent.flow_steps + 1)


def _infom_pretraining(modules: Modules, agent: Any, sizes: Sizes) -> int:
    return _flow(modules, agent, sizes) + _clone(modules, agent, sizes)


def _infom(modules: Modules, agent: Any, sizes: Sizes) -> int:
    """States that the flow samples, their rewards; the actor through Q."""
    n, goals, field, critic = sizes.batch_size, agent.flow_goals, net(modules["critic_vf"]), net(modules["critic"])
    reward, conditions = net(modules["reward"]), sizes.code + sizes.action + agent.latent_dim
    sampled = euler(field, goals * n, conditions, n, agent.flow_steps) + forward(reward, goals * n)
    values = learn(reward, n) + learn(critic, n) + through(critic, n, sizes.action)
    return _infom_pretraining(modules, agent, sizes) + sampled + values


COUNTS: dict[str, dict[Phase, Callable[[Modules, Any, Sizes], int]]] = {
    "iql": {"pretraining": _clone, "finetuning": _iql},
    "rebrac": {"pretraining": _clone, "finetuning": _rebrac},
    "crl_infonce": {"pretraining": _crl_pretraining, "finetuning": _crl},
    "td_infonce": {"pretraining": _td_pretraining, "finetuning": _td},
    "fb_repr": {"pretraining": _fb_pretraining, "finetuning": _iql},
    "hilp": {"pretraining": _hilp_pretraining, "finetuning": _hilp},
    "infom": {"pretraining": _infom_pretraining, "finetuning": _infom},
    "dino_rebrac": {"pretraining": _dino_pretraining, "finetuning": _dino},
    "mbpo_rebrac": {"pretraining": _mbpo_pretraining, "finetuning": _mbpo},
}
"""The multiply-adds of an update."""
