"""Steps of actor-critic methods: the loss goes through parameters that its optimiser does not own."""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from step_nets import assert_same_optimizer, distance, tensors
from torch import nn

from crossfade.bridge import Mapping, Step
from crossfade.errors import DifferentError
from default_run import few

OBS, ACT = 3, 2


class TorchAgent(nn.Module):
    """An actor, two critics and their targets in one module, as the mapping needs them."""

    def __init__(self):
        super().__init__()
        self.actor = nn.Linear(OBS, 2 * ACT)
        self.q1, self.q2 = nn.Linear(OBS + ACT, 1), nn.Linear(OBS + ACT, 1)
        self.target1, self.target2 = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        self.log_alpha = nn.Parameter(torch.tensor([-1.0]))


class JaxAgent(eqx.Module):
    actor: eqx.nn.Linear
    q1: eqx.nn.Linear
    q2: eqx.nn.Linear
    target1: eqx.nn.Linear
    target2: eqx.nn.Linear
    log_alpha: jax.Array

    def __init__(self):
        linear = lambda a, b: eqx.nn.Linear(a, b, key=jax.random.key(0))
        self.actor = linear(OBS, 2 * ACT)
        self.q1, self.q2, self.target1, self.target2 = (linear(OBS + ACT, 1) for _ in range(4))
        self.log_alpha = jnp.zeros(1)


def torch_q(critic, obs, action):
    return critic(torch.cat([obs, action], 1))[:, 0]


def jax_q(critic, obs, action):
    return jax.vmap(critic)(jnp.concatenate([obs, action], 1))[:, 0]


def torch_sample(agent, obs, noise):
    mean, log_std = agent.actor(obs).chunk(2, 1)
    action = torch.tanh(mean + log_std.exp() * noise)
    return action, (-log_std - 0.5 * noise**2 - torch.log(1 - action**2 + 1e-6)).sum(1)


def jax_sample(agent, obs, noise):
    mean, log_std = jnp.split(jax.vmap(agent.actor)(obs), 2, 1)
    action = jnp.tanh(mean + jnp.exp(log_std) * noise)
    return action, (-log_std - 0.5 * noise**2 - jnp.log(1 - action**2 + 1e-6)).sum(1)


ACTORS = {
    "DDPG": (
        lambda a, b: -torch_q(a.q1, b["obs"], torch.tanh(a.actor(b["obs"])[:, :ACT])).mean(),
        lambda a, b: -jax_q(a.q1, b["obs"], jnp.tanh(jax.vmap(a.actor)(b["obs"])[:, :ACT])).mean(),
    ),
    "TD3": (
        lambda a, b: -torch_q(a.q1, b["obs"], torch_sample(a, b["obs"], 0 * b["noise"])[0]).mean(),
        lambda a, b: -jax_q(a.q1, b["obs"], jax_sample(a, b["obs"], 0 * b["noise"])[0]).mean(),
    ),
}


def torch_sac(agent, b):
    action, log_prob = torch_sample(agent, b["obs"], b["noise"])
    q = torch.min(torch_q(agent.q1, b["obs"], action), torch_q(agent.q2, b["obs"], action))
    return (agent.log_alpha.exp() * log_prob - q).mean()


def jax_sac(agent, b):
    action, log_prob = jax_sample(agent, b["obs"], b["noise"])
    q = jnp.minimum(jax_q(agent.q1, b["obs"], action), jax_q(agent.q2, b["obs"], action))
    return (jnp.exp(agent.log_alpha) * log_prob - q).mean()


ACTORS["SAC"] = torch_sac, jax_sac


def torch_critics(a, b):
    with torch.no_grad():
        action = torch_sample(a, b["obs"], b["noise"])[0]
        y = b["reward"] + 0.9 * torch.min(torch_q(a.target1, b["obs"], action), torch_q(a.target2, b["obs"], action))
    return sum(((torch_q(q, b["obs"], b["act"]) - y) ** 2).mean() for q in (a.q1, a.q2))


def jax_critics(a, b):
    action = jax_sample(a, b["obs"], b["noise"])[0]
    y = b["reward"] + 0.9 * jnp.minimum(jax_q(a.target1, b["obs"], action), jax_q(a.target2, b["obs"], action))
    y = jax.lax.stop_gradient(y)
    return sum(((jax_q(q, b["obs"], b["act"]) - y) ** 2).mean() for q in (a.q1, a.q2))


def draw(count):
    rng = np.random.default_rng(3)
    shapes = {"obs": (4, OBS), "act": (4, ACT), "noise": (4, ACT), "reward": (4,)}
    return [{n: rng.normal(size=shape) for n, shape in shapes.items()} for _ in range(count)]


def agent() -> tuple[TorchAgent, torch.optim.Optimizer, torch.optim.Optimizer]:
    torch.manual_seed(0)
    made = TorchAgent().double()
    critics = torch.optim.Adam([*made.q1.parameters(), *made.q2.parameters()], 0.01)
    return made, critics, torch.optim.Adam(made.actor.parameters(), 0.02)


def follow(agent):
    for q, target in ((agent.q1, agent.target1), (agent.q2, agent.target2)):
        for new, old in zip(q.parameters(), target.parameters(), strict=True):
            old.data.copy_(0.1 * new.data + 0.9 * old.data)


def by_torch(agent, optimizer, loss):
    def step(batch):
        value = loss(agent, tensors(batch))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.detach()

    return step


@pytest.mark.parametrize("name", few(ACTORS, "SAC"))
def test_actor_and_critics_train_in_turns_as_in_torch(name, x64):
    """Two steps over one module, each with its own optimiser, and targets that follow in torch; both proofs on."""
    torch_actor, jax_actor = ACTORS[name]
    net, *optimizers = agent()
    reference, *reference_optimizers = copy.deepcopy((net, *optimizers))
    mapping = Mapping.by_name(net, JaxAgent())
    steps = [
        Step(net, optimizers[0], jax_critics, mapping, torch_loss=torch_critics),
        Step(net, optimizers[1], jax_actor, mapping, torch_loss=torch_actor),
    ]
    expected = [
        by_torch(reference, optimizer, loss)
        for optimizer, loss in zip(reference_optimizers, (torch_critics, torch_actor), strict=True)
    ]
    for i, batch in enumerate(draw(4)):
        for step, reference_step in zip(steps[: 1 + i % 2], expected[: 1 + i % 2], strict=True):  # TD3 delays the actor
            torch.testing.assert_close(step(batch), reference_step(batch), rtol=1e-12, atol=0)
        follow(net)
        follow(reference)
    assert distance(net, reference) <= 1e-12
    for optimizer, reference_optimizer in zip(optimizers, reference_optimizers, strict=True):
        assert_same_optimizer(optimizer, reference_optimizer)
    assert all(step.stats.compiles == 1 for step in steps)
    assert {row.worst.split(".")[0] for row in steps[1].proof if row.quantity == "gradient"} == {"actor"}


def test_the_proof_leaves_gradients_of_others_alone(x64):
    net, _, optimizer = agent()
    torch_actor, jax_actor = ACTORS["DDPG"]
    critic = net.q1

    def with_outer_critic(given, batch):
        given.q1 = critic if batch["obs"].dtype == torch.float64 else given.q1
        return torch_actor(given, batch)

    Step(net, optimizer, jax_actor, Mapping.by_name(net, JaxAgent()), torch_loss=with_outer_critic)(draw(1)[0])
    assert critic.weight.grad is None


def test_an_owned_parameter_that_jax_does_not_train_is_refused(x64):
    net, critics, _ = agent()
    detached = lambda a, b: jax_critics(eqx.tree_at(lambda x: x.q2, a, jax.lax.stop_gradient(a.q2)), b)
    step = Step(net, critics, detached, Mapping.by_name(net, JaxAgent()), torch_loss=torch_critics)
    with pytest.raises(DifferentError, match=r"gradient in float64 \((missing|values)\): q2"):
        step(draw(1)[0])
