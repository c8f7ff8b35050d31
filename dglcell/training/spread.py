"""Size and spread of strains' embeddings, from sums that are added up batch by batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dglcell.training.gather import gather_rows


def embedding_sums(embedding_BD: Tensor) -> Tensor:
    """[2D + 4] sums over the strains of a batch, in float64 and on its device.

    They are Σz, Σz/‖z‖, Σ‖z‖, Σ‖z‖², the number of strains, and the number of those with ‖z‖ > 0. Sums of several
    batches, and of several ranks, add up.
    """
    z_BD = embedding_BD.detach().double()
    norm_B = z_BD.norm(dim=1)
    is_nonzero_B = norm_B > 0
    unit_BD = z_BD / norm_B.masked_fill(~is_nonzero_B, 1.0)[:, None]
    scalars = [norm_B.sum(), norm_B.square().sum(), torch.ones_like(norm_B).sum(), is_nonzero_B.sum()]
    return torch.cat([z_BD.sum(0), unit_BD.sum(0), torch.stack(scalars)])


def embedding_figures(batches: list[Tensor]) -> dict[str, float]:
    r"""Figures of all strains of all ranks, from the sums of each batch.

    Args:
        batches: of :func:`embedding_sums`; waits for the device once.

    Returns:
        ``embedding_norm``: mean of :math:`\lVert z\rVert`.

        ``embedding_spread``: :math:`\sum\lVert z_i-\bar z\rVert^2 / \sum\lVert z_i\rVert^2`, from 0, all strains have
        the same embedding, to 1, they lie around the origin. It is the Dirichlet energy over all pairs of strains,
        :math:`\frac{1}{2n}\sum_{ij}\lVert z_i-z_j\rVert^2`, relative to the squared length (Cai and Wang 2020,
        arXiv:2006.13318, there over the edges of a graph).

        ``embedding_cosine``: mean cosine of all pairs of different strains; 1 where all point the same way. One minus
        it is the mean average distance of Chen et al. 2020, arXiv:1909.03211, over all pairs. A zero embedding has no
        direction and is left out.

        What is undefined is NaN.
    """
    sums = gather_rows(torch.stack(batches)).sum(0)
    width = (len(sums) - 4) // 2
    total_D, units_D = sums[:width], sums[width : 2 * width]
    lengths = torch.stack([total_D.square().sum(), units_D.square().sum()])
    of_total, of_units, norms, squares, n, nonzero = torch.cat([lengths, sums[-4:]]).tolist()
    spread = 1 - of_total / (n * squares) if squares > 0 else math.nan
    cosine = (of_units - nonzero) / (nonzero * (nonzero - 1)) if nonzero > 1 else math.nan
    return {
        "embedding_norm": norms / n if n else math.nan,
        # Rounding may lead out of the range.
        "embedding_spread": spread if math.isnan(spread) else min(1.0, max(0.0, spread)),
        "embedding_cosine": cosine if math.isnan(cosine) else min(1.0, max(-1.0, cosine)),
    }
