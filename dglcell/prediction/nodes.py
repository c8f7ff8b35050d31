"""Predict values of nodes in strains, such as fluxes of reactions, and write a column for each node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from dglcell.data.node_values import measured_names
from dglcell.errors import CheckpointError, listing
from dglcell.prediction.predict import fitting_batch_of
from dglcell.prediction.table import GenotypeTable
from dglcell.training.checkpoint import Trained
from dglcell.training.predicted import predict_batches


def node_column(name: str, node: str) -> str:
    """Return the column of the predicted values of a node, e.g. ``flux:PFK``."""
    return f"{name}:{node}"


def check_predicts_nodes(members: Sequence[Trained]) -> None:
    """Refuse models that predict no values of nodes.

    Raises:
        CheckpointError: a model has no head for them, or models have different ones.
    """
    for member in members:
        names = list(getattr(member.model, "node_heads", {}))
        if not names:
            raise CheckpointError(
                f"'{member.path}' predicts no values of nodes",
                got="a model without heads of nodes",
                expected="a run of an experiment with `data.nodes`",
                do="train one, as the guide on values of nodes says",
            )
        first = list(members[0].model.node_heads)
        if names != first:
            raise CheckpointError(
                "these runs predict different values of nodes", got=listing(names), expected=listing(first)
            )


@torch.inference_mode()
def predict_nodes(
    members: Sequence[Trained], rows: GenotypeTable, *, batch_size: int | None = None
) -> dict[str, NDArray[np.float32]]:
    """Predict values of nodes by one or several models.

    Args:
        members: the models, on the device where this runs.
        batch_size: strains per forward pass; as many as fit into memory where None.

    Returns:
        A column of `node_column` for each node, in original units, and the mean where there are several models. Rows of
        strains whose genes the cell graph lacks are NaN. Nodes that had no values in training have no column.

    Raises:
        CheckpointError: a model predicts no values of nodes.
    """
    check_predicts_nodes(members)
    found: dict[str, NDArray[np.float32]] = {}
    for member in members:
        device = next(member.model.parameters()).device
        size = batch_size or fitting_batch_of([member])
        predictions = list(predict_batches(member.model, (batch.to(device) for batch in rows.batches(size))))
        for name, head in member.model.node_heads.items():
            nodes, _ = measured_names(member.cell, member.config.data.nodes[name].type)
            values_SM = np.full((len(rows), len(nodes)), np.nan, np.float32)
            if predictions:
                predicted = torch.cat([one.nodes[name].float() for one in predictions])
                values_SM[rows.is_known] = head.restore(predicted).cpu().numpy()
            for number in np.flatnonzero(head.known.cpu().numpy()).tolist():
                column = node_column(name, nodes[number])
                found[column] = found.get(column, np.float32(0)) + values_SM[:, number] / np.float32(len(members))
    return found
