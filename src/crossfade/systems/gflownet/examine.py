"""What `crossfade doctor` finds in an environment, shipped or of the user's own, named by its params."""

from ...doctor import Examined
from ...envs.dag import conformance
from ...envs.dag.params import Params
from ...envs.dag.registry import ALL, make, params_class
from ...loading import load_attribute

SIZES = ("n_actions", "n_parents", "max_steps", "observation_dim", "n_states")


def examine(target: str) -> Examined | None:
    """The sizes of an environment and every promise it breaks; None for what is not the params of one."""
    if target.endswith(".xml"):
        return None  # a file, of another system
    params = params_class(target) if target in ALL else load_attribute(target)
    if isinstance(params, type) and issubclass(params, Params):
        params = params()
    if not isinstance(params, Params):
        return None
    sizes = {size: getattr(params, size) for size in SIZES}
    states = "states not numbered" if params.n_states is None else f"{params.n_states} states"
    about = (
        f"  {params.n_actions} actions, {params.n_parents} backward actions, trajectories of at most "
        f"{params.max_steps} steps, {states}"
    )
    problems = conformance.check(make(params, "numpy"), make(params, "jax"))
    return Examined([str(params), about], problems, {"params": str(params), **sizes})
