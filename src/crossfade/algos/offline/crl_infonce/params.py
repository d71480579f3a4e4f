"""Contrastive RL with InfoNCE (Eysenbach et al. 2022) without a framework. Terms: agent_torch.py | agent_jax.py."""

from dataclasses import dataclass
from typing import Literal

from ....ranges import Count, NotNegative
from ..agent import Agent, Draw, Goals, Sizes
from ..batch import Phase
from ..modules import Actor, GCBilinearValue, Module, Value


@dataclass(frozen=True)
class CRLInfoNCE(Agent):
    """A critic that tells which goals a state and an action lead to; values by importance sampling over them.

    With logits l_eij = phi_e(s_i, a_i) . psi_e(g_j) / sqrt(d), g the value goals, h the actor goals:

        contrastive_loss = mean_{i, e} (-log softmax_j(l_eij)_i + 0.01 (logsumexp_j l_eij)^2)           forward
                         = mean_{i, e} (-log softmax_j(l_eij)_i - log softmax_j(l_eji)_i)              symmetric
        bc_loss          = -mean log pi(a | s)                                                          pre-training
        reward_loss      = mean (R(s) - r)^2                                                            fine-tuning
        actor_loss       = -lambda mean q - alpha mean log pi(a | s),      q_i = exp(w_i) [R](h_i)
        w_i              = M_ii - logsumexp_j M_ij + log B
        M_ij             = min_e log max(exp([phi_e](s_i, pi(s_i)) . [psi_e](h_j) / sqrt(d)), 1e-6)

    The minimum is taken element by element, and below its floor M has no gradient. pi(s) is the mode, or a sample
    unless `const_std`, clipped to [-1, 1]; [] is detached; lambda is the constant 1 / mean |q|, or 1 unless
    `normalize_q_loss`.
    """

    alpha: NotNegative = 0.1
    """Weight of cloning in the actor."""
    contrastive: Literal["forward", "symmetric"] = "forward"
    """Which logits are normalised: over goals, or both ways."""
    penalty: NotNegative = 0.01
    """Weight of the squared logsumexp in the forward loss."""
    normalize_q_loss: bool = True
    """Whether the actor's values are divided by their mean size."""
    latent_dim: Count = 512
    """d."""

    torch = "crossfade.algos.offline.crl_infonce.agent_torch"
    jax = "crossfade.algos.offline.crl_infonce.agent_jax"
    terms = {
        "pretraining": {"contrastive_loss": ("critic",), "bc_loss": ("actor",)},
        "finetuning": {"reward_loss": ("reward",), "contrastive_loss": ("critic",), "actor_loss": ("actor",)},
    }
    when_full = ("actor_loss",)
    value_goals = Goals()
    actor_goals = Goals(geometric=False)

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        code, widths, encoder = sizes.code, sizes.widths, sizes.encoding
        return {
            "critic": GCBilinearValue(code, widths, sizes.action, self.latent_dim, value_exp=True, encoder=encoder),
            "actor": Actor(code, widths, sizes.action, const_std=sizes.const_std, encoder=encoder),
            "reward": Value(code, widths, encoder=encoder),
        }

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        sampled = phase == "finetuning" and not sizes.const_std
        return {"action": Draw("normal", (sizes.batch_size, sizes.action))} if sampled else {}
