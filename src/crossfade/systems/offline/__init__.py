"""Offline reinforcement learning: nine agents that pre-train without rewards and fine-tune with them, from data."""

from ...registry import Item, Measure, System

MAZE = ("env.map=medium", "hidden=128,128", "batch_size=128", "tau=0.05", "actor_every=1", "validation=0")
"""What the presets of the maze have in common; those of the agents come after."""
STABLE = ("lr=3e-4", "gamma=0.97", "pretrain=1000", "steps=8000")
"""A lower rate and discount for actors that follow a critic's gradient."""
GOALS = ("env.speed=0.5", "gamma=0.97", "reward_shift=1")
"""A faster ball and a lower discount, rewards of 0 and 1, for values that are rewards of states to come."""
LEARNING = {
    "iql": ("agent.alpha=10", "pretrain=1000", "steps=6000"),
    "rebrac": ("style=explore", "agent.alpha_actor=0.01", *STABLE),
    "crl_infonce": (*GOALS, "env.noise=1", "agent.latent_dim=32", "agent.alpha=0.03", "pretrain=2000", "steps=5000"),
    "td_infonce": (*GOALS, "env.noise=1", "agent.latent_dim=32", "agent.alpha=0.3", "pretrain=2000", "steps=5000"),
    "fb_repr": (
        "agent.latent_dim=32",
        "agent.alpha_repr=0.02",
        "agent.alpha_awr=3",
        "agent.normalize_q_loss=true",
        "pretrain=1000",
        "steps=6000",
    ),
    "hilp": ("agent.latent_dim=8", "agent.alpha=3", "pretrain=2000", "steps=8000"),
    "infom": (
        *GOALS,
        "agent.value_layer_norm=true",
        "agent.latent_dim=16",
        "agent.flow_goals=8",
        "agent.flow_steps=5",
        "agent.normalize_q_loss=true",
        "agent.alpha=0.02",
        "pretrain=4000",
        "steps=9000",
    ),
    "dino_rebrac": ("encoder=mlp", "style=explore", "agent.alpha_actor=0.01", *STABLE),
    "mbpo_rebrac": ("style=explore", "agent.alpha_actor=0.01", *STABLE),
}
"""Of every agent its settings on the first task of the maze; docs/offline_learning.md judges."""


def _last(*words: str) -> tuple[str, ...]:
    """Of words for the same setting the last."""
    return tuple({word.split("=")[0]: word for word in words}.values())


RECORD = System(
    name="offline",
    help="nine offline agents: pre-training without rewards, fine-tuning with them",
    config="crossfade.systems.offline.config:OfflineDataConfig",
    torch="crossfade.systems.offline.system_torch:System",
    jax="crossfade.systems.offline.system_jax:System",
    bench=Item("updates per second of every agent, beside the public code's", "crossfade.systems.offline.bench:main"),
    population="crossfade.systems.offline.population_jax:Population",
    twin=Item(
        "IQL on the maze's data: networks, losses, updates; `twin:offline` takes words for the other agents",
        "crossfade.systems.offline.twin:offline",
    ),
    pictures="crossfade.systems.offline.pictures:pictures",
    summary="crossfade.systems.offline.summary:summary",
    effort="crossfade.systems.offline.evaluation:OfflineEffort",
    presets={
        # A minute's climb: small networks on a small maze.
        "demo": (
            "env.map=umaze",
            "episodes=200",
            "hidden=64,64",
            "agent.alpha=3",
            "gamma=0.97",
            "lr=2e-3",
            "tau=0.05",
            "actor_every=1",
            "pretrain=250",
            "steps=2000",
            "eval_every=500",
        ),
        # Sizes and rates of the published system.
        "published": (
            "hidden=512,512,512,512",
            "encoder_hidden=512,512,512,512",
            "lr=3e-4",
            "tau=0.005",
            "steps=1500000",
            "pretrain=1000000",
            "eval_every=50000",
            "checkpoint_every=50000",
        ),
        # Each agent on the embedded maze, as docs/offline_learning.md has it.
        **{f"maze_{agent}": _last(f"agent={agent}", *MAZE, *own, "eval_every=1000") for agent, own in LEARNING.items()},
    },
    headline=(
        Measure("eval/success", "success", "higher"),
        Measure("eval/success_se", "std. error"),
        Measure("eval/anywhere", "from anywhere", "higher"),
        Measure("eval/length", "steps", "lower"),
        Measure("eval/scripted", "scripted"),
        Measure("eval/random", "random"),
        Measure("train/loss", "loss"),
    ),
    formats="crossfade.systems.offline.published.formats:FORMATS",
    score="eval/success",
    verbs={
        "describe": Item(
            "an agent's modules, shapes, parameters and terms", "crossfade.systems.offline.verbs.describe:Describe"
        ),
        "generate": Item(
            "data of OGBench's environments, collected on the spot",
            "crossfade.systems.offline.verbs.generate:Generate",
        ),
    },
    # Both phases, the latent that is inferred between them, targets that are reset, two full updates.
    tiny=(
        "agent=hilp",
        "agent.latent_dim=3",
        "env.map=umaze",
        "episodes=4",
        "length=20",
        "hidden=8",
        "batch_size=8",
        "latent_samples=32",
        "pretrain=4",
        "actor_every=2",
        "eval_episodes=4",
        "steps=8",
        "chunk=4",
    ),
)
