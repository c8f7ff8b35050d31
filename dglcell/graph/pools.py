"""Find pools of metabolites that the wild type turns over much faster than it makes them, such as cofactors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SLOWEST, FASTEST = 1e-9, 1e-2
"""Pools are kept of which between these shares of a metabolite's turnover is made: what is never made is not lost."""

ZERO = 1e-6
"""Weights and shares below this are the solver's zero."""

SPARSE = 1e-6
"""Among equal weights of metabolites that the wild type does not use, this cost of each prefers few."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Pools:
    """Hold which metabolites make up pools, none of which is in two.

    Attributes:
        pool: [M] number of the pool of each metabolite, -1 where it belongs to none.
        weight: [M] how much of its pool a unit of each metabolite is, 0 where it belongs to none.
    """

    pool: NDArray[np.int64]
    weight: Vector


def conserved_pools(stoichiometry: csr_array, fluxes: Vector) -> Pools:
    r"""Find the pools of a metabolic network, given the fluxes of its wild type.

    The six forms of folate are turned into one another a thousand times as fast as folate is made. No single metabolite
    shows that a strain without its synthesis cannot grow, but the balance of the pool does. The pool of a metabolite m
    is the sum :math:`w^T n` of amounts of metabolites, with :math:`w \ge 0` and :math:`w_m = 1`, of which the least is
    made: :math:`\min_w \sum_r |w^T S_r| \, |v_r|`. These are the prices of another linear program: how much of m can
    be made at the expense of no other metabolite, if each reaction runs at most as fast as in the wild type, forwards
    or backwards? Metabolites that the wild type does not use join a pool with weights by which the reactions that it
    does not use change the pool least. Where pools share a metabolite, the one of which least is made is kept.

    Args:
        stoichiometry: [M, R] amounts of metabolites that a unit of flux makes; negative where it uses them.
        fluxes: [R] fluxes of the wild type, which balance every metabolite.
    """
    M = stoichiometry.shape[0]
    pools = Pools(np.full(M, -1), np.zeros(M))
    for _, weight in sorted(_slow_pools(stoichiometry, fluxes), key=lambda one: one[0]):
        if (pools.pool[weight > 0] < 0).all():
            _join_unused(weight, stoichiometry, fluxes, pools.pool >= 0)
            pools.pool[weight > 0] = pools.pool.max() + 1
            pools.weight[:] += weight
    return pools


def _slow_pools(stoichiometry: csr_array, fluxes: Vector) -> list[tuple[float, Vector]]:
    """Return the slow pools of metabolites in use: which share of a metabolite's turnover is made, and [M] weights."""
    from scipy import sparse
    from scipy.optimize import linprog

    used = np.flatnonzero(fluxes)
    passed = (stoichiometry[:, used] @ sparse.diags_array(fluxes[used])).tocsr()
    turnover = np.asarray(abs(passed).sum(1)).ravel() / 2
    live = np.flatnonzero(turnover > 0)
    shares = (sparse.diags_array(1 / turnover[live]) @ passed[live]).tocsr()
    found = []
    for place in range(len(live)):
        others = np.delete(np.arange(len(live)), place)
        made = shares[[place]].toarray().ravel()
        none = np.zeros(len(others))
        solution = linprog(-made, A_ub=-shares[others], b_ub=none, bounds=(-1, 1), method="highs-ds")
        share = -solution.fun / 2 if solution.status == 0 else np.inf
        if SLOWEST < share < FASTEST:
            prices = np.insert(-solution.ineqlin.marginals, place, 1.0) / turnover[live] * turnover[live[place]]
            weight = np.zeros(len(turnover))
            weight[live] = np.where(prices > ZERO, prices, 0)
            found.append((share, weight))
    return found


def _join_unused(weight: Vector, stoichiometry: csr_array, fluxes: Vector, taken: NDArray[np.bool_]) -> None:
    """Give weights to metabolites that the wild type does not use and that are in no other pool, in place."""
    from scipy import sparse
    from scipy.optimize import linprog

    idle = stoichiometry[:, np.flatnonzero(fluxes == 0)].tocsr()
    used = np.asarray(abs(stoichiometry[:, np.flatnonzero(fluxes)]).sum(1)).ravel() > 0
    joining = np.flatnonzero(~used & ~taken)
    M, R = len(joining), idle.shape[1]
    if not M or not R:
        return
    changes, slack = idle[joining].T, sparse.eye_array(R)
    by_pool = idle.T @ weight
    rows: Any = sparse.block_array([[changes, -slack], [-changes, -slack]], format="csr")
    cost = np.concatenate([np.full(M, SPARSE), np.ones(R)])
    solution = linprog(cost, A_ub=rows, b_ub=np.concatenate([-by_pool, by_pool]), method="highs")
    if solution.status == 0:
        weight[joining] = np.where(solution.x[:M] > ZERO, solution.x[:M], 0)
