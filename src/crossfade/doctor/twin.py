"""A pair of models as a Twin, of which `parity.check` proves the forward pass."""

from typing import TYPE_CHECKING, Any

from .inputs import Given

if TYPE_CHECKING:
    from ..bridge import Mapping
    from ..parity import Twin


def origin(mapping: "Mapping") -> tuple[Any, Any]:
    """The torch input and the JAX input with which a mapping was found; None for the same."""
    return mapping.origin[1:3] if mapping.origin is not None else (None, None)


def forward_twin(name: str, module: Any, mapping: "Mapping", x: Any, given: Given, factor: float = 1.0) -> "Twin":
    """Both models in evaluation mode, the outputs of the JAX model under torch's names and in torch's layout, inputs
    times a factor. Where the run is in float64 all is computed in float64, whatever the code of the models says."""
    import copy
    from contextlib import nullcontext

    import jax
    import torch

    from ..bridge.libraries import named_leaves, open_model
    from ..bridge.matching.both_models import unwrap
    from ..bridge.matching.draws import is_continuous
    from ..bridge.matching.outputs import in_torch_layout, output_tensors
    from ..bridge.meant_numbers import Meant
    from ..bridge.widening import Wide, widened
    from ..parity import Twin
    from ..parity.arrays import jax_tree, to_numpy, torch_tree

    module = copy.deepcopy(unwrap(module)).float().eval()
    jax_x = origin(mapping)[1]
    batch = x if jax_x is None else {"torch": x, "jax": jax_x}
    of = lambda batch, half: batch if jax_x is None else batch[half]
    scaled = lambda leaf: factor * leaf if is_continuous(to_numpy(leaf)) else leaf
    batch = batch if factor == 1.0 else jax.tree.map(scaled, batch)
    jax_call = given.jax_apply or mapping.opened.call
    torch_call = given.torch_apply or (lambda module, x: module(*(x if isinstance(x, tuple) else (x,))))
    torch_meant, jax_meant = mapping.numbers or (Meant(), Meant())

    def forward(module: Any, x: Any) -> dict[str, Any]:
        wide = torch.get_default_dtype() == torch.float64
        with Wide(torch_meant) if wide else nullcontext():
            return output_tensors(torch_call(module, x))

    def call(model: Any, x: Any) -> Any:
        opened = open_model(model)
        run = lambda leaves, x: jax_call(opened.inference(opened.replace(leaves)), x)
        wide = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
        return (widened(run, jax_meant) if wide else run)(opened.leaves(), x)

    jax_result = call(mapping.to_jax(module.state_dict()), jax_tree(of(batch, "jax"), "float32"))
    same = in_torch_layout(forward(module, torch_tree(x, "float32")), jax_result)
    return Twin(
        name=name,
        torch=module,
        jax=mapping.jax_model,
        mapping=mapping,
        batch=batch,
        forward=(lambda m, b: forward(m, of(b, "torch")), lambda m, b: same(call(m, of(b, "jax")))),
        scaled=tuple(name for name, leaf in named_leaves(batch).items() if is_continuous(to_numpy(leaf))),
    )
