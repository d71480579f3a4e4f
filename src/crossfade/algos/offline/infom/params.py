"""InFOM, intention-conditioned flow occupancy models (Zheng et al. 2025), without a framework.

Terms: agent_torch.py | agent_jax.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ....ranges import Count, Fraction, NotNegative
from ..agent import Agent, Draw, Revision, Sizes
from ..batch import Phase
from ..modules import Actor, Coder, IntentionEncoder, Module, Value, VectorField


@dataclass(frozen=True)
class InFOM(Agent):
    """Where a state, an action and an intention lead to, as a flow; values are mean rewards of states sampled from it.

    With (mu, log sigma) = q(s', a'), z = mu + sigma n, v the vector field and vbar its target, t ~ U[0, 1), e, e' ~
    N(0, 1), gamma the discount:

        flow_loss = mean_b ((1 - gamma) mean_dim (s - e - v(x, t | s, a, z))^2
                            + gamma mean_dim (vbar(x', t | s', a', [z]) - v(x', t | s, a, [z]))^2) + kl_weight KL
        x         = t s + (1 - t) e,        x' = t f + (1 - t) e',   f = Euler(vbar, e'; s', a', [z])
        KL        = -mean_{b, dim} (1 + 2 log sigma - mu^2 - sigma^2) / 2
        Euler     : x <- clip(x + v(x, i / K | ...) / K, least + 1e-5, greatest - 1e-5), i = 0 .. K - 1, K = flow_steps

    Euler has no gradients. The intention encoder learns from the first z and from KL only. Bounds are those of the
    data; unless `clip_flow_goals` nothing is clipped.

        bc_loss     = -mean log pi(a | s)                                                               pre-training
        reward_loss = mean (R(s) - r)^2                                                                 fine-tuning
        critic_loss = mean_{e, b} L_k(y - Q_e(s, a), y - Q_e(s, a)),   y = mean_g [R(f_g)] / (1 - gamma)
        f_g         = Euler(v, e_g; s, a, z), g = 1 .. flow_goals, z ~ N(0, 1), or ~ q(s', a') (critic_latents=encoding)
        actor_loss  = -lambda mean q - alpha mean log pi(a | s),       q = agg_e [Q_e](s, pi(s))

    L_k(u, x) = |k - 1{u < 0}| x^2. pi(s) is the mode, or a sample unless `const_std`, clipped to [-1, 1]; [] is
    detached; lambda is 1, or the constant 1 / mean |q| with `normalize_q_loss`. Images: the field lives in the space of
    an encoder's codes, `critic_vf_encoder`, which learns from x alone; s stands for its code in v and R, s' for that of
    its target; conditions and targets of the field are detached from it. Codes have no bounds: nothing is clipped.

    Revision r2025-06: KL = -mean (1 + log sigma - mu^2 - sigma) / 2; the field and the critic have layer norms; e' is
    e; each goal g has a z of its own.
    """

    expectile: Fraction = 0.9
    """k."""
    kl_weight: NotNegative = 0.01
    """Weight of KL."""
    alpha: NotNegative = 10.0
    """Weight of cloning in the actor."""
    q_agg: Literal["min", "mean"] = "min"
    """How the actor brings members together."""
    normalize_q_loss: bool = False
    """Whether the actor's values are divided by their mean size."""
    critic_latents: Literal["prior", "encoding"] = "prior"
    """Where the intentions of the critic's targets come from."""
    flow_goals: Count = 16
    """States that the flow samples for each value."""
    flow_steps: Count = 10
    """K."""
    clip_flow_goals: bool = True
    """Whether the flow stays within the data's bounds."""
    value_layer_norm: bool | None = None
    """Whether field and critic have layer norms; by default as the revision has it."""
    latent_dim: Count = 512
    """Size of an intention."""

    torch = "crossfade.algos.offline.infom.agent_torch"
    jax = "crossfade.algos.offline.infom.agent_jax"
    terms = {
        "pretraining": {"flow_loss": ("critic_vf", "intention_encoder"), "bc_loss": ("actor",)},
        "finetuning": {
            "reward_loss": ("reward",),
            "critic_loss": ("critic",),
            "flow_loss": ("critic_vf", "intention_encoder"),
            "actor_loss": ("actor",),
        },
    }
    when_full = ("actor_loss",)
    averages = {"pretraining": ("critic_vf",), "finetuning": ("critic_vf",)}
    resets = ("critic_vf",)
    next_actions = True
    bounded = True

    def modules(self, sizes: Sizes) -> dict[str, Module]:
        code, widths, encoder, action = sizes.code, sizes.widths, sizes.encoding, sizes.action
        norm = self.layer_norm(sizes.spec)
        field = VectorField(code, widths, code, action, self.latent_dim, norm)
        coders: dict[str, Module] = {}
        if encoder is not None:
            coders = {"critic_vf_encoder": Coder(encoder), "target_critic_vf_encoder": Coder(encoder)}
        return {
            "critic": Value(code, widths, action, layer_norm=norm, members=2, encoder=encoder),
            "critic_vf": field,
            "target_critic_vf": field,
            **coders,
            "intention_encoder": IntentionEncoder(code, widths, action, self.latent_dim, encoder=encoder),
            "actor": Actor(code, widths, action, const_std=sizes.const_std, encoder=encoder),
            "reward": Value(code, widths),
        }

    def draws(self, sizes: Sizes, phase: Phase) -> dict[str, Draw]:
        n, code, d, old = sizes.batch_size, sizes.code, self.latent_dim, sizes.spec == "r2025-06"
        found = {
            "latent": Draw("normal", (n, d)),
            "time": Draw("uniform", (n,)),
            "current": Draw("normal", (n, code)),
        }
        found |= {} if old else {"future": Draw("normal", (n, code))}
        if phase == "pretraining":
            return found
        found["goals"] = Draw("normal", (self.flow_goals, n, code))
        found["critic_latent"] = Draw("normal", (self.flow_goals, n, d) if old else (n, d))
        return found if sizes.const_std else found | {"action": Draw("normal", (n, sizes.action))}

    def reached(self, spec: Revision, encoded: bool = False) -> Mapping[Phase, Mapping[str, tuple[str, ...]]]:
        if not encoded:
            return self.terms
        flow = {"flow_loss": ("critic_vf", "intention_encoder", "critic_vf_encoder")}
        return {phase: {**terms, **flow} for phase, terms in self.terms.items()}

    def followed(self, phase: Phase, encoded: bool = False) -> tuple[str, ...]:
        return ("critic_vf", "critic_vf_encoder") if encoded else ("critic_vf",)

    def reset(self, encoded: bool = False) -> tuple[str, ...]:
        return self.followed("finetuning", encoded)

    def layer_norm(self, spec: Revision) -> bool:
        """Whether field and critic have layer norms."""
        return spec == "r2025-06" if self.value_layer_norm is None else self.value_layer_norm
