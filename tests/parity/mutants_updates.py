"""Planted bugs in updates: they live at `update`, or at `updates` when the first one is still right."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import torch.nn.functional as F
from parity_halves import draw, linear, make_twin, seeded
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import CosineAnnealingLR

from crossfade.parity import Twin

LR = 0.05
STEPS = (1, 2, 6)


class Partly(nn.Module):
    """Trained layers around a frozen one."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.fixed = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 1)


class Heads(nn.Module):
    """A second head that not every batch uses."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.head = nn.Linear(4, 1)
        self.spare = nn.Linear(4, 1)


def decayed_by_shape(parameters):
    return AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1]},
            {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
        ],
        lr=LR,
    )


def trained(params):
    return jax.tree_util.tree_map_with_path(lambda path, _: path[0].key != "fixed", params)


def only(tx):
    """What `bridge.to_optax` does about frozen parameters."""
    return optax.partition({True: tx, False: optax.set_to_zero()}, trained)


DECAY = optax.add_decayed_weights(0.1)
NESTEROV = optax.sgd(LR, 0.9, nesterov=True)
COSINE = optax.cosine_decay_schedule(LR, 3)

# torch's optimiser, fields of the twin, and the optax translations people write instead of the right one.
OPTIMIZERS = {
    "adamw": (
        lambda p: AdamW(p, lr=LR),
        {},
        {
            "Adam with decay for AdamW": ("update", only(optax.chain(optax.add_decayed_weights(0.01), optax.adam(LR)))),
            "AdamW with optax's default decay": ("update", only(optax.adamw(LR))),
            "frozen parameters decayed": ("update", optax.adamw(LR, weight_decay=0.01)),
        },
    ),
    "adam": (
        lambda p: Adam(p, lr=LR, eps=1e-5, weight_decay=0.1),
        {},
        {
            "AdamW for Adam with decay": ("update", only(optax.adamw(LR, eps=1e-5, weight_decay=0.1))),
            "Adam eps left at its default": ("update", only(optax.chain(DECAY, optax.adam(LR)))),
            "first moment's decay taken for the second": (
                "update",
                only(optax.chain(DECAY, optax.adam(LR, b2=0.99, eps=1e-5))),
            ),
        },
    ),
    "groups": (decayed_by_shape, {}, {"biases decayed as well": ("update", only(optax.adamw(LR, weight_decay=0.01)))}),
    "rmsprop": (
        lambda p: RMSprop(p, lr=LR),
        {},
        {
            "RMSprop eps inside the root": ("update", only(optax.rmsprop(LR, decay=0.99, eps=1e-8, eps_in_sqrt=True))),
            "RMSprop decay left at 0.9": ("update", only(optax.rmsprop(LR, eps=1e-8, eps_in_sqrt=False))),
        },
    ),
    "adagrad": (
        lambda p: Adagrad(p, lr=LR),
        {},
        {"Adagrad with optax's accumulator": ("update", only(optax.adagrad(LR)))},
    ),
    "sgd": (
        lambda p: SGD(p, lr=LR, momentum=0.9, nesterov=True),
        {"clip_norm": 0.5},
        {
            "clipping without torch's epsilon": ("update", only(optax.chain(optax.clip_by_global_norm(0.5), NESTEROV))),
            "clipping each tensor by itself": ("update", only(optax.chain(optax.clip_by_block_rms(0.5), NESTEROV))),
            "Nesterov forgotten": ("update", None),
        },
    ),
    "cosine": (
        lambda p: SGD(p, lr=LR),
        {"scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=3)},
        {
            "cosine schedule flat after its end": ("updates", only(optax.sgd(COSINE))),
            "schedule counted from one": ("update", only(optax.sgd(lambda n: COSINE(n + 1)))),
        },
    ),
    "rmsprop with momentum": (
        lambda p: RMSprop(p, lr=LR, momentum=0.9),
        {"scheduler": lambda optimizer: CosineAnnealingLR(optimizer, T_max=20)},
        {
            "learning rate inside RMSprop's momentum": (
                "updates",
                only(optax.rmsprop(optax.cosine_decay_schedule(LR, 20), 0.99, 1e-8, momentum=0.9, eps_in_sqrt=False)),
            )
        },
    ),
}


def descent(name: str, bug: str | None = None) -> Twin:
    """Regression under one of the optimisers; clean, the optax side is what `bridge.to_optax` makes."""
    factory, fields, bugs = OPTIMIZERS[name]
    tx = bugs[bug][1] if bug else None
    if bug == "Nesterov forgotten":
        tx = only(optax.chain(torch_clip(0.5), optax.sgd(LR, 0.9)))

    def torch_loss(net, b):
        h = torch.tanh(net.fixed(torch.tanh(net.fc(b["x"]))))
        return F.mse_loss(net.head(h).squeeze(-1), b["y"])

    def jax_loss(p, b):
        h = jnp.tanh(linear(p["fixed"], jnp.tanh(linear(p["fc"], b["x"]))))
        return jnp.square(linear(p["head"], h).squeeze(-1) - b["y"]).mean()

    return make_twin(
        f"descent by {name}",
        seeded(Partly),
        batch={"x": draw(6, 3), "y": 3 * draw(6, seed=1)},
        loss=(torch_loss, jax_loss),
        optimizer=(factory, tx) if bug else factory,
        **fields,
    )


def torch_clip(limit):
    def update(grads, state, params=None):
        factor = jnp.minimum(1.0, limit / (optax.tree.norm(grads) + 1e-6))
        return jax.tree.map(lambda g: g * factor, grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


IDLE = {
    "idle parameters skipped by torch": "updates",
    "optimiser state made anew": "update",
    "idle parameters decayed": "update",
}


def idle(bug: str | None = None) -> Twin:
    """One AdamW over two heads, of which the second rests in every other batch. torch must hold zeros for it."""

    def torch_loss(net, b):
        h = torch.tanh(net.fc(b["x"]))
        loss = F.mse_loss(net.head(h).squeeze(-1), b["y"])
        spare = net.spare(h).square().mean()
        if bug in ("idle parameters skipped by torch", "idle parameters decayed"):
            return loss + spare if b["use"] > 0 else loss
        return loss + b["use"] * spare

    def jax_loss(p, b):
        h = jnp.tanh(linear(p["fc"], b["x"]))
        loss = jnp.square(linear(p["head"], h).squeeze(-1) - b["y"]).mean()
        return loss + b["use"] * jnp.square(linear(p["spare"], h)).mean()

    def torch_update(net, optimizer, b):
        optimizer.zero_grad()
        torch_loss(net, b).backward()
        optimizer.step()

    def jax_update(p, tx, opt_state, b):
        updates, after = tx.update(jax.grad(jax_loss)(p, b), opt_state, p)
        if bug == "optimiser state made anew":
            after = jax.tree.map(lambda leaf: leaf if leaf.ndim == 0 else jnp.zeros_like(leaf), after)
        return optax.apply_updates(p, updates), after, None

    make = lambda p: AdamW(p, lr=LR)
    used = (0, 1) if bug == "idle parameters decayed" else (1, 0)
    batches = [{"x": draw(6, 3), "y": draw(6, seed=1), "use": np.float32(use)} for use in used]
    return make_twin(
        "idle",
        seeded(Heads),
        batches=batches,
        loss=(torch_loss, jax_loss),
        optimizer=(make, optax.adamw(LR, weight_decay=0.01)) if bug == "idle parameters decayed" else make,
        update=(torch_update, jax_update),
    )


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.out = nn.Linear(3, 1)
        self.target = nn.Linear(3, 1).requires_grad_(False)
        self.register_buffer("running_mean", torch.zeros(3))
        self.register_buffer("running_var", torch.ones(3))


LEARNER = {
    "EMA from the weights before the update": "update",
    "EMA with tau and 1 - tau exchanged": "update",
    "target never moved": "update",
    "BatchNorm momentum of the other convention": "update",
    "BatchNorm running variance biased": "update",
    "minibatches in another order": "update",
    "metrics of the wrong minibatch": "update",
    "BatchNorm by its running statistics": "loss",
}


def learner(bug: str | None = None) -> Twin:
    """One epoch of minibatches through a batch normalisation, with a slow copy of the output layer."""

    def torch_loss(net, b):
        h = F.batch_norm(net.fc(b["x"]), net.running_mean, net.running_var, training=True, momentum=0.1)
        with torch.no_grad():
            target = b["y"] + 0.9 * net.target(h).squeeze(-1)
        return F.mse_loss(net.out(torch.relu(h)).squeeze(-1), target)

    def torch_update(net, optimizer, b):
        for rows in b["order"]:
            loss = torch_loss(net, {"x": b["x"][rows], "y": b["y"][rows]})
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(net.target.parameters(), net.out.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        return {"loss": loss}

    def normalise(p, x):
        h = linear(p["fc"], x)
        mean, var = h.mean(0), h.var(0)
        if bug == "BatchNorm by its running statistics":
            mean, var = p["running_mean"], p["running_var"]
        keep = 0.1 if bug == "BatchNorm momentum of the other convention" else 0.9
        unbiased = var if bug == "BatchNorm running variance biased" else h.var(0, ddof=1)
        statistics = {
            "running_mean": keep * p["running_mean"] + (1 - keep) * mean,
            "running_var": keep * p["running_var"] + (1 - keep) * unbiased,
        }
        return (h - mean[None]) / jnp.sqrt(var + 1e-5)[None], jax.lax.stop_gradient(statistics)

    def jax_loss(p, b):
        return loss_and_statistics(p, b)[0]

    def loss_and_statistics(p, b):
        h, statistics = normalise(p, b["x"])
        target = jax.lax.stop_gradient(b["y"] + 0.9 * linear(p["target"], h).squeeze(-1))
        return jnp.square(linear(p["out"], jax.nn.relu(h)).squeeze(-1) - target).mean(), statistics

    def jax_update(p, tx, opt_state, b):
        old = p["out"]
        order = b["order"][::-1] if bug == "minibatches in another order" else b["order"]
        losses = []
        for rows in order:
            part = {"x": b["x"][rows], "y": b["y"][rows]}
            (loss, statistics), grads = jax.value_and_grad(loss_and_statistics, has_aux=True)(p, part)
            updates, opt_state = tx.update(grads, opt_state, p)
            p = optax.apply_updates(p, updates) | statistics
            losses.append(loss)
        fast = old if bug == "EMA from the weights before the update" else p["out"]
        tau = {"EMA with tau and 1 - tau exchanged": 0.95, "target never moved": 0.0}.get(bug or "", 0.05)
        p = p | {"target": optax.incremental_update(fast, p["target"], tau)}
        return p, opt_state, {"loss": losses[0 if bug == "metrics of the wrong minibatch" else -1]}

    batch = {"x": draw(8, 3), "y": draw(8, seed=1), "order": np.arange(8)[::-1].reshape(2, 4).copy()}
    return make_twin(
        "learner",
        seeded(Learner),
        batch=batch,
        loss=(torch_loss, jax_loss),
        optimizer=lambda p: Adam(p, lr=LR),
        update=(torch_update, jax_update),
    )


FAMILIES = {idle: IDLE, learner: LEARNER}
