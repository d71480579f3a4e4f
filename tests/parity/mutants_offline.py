"""Planted bugs in the torch half of the offline agents: the defects F01 to F47 of a published port that failed.

The JAX half, and all of the torch half that a bug does not name, is what is shipped. A bug is planted by exchanging a
function while the torch half runs, or by a setting that it alone has. mutants_offline_data.py: data, starts, actions.

    plain crashes, nothing to plant      F01 F02 F03 F04 F05 F06 F08 F09 F10 F11
    protocol, without a number here      F38 validation losses left out    F42 a terminal added instead of an error
                                         F47 no tests
    planted                              the other 34, some of them in several places
"""

from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from mutants_iqn import part, patched
from torch import nn

from crossfade.algos.offline import encoders, encoders_torch, learner_torch, modules, networks_jax, networks_torch
from crossfade.algos.offline.crl_infonce import agent_torch as crl
from crossfade.algos.offline.dino_rebrac import agent_torch as dino
from crossfade.algos.offline.fb_repr import agent_torch as fb
from crossfade.algos.offline.infom import agent_torch as infom
from crossfade.algos.offline.iql import agent_torch as iql
from crossfade.algos.offline.parameters import laws
from crossfade.algos.offline.rebrac import agent_torch as rebrac
from crossfade.algos.offline.td_infonce import agent_torch as td
from crossfade.bridge import Mapping
from crossfade.nn.initial import draw
from crossfade.parity import Twin
from crossfade.random import random_numpy
from crossfade.systems.offline.twin import offline

CRASHES = ("F01", "F02", "F03", "F04", "F05", "F06", "F08", "F09", "F10", "F11")
WITHOUT_A_NUMBER = ("F38", "F42", "F47")
PRE = "pretrain=1000"
whole = cache(offline)


class Planted(NamedTuple):
    """A bug: the agent it is planted into, and what is exchanged while the torch half runs."""

    level: str
    words: tuple[str, ...]
    patches: tuple[tuple[Any, str, Any], ...] = ()
    torch_words: tuple[str, ...] | None = None
    """The words of the torch half, where they are others."""


def planted(name: str, bug: Planted, *fields: str, plant: bool = True) -> Twin:
    """The twin of a bug with some of its levels; without `plant` the same twin without the bug."""
    bug = bug if plant else Planted(bug.level, bug.words)
    twin, wrong = whole(*bug.words), whole(*(bug.torch_words or bug.words))
    pairs = {f: (patched(getattr(wrong, f)[0], *bug.patches), getattr(twin, f)[1]) for f in fields}
    return part(name, twin, **pairs, **({"optimizer": twin.optimizer} if "update" in fields else {}))


def within(module: Any, name: str, change: Any) -> tuple[Any, str, Any]:
    """A function of a module, changed: `change(right, *given)` instead of `right(*given)`."""
    right = getattr(module, name)
    return module, name, lambda *given, **named: change(right, *given, **named)


# Networks


def norm_first(mlp, x):
    xs = [x] * mlp.spec.members
    for i, layer in enumerate(mlp.layers):
        xs = layer(xs)
        if i < len(mlp.layers) - 1 or mlp.spec.activate_final:
            xs = mlp.norms[i](xs) if mlp.spec.layer_norm else xs
            xs = [F.gelu(x, approximate="tanh") for x in xs]
    return xs[0] if mlp.spec.members == 1 else torch.stack(xs)


def wider(right, actor, x):
    found = right(actor, x)
    return networks_torch.Normal(found.mean, found.log_std + 1, found.squashed)


def coded_twice(right, value, observations, actions=None):
    return right(value, observations if value.encoder is None else value.encoder(observations), actions)


IQL, DINO = ("agent=iql",), ("agent=dino_rebrac",)
NETWORKS = {
    "F24 norm before the activation": Planted("forward", IQL, ((networks_torch.MLP, "forward", norm_first),)),
    "F24 epsilon 1e-5": Planted("forward", IQL, ((networks_torch, "EPS", 1e-5),)),
    "F24 exact gelu": Planted("forward", IQL, (within(F, "gelu", lambda right, x, approximate: right(x)),)),
    "F26 standard deviation e": Planted("forward", IQL, (within(networks_torch._Actor, "_distribution", wider),)),
    "F27 encoder with an active last layer": Planted(
        "forward", DINO, (within(encoders_torch.MLPEncoder, "forward", lambda right, *x: F.gelu(right(*x))),)
    ),
    "F23 observations encoded twice": Planted(
        "forward",
        ("agent=infom", "encoder=mlp", "encoder_hidden=8,2"),
        (within(networks_torch.Value, "forward", coded_twice),),
    ),
}


def offline_network(bug: str | None = None, plant: bool = True) -> Twin:
    return planted("offline_network", NETWORKS[bug] if bug else Planted("", IQL), "forward", plant=plant)


# Encoders of images


def flat_by_channels(encoder, observations):
    x = encoders_torch._maps(observations, encoder.mlp.layers[0].weight) / 255
    for stack in encoder.stacks:
        x = stack(x)
    return encoder.mlp(x.relu().flatten(1))


def batch_norm(norm, x):
    return F.batch_norm(x, None, None, norm.weight, norm.bias, training=True, eps=norm.eps)


SHAPE = (12, 12, 3)
IMPALA, RESNET = encoders.Impala(SHAPE, (4, 4), 1, 6), encoders.ResNet34(SHAPE, (1, 1), 8)
ENCODERS = {
    "F28 flattened by channels": (IMPALA, (encoders_torch.Impala, "forward", flat_by_channels)),
    "F28 pooled with equal padding": (IMPALA, (encoders_torch, "_pooled", lambda x: F.max_pool2d(x, 3, 2, 1))),
    "F28 images not permuted": (
        IMPALA,
        (encoders_torch, "_maps", lambda x, like: x.reshape(len(x), 3, *SHAPE[:2]).to(like.dtype)),
    ),
    "F29 relu for swish": (RESNET, (F, "silu", F.relu)),
    "F29 norm over the batch": (RESNET, (nn.GroupNorm, "forward", batch_norm)),
}


def offline_encoder(bug: str | None = None, plant: bool = True) -> Twin:
    spec = {"coder": modules.Coder(ENCODERS[bug][0] if bug else IMPALA)}
    start = draw(laws(spec), random_numpy.key(0))
    numbers = {
        name: a + 0.3 * random_numpy.normal(random_numpy.key(i), a.shape) for i, (name, a) in enumerate(start.items())
    }
    ours, theirs = (half.make_policy(spec, numbers, "float32") for half in (networks_torch, networks_jax))
    images = random_numpy.randint(random_numpy.key(1), (3, *SHAPE), 0, 256).astype("uint8")
    forward = lambda policy, batch: policy["coder"](batch)
    return Twin(
        "offline_encoder",
        torch=ours,
        jax=theirs,
        mapping=Mapping.by_name(ours, theirs),
        batch=images,
        forward=(patched(forward, *([ENCODERS[bug][1]] if bug and plant else [])), forward),
    )


# Losses


def diagonals_alone(right, values, how):
    """Rows that hold the diagonal: what a critic of single pairs has to sum over."""
    m = right(values, how)
    return m.diagonal().expand(m.shape)


def twice(right, *given):
    value, info = right(*given)
    return 2 * value, info


def penalty_without_noise(policy, batch, config):
    agent = config.agent
    with torch.no_grad():
        noise = (agent.actor_noise * batch.noise["target_action"]).clamp(-agent.noise_clip, agent.noise_clip)
        mode = policy["target_actor"](batch.next_observations).mode()
        after = policy["target_critic"](batch.next_observations, (mode + noise).clamp(-1, 1)).amin(0)
        after = after - agent.alpha_critic * (mode - batch.next_actions).square().sum(-1)
        y = batch.rewards + config.gamma * batch.masks * after
    q = policy["critic"](batch.observations, batch.actions)
    return (q - y).square().mean(), {"q": q.mean()}


def wrong_sign(right, *given):
    _, told = right(*given)
    return told["off_diagonal"] + told["diagonal"], told


def other_figures(right, policy, batch, config):
    value, told = right(policy, batch, config)
    return value, {"diagonal": told["diagonal"], "off_diagonal": told["off_diagonal"].sqrt()}


def first_two_rows(right, values, how):
    return torch.minimum(values[:, 0], values[:, 1])


CRL, TD, INFOM, REBRAC, MBPO = (
    (f"agent={name}",) for name in ("crl_infonce", "td_infonce", "infom", "rebrac", "mbpo_rebrac")
)
FB = ("agent=fb_repr", PRE)
LOSSES = {
    "F07 two samples for the two members": Planted(
        "loss", (*IQL, "batch_size=2"), (within(iql, "aggregate", first_two_rows),)
    ),
    "F12 pairs on the diagonal alone": Planted("loss", CRL, (within(crl, "aggregate", diagonals_alone),)),
    "F13 expectile of the members' mean": Planted(
        "loss", INFOM, (within(infom, "expectile_loss", lambda right, u, x, k: right(u.mean(0), x.mean(0), k)),)
    ),
    "F14 errors of members summed": Planted("loss", REBRAC, (within(rebrac, "critic_loss", twice),)),
    "F14 errors of members summed, in MBPO": Planted("loss", MBPO, (within(rebrac, "critic_loss", twice),)),
    "F14 errors of members summed, in DINO": Planted("loss", DINO, (within(dino, "critic_loss", twice),)),
    "F15 penalty without noise": Planted("loss", MBPO, ((rebrac, "critic_loss", penalty_without_noise),)),
    "F16 diagonal with the other sign": Planted("loss", FB, (within(fb, "repr_loss", wrong_sign),)),
    "F16 minimum of the members": Planted("loss", FB, torch_words=(*FB, "agent.repr_agg=min")),
    "F17 minimum of the members": Planted("loss", TD, torch_words=(*TD, "agent.logit_agg=min")),
    "F36 other defaults": Planted("loss", INFOM, torch_words=(*INFOM, "agent.kl_weight=0.1", "agent.alpha=0.3")),
    "F45 other figures told": Planted("loss", FB, (within(fb, "repr_loss", other_figures),)),
}


def offline_loss(bug: str | None = None, plant: bool = True) -> Twin:
    return planted("offline_loss", LOSSES[bug] if bug else Planted("", REBRAC), "loss", plant=plant)


# Gradients


def constant_latents(right, field, x, t, observations, actions, latents):
    return right(field, x, t, observations, actions, latents.detach())


def codes_that_learn(policy, batch, config):
    with torch.no_grad():
        next_states = policy["target_encoder"](batch.next_observations)
    return batch._replace(observations=policy["encoder"](batch.observations), next_observations=next_states)


def rewards_of_codes(policy, batch, config):
    states = policy["critic_vf_encoder"](batch.observations)
    return (policy["reward"](states) - batch.rewards).square().mean(), {}


attached = lambda agent: (agent, "frozen", lambda module: module)
constant_actions = lambda agent: within(agent, "policy_action", lambda right, *given: right(*given).detach())
constant_values = lambda module: lambda *given: module(*given).detach()
DDPG = (*IQL, "agent.actor_loss=ddpgbc")
GRADIENTS = {
    "F18 samples without a gradient": Planted(
        "grad", INFOM, (within(networks_torch.VectorField, "forward", constant_latents),)
    ),
    "F19 values without a gradient": Planted("grad", INFOM, ((infom, "frozen", constant_values),)),
    "F20 actions without a gradient": Planted("grad", CRL, (constant_actions(crl), attached(crl))),
    "F21 the actor teaches the critic, in CRL": Planted("grad", CRL, (attached(crl),)),
    "F21 the actor teaches the critic, in TD": Planted("grad", TD, (attached(td),)),
    "F21 the actor teaches the critic, in IQL": Planted("grad", DDPG, (attached(iql),)),
    "F21 the actor teaches the critic, in DINO": Planted("grad", DINO, (attached(rebrac),)),
    "F21 the actor teaches the critic, in MBPO": Planted("grad", MBPO, (attached(rebrac),)),
    "F22 fine-tuning teaches the encoder": Planted("grad", DINO, ((dino, "prepare", codes_that_learn),)),
    "F23 rewards teach the encoder": Planted(
        "grad", (*INFOM, "encoder=mlp"), ((infom, "reward_loss", rewards_of_codes),)
    ),
}


def offline_gradient(bug: str | None = None, plant: bool = True) -> Twin:
    return planted("offline_gradient", GRADIENTS[bug] if bug else Planted("", DDPG), "loss", plant=plant)


# Updates


def idle_skipped(policy, optimizer, batch, config):
    before = learner_torch.remember(policy, batch, config)
    value, info = learner_torch.loss(policy, batch, config)
    optimizer.zero_grad(set_to_none=True)
    value.backward()
    optimizer.step()
    learner_torch.follow(policy, before, batch, config)
    return info


def late(right, policy, before, batch, config):
    right(policy, learner_torch.remember(policy, batch, config), batch, config)


def forgetful(right, policy, optimizer, batch, config):
    optimizer.state.clear()
    return right(policy, optimizer, batch, config)


UPDATES = {
    "F30 idle modules skipped": Planted("updates", IQL, ((learner_torch, "update", idle_skipped),)),
    "F31 targets follow after the step": Planted("update", IQL, (within(learner_torch, "follow", late),)),
    "F33 a centre that moves": Planted("update", (*DINO, PRE), torch_words=(*DINO, PRE, "corrected=constant_center")),
    "F34 targets not reset": Planted(
        "updates", (*TD, "pretrain=3"), ((learner_torch, "reset_targets", lambda *given: None),)
    ),
    "F46 moments lost on the way": Planted("updates", REBRAC, (within(learner_torch, "update", forgetful),)),
}


def offline_update(bug: str | None = None, plant: bool = True) -> Twin:
    return planted("offline_update", UPDATES[bug] if bug else Planted("", REBRAC), "update", plant=plant)


FAMILIES = {
    offline_network: {bug: own.level for bug, own in NETWORKS.items()},
    offline_encoder: dict.fromkeys(ENCODERS, "forward"),
    offline_loss: {bug: own.level for bug, own in LOSSES.items()},
    offline_gradient: {bug: own.level for bug, own in GRADIENTS.items()},
    offline_update: {bug: own.level for bug, own in UPDATES.items()},
}
QUICK = {
    offline_network: ("F24 epsilon 1e-5",),
    offline_encoder: ("F28 pooled with equal padding",),
    offline_loss: ("F14 errors of members summed",),
    offline_gradient: ("F21 the actor teaches the critic, in IQL",),
    offline_update: ("F31 targets follow after the step",),
}
"""One of each kind, for the default run."""
SLOW = {make.__name__ for make in FAMILIES} | {
    bug for make, bugs in FAMILIES.items() for bug in bugs if bug not in QUICK[make]
}
