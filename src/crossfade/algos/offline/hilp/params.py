"""HILP, Hilbert foundation policies (Park et al. 2024), with IQL, without a framework.

Terms: agent_torch.py | agent_jax.py.
"""

from dataclasses import dataclass

from ....ranges import Count, Fraction, NotNegative
from ..agent import Agent, Draw, Goals, Sizes
from ..batch import Phase
from ..modules import GCActor, GCMetricValue, GCValue, Module


@dataclass(frozen=True)
class HILP(Agent):
    """Temporal distances as distances in a latent space; skills are directions in it, and IQL learns them all.

    With V_e(s, g) = -|phi_e(s) - phi_e(g)|, targets barred, r~ and m~ the relabelled rewards and masks of the value
    goals g:

        metric_loss = sum_e mean L_k(adv, q_e - V_e(s, g)),    q_e = r~ + gamma m~ Vbar_e(s', g)
        adv         = r~ + gamma m~ min_e Vbar_e(s', g) - mean_e Vbar_e(s, g)

    L_k(u, x) = |k - 1{u < 0}| x^2. In pre-training a row has the latent z = sqrt(d) n / |n|, n ~ N(0, 1), and the
    reward (phi_1(s') - phi_1(s)) . z, detached, phi_1 the first member; corrected (`first_member`), the mean over
    members. In fine-tuning all rows have the inferred latent, and rewards are those of the task. IQL with every module
    given z:

        skill_value_loss, skill_critic_loss, skill_actor_loss    as IQL's value_loss, critic_loss and actor_loss (awr)

    The latent is z = sqrt(d) x / |x|, where x is the shortest of all that minimise sum_n ((phi_1(s'_n) - phi_1(s_n)) .
    x - r_n)^2; singular values below eps max(N, d) times the largest count as 0.
    """

    expectile: Fraction = 0.9
    """k, of the metric and of IQL."""
    alpha: NotNegative = 10.0
    """Inverse temperature of the actor."""
    latent_dim: Count = 512
    """d."""

    torch = "crossfade.algos.offline.hilp.agent_torch"
    jax = "crossfade.algos.offline.hilp.agent_jax"
    terms = {
        "pretraining": {
            "metric_loss": ("value",),
            "skill_value_loss": ("skill_value",),
            "skill_critic_loss": ("skill_critic",),
            "skill_actor_loss": ("skill_actor",),
        },
        "finetuning": {
            "skill_value_loss": ("skill_value",),
            "skill_critic_loss": ("skill_critic",),
            "skill_actor_loss": ("skill_actor",),
        },
    }
    when_full = ("skill_actor_loss",)
    averages = {"pretraining": ("value", "skill_critic"), "finetuning": ("skill_critic",)}
    resets = ("skill_critic",)
    actor = "skill_actor"
    value_goals = Goals(trajectory=0.625)
    infers_latent = True

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        code, widths, encoder, d = sizes.code, sizes.widths, sizes.encoding, self.latent_dim
        value = GCMetricValue(code, widths, d, encoder=encoder)
        critic = GCValue(code, widths, d, sizes.action, members=2, encoder=encoder)
        return {
            "value": value,
            "target_value": value,
            "skill_value": GCValue(code, widths, d, encoder=encoder),
            "skill_critic": critic,
            "target_skill_critic": critic,
            "skill_actor": GCActor(code, widths, sizes.action, d, const_std=sizes.const_std, encoder=encoder),
        }

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        return {"latent": Draw("normal", (sizes.batch_size, self.latent_dim))} if phase == "pretraining" else {}
