"""The torch half. Twin: system_jax.py."""

import torch
from torch import Tensor, nn

from crossfade.bridge.optimizers.state_torch import advance
from crossfade.optim import eager_torch, functional_torch
from crossfade.optim.ema_torch import ema
from crossfade.trainers.system import Objective, PureState, Scheduled

from . import CLIP_NORM, DECAY, GAMMA, MOMENTUM, NETWORKS, PERIOD, RATE, STATES, Batch, Shared


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        for name, (a, b, c) in NETWORKS.items():
            for network in (name, f"target_{name}"):
                setattr(self, network, nn.ModuleList([nn.Linear(a, b), nn.Linear(b, c)]))
        self.target_actor.requires_grad_(False)
        self.target_critic.requires_grad_(False)
        self.register_buffer("mean", torch.zeros(STATES))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))


def network(layers: nn.ModuleList, x: Tensor) -> Tensor:
    return layers[1](layers[0](x).tanh())


def action(policy: Policy, actor: nn.ModuleList, state: Tensor) -> Tensor:
    return network(actor, state - policy.mean).tanh()


def value(policy: Policy, critic: nn.ModuleList, state: Tensor, action: Tensor) -> Tensor:
    return network(critic, torch.cat([state - policy.mean, action], -1))[:, 0]


def critic_loss(policy: Policy, batch: Batch):
    """mean (Q(s, a) - r - gamma Q'(s', mu'(s')))^2."""
    with torch.no_grad():
        after = action(policy, policy.target_actor, batch.after)
        goal = batch.reward + GAMMA * value(policy, policy.target_critic, batch.after, after)
    loss = (value(policy, policy.critic, batch.state, batch.action) - goal).square().mean()
    return loss, {"critic_loss": loss}


def actor_loss(policy: Policy, batch: Batch):
    """-mean Q(s, mu(s))."""
    loss = -value(policy, policy.critic, batch.state, action(policy, policy.actor, batch.state)).mean()
    return loss, {"actor_loss": loss}


class ActorCritic(Shared):
    collect_one_by_one = Shared.collect

    def make_policy(self, parameters):
        policy = Policy().to(getattr(torch, self.config.dtype))
        policy.load_state_dict({name: torch.tensor(array) for name, array in parameters.items()})
        return policy

    def make_optimizers(self, policy):
        critic = torch.optim.SGD(policy.critic.parameters(), lr=self.config.lr, momentum=MOMENTUM)
        actor = torch.optim.Adam(policy.actor.parameters(), lr=self.config.lr / 5)
        schedule = torch.optim.lr_scheduler.StepLR(critic, PERIOD, DECAY)
        return {"critic": Scheduled(critic, schedule), "actor": Scheduled(actor)}

    def tensors(self, batch):
        return Batch(*map(torch.from_numpy, batch[:-1]), torch.tensor(batch.update))

    def objectives(self):
        return {"critic": Objective(critic_loss), "actor": Objective(actor_loss, CLIP_NORM)}

    def update(self, policy, optimizers, batch):
        steps = {
            name: lambda b, own=own, made=optimizers[name]: eager_torch.update(
                policy, made.optimizer, own.loss, b, own.clip_norm
            )
            for name, own in self.objectives().items()
        }
        return self._learn(policy, optimizers, batch, steps)

    def learn(self, policy, optimizers, batch, steps):
        return self._learn(policy, optimizers, self.tensors(batch), steps)

    def _learn(self, policy, optimizers, batch, steps):
        policy.load_state_dict(observed(policy.state_dict(), batch.state))
        info = {"actor_loss": 0.0, **steps["critic"](batch)}
        advance(optimizers["critic"].scheduler, 1)
        if batch.update % 2 == 1:
            info |= steps["actor"](batch)
        policy.load_state_dict(averaged(policy.state_dict()))
        return info

    def pure_update(self, policy, compile):
        records, rates = self.optimizer_records(0), torch.tensor(self.config.lr, dtype=torch.float64)
        critic_step = functional_torch.descent(policy, records["critic"], critic_loss)
        actor_step = functional_torch.descent(policy, records["actor"], actor_loss, CLIP_NORM)

        def update(state, batch, delayed):
            moments, params = dict(state.moments), observed(state.params, batch.state)
            rate = rates * DECAY ** torch.floor(moments["critic"].step / PERIOD)
            params, moments["critic"], info = critic_step(params, moments["critic"], batch, [rate])
            info |= {"actor_loss": 0.0}
            if not delayed:
                params, moments["actor"], told = actor_step(params, moments["actor"], batch)
                info |= told
            return PureState(averaged(params), moments), info

        update = compile(update)
        return lambda state, batch: update(state, batch, bool(batch.update % 2 == 0))

    def act(self, policy, state):
        return action(policy, policy.actor, torch.from_numpy(state)).detach().numpy()


def observed(params: dict[str, Tensor], state: Tensor) -> dict[str, Tensor]:
    """The running mean of states after a batch of them."""
    updates = params["updates"] + 1
    mean = params["mean"] + (state.mean(0) - params["mean"]) / updates
    return params | {"updates": updates, "mean": mean}


def averaged(params: dict[str, Tensor]) -> dict[str, Tensor]:
    """The target networks after an update."""
    targets = {name: p for name, p in params.items() if name.startswith("target_")}
    return params | ema(targets, {name: params[name.removeprefix("target_")] for name in targets}, RATE)
