"""Compute the growth of strains by linear programs, on the cell graph alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import CONVERTS, METABOLITE

if TYPE_CHECKING:
    from scipy.sparse import csr_array

TOLERANCE = 1e-9
"""Fluxes are balanced to this, because some cofactors are made at a millionth of the rate of growth."""

INFEASIBLE = 2
"""This is SciPy's status of a linear program without a solution; 0 is that of one that was solved."""

DECIMALS = 6
"""Growth is rounded to so many decimals, so that strains that grow alike have the same number."""


def balance_matrix(cell: ResidentCell, nodes: Tensor) -> csr_array:
    """Return how much of each metabolite some reaction nodes make (or use, where it is negative), [M, G] in float64.

    Args:
        cell: the cell graph.
        nodes: [G] reaction nodes, each once.
    """
    from scipy.sparse import csr_array  # here, because models that do not ask for it start faster

    converts = cell[CONVERTS]
    assert converts.weight is not None
    column = torch.full((converts.num_src,), -1, device=nodes.device)
    column[nodes] = torch.arange(len(nodes), device=nodes.device)
    at = column[converts.src]
    some = at >= 0
    values, rows, columns = (x[some].cpu().numpy() for x in (converts.weight.double(), converts.dst, at))
    return csr_array((values, (rows, columns)), shape=(cell.num_nodes[METABOLITE], len(nodes)))


def exact_growth(balances: csr_array, gain_G: Tensor, least_GK: Tensor, largest_GK: Tensor) -> Tensor:
    r"""Return the largest growth of K strains: :math:`\max c^T x` where :math:`S x = 0` and :math:`l \le x \le u`, [K].

    It is 0 for a strain that no fluxes balance, and NaN for one that the solver (HiGHS) gives up. The host solves one
    strain after the other.

    Args:
        balances: S, [M, G].
        gain_G: c, what each flux contributes to growth.
        least_GK: l of each strain.
        largest_GK: u of each strain.
    """
    from scipy.optimize import linprog

    cost, found = -gain_G.cpu().numpy(), np.zeros(least_GK.shape[1])
    options = {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
    nothing = np.zeros(balances.shape[0])
    for k, bounds in enumerate(torch.stack([least_GK, largest_GK], 2).double().cpu().numpy().swapaxes(0, 1)):
        result = linprog(cost, A_eq=balances, b_eq=nothing, bounds=bounds, method="highs", options=options)
        found[k] = {0: max(0.0, -(result.fun or 0.0)), INFEASIBLE: 0.0}.get(result.status, np.nan)
    return torch.from_numpy(found.round(DECIMALS)).to(gain_G)
