"""What all methods of one setting compute: a cell graph, weights, strains and targets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.genotype import GenotypeBatch


@dataclass(frozen=True)
class Workload:
    """One training step's work.

    Attributes:
        cell: the wild type.
        config: of the model, without dropout; strategy and kernel are every method's own.
        genotypes: B strains.
        targets: [B, T].
        features: node type → [N, F] fixed input features, of an experiment.
        seed: of the weights.
    """

    cell: CellGraph
    config: HeteroCellConfig
    genotypes: GenotypeBatch
    targets: Tensor
    features: dict[str, Tensor] = field(default_factory=dict)
    seed: int = 0

    def weights(self, strategy: str = "node_mask", kernel: str = "auto") -> HeteroCell:
        """The model, with the same weights whatever the strategy; it has a resident cell of its own."""
        torch.manual_seed(self.seed)
        config = dataclasses.replace(self.config, strategy=strategy, kernel=kernel)
        config.validate()
        return HeteroCell(ResidentCell(self.cell.graph), config, self.targets.shape[1], self.features)

    def to(self, device: str) -> Workload:
        """Strains and targets on ``device``."""
        return dataclasses.replace(self, genotypes=self.genotypes.to(device), targets=self.targets.to(device))

    def double(self) -> Workload:
        """The same in double precision."""
        features = {node_type: x.double() for node_type, x in self.features.items()}
        return dataclasses.replace(self, targets=self.targets.double(), features=features)


def random_genotypes(num_genes: int, batch: int, deletions: int, seed: int) -> GenotypeBatch:
    """Strains of different deleted genes each; a smaller batch is the beginning of a larger one."""
    generator = torch.Generator().manual_seed(seed)
    strains = [torch.randperm(num_genes, generator=generator)[:deletions].tolist() for _ in range(batch)]
    return GenotypeBatch.from_lists(strains, num_genes)


def random_workload(cell: CellGraph, config: HeteroCellConfig, batch: int, deletions: int, seed: int) -> Workload:
    """Random strains with targets of mean 0 and variance 1."""
    genotypes = random_genotypes(len(cell.genes), batch, deletions, seed)
    targets = torch.randn(batch, 1, generator=torch.Generator().manual_seed(seed))
    return Workload(cell, config, genotypes, targets, seed=seed)
