"""Treasurehunt: several agents on one map, each learning by an implicit quantile network of its own."""

from ...registry import Item, Measure, System

RECORD = System(
    name="treasurehunt",
    help="agents on one map collect treasure, each with an IQN of its own",
    config="crossfade.systems.treasurehunt.config:TreasurehuntConfig",
    torch="crossfade.systems.treasurehunt.system_torch:System",
    jax="crossfade.systems.treasurehunt.system_jax:System",
    pictures="crossfade.systems.treasurehunt.pictures:pictures",
    summary="crossfade.systems.treasurehunt.summary:summary",
    twin=Item(
        "IQN of two agents on one map: networks, losses, updates, the game (equal to the last bit) and whole epochs",
        "crossfade.systems.treasurehunt.twin:treasurehunt",
    ),
    bench=Item(
        "turns and epochs per second, beside the published system's way", "crossfade.systems.treasurehunt.bench:main"
    ),
    effort="crossfade.systems.treasurehunt.evaluation:TreasurehuntEffort",
    examine="crossfade.systems.treasurehunt.examine:examine",
    formats="crossfade.systems.treasurehunt.published.formats_torch:FORMATS",
    judge="crossfade.systems.treasurehunt.verdict:judge",
    presets={
        # A minute's climb: three agents on a small map.
        "demo": (
            "env.height=7",
            "env.width=7",
            "env.agents=3",
            "env.items=gem:10:0.05",
            "env.turns=20",
            "hidden=64",
            "cosines=16",
            "batch_size=32",
            "memory=512",
            "lr=1e-3",
            "epsilon_decay=0.01",
            "steps=200",
            "eval_every=50",
        ),
        # The published system with its faults, and with those of its sizes that are not the defaults.
        "seed": ("legacy=true", "n_step=3", "batch_size=256", "acting_quantiles=256"),
        # Its later version: a larger map, three kinds of items, walls and sand seen otherwise.
        "v14": (
            "env.height=21",
            "env.width=21",
            "env.agents=2",
            "env.items=gem:10:0.00166667,bone:-10:0.00166667,food:5:0.00166666",
            "env.sand=false",
            "env.wall_layers=1",
            "env.turns=100",
            "epsilon=0.6",
            "epsilon_decay=0.0005",
        ),
        # One agent is it and passes the role on by standing beside another; the others are paid for every turn.
        "tag": (
            "env.rule=tag",
            "env.height=11",
            "env.width=11",
            "env.radius=4",
            "env.turns=20",
            "env.items=",
            "env.wall_value=0",
            "env.sand=false",
            "env.wall_layers=1",
        ),
        # Four decks of cards: two that pay much and lose more, two that pay little and lose less.
        "iowa": (
            "env.height=20",
            "env.width=20",
            "env.agents=2",
            "env.items=deck_a:1.1:0.01:0.5:-2.5,deck_b:1.1:0.01:0.1:-12.5,deck_c:0.6:0.01:0.5:-0.5,"
            "deck_d:0.6:0.01:0.1:-2.5",
        ),
    },
    headline=(
        Measure("eval/return", "return", "higher"),
        Measure("eval/return_se", "std. error"),
        Measure("eval/random", "random"),
        Measure("eval/nearest", "nearest item"),
        Measure("eval/first_mover", "first mover"),
        Measure("train/loss", "loss"),
    ),
    score="eval/return",
    verbs={
        "tune": Item("how agents are best trained side by side here", "crossfade.systems.treasurehunt.verbs.tune:Tune"),
    },
    # A map on which something happens, and a ring that is full after two epochs.
    tiny=(
        "env.height=6",
        "env.width=6",
        "env.agents=2",
        "env.radius=1",
        "env.turns=6",
        "env.items=gem:10:0.2",
        "memory=24",
        "batch_size=4",
        "frames=2",
        "n_step=2",
        "quantiles=3",
        "acting_quantiles=2",
        "hidden=8",
        "cosines=4",
        "sync=3",
        "epsilon=0.5",
        "eval_episodes=4",
        "steps=8",
        "chunk=4",
    ),
)
