"""The zoo, torch side: small networks as reinforcement learning uses them, each with one difficulty of matching."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crossfade.nn.noisy_torch import NoisyLinear


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Shuffled(nn.Module):
    """Equal shapes, declared in another order than used."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.third = nn.Linear(4, 4)
        self.first = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.third(F.relu(self.second(F.relu(self.first(x)))))))


class ActorCritic(nn.Module):
    """Two heads of equal shape on one trunk, and a bare parameter."""

    def __init__(self):
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(2))
        self.value = nn.Linear(6, 2)
        self.policy = nn.Linear(6, 2)
        self.trunk = nn.Linear(3, 6)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = F.relu(self.trunk(x))
        return {"policy": self.policy(h) * self.log_std.exp(), "value": self.value(h)}


class Gaussian(nn.Module):
    """Parameters that are outputs: nothing is ever computed with them."""

    def __init__(self):
        super().__init__()
        self.log_std, self.bound = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.ones(2))
        self.mean = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        mean = self.mean(x)
        return mean, self.log_std.expand_as(mean), self.bound.expand_as(mean)


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm2, self.norm1 = nn.LayerNorm(5), nn.LayerNorm(5)
        self.fc1, self.fc2, self.out = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.norm2(self.fc2(F.relu(self.norm1(self.fc1(x)))))))


class Pixels(nn.Module):
    """An image, flattened channels first here and channels last elsewhere."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 2)
        self.fc, self.head = nn.Linear(4 * 2 * 3, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.conv2(F.relu(self.conv1(x)))).flatten(1)
        return self.head(F.relu(self.fc(h)))


class Sequence(nn.Module):
    """Grouped and dilated convolutions over time."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(4, 4, 2, groups=2), nn.Conv1d(4, 3, 2, dilation=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(F.relu(self.conv1(x))).mean(2)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.fc = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.embed(x))


class Groups(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.conv(x))).mean((2, 3)))


class RootMeanSquare(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.out = nn.Linear(3, 4), nn.RMSNorm(4, eps=1e-5), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.fc(x)))


class BatchMLP(nn.Module):
    """Two batch norms of equal size, with their running statistics."""

    def __init__(self):
        super().__init__()
        self.fc1, self.bn1, self.fc2, self.bn2 = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn2(self.fc2(F.relu(self.bn1(self.fc1(x)))))


class BatchConv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 3, 2, bias=False), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class Recurrent(nn.Module):
    """Two steps of a cell between two layers."""

    def __init__(self, cell: type):
        super().__init__()
        self.fc, self.cell, self.head = nn.Linear(3, 3), cell(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for _ in range(2):
            state = self.cell(torch.tanh(self.fc(x)), state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.noisy = nn.Linear(3, 4), NoisyLinear(4, 4)

    def forward(self, x: Tensor, eps_in: Tensor, eps_out: Tensor) -> Tensor:
        return self.noisy(F.relu(self.fc(x)), eps_in, eps_out)


class Tied(nn.Module):
    """One matrix embeds the input and reads the output."""

    def __init__(self):
        super().__init__()
        self.embed, self.fc, self.head = nn.Embedding(6, 4), nn.Linear(4, 4), nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.fc(self.embed(x))))


def critics() -> nn.ModuleList:
    critic = lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    return nn.ModuleList(critic() for _ in range(2))


class Critics(nn.Module):
    """A list of critics here, one vmapped critic elsewhere."""

    def __init__(self):
        super().__init__()
        self.critics = critics()

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([critic(x)[:, 0] for critic in self.critics])


class Targets(nn.Module):
    """Two critics and their two targets: which two are stacked elsewhere, shapes do not tell."""

    def __init__(self):
        super().__init__()
        self.target, self.online = critics(), critics()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        online, target = (torch.cat([critic(x) for critic in group], 1) for group in (self.online, self.target))
        return online, target


class StackedCritics(nn.Module):
    """One array for all critics, on both sides."""

    def __init__(self):
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(2, 3, 4)), nn.Parameter(torch.randn(2, 1, 4))
        self.w2, self.b2 = nn.Parameter(torch.randn(2, 4, 1)), nn.Parameter(torch.randn(2, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(torch.baddbmm(self.b1, x.expand(2, *x.shape), self.w1))
        return (torch.bmm(h, self.w2) + self.b2)[..., 0]


class Dueling(nn.Module):
    """Two streams of equal shapes, used in another order than declared."""

    def __init__(self):
        super().__init__()
        stream = lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
        self.value, self.advantage, self.trunk = stream(), stream(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.trunk(x))
        advantage = self.advantage(h)
        return self.value(h).mean(1, keepdim=True) + advantage - advantage.mean(1, keepdim=True)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.block2, self.block1 = nn.Linear(4, 4), nn.Linear(4, 4)
        self.out2, self.out1 = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out1(F.relu(self.block1(x)))
        return x + self.out2(F.relu(self.block2(x)))
