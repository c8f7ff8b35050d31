"""Give heads of nodes what they start from: values of the wild type, and their spread over the training strains."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from dglcell.config.experiment import Config
from dglcell.data.node_values import CellValues
from dglcell.errors import DataError
from dglcell.nn.node_head import NodeHead
from dglcell.training.node_results import MassBalance
from dglcell.training.prepare import Prepared

log = logging.getLogger("dglcell")

READ_TOGETHER = 2**20
"""So many values are read at a time, in 4 MB."""

SMALLEST = 1e-6
"""A value changes if its standard deviation is a larger share of its mean, and of the largest one of any node."""


def fit_node_heads(heads: Mapping[str, NodeHead], prepared: Prepared, zero_if_lost: Mapping[str, bool]) -> None:
    """Store in each head the values of the wild type, and the spread of the values of the training strains.

    Values that never change in training are left out of loss and metrics.

    Args:
        heads: name → head.
        prepared: data that the model is trained on.
        zero_if_lost: name → whether what a strain loses has the value 0.

    Raises:
        DataError: no training strain has a value, or none changes; or values are to be balanced and are no fluxes.
    """
    for name, head in heads.items():
        values, train = prepared.nodes[name], prepared.parts["train"].numpy()
        mean, sd, number = spread(values, train)
        changes = sd > SMALLEST * np.maximum(np.abs(mean), sd.max(initial=0))
        kind = values.values.type
        if not changes.any():
            raise DataError(
                f"`data.nodes.{name}`: no value changes among the training strains",
                got=f"{int((number > 0).sum()):,} of {len(values):,} values are measured in training strains",
                expected="values that differ between strains",
                do="choose another split, or leave these values out",
            )
        log.info(
            "%s: %s of %s values of the type %s change among training strains; the others are left out",
            *(name, f"{int(changes.sum()):,}", f"{len(values):,}", kind),
        )
        known = values.columns >= 0
        head.zero_if_lost.fill_(zero_if_lost[name])
        head.take(*(torch.from_numpy(of) for of in (values.wild_type, sd.astype(np.float32), changes, known)))
        if head.projection is not None:
            head.balance(_stoichiometry(name, head, values, prepared))


def _stoichiometry(name: str, head: NodeHead, values: CellValues, prepared: Prepared) -> torch.Tensor:
    """Return how much of each metabolite the fluxes of reactions make, [K, M]."""
    balance = MassBalance.of(head, values, prepared.cell)
    if balance is None:
        raise DataError(
            f"`model.balanced_values`: the values '{name}' are no fluxes of all reactions at a steady state",
            got=f"{int((values.columns >= 0).sum()):,} of {len(values):,} reactions with values",
            expected="a flux of each reaction, which in the wild type make as much of every metabolite as they use",
            do=f"leave '{name}' out of `model.balanced_values`",
        )
    return torch.from_numpy(balance.stoichiometry.toarray())


def limit_targets(heads: Mapping[str, NodeHead], prepared: Prepared) -> None:
    """Let each head know how far its values go in training, beyond which the loss of validation does not look."""
    for name, head in heads.items():
        values = prepared.nodes[name]
        largest = np.zeros(len(values))
        for changes in _changes(values, prepared.parts["train"].numpy()):
            largest = np.fmax(largest, np.fmax.reduce(np.abs(changes), axis=0))
        head.largest.copy_(torch.from_numpy(largest))


def _changes(values: CellValues, strains: NDArray[np.int64]) -> Iterator[NDArray[np.float64]]:
    """Yield differences from the wild type, some strains at a time; they keep their digits where they are small."""
    size = max(1, READ_TOGETHER // len(values))
    for start in range(0, len(strains), size):
        yield values.of_strains(strains[start : start + size]).astype(np.float64) - values.wild_type.astype(np.float64)


def bare_node_heads(config: Config, prepared: Prepared) -> dict[str, NodeHead]:
    """Return heads that know values of the wild type and their spread, and have nothing to predict with.

    Null models of values of nodes need no more.

    Args:
        config: configuration, whose `data.nodes` the values are of.
        prepared: the data.

    Raises:
        DataError: no training strain has a value, or none changes.
    """
    heads = {
        name: NodeHead(
            torch.arange(len(values)),
            len(values),
            width=1,
            strain_width=1,
            hidden=1,
            activation="identity",
            dropout=0.0,
        )
        for name, values in prepared.nodes.items()
    }
    fit_node_heads(heads, prepared, {name: of.zero_if_lost for name, of in config.data.nodes.items()})
    return heads


def spread(
    values: CellValues, strains: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return mean, standard deviation and number of the measured values of some strains, [M] each."""
    wild_type = values.wild_type.astype(np.float64)
    number, total, squares = np.zeros((3, len(values)))
    for changes in _changes(values, strains):
        measured = ~np.isnan(changes)
        number += measured.sum(axis=0)
        total += np.where(measured, changes, 0).sum(axis=0)
        squares += np.where(measured, np.square(changes), 0).sum(axis=0)
    mean = total / np.maximum(number, 1)
    variance = squares / np.maximum(number, 1) - np.square(mean)
    return mean + wild_type, np.sqrt(np.maximum(variance, 0)), number.astype(np.int64)
