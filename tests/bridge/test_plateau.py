"""ReduceLROnPlateau carried as data: the same rates as torch's, wherever the metrics are given."""

import jax
import numpy as np
import pytest
import torch
from optimizer_nets import NetEquinox, make_module
from torch.optim.lr_scheduler import ReduceLROnPlateau

from crossfade.bridge import Mapping, to_optax, to_torch_optimizer, with_metric
from crossfade.errors import UsageError

SETTINGS = {
    "default": {},
    "often": {"patience": 2, "factor": 0.5},
    "absolute": {"patience": 1, "threshold": 0.2, "threshold_mode": "abs", "factor": 0.7},
    "largest": {"mode": "max", "patience": 2, "factor": 0.5},
    "largest absolute": {"mode": "max", "patience": 1, "threshold": 0.3, "threshold_mode": "abs", "factor": 0.5},
    "rest": {"patience": 1, "cooldown": 4, "factor": 0.5},
    "floor": {"patience": 0, "factor": 0.3, "min_lr": [1e-3, 1e-5], "eps": 1e-6},
}


def made(options):
    module = make_module()
    named = lambda part: list(getattr(module, part).named_parameters(prefix=part))
    optimizer = torch.optim.SGD([{"params": named(part), "lr": lr} for part, lr in (("inner", 0.1), ("outer", 3e-3))])
    return Mapping.by_name(module, NetEquinox()), optimizer, ReduceLROnPlateau(optimizer, **options)


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("name", SETTINGS)
def test_metrics_here_and_there_equal_metrics_in_torch(name, x64):
    metrics = np.cumsum(np.random.default_rng(0).normal(size=60)) / 3 - 2
    _, reference, scheduler = made(SETTINGS[name])
    for metric in metrics:
        scheduler.step(metric)

    mapping, optimizer, ours = made(SETTINGS[name])
    for metric in metrics[:20]:
        ours.step(metric)
    opt_state = to_optax(optimizer, mapping, scheduler=ours).opt_state
    moved = jax.jit(with_metric)
    for metric in metrics[20:40]:
        opt_state = moved(opt_state, metric)
    to_torch_optimizer(opt_state, mapping, optimizer, scheduler=ours)
    for metric in metrics[40:]:
        ours.step(metric)
    assert rates(optimizer) == rates(reference) and (name == "default" or rates(optimizer)[0] < 0.1)
    assert ours.state_dict() == scheduler.state_dict()


def test_a_state_without_a_plateau_is_refused():
    mapping, optimizer, scheduler = made({})
    opt_state = to_optax(optimizer, mapping).opt_state
    with pytest.raises(UsageError, match="ReduceLROnPlateau"):
        with_metric(opt_state, 1.0)
    with pytest.raises(UsageError, match="ReduceLROnPlateau"):
        to_torch_optimizer(opt_state, mapping, optimizer, scheduler=scheduler)
