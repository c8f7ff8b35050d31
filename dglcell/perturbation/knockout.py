"""What deletions do to the nodes of the cell graph."""

from __future__ import annotations

import torch
from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import CATALYSES, GENE, REACTION
from dglcell.kernels.spmm import spmm
from dglcell.perturbation.genotype import GenotypeBatch


def keep_masks(cell: ResidentCell, genotypes: GenotypeBatch) -> dict[str, Tensor]:
    """Which nodes every strain keeps.

    A gene is lost exactly if it is deleted. A reaction node stands for one enzyme complex (one AND-term of the rule)
    in one direction, so it is lost if any of its genes is; a reaction without a rule and every metabolite are kept.

    Returns:
        node type → [N, B] bool.
    """
    num_strains = genotypes.num_strains
    device = genotypes.genes.device
    keep = {
        node_type: torch.ones(number, num_strains, dtype=torch.bool, device=device)
        for node_type, number in cell.num_nodes.items()
    }
    keep[GENE] = keep_genes(cell.num_nodes[GENE], genotypes)
    if CATALYSES in cell.relations:
        deleted_NB = (~keep[GENE]).to(torch.float32)
        keep[REACTION] = spmm(cell[CATALYSES], deleted_NB, weighted=False) < 0.5
    return keep


def keep_genes(num_genes: int, genotypes: GenotypeBatch) -> Tensor:
    """[N, B] bool: which genes every strain keeps."""
    keep_NB = torch.ones(num_genes, genotypes.num_strains, dtype=torch.bool, device=genotypes.genes.device)
    return keep_NB.index_put_((genotypes.genes, genotypes.strains), torch.zeros_like(keep_NB[0, 0]))
