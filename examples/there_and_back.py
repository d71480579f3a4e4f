"""A policy/value net goes from torch to JAX and back in the middle of training, with its optimiser.

It learns for 100 updates in torch, 100 in JAX and 100 in torch again. A copy that never left torch runs beside it, on
the same batches. Then every level of parity is proved, and the proof is written as a page.

    python examples/there_and_back.py [folder for the report, default runs/]
"""

# %%
import copy
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import torch

import crossfade as cf
from crossfade.parity.cases import policy_value, policy_value_jax, policy_value_torch

UPDATES, CLIP_NORM = 100, 0.5
runs = Path(sys.argv[1] if len(sys.argv) > 1 else "runs")
jax.config.update("jax_enable_x64", True)  # float64, so that what remains is not rounding noise

# %% The same net twice: a torch module and an Equinox module
twin = policy_value()
net = twin.torch.double()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-4, eps=1e-5)
stayed = copy.deepcopy(net)
stayed_optimizer = torch.optim.Adam(stayed.parameters(), lr=3e-4, eps=1e-5)


def batch(i: int) -> dict[str, np.ndarray]:
    """Update i's data: the same numbers for everybody."""
    return {name: array.astype(np.float64) for name, array in twin.batch_at(i).items()}


def torch_update(net: torch.nn.Module, optimizer: torch.optim.Optimizer, i: int) -> None:
    loss, _ = policy_value_torch.ppo_loss(net, cf.bridge.to_torch(batch(i)))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP_NORM)
    optimizer.step()


# %% In torch
for i in range(UPDATES):
    torch_update(net, optimizer, i)

# %% To JAX: match the parameters, carry weights and optimiser over
mapping = cf.bridge.match(net, twin.jax, torch.from_numpy(batch(0)["obs"]))
model = mapping.to_jax(net.state_dict())
tx, opt_state, _ = cf.bridge.to_optax(optimizer, mapping, clip_norm=CLIP_NORM)
print(mapping.explain(), end="\n\n")


@eqx.filter_jit
def jax_update(model, opt_state, batch):
    grads, _ = eqx.filter_grad(policy_value_jax.ppo_loss, has_aux=True)(model, batch)
    updates, opt_state = tx.update(grads, opt_state, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), opt_state


for i in range(UPDATES, 2 * UPDATES):
    model, opt_state = jax_update(model, opt_state, cf.bridge.to_jax(batch(i)))

# %% And back
net.load_state_dict(mapping.to_torch(model))
cf.bridge.to_torch_optimizer(opt_state, mapping, optimizer)
for i in range(2 * UPDATES, 3 * UPDATES):
    torch_update(net, optimizer, i)

# %% Against the copy that never left
for i in range(3 * UPDATES):
    torch_update(stayed, stayed_optimizer, i)
gap = max((a - b).abs().max().item() for a, b in zip(net.parameters(), stayed.parameters(), strict=True))
print(f"torch -> JAX -> torch, {3 * UPDATES} updates: largest difference from the copy that stayed: {gap:.1e}\n")

# %% The proof, level by level
report = cf.parity.check(policy_value(), steps=(1, 10, 100))
print(report.text())
print(f"\nreport: {report.save(runs / 'parity' / 'policy_value.html').resolve()}")
sys.exit(report.exit_code)
