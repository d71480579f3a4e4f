"""Forward-backward representations (Touati and Ollivier 2021) with IQL, without a framework.

Terms: agent_torch.py | agent_jax.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ....ranges import Count, Fraction, NotNegative, Probability
from ..agent import Agent, Draw, Revision, Sizes
from ..batch import Phase
from ..modules import GCActor, GCValue, Module


@dataclass(frozen=True)
class FBRepr(Agent):
    """Occupancies of policies pi_z as products F(s, z, a) . B(s'); a task is a latent z, and IQL is fine-tuned at it.

    B^ = sqrt(d) B / |B| row by row, wherever B stands. In pre-training the latent of a row is z = sqrt(d) n / |n|, n ~
    N(0, 1), where u < latent_mix, else the detached B^(s) of a row in random order; corrected (`latent_mix`), the other
    way round. In fine-tuning all rows have the inferred latent.

        repr_loss  = mean_{e, i} (sum_{j != i} (M_eij - gamma Mbar_ij)^2 / (2 (n - 1)) - M_eii)
        M_eij      = F_e(s_i, z_i, a_i) . B^(s'_j)
        Mbar_ij    = agg_e Fbar_e(s'_i, z_i, pi(s'_i, z_i)) . B^bar(s'_j), a constant
        ortho_loss = orthonormal mean_i (-2 C_ii + sum_{j != i} C_ij^2 / (n - 1)),     C = B^(s') B^(s')^T
        fb_actor_loss = -lambda mean q - alpha_repr mean log pi(a | s, z)
        q_i        = min_e [F_e](s_i, z_i, pi(s_i, z_i)) . z_i

    where n is the size of the batch, pi(s, z) the mode clipped to [-1, 1], [] detached, lambda the constant 1 / mean
    |q|, or 1 unless `normalize_q_loss`. agg is the mean over members. Fine-tuning is IQL with every module given z:

        value_loss, critic_loss, awr_loss    as IQL's value_loss, critic_loss and actor_loss (awr) with alpha_awr

    and the latent is z = sqrt(d) x / |x|, x = sum_n r_n B^(s_n) / N. Revision r2025-06: M_eii is added with the other
    sign and the sum is not halved; agg is the minimum; F learns from fb_actor_loss too, and its q is min_e over all
    pairs of states and latents, F_e(s_i, z_i, pi(s_i, z_i)) . z_j.
    """

    expectile: Fraction = 0.9
    """Of IQL."""
    alpha_repr: NotNegative = 10.0
    """Weight of cloning in the actor, in pre-training."""
    alpha_awr: NotNegative = 10.0
    """Inverse temperature of the actor, in fine-tuning."""
    orthonormal: NotNegative = 1.0
    """Weight of the orthonormalisation of B."""
    latent_mix: Probability = 0.5
    """Probability of a normal latent."""
    repr_agg: Literal["mean", "min"] | None = None
    """How members are brought together; by default as the revision has it."""
    normalize_q_loss: bool = False
    """Whether the actor's values are divided by their mean size."""
    latent_dim: Count = 512
    """d."""

    torch = "crossfade.algos.offline.fb_repr.agent_torch"
    jax = "crossfade.algos.offline.fb_repr.agent_jax"
    terms = {
        "pretraining": {
            "repr_loss": ("forward_repr", "backward_repr"),
            "ortho_loss": ("backward_repr",),
            "fb_actor_loss": ("actor",),
        },
        "finetuning": {"value_loss": ("value",), "critic_loss": ("critic",), "awr_loss": ("actor",)},
    }
    when_full = ("awr_loss",)
    averages = {"pretraining": ("forward_repr", "backward_repr"), "finetuning": ("critic",)}
    infers_latent = True

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        code, widths, encoder, d = sizes.code, sizes.widths, sizes.encoding, self.latent_dim
        forward = GCValue(code, widths, d, sizes.action, outputs=d, members=2, encoder=encoder)
        backward = GCValue(code, widths, outputs=d, encoder=encoder)
        critic = GCValue(code, widths, d, sizes.action, members=2, encoder=encoder)
        return {
            "forward_repr": forward,
            "backward_repr": backward,
            "target_forward_repr": forward,
            "target_backward_repr": backward,
            "value": GCValue(code, widths, d, encoder=encoder),
            "critic": critic,
            "target_critic": critic,
            "actor": GCActor(code, widths, sizes.action, d, const_std=sizes.const_std, encoder=encoder),
        }

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        if phase == "finetuning":
            return {}
        n = sizes.batch_size
        return {
            "latent": Draw("normal", (n, self.latent_dim)),
            "order": Draw("permutation", (n,)),
            "mix": Draw("uniform", (n,)),
        }

    def reached(self, spec: Revision, encoded: bool = False) -> Mapping[Phase, Mapping[str, tuple[str, ...]]]:
        if spec == "r2026-05":
            return self.terms
        leaking = {**self.terms["pretraining"], "fb_actor_loss": ("actor", "forward_repr")}
        return {**self.terms, "pretraining": leaking}

    def uncopied(self, sizes: Sizes) -> tuple[str, ...]:
        return ("target_critic",) if "unsynced_target" in sizes.faithful else ()

    def aggregation(self, spec: Revision) -> Literal["mean", "min"]:
        """How members are brought together."""
        return self.repr_agg or ("min" if spec == "r2025-06" else "mean")
