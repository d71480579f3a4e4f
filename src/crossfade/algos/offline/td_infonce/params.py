"""TD-InfoNCE (Zheng et al. 2023) without a framework. Terms: agent_torch.py | agent_jax.py."""

from dataclasses import dataclass
from typing import Literal

from ....ranges import Count, NotNegative
from ..agent import Agent, Draw, Goals, Sizes
from ..batch import Phase
from ..modules import GCActor, GCBilinearValue, Module, Value


@dataclass(frozen=True)
class TDInfoNCE(Agent):
    """A critic of where a state and an action lead to, learned by temporal differences instead of whole futures.

    With N_eij = phi_e(s_i, a_i) . psi_e(s'_j) / sqrt(d), R_eij = phi_e(s_i, a_i) . psi_e(g_j) / sqrt(d), g the value
    goals, and C equal to N on the diagonal and to R beside it:

        contrastive_loss = mean_{i, e} ((1 - gamma) L1_ei + gamma L2_ei)
        L1_ei            = -log softmax_j(C_eij)_i
        L2_ei            = -sum_j w_ij log softmax_j(R_eij)_j
        w_i              = softmax_j agg_e phibar_e(s'_i, a'_i) . psibar_e(g_j) / sqrt(d), a constant
        bc_loss          = -mean log pi(a | s)                                                          pre-training
        reward_loss      = mean (R(s) - r)^2                                                            fine-tuning
        actor_loss       = -lambda mean q - alpha mean log pi(a | s),      q_i = exp(w_i) [R](h_i)
        w_i              = M_ii - logsumexp_j M_ij + log B,  M_ij = agg_e [phi_e](s_i, pi(s_i)) . [psi_e](h_j) / sqrt(d)

    with a' the data's next action in pre-training and the detached pi(s') in fine-tuning, h the actor goals, []
    detached, lambda the constant 1 / mean |q|, or 1 unless `normalize_q_loss`. agg is the mean over members, in
    r2025-06 their minimum.
    """

    alpha: NotNegative = 0.1
    """Weight of cloning in the actor."""
    normalize_q_loss: bool = True
    """Whether the actor's values are divided by their mean size."""
    logit_agg: Literal["mean", "min"] | None = None
    """How members are brought together; by default as the revision has it."""
    latent_dim: Count = 512
    """d."""

    torch = "crossfade.algos.offline.td_infonce.agent_torch"
    jax = "crossfade.algos.offline.td_infonce.agent_jax"
    terms = {
        "pretraining": {"contrastive_loss": ("critic",), "bc_loss": ("actor",)},
        "finetuning": {"reward_loss": ("reward",), "contrastive_loss": ("critic",), "actor_loss": ("actor",)},
    }
    when_full = ("actor_loss",)
    averages = {"pretraining": ("critic",), "finetuning": ("critic",)}
    resets = ("critic",)
    next_actions = True
    value_goals = Goals()
    actor_goals = Goals(geometric=False)

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        code, widths, encoder = sizes.code, sizes.widths, sizes.encoding
        critic = GCBilinearValue(code, widths, sizes.action, self.latent_dim, shifts=False, encoder=encoder)
        return {
            "reward": Value(code, widths, encoder=encoder),
            "critic": critic,
            "target_critic": critic,
            "actor": GCActor(code, widths, sizes.action, const_std=sizes.const_std, encoder=encoder),
        }

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        """Noise of the sampled action, and of the sampled next action; none for modes."""
        if phase == "pretraining" or sizes.const_std:
            return {}
        shape = sizes.batch_size, sizes.action
        return {"action": Draw("normal", shape), "next_action": Draw("normal", shape)}

    def aggregation(self, spec: str) -> str:
        """How members are brought together."""
        return self.logit_agg or ("min" if spec == "r2025-06" else "mean")
