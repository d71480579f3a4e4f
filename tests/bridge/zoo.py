"""The zoo: architectures in torch and in four JAX libraries, with the pairs of parameters an honest reader expects.

    case = ZOO["dueling"]
    module, model = case.torch(), case.jax("linen")
    match(module, model, case.example(), **case.options("linen"))

Parameters have random values; nothing is trained. The modules of the libraries are in the `zoo_<library>.py` beside.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx
from torch import nn

from bridge import zoo_equinox, zoo_haiku, zoo_linen, zoo_nnx, zoo_torch

LIBRARIES = ("equinox", "nnx", "linen", "haiku")


@dataclass(frozen=True)
class Case:
    """One architecture. `shapes` are the torch inputs; `pairs` names, per library, the leaves that belong together."""

    name: str
    module: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    vocabulary: int = 0  # inputs are integers below this
    image: bool = False  # channels are second in torch, last in NNX, linen and Haiku
    unbatched: bool = False  # inputs after the first have no batch axis
    pairs: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: tuple[str, ...] = ()  # libraries whose layer cannot hold torch's parameters
    lossy: tuple[str, ...] = ()  # libraries that hold a sum of two torch arrays
    rounds: tuple[str, ...] = ()  # libraries whose rule adds a constant, which rounds

    def torch(self, seed: int = 0) -> nn.Module:
        """The torch module in train mode, every parameter and running statistic random."""
        torch.manual_seed(seed)
        module = self.module()
        with torch.no_grad():
            for name, tensor in module.state_dict().items():
                if tensor.is_floating_point():
                    tensor.normal_(0.0, 0.5) if "running_var" not in name else tensor.uniform_(0.5, 2.0)
        return module

    def example(self, seed: int = 0) -> Any:
        """A batch for the torch module: one tensor, or the tuple of arguments."""
        rng = np.random.default_rng(seed)
        if self.vocabulary:
            return torch.tensor(rng.integers(0, self.vocabulary, self.shapes[0]))
        inputs = tuple(torch.tensor(rng.normal(size=s), dtype=torch.float32) for s in self.shapes)
        return inputs if len(inputs) > 1 else inputs[0]

    def jax_example(self, library: str, seed: int = 0) -> Any:
        """The same batch as NumPy arrays, in the library's layout."""
        inputs = self.example(seed)
        inputs = tuple(t.numpy() for t in inputs) if isinstance(inputs, tuple) else (inputs.numpy(),)
        if self.image and library != "equinox":
            inputs = tuple(np.moveaxis(a, 1, -1) for a in inputs)
        return inputs if len(inputs) > 1 else inputs[0]

    def jax(self, library: str, variant: str | None = None) -> Any:
        """The JAX model, as users of the library hold it."""
        name = variant or self.name
        x = self.jax_example(library)
        args = x if isinstance(x, tuple) else (x,)
        if library == "equinox":
            return zoo_equinox.MAKERS[name]()
        if library == "nnx":
            return zoo_nnx.MODULES[name](nnx.Rngs(0))
        if library == "linen":
            module = zoo_linen.MODULES[name]()
            return module, module.init(jax.random.key(0), *args)
        if name.startswith("batchnorm"):
            transformed = hk.transform_with_state(zoo_haiku.FUNCTIONS[name])
            return transformed, transformed.init(jax.random.key(0), *args, True)
        transformed = hk.without_apply_rng(hk.transform(zoo_haiku.FUNCTIONS[name]))
        if name == "critics":
            return transformed, jax.vmap(transformed.init, (0, None))(jax.random.split(jax.random.key(0)), *args)
        return transformed, transformed.init(jax.random.key(0), *args)

    def options(self, library: str) -> dict[str, Any]:
        """Further arguments of `match`."""
        options: dict[str, Any] = {}
        if self.image and library != "equinox":
            options["jax_example"] = self.jax_example(library)
        if self.unbatched and library == "equinox":
            options["jax_apply"] = lambda model, x: jax.vmap(model, (0,) + (None,) * (len(x) - 1))(*x)
        if self.name == "critics" and library == "haiku":
            options["jax_apply"] = lambda model, x: jax.vmap(model[0].apply, (0, None))(model[1], x)
        if self.name in ("critics", "stacked_critics") and library == "equinox":
            options["jax_apply"] = lambda model, x: jnp.moveaxis(jax.vmap(model)(x), 1, 0)
        return options


def _pairs(**libraries: str) -> dict[str, dict[str, str]]:
    """`equinox="first.weight=layers.c.weight ..."` as a dict."""
    return {library: dict(pair.split("=") for pair in text.split()) for library, text in libraries.items()}


_CASES = (
    Case("mlp", zoo_torch.MLP, ((4, 3),)),
    Case(
        "shuffled",
        zoo_torch.Shuffled,
        ((4, 4),),
        pairs=_pairs(
            equinox="first.weight=layers.c.weight second.bias=layers.a.bias third.weight=layers.d.weight "
            "last.weight=layers.b.weight",
            nnx="first.weight=c.kernel second.weight=b.kernel third.bias=d.bias last.weight=a.kernel",
            linen="first.weight=Dense_3.kernel second.weight=Dense_2.kernel third.weight=Dense_1.kernel "
            "last.bias=Dense_0.bias",
            haiku="first.weight=linear_1.w second.weight=linear_3.w third.weight=linear_2.w last.bias=linear.b",
        ),
    ),
    Case(
        "actor_critic",
        zoo_torch.ActorCritic,
        ((4, 3),),
        pairs=_pairs(
            equinox="policy.weight=c.weight value.weight=a.weight value.bias=a.bias log_std=d",
            nnx="policy.weight=b.kernel value.weight=a.kernel policy.bias=b.bias log_std=d",
            linen="policy.weight=Dense_2.kernel value.weight=Dense_1.kernel log_std=log_std",
            haiku="policy.weight=linear_2.w value.weight=linear_1.w log_std=~.log_std",
        ),
    ),
    Case(
        "layernorm",
        zoo_torch.Norms,
        ((4, 3),),
        pairs=_pairs(
            equinox="norm1.weight=norm.0.weight norm2.bias=norm.1.bias fc1.bias=fc.2.bias",
            nnx="norm1.weight=b.scale norm2.weight=a.scale norm2.bias=a.bias",
            linen="norm1.weight=LayerNorm_0.scale norm2.bias=LayerNorm_1.bias",
            haiku="norm1.weight=layer_norm_1.scale norm2.bias=layer_norm.offset",
        ),
    ),
    Case("pixels", zoo_torch.Pixels, ((2, 2, 6, 8),), image=True),
    Case("sequence", zoo_torch.Sequence, ((2, 4, 6),), image=True),
    Case("tokens", zoo_torch.Tokens, ((8,),), vocabulary=5),
    Case("groupnorm", zoo_torch.Groups, ((2, 2, 4, 4),), image=True),
    Case("rmsnorm", zoo_torch.RootMeanSquare, ((4, 3),)),
    Case(
        "batchnorm_mlp",
        zoo_torch.BatchMLP,
        ((4, 3),),
        pairs=_pairs(
            nnx="bn1.weight=b.scale bn2.bias=a.bias bn1.running_mean=b.mean bn2.running_var=a.var",
            linen="bn1.weight=BatchNorm_0.scale bn1.running_mean=batch_stats.BatchNorm_0.mean "
            "bn2.running_var=batch_stats.BatchNorm_1.var",
            haiku="bn1.weight=batch_norm.scale bn1.running_mean=state.batch_norm/~/mean_ema.average "
            "bn2.running_var=state.batch_norm_1/~/var_ema.average",
        ),
    ),
    Case("batchnorm_conv", zoo_torch.BatchConv, ((2, 2, 4, 4),), image=True),
    Case(
        "lstm",
        lambda: zoo_torch.Recurrent(nn.LSTMCell),
        ((4, 3),),
        lossy=LIBRARIES,
        rounds=("haiku",),
    ),
    Case(
        "gru",
        lambda: zoo_torch.Recurrent(nn.GRUCell),
        ((4, 3),),
        lossy=("equinox", "linen"),
        refused=("nnx", "haiku"),
    ),
    Case(
        "noisy",
        zoo_torch.Noisy,
        ((5, 3), (4,), (4,)),
        unbatched=True,
        pairs=_pairs(
            equinox="noisy.weight_mu=a.weight_mu noisy.weight_sigma=a.weight_sigma noisy.bias_sigma=a.bias_sigma",
            nnx="noisy.weight_mu=b noisy.weight_sigma=a noisy.bias_sigma=c noisy.bias_mu=d",
            linen="noisy.weight_mu=NoisyDense_0.mu noisy.weight_sigma=NoisyDense_0.sigma "
            "noisy.bias_mu=NoisyDense_0.bias",
            haiku="noisy.weight_mu=~.b noisy.weight_sigma=~.a noisy.bias_sigma=~.c noisy.bias_mu=~.d",
        ),
    ),
    Case("tied", zoo_torch.Tied, ((8,),), vocabulary=6),
    Case("critics", zoo_torch.Critics, ((5, 3),)),
    Case("stacked_critics", zoo_torch.StackedCritics, ((5, 3),)),
    Case(
        "dueling",
        zoo_torch.Dueling,
        ((4, 4),),
        pairs=_pairs(
            equinox="value.0.weight=a.0.weight advantage.0.weight=b.0.weight value.2.bias=a.1.bias",
            nnx="value.0.weight=a.kernel advantage.0.weight=c.kernel value.2.bias=d.bias trunk.weight=trunk.kernel",
            linen="value.0.weight=Dense_2.kernel advantage.0.weight=Dense_4.kernel value.2.bias=Dense_1.bias",
            haiku="value.0.weight=linear_2.w advantage.0.weight=linear_4.w value.2.bias=linear_1.b",
        ),
    ),
    Case(
        "residual",
        zoo_torch.Residual,
        ((4, 4),),
        pairs=_pairs(
            equinox="block1.weight=fc.3.weight out1.weight=fc.0.weight block2.weight=fc.2.weight out2.bias=fc.1.bias",
            nnx="block1.weight=d.kernel out1.weight=b.kernel block2.weight=c.kernel out2.bias=a.bias",
            linen="block1.weight=Dense_1.kernel out1.weight=Dense_0.kernel block2.weight=Dense_3.kernel",
            haiku="block1.weight=linear_3.w out1.weight=linear_1.w block2.weight=linear_2.w out2.bias=linear.b",
        ),
    ),
    Case(
        "gaussian",
        zoo_torch.Gaussian,
        ((4, 3),),
        pairs=_pairs(
            equinox="log_std=b bound=a",
            nnx="log_std=b bound=a",
            linen="log_std=b bound=a",
            haiku="log_std=~.b bound=~.a",
        ),
    ),
    Case(
        "targets",
        zoo_torch.Targets,
        ((5, 3),),
        pairs=_pairs(
            equinox="online.0.0.weight=b.fc.1.weight target.0.2.bias=a.fc.2.bias",
            nnx="online.0.0.weight=b.b.kernel target.0.2.bias=a.c.bias",
            linen="online.0.0.weight=b.Dense_2.kernel target.0.2.bias=a.Dense_1.bias",
            haiku="online.0.0.weight=~.b0 target.0.2.bias=~.a1_bias",
        ),
    ),
)

ZOO = {case.name: case for case in _CASES}
CELLS = [(case.name, library) for case in _CASES for library in LIBRARIES if library not in case.refused]
REFUSED = [(case.name, library) for case in _CASES for library in case.refused]
