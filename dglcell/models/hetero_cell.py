"""Name the list of terms that compares the wild type with every strain's own graph."""

from __future__ import annotations

from dglcell.models.cell_model import CellModel
from dglcell.models.config import HeteroCellConfig


class HeteroCell(CellModel):
    r"""Predict phenotypes from the cell graph of every strain.

    Messages are passed over the surviving edges of every strain. ``Graph`` scores by how much the pooled states of a
    strain differ from the wild type's, and ``Genes`` the deleted genes by their *wild-type* states. ``Covariates``,
    ``Activities`` and ``Link`` follow where the configuration asks for them.

    The model follows ``GeneInteractionDango`` of the torchcell project; here metabolism is used in both directions and
    norms are per node.
    """

    Config = HeteroCellConfig
