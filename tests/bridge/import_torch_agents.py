"""Whole losses in the manner of public one-file agents: each row a function and its arguments."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from bridge.import_torch_cases import gradient_penalty, i, made, n, u
from bridge.import_torch_modules import VectorizedLinear, call, mlp


class Actor(nn.Module):
    """A discrete actor and its critic."""

    def __init__(self, recurrent: bool = False):
        super().__init__()
        self.lstm = nn.LSTM(4, 4) if recurrent else None
        self.actor, self.critic = mlp(4, 3, nn.Tanh), mlp(4, 1, nn.Tanh)

    def get_states(self, x: Tensor, state: tuple[Tensor, Tensor], done: Tensor) -> tuple[Tensor, Any]:
        batch = state[0].shape[1]
        hidden, done, new = x.reshape((-1, batch, 4)), done.reshape((-1, batch)), []
        for h, d in zip(hidden, done, strict=True):
            h, state = self.lstm(
                h.unsqueeze(0), ((1.0 - d).view(1, -1, 1) * state[0], (1.0 - d).view(1, -1, 1) * state[1])
            )
            new += [h]
        return torch.flatten(torch.cat(new), 0, 1), state

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, ...]:
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


def ppo(agent: Actor, b: dict[str, Tensor], clip: float = 0.2) -> tuple[Tensor, dict[str, Tensor]]:
    _, newlogprob, entropy, newvalue = agent.get_action_and_value(b["obs"], b["actions"].long())
    logratio = newlogprob - b["logprobs"]
    ratio = logratio.exp()
    with torch.no_grad():
        approx_kl = ((ratio - 1) - logratio).mean()
        clipfrac = ((ratio - 1.0).abs() > clip).float().mean()
    advantages = (b["advantages"] - b["advantages"].mean()) / (b["advantages"].std() + 1e-8)
    pg_loss1 = -advantages * ratio
    pg_loss2 = -advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
    pg_loss = torch.max(pg_loss1, pg_loss2).mean()
    newvalue = newvalue.view(-1)
    v_loss_unclipped = (newvalue - b["returns"]) ** 2
    v_clipped = b["values"] + torch.clamp(newvalue - b["values"], -clip, clip)
    v_loss = 0.5 * torch.max(v_loss_unclipped, (v_clipped - b["returns"]) ** 2).mean()
    loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
    return loss, {"approx_kl": approx_kl, "clipfrac": clipfrac}


def ppo_lstm(agent: Actor, b: dict[str, Tensor], state: tuple[Tensor, Tensor]) -> Tensor:
    hidden, _ = agent.get_states(b["obs"], state, b["dones"])
    return ppo(agent, {**b, "obs": hidden})[0]


class GaussianActor(nn.Module):
    """A squashed normal policy, as in SAC."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc_mean, self.fc_logstd = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.register_buffer("action_scale", torch.tensor([2.0, 1.0]))
        self.register_buffer("action_bias", torch.tensor([0.0, 0.5]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = F.relu(self.fc1(x))
        log_std = torch.tanh(self.fc_logstd(x))
        return self.fc_mean(x), -5 + 0.5 * (2 + 5) * (log_std + 1)

    def get_action(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_std = self(x)
        normal = Normal(mean, log_std.exp())
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        action = y_t * self.action_scale + self.action_bias
        log_prob = normal.log_prob(x_t) - torch.log(self.action_scale * (1 - y_t.pow(2)) + 1e-6)
        return action, log_prob.sum(1, keepdim=True), torch.tanh(mean) * self.action_scale + self.action_bias


class SoftQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(6, 1)

    def forward(self, x: Tensor, a: Tensor) -> Tensor:
        return self.net(torch.cat([x, a], 1))


def sac_critic(critics: nn.ModuleList, targets: nn.ModuleList, actor: nn.Module, log_alpha: Tensor, b: dict) -> Tensor:
    with torch.no_grad():
        action, log_pi, _ = actor.get_action(b["next"])
        target = torch.min(targets[0](b["next"], action), targets[1](b["next"], action)) - log_alpha.exp() * log_pi
        next_q = b["rewards"].flatten() + (1 - b["dones"].flatten()) * 0.99 * target.view(-1)
    values = [critic(b["obs"], b["actions"]).view(-1) for critic in critics]
    return F.mse_loss(values[0], next_q) + F.mse_loss(values[1], next_q)


def sac_actor(actor: nn.Module, critics: nn.ModuleList, log_alpha: Tensor, b: dict) -> Tensor:
    pi, log_pi, _ = actor.get_action(b["obs"])
    minimum = torch.min(critics[0](b["obs"], pi), critics[1](b["obs"], pi))
    return ((log_alpha.exp().detach() * log_pi) - minimum).mean()


def sac_alpha(log_alpha: Tensor, actor: nn.Module, b: dict) -> Tensor:
    with torch.no_grad():
        _, log_pi, _ = actor.get_action(b["obs"])
    return (-log_alpha.exp() * (log_pi - 2.0)).mean()


def td3_critic(critics: nn.ModuleList, targets: nn.ModuleList, actor: nn.Module, b: dict) -> Tensor:
    with torch.no_grad():
        noise = (torch.randn_like(b["actions"]) * 0.2).clamp(-0.5, 0.5)
        action = (actor(b["next"]).tanh() + noise).clamp(-1, 1)
        target = torch.min(*(q(b["next"], action) for q in targets)).view(-1)
        target = b["rewards"] + (1 - b["dones"]) * 0.99 * target
    return sum(F.mse_loss(q(b["obs"], b["actions"]).view(-1), target) for q in critics)


def ddpg_actor(actor: nn.Module, critics: nn.ModuleList, b: dict) -> Tensor:
    return -critics[0](b["obs"], actor(b["obs"]).tanh()).mean()


def dqn(q: nn.Module, target: nn.Module, b: dict) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        target_max, _ = target(b["next"]).max(dim=1)
        td_target = b["rewards"].flatten() + 0.99 * target_max * (1 - b["dones"].flatten())
    old = q(b["obs"]).gather(1, b["choices"]).squeeze()
    return F.mse_loss(td_target, old), old.mean()


def c51(q: nn.Module, target: nn.Module, b: dict, n_atoms: int = 5) -> Tensor:
    atoms = torch.linspace(-2.0, 2.0, steps=n_atoms, dtype=torch.float64)
    pmf = lambda net, x: torch.softmax(net(x).view(len(x), -1, n_atoms), dim=2)
    with torch.no_grad():
        pmfs = pmf(target, b["next"])
        action = torch.argmax((pmfs * atoms).sum(2), 1)
        next_pmfs = pmfs[torch.arange(len(action)), action]
        next_atoms = b["rewards"].unsqueeze(1) + 0.9 * atoms * (1 - b["dones"].unsqueeze(1))
        delta_z = atoms[1] - atoms[0]
        tz = next_atoms.clamp(-2.0, 2.0)
        at = (tz + 2.0) / delta_z
        low, up = at.floor().clamp(0, n_atoms - 1), at.ceil().clamp(0, n_atoms - 1)
        d_m_l = (up + (low == up).float() - at) * next_pmfs
        d_m_u = (at - low) * next_pmfs
        target_pmfs = torch.zeros_like(next_pmfs)
        for row in range(target_pmfs.size(0)):
            target_pmfs[row].index_add_(0, low[row].long(), d_m_l[row])
            target_pmfs[row].index_add_(0, up[row].long(), d_m_u[row])
    old = pmf(q, b["obs"])[torch.arange(len(action)), b["choices"].flatten()]
    return (-(target_pmfs * old.clamp(min=1e-5, max=1 - 1e-5).log()).sum(-1)).mean()


class Quantiles(nn.Module):
    """An implicit quantile network."""

    def __init__(self):
        super().__init__()
        self.psi, self.phi, self.head = nn.Linear(4, 8), nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("pis", torch.pi * torch.arange(1, 7))

    def forward(self, x: Tensor, taus: Tensor) -> Tensor:
        cosines = torch.cos(taus.unsqueeze(-1) * self.pis)
        return self.head(F.relu(self.psi(x)).unsqueeze(1) * F.relu(self.phi(cosines)))


def iqn(q: nn.Module, target: nn.Module, b: dict, taus: Tensor, next_taus: Tensor) -> Tensor:
    current = q(b["obs"], taus).gather(2, b["choices"].unsqueeze(1).expand(-1, taus.shape[1], 1))
    with torch.no_grad():
        following = target(b["next"], next_taus)
        best = following.mean(1).argmax(1)[:, None, None].expand(-1, next_taus.shape[1], 1)
        goal = b["rewards"][:, None] + 0.99 * (1 - b["dones"][:, None]) * following.gather(2, best).squeeze(2)
    error = goal.unsqueeze(1) - current
    huber = torch.where(error.abs() <= 1, 0.5 * error**2, error.abs() - 0.5)
    return ((taus.unsqueeze(-1) - (error.detach() < 0).double()).abs() * huber).sum(1).mean()


def iql(value: nn.Module, critics: nn.ModuleList, actor: nn.Module, b: dict) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        target_q = torch.min(*(q(b["obs"], b["actions"]) for q in critics)).squeeze(-1)
        next_v = value(b["next"]).squeeze(-1)
    adv = target_q - value(b["obs"]).squeeze(-1)
    value_loss = torch.mean(torch.abs(0.7 - (adv < 0).double()) * adv**2)
    targets = b["rewards"] + (1.0 - b["dones"]) * 0.99 * next_v.detach()
    q_loss = sum(F.mse_loss(q(b["obs"], b["actions"]).squeeze(-1), targets) for q in critics) / len(critics)
    exp_adv = torch.exp(3.0 * adv.detach()).clamp(max=100.0)
    mean, log_std = actor(b["obs"])
    return value_loss, q_loss, torch.mean(exp_adv * -Normal(mean, log_std.exp()).log_prob(b["actions"]).sum(-1))


def inferred(module: nn.Module, x: Tensor) -> Tensor:
    with torch.inference_mode():
        target = module(x)
    return (module(x) - target.clone()).square().sum()


def shifted(x: Tensor, pad: int = 2) -> Tensor:
    """Images moved by a few pixels at random, as in DrQ."""
    size, _, h, _ = x.size()
    x = F.pad(x, (pad,) * 4, "replicate")
    eps = 1.0 / (h + 2 * pad)
    line = torch.linspace(-1.0 + eps, 1.0 - eps, h + 2 * pad, dtype=x.dtype)[:h]
    line = line.unsqueeze(0).repeat(h, 1).unsqueeze(2)
    grid = torch.cat([line, line.transpose(1, 0)], dim=2).unsqueeze(0).repeat(size, 1, 1, 1)
    shift = torch.randint(0, 2 * pad + 1, size=(size, 1, 1, 2), dtype=x.dtype) * 2.0 / (h + 2 * pad)
    return F.grid_sample(x, grid + shift, padding_mode="zeros", align_corners=False)


def edac(critics: nn.Module, b: dict) -> Tensor:
    """The diversity of an ensemble: its gradients of the action should not be alike."""
    size = 3
    state = b["obs"].unsqueeze(0).repeat_interleave(size, dim=0)
    action = b["actions"].unsqueeze(0).repeat_interleave(size, dim=0).requires_grad_(True)
    q = critics(torch.cat([state, action], -1)).squeeze(-1)
    (grad,) = torch.autograd.grad(q.sum(), action, retain_graph=True, create_graph=True)
    grad = (grad / (torch.norm(grad, p=2, dim=2).unsqueeze(-1) + 1e-10)).transpose(0, 1)
    masks = torch.eye(size).unsqueeze(0).repeat(b["obs"].shape[0], 1, 1)
    grad = (1 - masks) * (grad @ grad.permute(0, 2, 1))
    return grad.sum(dim=(1, 2)).mean() / (size - 1)


def vtrace(agent: Actor, b: dict[str, Tensor]) -> Tensor:
    """Importance-weighted targets, as in IMPALA."""
    logits, values = agent.actor(b["obs"]), agent.critic(b["obs"]).squeeze(-1)
    log_rhos = (F.log_softmax(logits, -1).gather(-1, b["choices"]).squeeze(-1) - b["logprobs"]).detach()
    with torch.no_grad():
        rhos = torch.clamp(log_rhos.exp(), max=1.0)
        next_values = torch.cat([values[1:], values[-1:]])
        deltas = rhos * (b["rewards"] + 0.99 * next_values - values)
        acc, out = torch.zeros_like(values[-1]), []
        for t in range(len(deltas) - 1, -1, -1):
            acc = deltas[t] + 0.99 * rhos[t] * acc
            out.append(acc)
        out.reverse()
        vs = torch.add(torch.stack(out), values)
        advantages = rhos * (b["rewards"] + 0.99 * torch.cat([vs[1:], vs[-1:]]) - values)
    policy = F.nll_loss(F.log_softmax(logits, -1), b["choices"].flatten(), reduction="none") * advantages
    entropy = (F.softmax(logits, -1) * F.log_softmax(logits, -1)).sum()
    return policy.sum() + 0.5 * ((vs - values) ** 2).sum() + 0.01 * entropy


BATCH = {
    "obs": n(6, 4),
    "next": n(6, 4),
    "actions": u(6, 2),
    "choices": i(3, 6, 1),
    "rewards": n(6),
    "dones": i(2, 6).double(),
}
ROLLOUT = {
    "obs": n(6, 4),
    "actions": i(3, 6),
    "logprobs": -u(6) - 0.5,
    "advantages": n(6),
    "returns": n(6),
    "values": n(6),
    "dones": i(2, 6).double(),
}
LOG_ALPHA = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))


def two_critics() -> nn.Module:
    return made(lambda: nn.ModuleList([SoftQ(), SoftQ()]))


LOSSES: dict[str, tuple[Any, ...]] = {
    "ppo": (ppo, made(Actor), ROLLOUT),
    "ppo of an lstm": (ppo_lstm, made(lambda: Actor(True)), ROLLOUT, (n(1, 2, 4), n(1, 2, 4))),
    "dqn": (dqn, made(lambda: mlp(4, 3)), made(lambda: mlp(4, 3)), BATCH),
    "c51": (c51, made(lambda: mlp(4, 15)), made(lambda: mlp(4, 15)), BATCH),
    "iqn": (iqn, made(Quantiles), made(Quantiles), BATCH, u(6, 4), u(6, 5)),
    "ddpg actor": (ddpg_actor, made(lambda: mlp(4, 2)), two_critics(), BATCH),
    "iql": (iql, made(lambda: mlp(4, 1)), two_critics(), made(GaussianActor), BATCH),
    "edac": (edac, made(lambda: nn.Sequential(VectorizedLinear(6, 5, 3), nn.Tanh(), VectorizedLinear(5, 1, 3))), BATCH),
    "impala": (vtrace, made(Actor), {**BATCH, "logprobs": -u(6)}),
    "vmapped ensemble": (lambda w, x: torch.vmap(lambda w: (x @ w).tanh().sum(0))(w), n(3, 4, 2), n(5, 4)),
    "functional call": (
        lambda m, x: torch.func.functional_call(m, {k: 2 * p for k, p in m.named_parameters()}, (x,)),
        made(lambda: mlp(4, 2)),
        n(3, 4),
    ),
    "jacobian": (lambda x: torch.func.jacrev(lambda y: (y**3).tanh().sigmoid().relu())(x), n(4)),
    "gradients of each sample": (
        lambda w, x: torch.func.vmap(torch.func.grad(lambda w, y: (y @ w).tanh().sum()), in_dims=(None, 0))(w, x),
        n(4, 2),
        n(3, 4),
    ),
    "inference mode": (inferred, made(lambda: mlp(4, 2)), n(3, 4)),
    "gradient penalty of a convolution": (
        lambda m, x: gradient_penalty(lambda y: m(y.view(5, 1, 4, 4)), x),
        made(lambda: nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(48, 1))),
        n(5, 16),
    ),
    "gradient penalty of many activations": (
        gradient_penalty,
        made(
            lambda: nn.Sequential(
                nn.Linear(4, 5),
                nn.Softmax(-1),
                nn.GELU(),
                nn.Linear(5, 5),
                nn.Softplus(),
                nn.Sigmoid(),
                nn.Linear(5, 1),
            )
        ),
        n(5, 4),
    ),
    "gradient penalty": (gradient_penalty, made(lambda: mlp(4, 1, nn.ELU)), n(5, 4)),
    "gradient penalty of relu": (gradient_penalty, made(lambda: mlp(4, 1)), n(5, 4)),
    "gradient penalty of layer norm": (
        gradient_penalty,
        made(lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 1))),
        n(5, 4),
    ),
}

NOISY: dict[str, tuple[Any, ...]] = {
    "dropout": (call, made(lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 2))), n(5, 4)),
    "encoder layer": (call, made(lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.2)), n(4, 2, 8)),
    "lstm dropout": (call, made(lambda: nn.LSTM(3, 4, 2, dropout=0.5)), n(4, 2, 3)),
    "sac critic": (sac_critic, two_critics(), two_critics(), made(GaussianActor), LOG_ALPHA, BATCH),
    "sac actor": (sac_actor, made(GaussianActor), two_critics(), LOG_ALPHA, BATCH),
    "sac alpha": (sac_alpha, LOG_ALPHA, made(GaussianActor), BATCH),
    "td3 critic": (td3_critic, two_critics(), two_critics(), made(lambda: mlp(4, 2)), BATCH),
    "rand": (
        lambda x: x * torch.rand(3, dtype=x.dtype) + torch.rand_like(x) + torch.empty_like(x).uniform_(-2, 3),
        n(3),
    ),
    "normal": (
        lambda x: torch.normal(x.detach(), 2.0) * x + torch.randn(3, dtype=x.dtype) + torch.normal(0.0, 1.0, (3,)),
        n(3),
    ),
    "integers": (lambda x: x[torch.randint(4, (5,))] + x[torch.randint(1, 3, (5,))] + x[torch.randperm(4)][0], n(4)),
    "bernoulli": (lambda p: (torch.bernoulli(p) * p, torch.distributions.Bernoulli(p).sample()), u(20)),
    "multinomial": (
        lambda p: (torch.multinomial(p, 4, True), p.multinomial(2), Categorical(probs=p).sample((3,))),
        u(5, 6),
    ),
    "gumbel softmax": (lambda x: F.gumbel_softmax(x, tau=0.5, hard=True), n(5, 3)),
    "laws": (
        lambda m, s: tuple(
            law.rsample()
            for law in (
                Normal(m, s),
                torch.distributions.Laplace(m, s),
                torch.distributions.Exponential(s),
                torch.distributions.Uniform(m, m + s),
            )
        ),
        n(4),
        u(4),
    ),
    "random shifts": (shifted, n(2, 3, 6, 6)),
    "random policy": (lambda agent, x: agent.get_action_and_value(x), made(Actor), n(6, 4)),
}
