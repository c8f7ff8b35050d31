"""Define what a training step is timed on: a cell graph, strains, targets and the weights of a model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation.genotype import GenotypeBatch


@dataclass(frozen=True)
class Workload:
    """A workload is one training step's work, whatever the method."""

    cell: CellGraph  #: the wild type
    config: HeteroCellConfig  #: configuration of the model, without dropout; strategy and kernel are every method's own
    genotypes: GenotypeBatch  #: B strains
    targets: Tensor  #: [B, T]
    seed: int = 0  #: seed of the weights

    def weights(self, strategy: str = "node_mask", kernel: str = "auto") -> HeteroCell:
        """Make the model, with the same weights whatever the strategy; it has a resident cell of its own."""
        torch.manual_seed(self.seed)
        config = dataclasses.replace(self.config, strategy=strategy, kernel=kernel)
        config.validate()
        return HeteroCell(ResidentCell.of(self.cell), config, self.targets.shape[1])

    def to(self, device: str) -> Workload:
        """Return the workload with strains and targets on ``device``."""
        return dataclasses.replace(self, genotypes=self.genotypes.to(device), targets=self.targets.to(device))

    def double(self) -> Workload:
        """Return the workload in double precision."""
        return dataclasses.replace(self, targets=self.targets.double())


def random_genotypes(num_genes: int, batch: int, deletions: int, seed: int) -> GenotypeBatch:
    """Draw strains of different deleted genes each; a smaller batch is the beginning of a larger one."""
    generator = torch.Generator().manual_seed(seed)
    strains = [torch.randperm(num_genes, generator=generator)[:deletions].tolist() for _ in range(batch)]
    return GenotypeBatch.from_lists(strains, num_genes)


def random_workload(cell: CellGraph, config: HeteroCellConfig, batch: int, deletions: int, seed: int) -> Workload:
    """Make random strains with targets of mean 0 and variance 1."""
    genotypes = random_genotypes(len(cell.genes), batch, deletions, seed)
    targets = torch.randn(batch, 1, generator=torch.Generator().manual_seed(seed))
    return Workload(cell, config, genotypes, targets, seed=seed)


def hub_workload(cell: CellGraph, conv: str) -> Workload:
    """Make three strains that lose three, one and two genes, among them the gene with most edges; H = 8, L = 2."""
    config = HeteroCellConfig(hidden=8, layers=2, conv=conv, metabolism=True, dropout=0.0)
    hub = int(np.sum([cell.degrees(r)[0] for r in cell.relations if r[0] == r[2] == GENE], axis=0).argmax())
    others = [gene for gene in range(5) if gene != hub]
    strains = GenotypeBatch.from_lists([[hub, *others[:2]], [others[2]], [hub, others[3]]])
    return dataclasses.replace(random_workload(cell, config, batch=3, deletions=1, seed=0), genotypes=strains)
