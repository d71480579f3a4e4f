"""What each fault of the published system does to the return: greedy play after 500 epochs, several seeds.

    python benchmarks/treasurehunt_ablation.py --seeds 3

Every variant is trained in mode jax_full and judged by the same 256 games. An interval is Student's over the seeds,
95 %: with three seeds it is 2.5 times their deviation on either side, so that small effects cannot be seen.
"""

import argparse
import json
from dataclasses import replace

import numpy as np
from scipy.stats import t

from crossfade.algos.iqn.config import QUIRKS
from crossfade.config import apply
from crossfade.systems.treasurehunt import RECORD
from crossfade.systems.treasurehunt.config import TreasurehuntConfig
from crossfade.trainers.making import make_trainer

VARIANTS = {
    "correct": (),
    "legacy, all faults": ("legacy=true", "n_step=3"),
    "correct, three-step targets": ("n_step=3",),
    **{
        f"correct and {quirk}": (f"quirks={quirk}", "n_step=3" if quirk == "discount_only" else "n_step=1")
        for quirk in QUIRKS
        if quirk != "attached_target"  # what no optimiser takes changes no run
    },
}


def score(words: tuple[str, ...], seed: int, epochs: int) -> float:
    """The return of the greedy policy after training."""
    config = apply(TreasurehuntConfig(), (*words, f"seed={seed}", f"steps={epochs}", "eval_episodes=256"))
    trainer = make_trainer(RECORD, replace(config, mode="jax_full"))
    for step in range(0, epochs, config.chunk):
        trainer.run(step, config.chunk)
    return trainer.evaluate().metrics["eval/return"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--variants", type=int, default=len(VARIANTS), help="how many, in their order")
    parser.add_argument("--json", default="")
    asked = parser.parse_args()
    found = {}
    print("| variant | return of each seed | mean, 95 % interval |\n|---|---|---|")
    for name, words in list(VARIANTS.items())[: asked.variants]:
        found[name] = [score(words, seed, asked.epochs) for seed in range(asked.seeds)]
        mean, deviation = np.mean(found[name]), np.std(found[name], ddof=1)
        half = t.ppf(0.975, asked.seeds - 1) * deviation / np.sqrt(asked.seeds)
        print(
            f"| {name} | {', '.join(f'{value:.0f}' for value in found[name])} | {mean:.0f} +- {half:.0f} |", flush=True
        )
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
