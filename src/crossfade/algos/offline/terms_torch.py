"""Pieces of which several agents make their losses, in torch. Twin: terms_jax.py."""

from typing import Literal, TypeVar

from jaxtyping import Float
from torch import Tensor, nn

from .distribution_torch import Normal

Scalar = Float[Tensor, ""]
Info = dict[str, Scalar]
Module = TypeVar("Module", bound=nn.Module)


def frozen(module: Module) -> Module:
    """The module with its parameters as constants; gradients still pass through its inputs."""
    twin = object.__new__(type(module))  # not copy.copy, nor a nested functional_call: torch.compile traces neither
    for name, value in vars(module).items():
        object.__setattr__(twin, name, value)
    held = {name: None if p is None else p.detach() for name, p in module._parameters.items()}
    object.__setattr__(twin, "_parameters", held)
    inner = {name: None if child is None else frozen(child) for name, child in module._modules.items()}
    object.__setattr__(twin, "_modules", inner)
    return twin


def expectile_loss(
    advantage: Float[Tensor, "*batch"], difference: Float[Tensor, "*batch"], expectile: float
) -> Float[Tensor, "*batch"]:
    """|k - 1{advantage < 0}| difference^2, element by element (Newey and Powell 1987)."""
    return (expectile - (advantage < 0).to(difference.dtype)).abs() * difference.square()


def clone_loss(distribution: Normal, actions: Float[Tensor, "batch action"]) -> tuple[Scalar, Info]:
    """-mean log pi(a), and what to log: the log density and the squared error of the mode."""
    log_prob = distribution.log_prob(actions).mean()
    return -log_prob, {"log_prob": log_prob, "mse": (distribution.mode() - actions).square().mean()}


def policy_action(distribution: Normal, noise: Float[Tensor, "*batch action"] | None) -> Float[Tensor, "*batch action"]:
    """The mode, or a sample where there is noise, clipped to [-1, 1]."""
    return (distribution.mode() if noise is None else distribution.sample(noise)).clamp(-1, 1)


def q_loss(q: Float[Tensor, "*batch"], normalize: bool) -> Scalar:
    """-lambda mean q, with lambda the constant 1 / mean |q| if `normalize`, else 1."""
    return -q.mean() / q.detach().abs().mean() if normalize else -q.mean()


def aggregate(values: Float[Tensor, "members ..."], how: Literal["mean", "min"]) -> Float[Tensor, "..."]:
    """Members, the first axis, brought together by their mean or minimum."""
    return values.mean(0) if how == "mean" else values.amin(0)  # at ties amin shares the gradient, min does not


def on_sphere(vectors: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """sqrt(d) v / |v|, row by row."""
    return vectors * (vectors.shape[-1] ** 0.5 / vectors.norm(dim=-1, keepdim=True))


def iql_value_loss(q: Float[Tensor, " batch"], v: Float[Tensor, " batch"], expectile: float) -> Scalar:
    """mean L_k(q - v, q - v); q is a constant."""
    difference = q.detach() - v
    return expectile_loss(difference, difference, expectile).mean()


def iql_critic_loss(q: Float[Tensor, "members batch"], target: Float[Tensor, " batch"]) -> Scalar:
    """mean_b sum_e (q_e - target)^2; the target is a constant."""
    return (q - target.detach()).square().sum(0).mean()


def awr_loss(advantage: Float[Tensor, " batch"], log_prob: Float[Tensor, " batch"], alpha: float) -> Scalar:
    """-mean min(exp(alpha advantage), 100) log_prob; the advantage is a constant."""
    return -((alpha * advantage.detach()).exp().clamp(max=100) * log_prob).mean()
