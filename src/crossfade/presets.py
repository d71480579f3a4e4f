"""Named settings, one for each documented result; a preset is words, as on the command line."""

EVERY_50 = ("chunk=50", "log_every=50", "eval_every=50")

SEED_PPO = ("network=seed", "clip=0.15", "clip_value=0.15", "entropy_coef=0.15", "floor=0.05")

PRESETS: dict[str, dict[str, tuple[str, ...]]] = {
    "gflownet": {
        # A minute's climb: small enough for the slowest mode, large enough to learn the target.
        "demo": ("env=hypergrid", "env.length=8", "env.n_dim=2", "hidden=64", "steps=600", *EVERY_50),
        # The setting of the published grid benchmark: 2-D, length 16, log Z as a sum of 16 that starts at 37.5.
        "corners": (
            "env=grid",
            "env.n_dim=2",
            "env.length=16",
            "lr=1e-4",
            "lr_z=1e-2",
            "z_dim=16",
            "z_init=2.34375",
            "steps=5000",
        ),
        # 43 million states, 65 536 objects: judged by EUBO - ELBO, which ends below 0.1.
        "ising": (
            "env=ising",
            "env.side=4",
            "backward=uniform",
            "batch_size=128",
            "lr=3e-3",
            "lr_period=1500",
            "lr_gamma=0.3",
            "execution=dense",
            "steps=5000",
        ),
        # Points of a square; without exploration one corner of four is found.
        "cube": ("env=cube", "epsilon=0.3", "lr=3e-3", "clip_norm=10", "steps=2000"),
        "torus": ("env=torus", "steps=2000"),
    },
    "trading": {
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
        "seed_jax": ("rules=seed_jax", "features=seed8", "liquidation=1000", *SEED_PPO),
        "seed_pandas": ("rules=seed_pandas", "features=seed8", "stop_cap=none", "lock=none", "max_bars=390", *SEED_PPO),
        # The published second phase: positions to manage are given at first, later they must be opened.
        "phase2": (
            "env.phase=2",
            "drawdown=2500",
            "curriculum.forced=0.2:0.7,0.8:0.2,0.8:0.1",
            "curriculum.commission=0.2:0.25,0.8:2,0.8:2.5",
        ),
    },
}
