"""Ways in which torch code reads a parameter behind the back of whoever trains it."""

import copy
import io
import pickle

import torch
from step_nets import batches
from torch import nn
from torch.optim.swa_utils import AveragedModel

X = torch.from_numpy(batches(1)[0]["x"])


class Polyak:
    """The target network of DQN, DDPG, TD3 and SAC."""

    def __init__(self, net):
        self.target = copy.deepcopy(net)

    def __call__(self, net):
        for old, new in zip(self.target.parameters(), net.parameters(), strict=True):
            old.data.copy_(0.5 * new.data + 0.5 * old.data)
        return [p.detach().clone() for p in self.target.parameters()]


class Averaged:
    def __init__(self, net):
        self.mean = AveragedModel(net)

    def __call__(self, net):
        self.mean.update_parameters(net)
        return [p.detach().clone() for p in self.mean.module.parameters()]


class Held:
    """Tensors of the same memory, taken before training."""

    def __init__(self, net):
        self.data = [p.data for p in net.parameters()]

    def __call__(self, net):
        return [d.clone() for d in self.data]


class Views:
    """The same in NumPy, as actors without torch hold them."""

    def __init__(self, net):
        self.views = [p.detach().numpy() for p in net.parameters()]

    def __call__(self, net):
        return [torch.from_numpy(view.copy()) for view in self.views]


class Lent:
    """Memory that NumPy owns and torch uses."""

    def __init__(self, net):
        self.arrays = [p.detach().numpy().copy() for p in net.parameters()]
        for p, array in zip(net.parameters(), self.arrays, strict=True):
            p.data = torch.from_numpy(array)

    def __call__(self, net):
        return [torch.from_numpy(array.copy()) for array in self.arrays]


class Shared(Held):
    def __init__(self, net):
        net.share_memory()
        super().__init__(net)

    def __call__(self, net):
        assert all(p.is_shared() for p in net.parameters())
        return super().__call__(net)


class Hooked:
    """A forward hook that looks at the weights."""

    def __init__(self, net):
        self.seen = []
        net.out.register_forward_hook(lambda module, *_: self.seen.append(module.weight.detach().clone()))

    def __call__(self, net):
        net(X)
        return [self.seen[-1]]


class Sharing:
    """Another network with one layer in common."""

    def __init__(self, net):
        self.other = nn.Sequential(net.hidden, nn.Tanh())

    def __call__(self, net):
        return [self.other(X), *self.other.parameters()]


def once(read):
    return lambda net: read


def loaded(file: io.BytesIO):
    file.seek(0)
    return torch.load(file, weights_only=False)


def saved(thing) -> io.BytesIO:
    torch.save(thing, file := io.BytesIO())
    return file


READS = {
    "a polyak loop": Polyak,
    "AveragedModel": Averaged,
    "tensors held from before": Held,
    "NumPy views held from before": Views,
    "memory lent by NumPy": Lent,
    "shared memory": Shared,
    "an attribute": once(lambda net: [net.hidden.weight.detach().clone(), net.out.bias.detach().clone()]),
    "deepcopy": once(lambda net: [*copy.deepcopy(net).parameters()]),
    "torch.save of the module": once(lambda net: [*loaded(saved(net)).parameters()]),
    "torch.save of a part": once(lambda net: [*loaded(saved(net.out)).parameters()]),
    "pickle": once(lambda net: [*pickle.loads(pickle.dumps(net)).parameters()]),
    "state_dict": once(lambda net: [t.clone() for t in net.state_dict().values()]),
    "parameters_to_vector": once(lambda net: [nn.utils.parameters_to_vector(net.parameters()).detach()]),
    "functional_call": once(lambda net: [torch.func.functional_call(net, dict(net.named_parameters()), (X,))]),
    "forward": once(lambda net: [net(X)]),
    "a hook": Hooked,
    "another module that shares it": Sharing,
    "forward of a part": once(lambda net: [net.hidden(X)]),
}
