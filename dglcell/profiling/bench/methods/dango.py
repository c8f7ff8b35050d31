"""The training step of DANGO, which never looks at a strain's graph: a yardstick, not a competitor in accuracy."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell, ResidentRelation
from dglcell.graph.schema import GENE, Relation, gene_relation
from dglcell.kernels.spmm import spmm
from dglcell.nn.hyper_sagnn import HyperSAGNN
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.profiling.bench.methods.method import Method, UnsupportedError
from dglcell.profiling.bench.workload import Workload

CHANNELS = ("neighborhood", "fusion", "cooccurence", "coexpression", "experimental", "database")
ZERO_WEIGHT = 0.1
"""Weight of pairs that are no edges in the reconstruction loss."""


class Sage(nn.Module):
    """GraphSAGE with the mean over in-neighbours, and ReLU.

    Shapes:
        x [N, H] → [N, H].
    """

    def __init__(self, edges: ResidentRelation, width: int) -> None:
        super().__init__()
        self.edges = edges
        self.itself = nn.Linear(width, width, bias=False)
        self.neighbours = nn.Linear(width, width)

    def forward(self, x_NH: Tensor) -> Tensor:
        """New states."""
        degree_N1 = self.edges.in_degrees.clamp(min=1).unsqueeze(1)
        mean_NH = spmm(self.edges, x_NH, weighted=False) / degree_N1
        return torch.relu(self.itself(x_NH) + self.neighbours(mean_NH))


class NetworkEncoder(nn.Module):
    """Two rounds of GraphSAGE on one network and the reconstruction of its adjacency.

    Shapes:
        x [N, H] → [N, H].
    """

    def __init__(self, edges: ResidentRelation, width: int) -> None:
        super().__init__()
        self.edges = edges
        self.rounds = nn.Sequential(Sage(edges, width), Sage(edges, width))
        self.reconstruct = nn.Linear(width, edges.num_src)

    def forward(self, x_NH: Tensor) -> Tensor:
        """States after two rounds."""
        out: Tensor = self.rounds(x_NH)
        return out

    def reconstruction_loss(self, x_NH: Tensor) -> Tensor:
        r"""Weighted squared error of :math:`\hat A = x W^\top + b` over all N² pairs, without making any N × N matrix.

        :math:`\sum_{uv} \hat A_{uv}^2 = \operatorname{tr}(X^\top X \, W^\top W)`, with ones and b as last columns;
        edges are then set right one by one.
        """
        weight_NH = self.reconstruct.weight
        ones_N1 = weight_NH.new_ones(len(x_NH), 1)
        left = torch.cat([x_NH.to(weight_NH.dtype), ones_N1], dim=1)
        right = torch.cat([weight_NH, self.reconstruct.bias.unsqueeze(1)], dim=1)
        all_pairs = ((left.T @ left) * (right.T @ right)).sum()
        guess_E = (left.index_select(0, self.edges.src) * right.index_select(0, self.edges.dst)).sum(1)
        edges = ((guess_E - 1).square() - ZERO_WEIGHT * guess_E.square()).sum()
        return (edges + ZERO_WEIGHT * all_pairs) / len(x_NH) ** 2


class Dango(Method):
    """DANGO (Zhang, Ma & Ma 2020), as torchcell rebuilt it: full-graph GraphSAGE once per step, whatever the batch.

    Six networks, each reconstructed; gene states are their gated mean; a strain's score comes from the states of its
    deleted genes alone. Its losses are weighted by one half each. Sparse products are this package's, and the forward
    pass runs once per step, so that DANGO is not slower here than it must be.
    """

    def __init__(self, networks: list[ResidentRelation], width: int, outputs: int) -> None:
        super().__init__()
        self.weights = None
        self.embedding = nn.Parameter(0.1 * torch.randn(networks[0].num_src, width))
        self.networks = [NetworkEncoder(edges, width) for edges in networks]
        self.encoders = nn.ModuleList(self.networks)
        self.meta = nn.Sequential(nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, 1))
        self.score = HyperSAGNN(width, outputs, layers=2, heads=4, gain=0.01, activation="relu", dropout=0.0)

    def encode(self) -> list[Tensor]:
        """[N, H] per network."""
        return [network(self.embedding) for network in self.networks]

    def forward(self, genotypes: GenotypeBatch) -> Tensor:
        """[B, T] predictions."""
        return self.predict(self.encode(), genotypes)

    def predict(self, encoded: list[Tensor], genotypes: GenotypeBatch) -> Tensor:
        """[B, T] from the states of every network."""
        states_NKH = torch.stack(encoded, dim=1)
        states_NH = (torch.softmax(self.meta(states_NKH), dim=1) * states_NKH).sum(1)
        genes_BK, present_BK = genotypes.padded()
        out: Tensor = self.score(states_NH[genes_BK], present_BK)
        return out

    def loss(self, genotypes: GenotypeBatch, targets: Tensor) -> Tensor:
        """Half log cosh of the error, half the mean reconstruction loss of the networks."""
        encoded = self.encode()
        error = (self.predict(encoded, genotypes).to(targets.dtype) - targets).abs()
        log_cosh = (error + F.softplus(-2 * error)).mean()
        with torch.autocast(targets.device.type, enabled=False):
            losses = [n.reconstruction_loss(x) for n, x in zip(self.networks, encoded, strict=True)]
        return 0.5 * log_cosh + 0.5 * torch.stack(losses).mean()


def build_dango(workload: Workload, device: str) -> Dango:
    """DANGO on six of the cell's networks, on ``device``.

    Raises:
        UnsupportedError: there is no gene–gene relation.
    """
    cell = ResidentCell(workload.cell.graph)
    torch.manual_seed(workload.seed)
    networks = [cell[relation] for relation in six_networks(workload.cell)]
    return Dango(networks, workload.config.hidden, workload.targets.shape[1]).to(device)


def six_networks(cell: CellGraph) -> list[Relation]:
    """STRING's six channels where the cell has them, else its six largest gene–gene relations."""
    channels = [gene_relation(name) for name in CHANNELS]
    if set(channels) <= set(cell.relations):
        return channels
    between_genes = [r for r in cell.relations if r[0] == r[2] == GENE]
    if not between_genes:
        raise UnsupportedError("DANGO needs networks of genes")
    return sorted(between_genes, key=lambda r: -cell.graph.num_edges(r))[:6]
