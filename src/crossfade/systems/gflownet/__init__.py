"""GFlowNets: objects sampled in proportion to their reward."""

from ...registry import Item, Measure, System

EVERY_50 = ("chunk=50", "log_every=50", "eval_every=50")

RECORD = System(
    name="gflownet",
    help="objects sampled in proportion to their reward",
    config="crossfade.algos.gflownet.config:GFlowNetConfig",
    torch="crossfade.systems.gflownet.system_torch:make_system",
    jax="crossfade.systems.gflownet.system_jax:make_system",
    pictures="crossfade.systems.gflownet.pictures:pictures",
    twin=Item(
        "trajectory balance on a small hypergrid, from parameters to trajectories",
        "crossfade.systems.gflownet.twin:gflownet",
    ),
    bench=Item("iterations per second of every mode", "crossfade.systems.gflownet.bench:main"),
    effort="crossfade.algos.gflownet.evaluation.evaluate:SamplingEffort",
    population="crossfade.systems.gflownet.population_jax:Population",
    examine="crossfade.systems.gflownet.examine:examine",
    formats="crossfade.systems.gflownet.published.formats_torch:FORMATS",
    presets={
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
    headline=(
        Measure("eval/tv", "TV", "lower", log=True),
        Measure("eval/gap", "EUBO - ELBO", "lower"),
        Measure("eval/log_z_error", "log Z error", "lower", log=True),
        Measure("train/loss", "loss", "lower", log=True),
        Measure("train/mean_log_reward", "mean log R", "higher"),
        Measure("train/mean_length", "mean length"),
    ),
    tiny=(
        "env=hypergrid",
        "env.length=4",
        "env.n_dim=2",
        "hidden=16",
        "batch_size=16",
        "replay_batch=4",
        "replay_capacity=20",
        "lr_period=3",
        "lr_gamma=0.5",
        "steps=8",
        "chunk=4",
    ),
)
