"""Scores of the deleted genes of a strain from their wild-type states."""

from __future__ import annotations

from torch import Tensor, nn

from dglcell.nn.factorisation import FactorisationMachine
from dglcell.nn.hyper_sagnn import HyperSAGNN
from dglcell.nn.initial import start_at_the_mean

LOCAL_KINDS = ("hyper_sagnn", "factorisation", "both")


class LocalHead(nn.Module):
    """Self-attention among the deleted genes, products of their vectors, or the sum of both scores.

    Args:
        attention: or None.
        factorisation: or None.

    Shapes:
        genes' states [B, K, H], their indices [B, K], present [B, K] → [B, T]; zero for an empty set.
    """

    def __init__(self, attention: HyperSAGNN | None, factorisation: FactorisationMachine | None) -> None:
        super().__init__()
        self.attention, self.factorisation = attention, factorisation

    def start_at_the_mean(self) -> None:
        """Scale initial weights down: an untrained model predicts about the training mean, 0."""
        if self.attention is not None:
            start_at_the_mean(self.attention.score)
        if self.factorisation is not None:
            self.factorisation.start_at_the_mean()

    def forward(self, x_BKH: Tensor, genes_BK: Tensor, present_BK: Tensor) -> Tensor:
        """[B, T] scores."""
        scores = [] if self.attention is None else [self.attention(x_BKH, present_BK)]
        if self.factorisation is not None:
            scores.append(self.factorisation(x_BKH, genes_BK, present_BK))
        out: Tensor = sum(scores[1:], scores[0])
        return out
