"""IQL, implicit Q-learning (Kostrikov et al. 2021), without a framework. Terms: agent_torch.py | agent_jax.py."""

from dataclasses import dataclass
from typing import Literal

from ....ranges import Fraction, NotNegative
from ..agent import Agent, Draw, Sizes
from ..batch import Phase
from ..modules import Actor, Module, Value


@dataclass(frozen=True)
class IQL(Agent):
    """Values by expectile regression, never asking for actions outside the data.

    With L_k(u, x) = |k - 1{u < 0}| x^2, k the expectile, targets barred and detached modules in brackets:

        bc_loss     = -mean log pi(a | s)                                                        pre-training
        value_loss  = mean L_k(q - V(s), q - V(s)),             q = min_e [Qbar_e(s, a)]
        critic_loss = mean sum_e (Q_e(s, a) - y)^2,             y = r + gamma m [V(s')]
        actor_loss  = -mean w log pi(a | s)                                                                      awr
                      w = min(exp(alpha (min_e [Q_e(s, a)] - [V(s)])), 100)
        actor_loss  = -mean q / mean |q| - alpha mean log pi(a | s),  q = min_e [Q_e](s, pi(s))                  ddpgbc

    where pi(s) is the mode, or a sample unless `const_std`, clipped to [-1, 1], and the divisor mean |q| is a constant.
    """

    expectile: Fraction = 0.9
    """k: 0.5 is the mean, 1 the maximum."""
    actor_loss: Literal["awr", "ddpgbc"] = "awr"
    """How the actor is taught: advantage-weighted regression, or the critic's gradient with behavioural cloning."""
    alpha: NotNegative = 10.0
    """Inverse temperature of awr, weight of cloning of ddpgbc."""

    torch = "crossfade.algos.offline.iql.agent_torch"
    jax = "crossfade.algos.offline.iql.agent_jax"
    terms = {
        "pretraining": {"bc_loss": ("actor",)},
        "finetuning": {"value_loss": ("value",), "critic_loss": ("critic",), "actor_loss": ("actor",)},
    }
    when_full = ("actor_loss",)
    averages = {"pretraining": (), "finetuning": ("critic",)}

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        code, widths, encoder = sizes.code, sizes.widths, sizes.encoding
        critic = Value(code, widths, sizes.action, members=2, encoder=encoder)
        return {
            "value": Value(code, widths, encoder=encoder),
            "critic": critic,
            "target_critic": critic,
            "actor": Actor(code, widths, sizes.action, const_std=sizes.const_std, encoder=encoder),
        }

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        sampled = phase == "finetuning" and self.actor_loss == "ddpgbc" and not sizes.const_std
        return {"action": Draw("normal", (sizes.batch_size, sizes.action))} if sampled else {}
