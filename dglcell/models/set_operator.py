"""Name the list of terms that encodes the wild type once, and lets the deleted genes of every strain act on it."""

from __future__ import annotations

from dglcell.models.cell_model import CellModel
from dglcell.models.config import SetOperatorConfig


class SetOperator(CellModel):
    r"""Predict phenotypes as :math:`f(G, S) = g(F(G), S)`: the encoder F sees the wild type's graph alone.

    **It does not compute on the strains' own graphs**: no edge is removed and no reaction is lost with its enzyme. What
    a deletion does to the network must be learnt by g: ``Genes`` scores the deleted genes' states, and with ``operator:
    both`` ``Operator`` lets all genes attend to the deleted ones. In return a step encodes one graph, whatever the
    batch, and an evaluation pass encodes only once: the states are kept until the model is trained, moved or loaded.
    """

    Config = SetOperatorConfig
