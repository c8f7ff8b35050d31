"""Predictions of every strain of a design: streamed, written in parts, continued where they stopped."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.designs.combinations import Design
from dglcell.designs.parts import Parts
from dglcell.files import sha256_file
from dglcell.parquet import make_table, named
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.predict import predicted_column
from dglcell.training.checkpoint import Trained
from dglcell.training.evaluate import predict_batches

PART_STRAINS = 2**18
# A slow model loses no more than this when it is stopped.
PART_SECONDS = 300.0

WORTH_SHARING = 200
"""Strains that must have deletions in common for these to be computed first, and once."""

Predicted = tuple[NDArray[np.int64], NDArray[np.float32]]
Block = tuple[NDArray[np.int64], tuple[int, ...]]


def predict_design(
    trained: Trained,
    design: Design,
    output: Path,
    *,
    batch_size: int,
    part_strains: int = PART_STRAINS,
    worth_sharing: int = WORTH_SHARING,
    report: Callable[[str], None] = print,
) -> float:
    """Predict the strains of ``design`` in order and write them to ``output``.

    Columns are ``gene_1`` to ``gene_K`` (names, dictionary-encoded) and ``predicted_<phenotype>`` in original units, in
    Parquet float32. What is finished lies in ``OUTPUT.parts`` until all is: the same call continues there.

    Args:
        trained: the model, on the device where this runs.
        design: which strains.
        output: a ``.parquet`` or ``.csv`` file that is not there yet.
        batch_size: strains per forward pass.
        part_strains: strains of a part; a part that takes longer than five minutes is closed before.
        worth_sharing: so many strains must have deletions in common for these to be computed once, for models that can.
        report: is told of every part.

    Returns:
        strains per second of this call, 0 where nothing was left to predict.

    Raises:
        DataError: the output exists, or parts are there of another model or design, or damaged.
    """
    parts = Parts(output, describe_design(trained, design))
    if parts.rows:
        report(f"continuing after {parts.rows:,} of {len(design):,} strains in {parts.folder}")
    began, before, rate = time.perf_counter(), parts.rows, 0.0
    batches = _in_batches(trained, design, parts.rows, batch_size, worth_sharing)
    for genes_SK, predicted_ST in _in_parts(batches, part_strains):
        parts.append(design_table(trained, genes_SK, predicted_ST))
        rate = (parts.rows - before) / (time.perf_counter() - began)
        left = timedelta(seconds=round((len(design) - parts.rows) / rate))
        report(f"{parts.rows:,} of {len(design):,} strains, {rate:,.0f} strains/s, {left} left")
    parts.join()
    return rate


def describe_design(trained: Trained, design: Design) -> dict[str, Any]:
    """What predictions of a design depend on, as plain containers; part of every file that is written."""
    return {
        "checkpoint_sha256": sha256_file(trained.path),
        "cell_sha256": trained.cell.sha256,
        "design_sha256": design.sha256,
        "genes": len(design.genes),
        "deletions": design.size,
        "start": design.start,
        "stop": design.stop,
        "units": dict(zip(trained.phenotypes, trained.units, strict=True)),
    }


def design_table(trained: Trained, genes_SK: NDArray[np.int64], predicted_ST: NDArray[np.float32]) -> Any:
    """Strains and their predictions as a pyarrow table."""
    names = trained.cell.genes.names
    genes = {f"gene_{k + 1}": named(column, names) for k, column in enumerate(genes_SK.T)}
    predicted = {predicted_column(name): predicted_ST[:, t] for t, name in enumerate(trained.phenotypes)}
    return make_table(genes, predicted)


def _in_parts(batches: Iterator[tuple[NDArray[np.int64], Tensor]], part_strains: int) -> Iterator[Predicted]:
    """Strains and their predictions, a part at a time; one transfer from the device each."""
    genes: list[NDArray[np.int64]] = []
    predicted: list[Tensor] = []
    strains, began = 0, time.perf_counter()
    for genes_BK, predicted_BT in batches:
        genes.append(genes_BK)
        predicted.append(predicted_BT)
        strains += len(genes_BK)
        if strains >= part_strains or time.perf_counter() - began > PART_SECONDS:
            yield np.concatenate(genes), torch.cat(predicted).cpu().numpy()
            genes, predicted, strains, began = [], [], 0, time.perf_counter()
    if genes:
        yield np.concatenate(genes), torch.cat(predicted).cpu().numpy()


def _in_batches(
    trained: Trained, design: Design, skip: int, batch_size: int, worth_sharing: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Strains after the first ``skip`` and what is predicted of them, in original units."""
    device = next(trained.model.parameters()).device
    blocks: Iterator[Block] = ((genes_BK, ()) for genes_BK in design.blocks(batch_size, skip))
    if trained.model.shares_deletions:
        blocks = design.shared_blocks(batch_size, worth_sharing, skip)
    told, asked = itertools.tee(blocks)
    batches = (_batch(*block).to(device, non_blocking=True) for block in asked)
    normaliser = trained.normaliser.to(device)
    for (genes_BK, _), prediction in zip(told, predict_batches(trained.model, batches), strict=True):
        yield genes_BK, normaliser.restore(prediction.phenotypes.float())


def _batch(genes_BK: NDArray[np.int64], shared: tuple[int, ...]) -> GenotypeBatch:
    strains, deletions = genes_BK.shape
    offsets = torch.arange(strains + 1) * deletions
    return GenotypeBatch(torch.from_numpy(genes_BK).reshape(-1), offsets, deletions, shared)
