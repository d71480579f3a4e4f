"""Futures traded within the day, by PPO with masked actions."""

from ...registry import Item, Measure, System

PUBLISHED_PHASE_2 = (
    "drawdown=2500",
    "curriculum.forced=0.2:0.7,0.8:0.2,0.8:0.1",
    "curriculum.commission=0.2:0.25,0.8:2,0.8:2.5",
)
PUBLISHED_PPO = ("network=seed", "clip=0.15", "clip_value=0.15", "entropy_coef=0.15", "floor=0.05")

RECORD = System(
    name="trading",
    help="futures traded within the day, by PPO with masked actions",
    config="crossfade.systems.trading.config:TradingConfig",
    torch="crossfade.systems.trading.system_torch:System",
    jax="crossfade.systems.trading.system_jax:System",
    pictures="crossfade.systems.trading.pictures:pictures",
    summary="crossfade.systems.trading.summary:summary",
    twin=Item(
        "PPO on futures, phase 2: network, loss, updates, accounts (equal to the last bit) and rollouts",
        "crossfade.systems.trading.twin:trading",
    ),
    bench=Item(
        "steps per second of environments old and new, and of PPO in every mode",
        "crossfade.systems.trading.bench:main",
    ),
    effort="crossfade.systems.trading.judging.stage:StudyEffort",
    judge="crossfade.systems.trading.judging.verdict:judge",
    population="crossfade.systems.trading.population_jax:Population",
    presets={
        # A minute's climb on days whose drift the volume tells: small enough for the slowest mode.
        "demo": (
            "market=planted",
            "n_envs=32",
            "n_steps=64",
            "hidden=32",
            "env.window=5",
            "days=20",
            "eval_days=40",
            "steps=60",
            "eval_every=20",
        ),
        # The published curriculum: a limit and a stop that tighten, costs that come late and then rise.
        "curriculum": (
            "curriculum.drawdown=0:15000,0.5:5000,1:2500",
            "curriculum.stop_atr=0:2,1:1.5",
            "curriculum.commission=0.25:0.25,0.25:1,0.625:2.5",
        ),
        # The published systems with their faults, as far as an integer ledger can have them: see docs/trading.md.
        "seed_jax": ("rules=seed_jax", "features=seed8", "liquidation=1000", *PUBLISHED_PPO),
        "seed_pandas": (
            "rules=seed_pandas",
            "features=seed8",
            "stop_cap=none",
            "lock=none",
            "max_bars=390",
            *PUBLISHED_PPO,
        ),
        # The published second phase: positions to manage are given at first, later they must be opened.
        "phase2": ("env.phase=2", *PUBLISHED_PHASE_2),
        # The same, and a position may be left at the market.
        "phase3": ("env.phase=3", *PUBLISHED_PHASE_2),
        # A firm's evaluation account: two weeks on one balance and one floor, positions as large as the risk allows.
        "firm": (
            "markets=MES",
            "balance=50000",
            "drawdown=2500",
            "account_days=10",
            "risk=250",
            "contracts=10",
        ),
    },
    headline=(
        Measure("eval/daily", "$ per day", "higher"),
        Measure("eval/daily_se", "std. error"),
        Measure("eval/random", "random"),
        Measure("eval/long", "long"),
        Measure("eval/short", "short"),
        Measure("train/loss", "loss"),
    ),
    score="eval/sharpe",
    verbs={
        "walk": Item("walk forward, fold after fold", "crossfade.systems.trading.verbs.walk:Walk"),
        "audit": Item("is the simulated market fair?", "crossfade.systems.trading.verbs.audit:Audit"),
        "data": Item("bring in market data and check it", "crossfade.systems.trading.verbs.data:Data"),
        "explain": Item("where two sets of rules part", "crossfade.systems.trading.verbs.explain:Explain"),
    },
    # Short episodes that end in both ways, and a curriculum that moves all it can.
    tiny=(
        "n_envs=4",
        "n_steps=16",
        "hidden=8",
        "env.phase=2",
        "env.window=3",
        "days=2",
        "eval_days=1",
        "epochs=2",
        "minibatches=2",
        "max_bars=7",
        "drawdown=300",
        "curriculum.drawdown=0:200,1:120",
        "curriculum.stop_atr=0:2,0.5:1.5,0.5:1",
        "curriculum.commission=0:0.25,1:2.5",
        "curriculum.forced=0:0.9,1:0.2",
        "steps=8",
        "chunk=4",
    ),
)
