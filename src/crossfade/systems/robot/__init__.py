"""Robots that learn to walk, by PPO with continuous actions."""

from ...registry import Item, Measure, System

RANDOMISED = (
    "env.randomisation.friction=0.4,1.25",
    "env.randomisation.mass=0.85,1.15",
    "env.randomisation.strength=0.9,1.1",
    "env.randomisation.damping=0,0.5",
    "env.randomisation.latency=0,3",
    "env.randomisation.terrain=-0.02,0.02",
    "env.randomisation.push=0,1",
    "env.randomisation.noise=0.02",
)

RECORD = System(
    name="robot",
    help="robots learn to walk, by PPO with continuous actions",
    config="crossfade.systems.robot.config:RobotConfig",
    torch="crossfade.systems.robot.system_torch:System",
    jax="crossfade.systems.robot.system_jax:System",
    pictures="crossfade.systems.robot.pictures:pictures",
    summary="crossfade.systems.robot.summary:summary",
    twin=Item(
        "PPO on a walking robot: network, loss, updates, the world step by step, and rollouts",
        "crossfade.systems.robot.twin:robot",
    ),
    bench=Item(
        "control steps per second, levels 1 to 4, beside NumPy and MuJoCo", "crossfade.systems.robot.bench:main"
    ),
    effort="crossfade.systems.robot.evaluation:RobotEffort",
    examine="crossfade.systems.robot.examine:examine",
    formats="crossfade.systems.robot.onnx_format:FORMATS",
    judge="crossfade.systems.robot.verdict:judge",
    presets={
        # A minute's climb of the planar biped: small enough for the slowest mode.
        "demo": ("n_envs=16", "n_steps=16", "hidden=32", "steps=60", "eval_every=20", "env.limit=200"),
        # The planar biped learns to walk, in minutes.
        "walk": (
            "n_envs=128",
            "n_steps=40",
            "log_std_start=-1",
            "steps=1500",
            "eval_every=250",
            "checkpoint_every=250",
        ),
        # Faster, at speeds that are commanded and seen.
        "brisk": (
            "n_envs=128",
            "n_steps=40",
            "log_std_start=-1",
            "steps=12000",
            "env.forward=0.2,1",
            "env.see_command=true",
            "curriculum=true",
            "eval_every=500",
            "checkpoint_every=500",
        ),
        # PPO as Brax has it: docs/robot_brax.md.
        "brax": (
            "n_envs=128",
            "n_steps=40",
            "steps=8000",
            "squashed=true",
            "log_std=state",
            "clip=0.3",
            "truncation=mask",
            "entropy_coef=1e-4",
            "lr_final=3e-4",
            "adam_eps=1e-8",
            "clip_norm=none",
            "segments=true",
            "advantage=lambda_return",
            "join_first=true",
            "apart=true",
            "initial=lecun_uniform",
            "deviation=softplus",
            "entropy=squashed",
            "eval_every=500",
            "checkpoint_every=500",
        ),
        # Walking in the manner of a gait of our own. Joints reach what the gait asks of them, and actions have little
        # noise: a discriminator that knows the policy by its trembling teaches nothing about its gait.
        "styled": (
            "n_envs=128",
            "n_steps=40",
            "steps=600",
            "lr=6e-4",
            "log_std_start=-2.3",
            "entropy_coef=0",
            "env.scale=0.7",
            "style=amp",
            "style.style_weight=2",
            "style.hidden=256,128",
            "style.batch=256",
            "style.updates=6",
            "style.lr=2e-4",
            "eval_every=200",
            "checkpoint_every=200",
        ),
        # The biped of 11 joints with all that the published system randomises.
        "robust": ("env.model=sprig11", "n_envs=128", "n_steps=40", "log_std_start=-1", "steps=12000", *RANDOMISED),
    },
    headline=(
        Measure("eval/distance", "metres", "higher"),
        Measure("eval/speed_error", "speed error", "lower"),
        Measure("eval/falls", "falls", "lower"),
        Measure("eval/return", "return", "higher"),
        Measure("train/loss", "loss"),
    ),
    score="eval/return",
    # Episodes that end in both ways, with everything that is random.
    tiny=(
        "n_envs=4",
        "n_steps=8",
        "epochs=2",
        "minibatches=2",
        "hidden=8",
        "layers=1",
        "curriculum=true",
        "env.limit=6",
        "env.substeps=2",
        "env.see_command=true",
        "env.forward=0.2,0.6",
        "env.least_upright=0.9996",
        "env.randomisation.latency=0,2",
        "env.randomisation.push=0,1",
        "env.randomisation.push_every=2,4",
        "env.randomisation.noise=0.02",
        "env.randomisation.mass=0.85,1.15",
        "eval_episodes=3",
        "steps=8",
        "chunk=4",
    ),
)
