"""MBPO (Janner et al. 2019) with ReBRAC, without a framework. Terms: agent_torch.py | agent_jax.py."""

from dataclasses import dataclass

from ....ranges import Count
from ..agent import Draw, Sizes
from ..batch import Phase
from ..modules import Module, Value
from ..rebrac.params import ReBRAC


@dataclass(frozen=True)
class MBPOReBRAC(ReBRAC):
    """ReBRAC beside a model of the world, whose transitions critic and actor learn from.

        transition_loss = mean_{b, dim} (T(s, a) - (s' - s))^2
        reward_loss     = mean (R(s) - r)^2
        bc_loss         of ReBRAC                                                    pre-training, with transition_loss
        critic_loss, actor_loss of ReBRAC, on imagined transitions if there are such, else on the data

    In fine-tuning every update imagines `rollouts` transitions from states of the data, `rollout_steps` times: a =
    clip(mode pi(s) + clip(actor_noise n, +- noise_clip), -1, 1), r = R(s), s' = s + T(s, a), mask 1. They go into a
    ring of rows, from which a batch is drawn as soon as it holds more than one. The published ring holds 100, less than
    a batch, so nothing imagined is ever used and we do not compute it (`tiny_model_buffer`); corrected it holds
    `model_buffer`. Published rollouts start all steps at the same states, and a row's next action is that of the next
    row in the ring (`standing_rollouts`); corrected, a step goes on from s', and the next action is that of the actor
    at s', with noise of its own.
    """

    rollouts: Count = 256
    """Transitions imagined in a step of an update."""
    rollout_steps: Count = 1
    """Steps of them."""
    model_buffer: Count = 25_600
    """Rows of imagined transitions that are kept, unless as published."""

    torch = "crossfade.algos.offline.mbpo_rebrac.agent_torch"
    jax = "crossfade.algos.offline.mbpo_rebrac.agent_jax"
    terms = {
        "pretraining": {"transition_loss": ("transition",), "bc_loss": ("actor",)},
        "finetuning": {
            "reward_loss": ("reward",),
            "transition_loss": ("transition",),
            "critic_loss": ("critic",),
            "actor_loss": ("actor",),
        },
    }

    images = False

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        code, widths, encoder = sizes.code, sizes.widths, sizes.encoding
        return {
            "transition": Value(code, widths, sizes.action, outputs=sizes.observation[0], encoder=encoder),
            **super().modules(sizes),
            "reward": Value(code, widths, encoder=encoder),
        }

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        """Beside ReBRAC's: where rollouts start, the noise of their actions and next actions, rows of the ring."""
        found = super().draws(sizes, phase)
        if phase == "pretraining" or "tiny_model_buffer" in sizes.faithful:
            return found
        return found | {
            "rollout_rows": Draw("rows", (self.rollouts,)),
            "rollout": Draw("normal", (2, self.rollout_steps, self.rollouts, sizes.action)),
            "imagined": Draw("words", (sizes.batch_size,)),
        }
