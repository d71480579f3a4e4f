"""The verb eval: all that can be said of what a run has learned."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from .common import Common, print_json
from .training import _config


@dataclass(kw_only=True)
class Eval(Common):
    """Evaluate a run's last checkpoint: a GFlowNet exactly where its world can be listed, by bounds and samples
    everywhere; a trader on the days held out, with intervals, baselines and other fill rules.

    crossfade eval runs/gflownet/tb-grid-jax_full-s0-20260101-120000 --samples 100000

    crossfade eval runs/trading/ppo-es-jax_full-s0-20260101-120000 --firms my_firm.yaml
    """

    path: Annotated[Positional[Path], arg(metavar="RUN")]
    """The folder of a run."""
    samples: int = 10_000
    """Of a GFlowNet: objects to sample from the policy, and as many from the target."""
    backward_samples: int = 10
    """Of a GFlowNet: backward trajectories by which the probability of one object is estimated."""
    seed: int | None = None
    """Of a GFlowNet: seed of the samples; by default the run's, by a stream that training does not use."""
    resamples: int = 2000
    """Of a trader: repeats of the bootstrap, and accounts that try a firm's evaluation."""
    block: float | None = None
    """Of a trader: mean length of the bootstrap's blocks in days; by default the cube root of the number of days."""
    checkpoints: bool = False
    """Of a trader: judge every checkpoint that was kept, in one compiled call in the modes of JAX."""
    firms: tuple[Path, ...] = ()
    """Of a trader: YAML files of prop-firm rules, beside those that come along."""

    def run(self) -> int:
        from .. import checkpoint
        from ..run import RunDir
        from ..run.files import write_array, write_json, write_text
        from ..trainers.trainer import Snapshot
        from ..trainers.training import make_trainer, precision

        run = RunDir.open(self.path)
        system = run.meta["system"]
        config, effort = _config(system, (), run.config_path), self._effort(system)
        bundle = checkpoint.load(run.checkpoints, side="numpy")
        with precision(config):
            trainer = make_trainer(
                system, config, Snapshot(bundle.params, bundle.optimizer, bundle.replay["buffer"]), bundle.step
            )
            found = trainer.evaluate(effort)
            curve = self._curve(run, config) if self.checkpoints and system == "trading" else []
        for stale in run.eval.glob("shown_*.npy"):  # a policy that did not trade leaves none
            stale.unlink()
        for name, array in found.arrays.items():
            write_array(run.eval / f"{name}.npy", array)
        study = self._study(run, config, found, curve) if system == "trading" else None
        for name, text in (found.files if study else {}).items():
            write_text(run.eval / name, text)
        asked = {**asdict(effort), "test_set": found.test_set}
        written = finite({"step": bundle.step, **asked, **found.metrics, **({"study": study} if study else {})})
        write_json(run.eval / f"{bundle.step:010d}.json", written)
        if self.json:
            return print_json(written)
        if study:
            print("\n".join(sheet(f"step {bundle.step}, {found.test_set}", study)))
            return 0
        print(f"step {bundle.step}, {self.samples} samples")
        print("\n".join(metric_lines(found.metrics)))
        if found.test_set:
            print(f"probabilities: of {found.test_set}, {self.backward_samples} backward trajectories each")
        return 0

    def _effort(self, system: str) -> Any:
        if system == "trading":
            from ..systems.trading.judging import firms, stage

            return stage.Effort(self.resamples, self.block, firms.load(*self.firms))
        from ..algos.gflownet.evaluation import Effort

        return Effort(self.samples, self.backward_samples, self.seed)

    def _curve(self, run: Any, config: Any) -> list[dict[str, Any]]:
        """A few figures of every checkpoint but the last, which is studied."""
        from .. import checkpoint
        from ..loading import load_attribute
        from ..systems.trading.judging.stage import Stage

        bundles = [checkpoint.load(path, side="numpy") for path in checkpoint.list_bundles(run.checkpoints)[:-1]]
        side, stage = "jax" if config.mode.startswith("jax") else "torch", Stage(config)
        records = load_attribute(f"crossfade.systems.trading.judging.checkpoints_{side}:records")
        parameters, buffers = [b.params for b in bundles], [b.replay["buffer"] for b in bundles]
        found = records(config, stage, parameters, buffers) if bundles else []
        return [{"step": b.step, **stage.brief(record)} for b, record in zip(bundles, found, strict=True)]

    def _study(self, run: Any, config: Any, found: Any, curve: list[dict[str, Any]]) -> dict[str, Any]:
        """With what the ledger knows; these looks at the test set are written down first, and count."""
        import numpy as np

        from ..run import trials
        from ..systems.trading.judging.study import selection

        trials.judged(run, config, "eval", found.metrics["eval/sharpe"], found.test_set)
        for row in curve:
            trials.judged(run, config, "eval", row["sharpe"], found.test_set, int(row["step"]))
        tried = trials.read(run.path.parent.parent, run.meta["system"])
        judged = [run.path.parent / name / "eval" / "daily.npy" for name in tried.runs[found.test_set].values()]
        dailies = [np.load(path, allow_pickle=False) for path in dict.fromkeys(judged) if path.exists()]
        picked = selection(found.study["moments"], tried.trials, list(tried.scores.values()), dailies)
        chosen = {**picked, "opened": tried.opened[found.test_set]}
        return {**found.study, **({"checkpoints": curve} if curve else {}), "selection": chosen}


def sheet(title: str, study: dict[str, Any]) -> list[str]:
    """A study for the terminal: tables, then the headline and the notice of risk."""
    from ..systems.trading.judging import tearsheet

    about = f"{study['days']} days from {study['first_day']} to {study['last_day']}"
    tables = [line for table in tearsheet.tables(study) for line in ("", *tearsheet.lines(table))]
    return [f"{title}; {about}", *tables, "", tearsheet.headline(study), tearsheet.RISK]


def finite(tree: Any) -> Any:
    """With None in place of numbers that JSON has not."""
    if isinstance(tree, dict):
        return {name: finite(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def metric_lines(metrics: dict[str, float]) -> list[str]:
    """A line for each metric: its value, standard error, and what a perfect sampler scores; blank where not given."""
    show = lambda value: "" if value is None else f"{value:.5g}"
    rows = [("", "value", "std. error", "if perfect")]
    rows += [
        (name, show(value), show(metrics.get(f"{name}_se")), show(metrics.get(f"{name}_perfect")))
        for name, value in metrics.items()
        if not name.endswith(("_se", "_perfect"))
    ]
    return [f"{name:<36}{value:>12}{error:>12}{perfect:>12}".rstrip() for name, value, error, perfect in rows]
