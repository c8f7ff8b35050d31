"""Few changed edges: the product over the deletions' graphs, corrected along those edges."""

from __future__ import annotations

import torch
from torch import Tensor

from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.spmm import spmm
from dglcell.perturbation.edge_perturbation import EdgeChanges

CORRECTED_SHARE = 1 / 32
"""Changed edges, as a share of E · B, up to which corrections take less time and memory than [E, B] weights."""


def corrected_aggregate(
    edges: ResidentRelation,
    keep: tuple[Tensor, Tensor],
    changes: EdgeChanges | None,
    x_NBH: Tensor,
    reduce: str,
    kernel: str,
) -> Tensor:
    """Sum or mean over surviving in-edges, where strains have changed few edges.

    With the fixed weights w, ``y = K_v · A · (K_u · x)`` holds what every changed edge u → v would have sent without
    the change; what is added is ``-w x_u`` where it is removed and ``(w' - w) x_u`` where it has another weight.

    Args:
        edges: the relation.
        keep: [N, B] and [M, B] bool of source and destination nodes.
        changes: of this relation; None where there are none.
        x_NBH: source states.
        reduce: ``sum`` or ``mean``.
        kernel: see ``dglcell.kernels.spmm``.

    Returns:
        [M, B, H].
    """
    keep_NB, keep_MB = keep
    masked_NC = (x_NBH * keep_NB.unsqueeze(-1)).flatten(1)
    y_MBH = spmm(edges, masked_NC, kernel=kernel).view(edges.num_dst, *x_NBH.shape[1:])
    degree_MB = spmm(edges, keep_NB.to(x_NBH.dtype), weighted=False, kernel=kernel) if reduce == "mean" else None
    if changes is not None:
        edge = torch.cat([changes.removed_edges, changes.edges])
        strain = torch.cat([changes.removed_strains, changes.strains])
        source, destination = edges.src[edge], edges.dst[edge]
        sent_QH = masked_NC.view(x_NBH.shape)[source, strain]
        row = destination * x_NBH.shape[1] + strain
        change_QH = _weight_changes(edges, changes, edge, x_NBH.dtype).unsqueeze(1) * sent_QH
        y_MBH = y_MBH.flatten(0, 1).index_add(0, row, change_QH).view(y_MBH.shape)
        if degree_MB is not None:
            gone = row[: len(changes.removed_edges)]
            was_alive = keep_NB[source, strain][: len(gone)].to(degree_MB.dtype)
            degree_MB = degree_MB.flatten().index_add(0, gone, was_alive, alpha=-1).view(degree_MB.shape)
    scale_MB = keep_MB if degree_MB is None else keep_MB / degree_MB.clamp(min=1)
    return y_MBH * scale_MB.unsqueeze(-1)


def _weight_changes(edges: ResidentRelation, changes: EdgeChanges, edge: Tensor, dtype: torch.dtype) -> Tensor:
    """[D + Q] new weight (0 where removed) minus the fixed one."""
    new = torch.cat([torch.zeros_like(changes.removed_edges, dtype=dtype), changes.weights.to(dtype)])
    return new - (1 if edges.weight is None else edges.weight.to(dtype)[edge])
