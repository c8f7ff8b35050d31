"""Predict strains with a trained model, batch by batch, and write the table of predictions."""

from __future__ import annotations

import csv
import itertools
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.data.changes import ACTIVITIES, LEARNED_ACTIVITIES
from dglcell.data.columns import COVARIATE
from dglcell.data.dataset import EpochBatches, Normaliser
from dglcell.data.strains import Strains
from dglcell.files.atomic import atomic_file, no_formula, shortest
from dglcell.kernels.spmm import check_kernel
from dglcell.machine.processor import is_out_of_memory
from dglcell.models.model import Prediction, StrainModel, joined
from dglcell.models.terms.term import Term
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.training.prepare import Prepared

log = logging.getLogger("dglcell")

WRITTEN_STRAINS = 2**16
"""Strains that are written together."""


@torch.inference_mode()
def predict_strains(
    model: StrainModel, normaliser: Normaliser, dataset: Strains, strains: Tensor, *, batch_size: int
) -> NDArray[np.float32]:
    """Return [n, T] predictions in original units.

    Args:
        model: the model, whose device decides where this runs.
        strains: [n] strain numbers, on the host; predictions are in their order.

    Raises:
        MissingDependencyError: the model's kernel does not run on its device.
    """
    device, counts = next(model.parameters()).device, dataset.offsets.cpu().diff()
    resident, batches = dataset.to(device), EpochBatches(strains, batch_size, shuffle=False, seed=0)
    taken = (resident.take(batch.to(device), int(counts[batch].sum())).perturbations for batch in batches)
    outputs_ST = torch.cat([prediction.phenotypes.float() for prediction in predict_batches(model, taken)])
    return normaliser.to(device).restore(outputs_ST).cpu().numpy()


@torch.inference_mode()
def predict_batches(model: StrainModel, batches: Iterable[GenotypeBatch]) -> Iterator[Prediction]:
    """Yield the model's output for each batch, on its device, in normalised units.

    The states of the wild type that a model keeps during evaluation are computed once for all batches. Where memory
    runs out, this batch and the later ones are cut in two, until they fit.

    Args:
        model: the model, whose device decides where this runs.
        batches: genotypes, on the device of the model.

    Raises:
        MissingDependencyError: the model's kernel does not run on its device.
    """
    device = next(model.parameters()).device.type
    check_kernel(model.config.kernel, device)
    model.eval()
    most = sys.maxsize
    for batch in batches:
        found: list[Prediction] = []
        first, number = 0, batch.num_strains
        while first < number or not found:
            part = batch if number <= most else batch.part(first, min(first + most, number))
            try:
                found.append(model(part))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or part.num_strains < 2:
                    raise
                most = part.num_strains // 2
                log.warning("memory is not enough for %d strains at once; %d are tried", part.num_strains, most)
            else:
                first += max(part.num_strains, 1)
        yield found[0] if len(found) == 1 else joined(found)


def write_predictions(
    path: Path,
    prepared: Prepared,
    strains: Tensor,
    predicted_ST: NDArray[np.float32],
    network_ST: NDArray[np.float32],
    own: Mapping[str, str] | None = None,
    learned: Term | None = None,
) -> None:
    """Write a CSV with one row per strain: its genes, measured and predicted phenotypes in original units.

    Where the network does not predict a phenotype alone, its prediction is in a column ``network_<phenotype>``.

    Activities of genes, where there are any, are in a column ``activities``, and each covariate in one of its name, so
    that the table can be predicted again. A column ``learned_activities`` says what is left of the genes for the model.

    Args:
        strains: [S] rows of the data set.
        predicted_ST: predictions of what predicts.
        network_ST: predictions of the network.
        own: systematic name → the user's own name; if there are any, they are written into a column ``names``.
        learned: the part of the model that learns activities; there is no column of them where None.
    """
    dataset, genes = prepared.dataset, prepared.cell.genes.names
    called = {"genes": genes} | ({"names": [own.get(gene, gene) for gene in genes]} if own else {})
    names = [np.array(column, dtype=object) for column in called.values()]
    about = [ACTIVITIES] * (dataset.activities is not None) + list(dataset.covariates)
    about += [LEARNED_ACTIVITIES] * (learned is not None)
    header = [*called, *about] + [f"{kind}_{name}" for name in dataset.phenotypes for kind in ("measured", "predicted")]
    differ = [t for t in range(len(dataset.phenotypes)) if not np.array_equal(predicted_ST[:, t], network_ST[:, t])]
    header += [f"network_{list(dataset.phenotypes)[t]}" for t in differ]
    with atomic_file(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        tables = (torch.from_numpy(table_ST).split(WRITTEN_STRAINS) for table_ST in (predicted_ST, network_ST))
        for block, predicted_BT, network_BT in zip(strains.split(WRITTEN_STRAINS), *tables, strict=True):
            batch = dataset.take(block)
            deleted = [_joined(column[batch.targets.numpy()], batch.num_deletions) for column in names]
            if batch.activities is not None:
                deleted.append(_joined_activities(batch.activities, batch.num_deletions))
            deleted += [
                [no_formula(c.categories[int(v)]) for v in values] if c.categories else shortest(values.numpy())
                for c, values in batch.columns.items()
                if c.kind == COVARIATE
            ]
            if learned is not None:
                deleted.append(_joined_activities(_learned_activities(learned, batch), batch.num_deletions))
            pairs = zip(batch.labels.T, predicted_BT.T, strict=True)
            columns = [shortest(column.numpy()) for pair in pairs for column in pair]
            columns += [shortest(network_BT[:, t].numpy()) for t in differ]
            writer.writerows(zip(*deleted, *columns, strict=True))


@torch.inference_mode()
def _learned_activities(learned: Term, batch: Strains) -> Tensor:
    found = learned.strains(batch.to(next(learned.parameters()).device).perturbations).activities
    return torch.zeros(len(batch.targets)) if found is None else found.float().cpu()


def _joined_activities(activities_P: Tensor, counts: Tensor) -> list[str]:
    return _joined(np.array(shortest(activities_P.numpy()), dtype=object), counts)


def _joined(names: NDArray[np.object_], counts: Tensor) -> list[str]:
    rest = iter(names.tolist())
    return [no_formula(";".join(itertools.islice(rest, count))) for count in counts.tolist()]
