"""The verb that brings market data in and looks at it."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from ....errors import UsageError
from ....ranges import Range, Seed
from ....verbs.common import Common, print_json, status


@dataclass(kw_only=True)
class Check(Common):
    """Read files of bars and report what is in them; nothing is written. Exit code 1 when they are refused."""

    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE ...")]
    """Files of one contract: text with any separator, plain or packed (.gz, .bz2, .xz, .zst, .zip), or .parquet."""
    contract: str
    """The contract: ES, NQ, YM, RTY, GC, CL, a micro of one, or one of your own (see --contracts)."""
    source: str | None = None
    """Whose format it is, if it is not recognised: databento, tradestation, metatrader, sierra, ib, dukascopy,
    yfinance, tradingview, histdata, ninjatrader, firstrate, kibot, metatrader4, or csv for any table with a header."""
    zone: str | None = None
    """The clock of times that name none, if the format has no usual one: America/Chicago, UTC+2, America/New_York+7."""
    stamp: Literal["start", "end"] | None = None
    """Whether times are those of the start or of the end of bars, if neither the format nor sessions tell."""
    dates: Literal["ymd", "mdy", "dmy"] | None = None
    """The order of day, month and year, if no date of the file tells: 01/02/2024 is 2 January with mdy."""
    decimal: Literal["point", "comma"] | None = None
    """What stands before decimals, if numbers leave it open: 4,783 is 4783 with point, and 4.783 with comma."""
    last_row: Literal["drop", "keep"] = "drop"
    """What to do with a last row that has no end of line, since it may be cut off."""
    negative: bool = False
    """Accept prices of 0 and below, as those of crude oil were in April 2020."""
    off_grid: Literal["refuse", "round"] = "refuse"
    """What to do with prices between ticks, as adjusted series have them."""
    doubtful: Literal["refuse", "warn"] = "refuse"
    """What to do with bars that look like several contracts mixed, like another contract's or another clock's."""

    contracts: Path | None = None
    """A YAML file of contracts of your own (docs/trading_data.md); they are stored with their bars."""

    def run(self) -> int:
        self._show(self._read())
        return 0

    def _read(self) -> Any:
        from ....envs.trading import importers

        with status(f"reading {self.contract}", self):
            told = {f.name: getattr(self, f.name) for f in fields(importers.Options)}
            return importers.read(self.files, self.contract, **told)

    def _show(self, imported: Any, **more: str) -> None:
        if self.json:
            print_json({**imported.report.json(), **more})
        else:
            print("\n".join([imported.report.text(), *(f"  {name:<12}{value}" for name, value in more.items())]))


@dataclass(kw_only=True)
class Import(Check):
    """Read files of bars, check them and keep them for training: `crossfade train trading data=bars markets=ES`.

    What a file does not tell is assumed and reported, or refused with the option that tells it.
    """

    to: Path = Path("bars")
    """Folder that gets CONTRACT.safetensors and the report as CONTRACT.json."""
    replace: bool = False
    """Overwrite other bars of this contract that are there already."""
    merge: bool = False
    """Add to the bars of this contract that are there already; where both have a bar, both must be equal."""

    def run(self) -> int:
        from ....envs.trading.importers import store

        if self.replace and self.merge:
            raise UsageError("--replace and --merge: expected one of them.")
        imported = self._read()
        path = store.save(self.to, self.contract, imported, replace=self.replace, merge=self.merge)
        there = store.report(self.to, self.contract)["bars"]
        more = {"merged": f"{there} bars in all"} if self.merge else {}
        self._show(imported, written=str(path), **more)
        return 0


@dataclass(kw_only=True)
class Facts(Common):
    """Stylised facts beside the bands of index futures; of the synthetic market or of imported bars.

    Exit code 1 when the synthetic market leaves a band. Bars of a real market may: they are what they are.
    """

    folder: Annotated[Positional[Path | None], arg(metavar="FOLDER")] = None
    """Folder of imported bars; none takes the synthetic market."""
    market: str = "default"
    """Which synthetic market."""
    contracts: tuple[str, ...] = ("ES",)
    """Contracts of the synthetic market."""
    days: Annotated[int, Range(2, 10**5)] = 250
    """Days of it; leverage needs 1000."""
    seed: Seed = 0
    """The seed of the synthetic days."""

    def run(self) -> int:
        from ....envs.trading import facts, synthetic
        from ....envs.trading.importers import store

        with status("measuring", self):
            if self.folder is None:
                bars = synthetic.bars(self.contracts, self.days, self.seed, synthetic.named(self.market))
            else:
                bars = store.read(self.folder, store.names(self.folder) or self.contracts)
            spec = lambda name: None if self.folder is None else store.spec(self.folder, name)
            found = {name: facts.facts(name, of, spec(name)) for name, of in bars.items()}
        if self.json:
            print_json({name: [fact.plain() for fact in of] for name, of in found.items()})
        else:
            for name, of in found.items():
                print(f"{name}: {len(bars[name].stamp)} bars")
                print("\n".join(f"  {fact.text()}" for fact in of))
        return int(self.folder is None and not all(fact.holds for of in found.values() for fact in of))


@dataclass(kw_only=True)
class Sample(Common):
    """Take real bars out of a package that is installed: mlfinpy (minutes of ES), arch, anytrading."""

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """mlfinpy, arch or anytrading."""
    to: Path = Path("bars")
    """Folder to write into."""

    def run(self) -> int:
        from ....envs.trading import samples

        with status(f"reading {self.name}", self):
            written = [str(path) for path in samples.write(self.name, self.to)]
        if self.json:
            return print_json({"written": written, "meaning": samples.SAMPLES[self.name].meaning})
        print("\n".join([*written, samples.SAMPLES[self.name].meaning]))
        return 0


@dataclass(kw_only=True)
class Data:
    """Bring in market data, check it, and compare it with what markets have in common."""

    do: OmitArgPrefixes[
        Annotated[Import, subcommand("import", prefix_name=False)]
        | Annotated[Check, subcommand("check", prefix_name=False)]
        | Annotated[Facts, subcommand("facts", prefix_name=False)]
        | Annotated[Sample, subcommand("sample", prefix_name=False)]
    ]
    """What to do."""

    def run(self) -> int:
        return self.do.run()
