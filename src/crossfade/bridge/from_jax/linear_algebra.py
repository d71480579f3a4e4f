"""Rules of matrix factorisations and triangular systems."""

import torch
from jax.extend.core import JaxprEqn
from torch import Tensor

from ...errors import NoCounterpart
from .dtypes import carrier
from .elementwise import Rule, Run, always


def _triangular_solve(eqn: JaxprEqn) -> Run:
    p = eqn.params
    upper = p["lower"] == p["transpose_a"]

    def run(a: Tensor, b: Tensor) -> Tensor:
        a = (a.mH if p["conjugate_a"] else a.mT) if p["transpose_a"] else a
        return torch.linalg.solve_triangular(a, b, upper=upper, left=p["left_side"], unitriangular=p["unit_diagonal"])

    return run


def _lu(eqn: JaxprEqn) -> Run:
    pivot_dtype, permutation_dtype = (carrier(v.aval) for v in eqn.outvars[1:])

    def run(a: Tensor) -> list[Tensor]:
        factors, pivots = torch.linalg.lu_factor(a)
        pivots = pivots.to(torch.int64) - 1  # LAPACK counts from 1
        return [factors, pivots.to(pivot_dtype), _permutation(pivots, a.shape[-2]).to(permutation_dtype)]

    return run


def _permutation(pivots: Tensor, size: int) -> Tensor:
    """Rows swapped one after another: i with pivots[i]."""
    order = torch.arange(size, device=pivots.device).expand(*pivots.shape[:-1], size).clone()
    for i in range(pivots.shape[-1]):
        at = pivots[..., i : i + 1].to(torch.int64)
        here, there = order[..., i : i + 1].clone(), order.gather(-1, at)
        order[..., i : i + 1] = there
        order.scatter_(-1, at, here)
    return order


def _lu_permutation(eqn: JaxprEqn) -> Run:
    size, dtype = eqn.params["permutation_size"], carrier(eqn.outvars[0].aval)
    return lambda pivots: _permutation(pivots, size).to(dtype)


def _eigh(eqn: JaxprEqn) -> Run:
    lower = eqn.params["lower"]
    if eqn.params.get("subset_by_index") is not None:
        raise NoCounterpart("eigh: torch computes all eigenvalues. Leave out subset_by_index and take a slice.")

    def run(a: Tensor) -> list[Tensor]:
        values, vectors = torch.linalg.eigh(a, UPLO="L" if lower else "U")
        return [vectors, values]

    return run


def _qr(eqn: JaxprEqn) -> Run:
    if eqn.params["pivoting"]:
        raise NoCounterpart("qr: torch does not pivot. Leave out pivoting=True.")
    mode = "complete" if eqn.params["full_matrices"] else "reduced"
    return lambda a: list(torch.linalg.qr(a, mode))


RULES: dict[str, Rule] = {
    "cholesky": always(torch.linalg.cholesky),
    "triangular_solve": _triangular_solve,
    "lu": _lu,
    "lu_pivots_to_permutation": _lu_permutation,
    "eigh": _eigh,
    "qr": _qr,
}
