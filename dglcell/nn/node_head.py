"""Predict values of nodes in strains, such as fluxes of reactions, by how much the states of the nodes differ."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dglcell.nn.balanced import nearest_balanced, projection_onto_balance
from dglcell.nn.blocks import mlp, start_at_the_mean
from dglcell.perturbation.states import States

LARGEST_SEEN = 5.0
"""A computed change is seen by the strain's network up to so many standard deviations of the training strains."""


class NodeHead(nn.Module):
    r"""Predict by how much values of nodes differ from those of the wild type.

    .. math:: y_{mb} - y_m = s_m \Big(\sum_{v \in m} w_v^\top \big(f(a_v + \delta_{vb}) - f(a_v)\big)
       + g_m(z_b) - g_m(0)\Big)

    Here :math:`a_v + \delta_{vb}` is the state of node v in strain b, and :math:`w_v` is a vector of its own. A
    reaction m has several nodes, one for each enzyme complex and direction; a gene or metabolite is one node. The first
    part is exactly zero for nodes whose state is that of the wild type, which costs nothing. The second part sees the
    strain as a whole, by the difference z of its pooled states, because slower growth reduces most fluxes. The scale
    :math:`s_m` is the standard deviation over the training strains.

    With ``corrects`` there are changes :math:`d_{mb}` that were computed, such as those of fluxes by rounds of flux
    balance (``FluxRounds``). The head corrects these: :math:`(1 + c_m) d_{mb}` is added, where :math:`c_m` is learned
    and 0 at first, and :math:`g` sees the changes of all values, limited to a few standard deviations.

    With ``balanced`` the values are fluxes. Predicted changes are replaced by the nearest ones, in units of the spread,
    that make as much of every metabolite as they use, and in which lost reactions are 0 (``nearest_balanced``). Where
    both cannot hold, the balance does. Balanced changes stay as they are.

    Args:
        of_N: [N] number of the value that each node belongs to.
        values: M, number of values.
        width: H of nodes' states.
        strain_width: width of the strain's vector z.
        hidden: width inside f and g.
        activation, dropout: activation and dropout inside f and g.
        corrects: whether the head corrects changes that were computed.
        balanced: whether predicted values are balanced fluxes; see `balance`.

    Attributes:
        wild_type: [M] values of the wild type.
        scale: [M] standard deviations of the training strains, 1 where the value does not change.
        changes: [M] whether the value changes in training; others are predicted as the wild type's, and not scored.
        known: [M] whether there are values at all.
        zero_if_lost: whether what a strain loses has the value 0, which is then not predicted.
        largest: [M] largest change of a training strain, in original units; not in checkpoints, and infinite at first.
        projection: [M, M] what makes changes balanced, in units of the spread; None unless ``balanced``.
    """

    of_N: Tensor
    wild_type: Tensor
    scale: Tensor
    changes: Tensor
    known: Tensor
    zero_if_lost: Tensor
    largest: Tensor
    projection: Tensor | None

    def __init__(
        self,
        of_N: Tensor,
        values: int,
        *,
        width: int,
        strain_width: int,
        hidden: int,
        activation: str,
        dropout: float,
        corrects: bool = False,
        balanced: bool = False,
    ) -> None:
        super().__init__()
        strain_width += values if corrects else 0
        self.rows = mlp([width, hidden, hidden], activation, dropout)
        self.own = nn.Embedding(len(of_N), hidden)
        self.strain = mlp([strain_width, hidden, values], activation, dropout)
        self.correction = nn.Parameter(torch.zeros(values)) if corrects else None
        self.register_buffer("of_N", of_N, persistent=False)
        for name, filled in (("wild_type", torch.zeros), ("scale", torch.ones)):
            self.register_buffer(name, filled(values))
        for name in ("changes", "known"):
            self.register_buffer(name, torch.zeros(values, dtype=torch.bool))
        self.register_buffer("zero_if_lost", torch.zeros((), dtype=torch.bool))
        self.register_buffer("largest", torch.full((values,), torch.inf), persistent=False)
        self.register_buffer("projection", torch.eye(values) if balanced else None)

    def start_at_the_mean(self) -> None:
        """Scale initial weights down, so that an untrained model predicts about the wild type's values."""
        start_at_the_mean(self.strain[-1])

    def take(self, wild_type_M: Tensor, sd_M: Tensor, changes_M: Tensor, known_M: Tensor) -> None:
        """Store the wild type's values, the spread of the training strains' values, and which there are."""
        self.known.copy_(known_M)
        self.wild_type.copy_(wild_type_M)
        self.scale.copy_(torch.where(changes_M, sd_M, 1.0))
        self.changes.copy_(changes_M)

    def balance(self, stoichiometry_KM: Tensor) -> None:
        """Balance predicted values from now on, if ``balanced``.

        Args:
            stoichiometry_KM: amount of each metabolite that a flux of 1 makes, negative where it is used.
        """
        if self.projection is None:
            return
        of_scaled_M = (self.scale * self.changes).double()
        self.projection.copy_(projection_onto_balance(stoichiometry_KM.to(of_scaled_M) * of_scaled_M))

    def _read(self, x: Tensor, own: Tensor) -> Tensor:
        """Return w·f(x) of rows, one wide."""
        read: Tensor = (self.rows(x) * own).sum(-1, keepdim=True)
        return read

    def of_nodes(self, states: States, start: Callable[[Tensor], States]) -> Tensor:
        """Return the part of nodes of the prediction, [B, M], by how much it differs from the base.

        Args:
            states: states of the nodes.
            start: as `PerturbedCell.start` of the same strains.
        """
        read_NB = States.combine(self._read, [states, start(self.own.weight)]).dense().squeeze(-1)
        summed_MB = read_NB.new_zeros(len(self.scale), read_NB.shape[1]).index_add(0, self.of_N, read_NB)
        return summed_MB.T

    def lost(self, keep_NB: Tensor) -> Tensor:
        """Return which values belong to nodes that a strain has lost, all of them, [B, M] bool.

        Args:
            keep_NB: which nodes the strains keep.
        """
        kept_MB = keep_NB.new_zeros(len(self.scale), keep_NB.shape[1], dtype=torch.float32)
        return (kept_MB.index_add(0, self.of_N, keep_NB.to(kept_MB)) == 0).T

    def forward(
        self, of_nodes_BM: Tensor, strain_BD: Tensor, lost_BM: Tensor, computed_BM: Tensor | None = None
    ) -> Tensor:
        """Return differences from the wild type in units of their spread, [B, M], zero where nothing changes.

        Args:
            of_nodes_BM: what `of_nodes` returned.
            strain_BD: the strains' vectors.
            lost_BM: what `lost` returned.
            computed_BM: changes that were computed, in original units, if ``corrects``.
        """
        changes_BM = None
        if computed_BM is not None and self.correction is not None:
            changes_BM = (computed_BM / self.scale * self.changes).to(strain_BD.dtype)
            strain_BD = torch.cat([strain_BD, changes_BM.clamp(-LARGEST_SEEN, LARGEST_SEEN)], 1)
        of_strain_BM = self.strain(strain_BD) - self.strain(strain_BD.new_zeros(1, strain_BD.shape[1]))
        predicted_BM = of_nodes_BM.to(of_strain_BM.dtype) + of_strain_BM
        if changes_BM is not None and self.correction is not None:
            predicted_BM = predicted_BM + (1 + self.correction) * changes_BM
        predicted_BM = torch.where(lost_BM & self.zero_if_lost, self.of_zero.to(predicted_BM.dtype), predicted_BM)
        predicted_BM = predicted_BM * self.changes
        if self.projection is None:
            return predicted_BM
        given_BM = lost_BM & self.zero_if_lost & self.changes
        return nearest_balanced(predicted_BM, given_BM, self.of_zero, self.projection)

    @property
    def of_zero(self) -> Tensor:
        """Return the difference of the value 0 from the wild type, in units of the spread, [M]."""
        return -self.wild_type / self.scale

    def scaled(self, values_BM: Tensor) -> Tensor:
        """Return differences from the wild type in units of their spread, NaN where nothing changes."""
        scaled_BM = (values_BM - self.wild_type) / self.scale
        return scaled_BM.masked_fill(~self.changes, torch.nan)

    def within_training(self, changes_BM: Tensor) -> Tensor:
        """Return scaled differences from the wild type, none larger than those of training strains.

        A value that hardly changes in training has a tiny scale. Where a validation strain changes it, the difference
        is thousands of standard deviations, and a mean over all values would tell nothing of the others.
        """
        limit_M = self.largest / self.scale
        return changes_BM.clamp(-limit_M, limit_M)

    def restore(self, predicted_BM: Tensor) -> Tensor:
        """Return predicted values in original units."""
        return self.wild_type + self.scale * predicted_BM
