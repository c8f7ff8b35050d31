"""The training step of DANGO, which never looks at a strain's graph: a yardstick, not a competitor in accuracy."""

from __future__ import annotations

import torch
from torch import Tensor

from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE, Relation, gene_relation
from dglcell.losses.config import DangoLossConfig
from dglcell.losses.dango import DangoLoss
from dglcell.losses.elementwise import log_cosh
from dglcell.models.config import DangoConfig
from dglcell.models.dango import CHANNEL_ZERO_WEIGHTS, UNCERTAIN, Dango, channel_of, zero_weight
from dglcell.nn.dango import Reconstruction
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.profiling.bench.methods.method import Method, UnsupportedError
from dglcell.profiling.bench.workload import Workload


class DangoMethod(Method):
    """``Dango`` as it is trained, both parts of its loss weighted by one half."""

    def __init__(self, model: Dango) -> None:
        super().__init__()
        self.weights, self.model = None, model
        self.criterion = DangoLoss(DangoLossConfig(transition_epoch=0), epochs=1)

    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """[B, T] predictions."""
        out: Tensor = self.model(genotypes).phenotypes
        return out

    def loss(self, genotypes: GenotypeBatch, targets: Tensor) -> Tensor:
        """Half log cosh of the error, half the mean reconstruction loss of the networks."""
        total: Tensor = self.criterion(self.model(genotypes), targets, epoch=0).total
        return total


class DenseDango(DangoMethod):
    """The same numbers as the torchcell project computes them.

    In every step all adjacencies are made dense, reconstructions are matrices of all pairs, and the whole model runs
    twice: once for the predictions, once for the reconstructions.
    """

    def loss(self, genotypes: GenotypeBatch, targets: Tensor) -> Tensor:
        """Half log cosh of the error, half the mean reconstruction loss of the networks."""
        predicted, _ = self.run(genotypes)
        _, guesses = self.run(genotypes)
        errors = [self.error(r, guess) for r, guess in zip(self.model.networks, guesses, strict=True)]
        interaction = log_cosh(predicted.to(targets.dtype) - targets).mean()
        return 0.5 * interaction + 0.5 * torch.stack(errors).mean()

    def run(self, genotypes: GenotypeBatch) -> tuple[Tensor, list[Tensor]]:
        """[B, T] predictions, and [N, N] reconstructions of every network."""
        states = self.model.encode()
        guesses = []
        for head, x_NH in zip(self.model.heads, states, strict=True):
            assert isinstance(head, Reconstruction)
            guesses.append(head.out(x_NH))
        genes_BK, present_BK = genotypes.padded()
        return self.model.score(self.model.meta(torch.stack(states, dim=1))[genes_BK], present_BK), guesses

    def error(self, relation: Relation, guess_NN: Tensor) -> Tensor:
        """Weighted squared error of one network over all pairs."""
        # Sums over all pairs are beyond half precisions.
        guess_NN = guess_NN.to(torch.promote_types(guess_NN.dtype, torch.float32))
        edges, weight = self.model.cell[relation], zero_weight(relation[1], self.model.config.zero_weights)
        ends, ones = torch.stack([edges.src, edges.dst]), torch.ones_like(edges.src, dtype=guess_NN.dtype)
        target_NN = torch.sparse_coo_tensor(ends, ones, guess_NN.shape, check_invariants=False).to_dense()
        squares_NN = (guess_NN - target_NN).square()
        of_edges = (squares_NN * (target_NN != 0).to(guess_NN.dtype)).sum()
        of_zeros = (squares_NN * (target_NN == 0).to(guess_NN.dtype)).sum()
        return (of_edges + weight * of_zeros) / guess_NN.numel()


def build_dango(workload: Workload, device: str, *, dense: bool = False) -> DangoMethod:
    """DANGO on six of the cell's networks, on ``device``.

    Raises:
        UnsupportedError: there is no gene–gene relation.
    """
    names = [relation[1] for relation in six_networks(workload.cell)]
    config = DangoConfig(
        hidden=workload.config.hidden,
        relations=names,
        zero_weights={name: UNCERTAIN for name in names if channel_of(name) is None},
    )
    torch.manual_seed(workload.seed)
    model = Dango(ResidentCell(workload.cell.graph), config, workload.targets.shape[1])
    return (DenseDango if dense else DangoMethod)(model).to(device)


def six_networks(cell: CellGraph) -> list[Relation]:
    """STRING's six channels where the cell has them, else its six largest gene–gene relations."""
    channels = [gene_relation(name) for name in CHANNEL_ZERO_WEIGHTS]
    if set(channels) <= set(cell.relations):
        return channels
    between_genes = [r for r in cell.relations if r[0] == r[2] == GENE]
    if not between_genes:
        raise UnsupportedError("DANGO needs networks of genes")
    return sorted(between_genes, key=lambda r: -cell.graph.num_edges(r))[:6]
