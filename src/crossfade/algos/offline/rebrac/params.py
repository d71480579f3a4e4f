"""ReBRAC (Tarasov et al. 2023) without a framework.

Terms: agent_torch.py | agent_jax.py; DINO and MBPO build on them.
"""

from dataclasses import dataclass

from ....ranges import NotNegative
from ..agent import Agent, Draw, Sizes
from ..batch import Phase
from ..modules import Actor, Module, Value


@dataclass(frozen=True)
class ReBRAC(Agent):
    """TD3 with behavioural cloning in the critic and in the actor. The actor is squashed by tanh.

        bc_loss     = -mean log pi(a | s), the density of tanh of a normal number                pre-training
        critic_loss = mean_{e, b} (Q_e(s, a) - y)^2
        y           = r + gamma m (min_e Qbar_e(s', a~) - alpha_critic |a~ - a'|^2)
        a~          = clip(mode pibar(s') + clip(actor_noise n, +- noise_clip), -1, 1),          n ~ N(0, 1)
        actor_loss  = -lambda mean q + alpha_actor mean |a_pi - a|^2,    q = min_e [Q_e](s, a_pi),  a_pi = mode pi(s)

    with a' the data's next action, [] detached, lambda the constant 1 / mean |q|, or 1 unless `normalize_q_loss`. A
    target is that of the online network of before the update, and follows only when the actor learns.
    """

    alpha_actor: NotNegative = 0.0
    """Weight of cloning in the actor."""
    alpha_critic: NotNegative = 0.0
    """Weight of cloning in the target of the critic."""
    actor_noise: NotNegative = 0.2
    """Scale of the noise on target actions."""
    noise_clip: NotNegative = 0.5
    """Bound of that noise."""
    normalize_q_loss: bool = True
    """Whether the actor's values are divided by their mean size."""
    actor_scale: NotNegative = 0.01
    """Scale of the law by which the actor's last layer starts."""

    torch = "crossfade.algos.offline.rebrac.agent_torch"
    jax = "crossfade.algos.offline.rebrac.agent_jax"
    terms = {
        "pretraining": {"bc_loss": ("actor",)},
        "finetuning": {"critic_loss": ("critic",), "actor_loss": ("actor",)},
    }
    when_full = ("actor_loss",)
    averages = {"pretraining": (), "finetuning": ("critic", "actor")}
    averages_when_full = True
    next_actions = True

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        code, widths, encoder = sizes.code, sizes.widths, sizes.encoding
        critic = Value(code, widths, sizes.action, members=2, encoder=encoder)
        actor = Actor(
            code, widths, sizes.action, tanh_squash=True, const_std=True, final_scale=self.actor_scale, encoder=encoder
        )
        return {"critic": critic, "target_critic": critic, "actor": actor, "target_actor": actor}

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        return {"target_action": Draw("normal", (sizes.batch_size, sizes.action))} if phase == "finetuning" else {}
