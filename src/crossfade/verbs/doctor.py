"""The verb doctor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..errors import UsageError
from .common import Common, print_json, status


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
    """The JAX input where its layout differs; images with their channels last are tried without being asked."""
    torch_apply: Annotated[tuple[str, ...], arg(metavar="MODULE:FUNCTION")] = ()
    """How the torch model is called: a function (module, x) -> outputs, for an agent without forward()."""
    jax_apply: Annotated[tuple[str, ...], arg(metavar="MODULE:FUNCTION")] = ()
    """The same for the JAX model, (model, x) -> outputs: for a dict of arrays, or outputs in torch's order."""
    html: Path | None = None
    """Write the report on the models as a page, to this file."""

    def run(self) -> int:
        from .. import doctor
        from ..run.files import write_text

        if self.html is not None and self.html.suffix != ".html":
            raise UsageError(f"--html: expected a file that ends in .html, got {str(self.html)!r}.")
        if not self.targets:
            health = doctor.environment()
            return print_json(health) if self.json else doctor.print_environment(health)
        with status("examining", self):
            worlds, models = doctor.examine_worlds(self.targets)
            reports = doctor.examine(models, self.input, self.jax_input, self.torch_apply, self.jax_apply)
        if self.html is not None:
            write_text(self.html, doctor.page(reports))
        if self.json:
            print_json([*(world.json() for world in worlds), *(report.json() for _, report in reports)])
        else:
            for world in worlds:
                print(world.text())
            for pair in reports:
                print(doctor.conclusion(*pair))
            for details in filter(None, (doctor.details(*pair) for pair in reports)):
                print(details)
            if self.html is not None:
                print(f"report: {self.html}")
        broken = any(world.problems for world in worlds)
        return max(int(broken), *(report.exit_code for _, report in reports), 0)
