"""Find once, before training, which reactions strains lose because they lose others."""

from __future__ import annotations

import logging
import time

import torch
from torch import Tensor

from dglcell.config.experiment import Config
from dglcell.data.columns import BLOCKED, CONDITION, MEDIUM, Column
from dglcell.data.strains import Strains
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.models.terms.covariates import in_media, media_table
from dglcell.models.terms.measured import blocked_reactions
from dglcell.perturbation.genotype import GenotypeBatch

log = logging.getLogger("dglcell")

MOST_STRAINS = 200_000
"""More strains are not looked at beforehand, which would take minutes; their reactions are found step by step."""

PIECE = 256
"""So many strains are looked at together."""

SILENCE = 10.0
"""Seconds between two lines of progress."""


def with_blocked(dataset: Strains, cell: CellGraph, config: Config) -> Strains:
    """Return strains that know their blocked reactions, so that no step has to look for them and wait.

    That is a column ``BLOCKED``, [S, K]: the nodes as `SteadyState.blocked` finds them, −1 behind them. Strains stay as
    they are where the cell loses none, where what is left of genes is learned, and where there are too many strains.

    Args:
        dataset: the strains of a run, in tensors on the host.
        cell: its cell graph.
        config: its configuration.
    """
    if not cell.lose_blocked or config.model.strength_from or len(dataset) > MOST_STRAINS:
        return dataset
    resident, began = ResidentCell.of(cell), time.monotonic()
    said, parts = began, list[list[Tensor]]()
    for start in range(0, len(dataset), PIECE):
        piece = dataset.slice(start, min(start + PIECE, len(dataset)))
        found_BN = blocked_reactions(resident, strains_in_media(piece, resident)).T
        nodes = found_BN.nonzero()[:, 1].to(torch.int16 if found_BN.shape[1] < 2**15 else torch.int32)
        parts.append([*nodes.split(found_BN.sum(1).tolist())])
        if time.monotonic() - said > SILENCE:
            said = time.monotonic()
            log.info("blocked reactions: %s of %s strains", f"{start + len(piece):,}", f"{len(dataset):,}")
    lists = [one for part in parts for one in part]
    blocked_SK = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True, padding_value=-1)
    log.debug("blocked reactions of %d strains found in %.1f s", len(dataset), time.monotonic() - began)
    return dataset.with_(columns={**dataset.columns, Column(BLOCKED): blocked_SK})


def strains_in_media(strains: Strains, cell: ResidentCell) -> GenotypeBatch:
    """Return strains with the reactions that their media close or weaken, as models see them."""
    genotypes, categories = strains.perturbations, strains.conditions.get(MEDIUM)
    if not cell.media or not categories:
        return genotypes
    codes_B = strains.columns[Column(CONDITION, MEDIUM, categories)].long()
    return in_media(cell, genotypes, media_table(cell, categories)[codes_B])
