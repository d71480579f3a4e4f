"""Verbs that name, prove and convert: list, parity, convert, doctor."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from ..errors import UsageError
from .common import Common, print_json, status


@dataclass(kw_only=True)
class List(Common):
    """Systems, modes, proofs and benches that can be named; of one system, its settings.

    crossfade list

    crossfade list gflownet
    """

    system: Annotated[Positional[str | None], arg(metavar="SYSTEM")] = None
    """Show the settings of this system."""

    def run(self) -> int:
        from ..registry import BENCHES, MODES, SYSTEMS, TWINS

        if self.system is not None:
            return self._settings(self.system)
        table = {
            "systems": {name: system.help for name, system in SYSTEMS.items()},
            "modes": MODES,
            "parity": {name: item.help for name, item in TWINS.items()},
            "bench": {name: item.help for name, item in BENCHES.items()},
        }
        if self.json:
            return print_json(table)
        for kind, rows in table.items():
            print(kind)
            for name, line in rows.items():
                print(f"  {name:<14} {line}")
        return 0

    def _settings(self, name: str) -> int:
        from ..config import describe
        from ..loading import load_attribute
        from ..presets import PRESETS
        from ..registry import SYSTEMS, lookup

        rows = describe(load_attribute(lookup("system", SYSTEMS, name).config)())
        presets = {preset: " ".join(words) for preset, words in PRESETS.get(name, {}).items()}
        if self.json:
            return print_json({"settings": [row._asdict() for row in rows], "presets": presets})
        for row in rows:
            print(f"{row.key + '=' + row.default:<28} {row.doc}")
        for preset, words in presets.items():
            print(f"--preset {preset:<19} {words}")
        return 0


@dataclass(kw_only=True)
class Parity(Common):
    """Prove that the two sides of a system are the same. Exit code 1 when DIFFERENT.

    crossfade parity policy_value --level grad

    crossfade parity my_package.twins:my_twin

    crossfade parity trading --explain 12 --rules seed_jax
    """

    system: Annotated[Positional[str], arg(metavar="SYSTEM|MODULE:TWIN")]
    """A name from `crossfade list`, or your own Twin (or a function that makes one)."""
    level: Literal["all", "map", "forward", "loss", "grad", "update", "updates", "env", "rollout"] = "all"
    """Climb up to this level."""
    dtype: Literal["both", "float64", "float32"] = "both"
    """Precisions to compare in."""
    explain: int | None = None
    """trading: compare two sets of rules instead, at this step of an account, and name the switches that part them."""
    rules: str = "seed_jax"
    """With --explain: a set of rules, or switches of the sound ones: --rules gaps=ignored,trail=same_bar."""
    against: str = "sound"
    """With --explain: the rules that the account lives by."""
    phase: Literal[1, 2] = 2
    """With --explain: 1 enters, 2 also manages the stop."""
    seed: int = 0
    """With --explain: of the days and of the actions."""

    def run(self) -> int:
        from ..loading import load_attribute
        from ..registry import TWINS, lookup

        if self.explain is not None:
            return self._explain(self.explain)

        target = self.system if ":" in self.system else lookup("system", TWINS, self.system).target
        from .. import parity

        twin = load_attribute(target, parity.Twin)
        with status(f"proving {twin.name}", self):
            report = parity.check(twin, levels=self.level, dtype=self.dtype)
        page = report.save(self.runs_dir / "parity" / f"{twin.name}.html")
        if self.json:
            print_json(report.json())
        else:
            print(report.text())
            print(f"report: {page}")
        return report.exit_code

    def _explain(self, step: int) -> int:
        if self.system != "trading":
            raise UsageError(f"--explain compares the rules of trading, got {self.system!r}: crossfade parity trading.")
        from ..envs.trading import explain

        rules, against = map(explain.rules_named, (self.rules, self.against))
        situations = explain.walk(step, rules, against, self.phase, self.seed)
        situation = next(situations)
        found = explain.explain(situation, rules, against)
        if self.json:
            state = {name: int(value) for name, value in situation.state._asdict().items()}
            told = {"step": step, "action": explain.ACTIONS[situation.action], "state": state, **found._asdict()}
            print_json(told)
        else:
            later = (i for i, s in enumerate(situations, step + 1) if explain.explain(s, rules, against).differs)
            print(explain.text(step, situation, found, (self.rules, self.against), next(later, None)))
        return int(bool(found.differs))


@dataclass(kw_only=True)
class Convert(Common):
    """Turn a checkpoint into another format. Nothing is ever unpickled.

    crossfade convert policy.pt --to orbax

    crossfade convert runs/x/checkpoints --to torch --out policy.pt

    crossfade convert logs/upstream_run/ckpts/final.ckpt --to bundle
    """

    checkpoint: Annotated[Positional[Path], arg(metavar="CKPT")]
    """A run, a bundle or folder of bundles, .pt/.pth, .safetensors, .npz, an orbax folder, or a checkpoint of
    alexhernandezgarcia/gflownet; recognised by content."""
    to: Literal["torch", "jax", "orbax", "npz", "safetensors", "bundle", "upstream", "upstream_flat"] = "torch"
    """The format to write. `upstream` is that of alexhernandezgarcia/gflownet, `upstream_flat` that of forks with the
    flattened trunk."""
    out: Path | None = None
    """Where to write it; by default beside the source."""

    def run(self) -> int:
        written, facts = self._convert()
        if self.json:
            return print_json({"written": str(written), **facts})
        print(written)
        for name, value in facts.items():
            print(f"{name:<18} {value}")
        return 0

    def _convert(self) -> tuple[Path, dict[str, Any]]:
        """Where the result is, and what is to be said about it."""
        from .. import checkpoint
        from ..algos.gflownet import upstream

        inside = self.checkpoint / "checkpoints"  # of a run
        source = inside if inside.is_dir() else self.checkpoint
        beside, stem = source.with_name, source.stem
        if self.to in ("upstream", "upstream_flat"):
            layout = "nested" if self.to == "upstream" else "flat"
            out = self.out or beside(f"{stem}.ckpt")
            return upstream.from_bundle(source, out, layout), {}
        found = upstream.open_upstream(source)
        if found is None:
            return checkpoint.convert(source, self.to, self.out), {}
        if self.to != "bundle":
            raise UsageError(
                f"{source}: an upstream checkpoint becomes a bundle first: --to bundle, not --to {self.to}."
            )
        folder = self.out or beside(f"{stem}.bundles")
        facts = {**asdict(found.facts), "settings": " ".join(found.facts.words)}
        return upstream.to_bundle(found, folder), facts


@dataclass(kw_only=True)
class Doctor(Common):
    """Versions, devices and missing extras; with your own models or environments: what is wrong with them.

    crossfade doctor

    crossfade doctor my_models:TorchNet my_models:make_jax_net --input 4x8

    crossfade doctor my_env:LineParams
    """

    targets: Annotated[Positional[tuple[str, ...]], arg(metavar="TORCH JAX ...|PARAMS ...")] = ()
    """Pairs of MODULE:ATTR, torch first: a model, or a class or function that makes one without arguments. Or the
    params of environments, MODULE:ATTR: a class, or one of its values."""
    input: Annotated[tuple[str, ...], arg(metavar="SHAPE|MODULE:ATTR")] = ()
    """The torch input: a shape with its batch axis such as 4x8, or MODULE:ATTR. One per pair, or one for all."""
    jax_input: Annotated[tuple[str, ...], arg(metavar="SHAPE|MODULE:ATTR")] = ()
    """The JAX input where its layout differs (NHWC)."""

    def run(self) -> int:
        from .. import doctor

        if not self.targets:
            health = doctor.environment()
            return print_json(health) if self.json else doctor.print_environment(health)
        environments, models = doctor.sort(self.targets)
        with status("examining", self):
            found = {name: doctor.examine_environment(params) for name, params in environments.items()}
            reports = doctor.examine(models, self.input, self.jax_input)
        if self.json:
            print_json([*found.values(), *(report.json() for _, report in reports)])
        else:
            doctor.print_environments(found)
            for mapping, report in reports:
                print(mapping.explain(), report.text(), sep="\n\n")
        broken = any(report["problems"] for report in found.values())
        return max(int(broken), *(report.exit_code for _, report in reports), 0)
