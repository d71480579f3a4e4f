"""DINO representations (Caron et al. 2021) with ReBRAC, without a framework. Terms: agent_torch.py | agent_jax.py."""

from dataclasses import dataclass

from ....ranges import Fraction, NotNegative, Positive
from ..agent import Draw, Sizes
from ..batch import Phase
from ..modules import Actor, Coder, Module, Param, Value
from ..rebrac.params import ReBRAC


@dataclass(frozen=True)
class DINOReBRAC(ReBRAC):
    """An encoder e that learns from two noisy views by self-distillation; then ReBRAC on its codes, with e frozen.

        repr_loss = -mean_{v, b} sum_k softmax_k((ebar(x_v) - c) / t') log softmax_k(e(x_v) / t)
        x_v       = s + clip(view_noise n_v, +- view_clip), v = 1, 2;    images: augmented twice
        bc_loss   = -mean log pi(a | [e(s)])

    t and t' are the temperatures of student and teacher, who see the same view. c is 0; corrected (`constant_center`),
    pre-training moves it, in every update, c <- (1 - center_rate) c + center_rate mean_{v, b} ebar(x_v), by the target
    of before the update. (The published code moves it in fine-tuning, where nothing reads it.) Fine-tuning: critic_loss
    and actor_loss of ReBRAC with [e(s)] for s and ebar(s') for s'; the target encoder follows too.
    """

    view_noise: NotNegative = 0.5
    """Scale of the noise that makes a view."""
    view_clip: NotNegative = 1.0
    """Bound of that noise."""
    temperature: Positive = 0.1
    """Of the student."""
    target_temperature: Positive = 0.04
    """Of the teacher."""
    center_rate: Fraction = 0.1
    """Share of a batch in the centre."""

    torch = "crossfade.algos.offline.dino_rebrac.agent_torch"
    jax = "crossfade.algos.offline.dino_rebrac.agent_jax"
    terms = {
        "pretraining": {"repr_loss": ("encoder",), "bc_loss": ("actor",)},
        "finetuning": {"critic_loss": ("critic",), "actor_loss": ("actor",)},
    }
    averages = {"pretraining": ("encoder",), "finetuning": ("encoder", "critic", "actor")}
    resets = ("encoder",)
    needs_encoder = True
    views = True

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        encoder, code, widths = sizes.encoding, sizes.code, sizes.widths
        assert encoder is not None, "the config sees to it"
        critic = Value(code, widths, sizes.action, members=2)
        actor = Actor(code, widths, sizes.action, tanh_squash=True, final_scale=self.actor_scale)
        return {
            "critic": critic,
            "target_critic": critic,
            "actor": actor,
            "target_actor": actor,
            "encoder": Coder(encoder),
            "target_encoder": Coder(encoder),
            "target_repr_center": Param((code,)),
        }

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        if phase == "finetuning":
            return super().draws(sizes, phase)
        if len(sizes.observation) > 1:
            return {}
        return {"views": Draw("normal", (2, sizes.batch_size, *sizes.observation))}
