"""Predictions of a trained model and of null models on the parts of a split."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.baselines import Strains, fit_null_models
from dglcell.data.dataset import StrainDataset
from dglcell.data.sampler import EpochBatches
from dglcell.data.transform import Normaliser
from dglcell.files import atomic_file
from dglcell.kernels.spmm import check_kernel
from dglcell.models.prediction import Prediction, StrainModel
from dglcell.training.metrics import ResultRow, regression_metrics
from dglcell.training.prepare import Prepared


@torch.inference_mode()
def predict_strains(
    model: StrainModel, normaliser: Normaliser, dataset: StrainDataset, strains: Tensor, *, batch_size: int
) -> NDArray[np.float32]:
    """[n, T] predictions in original units, in the order of ``strains``.

    Args:
        model: its device decides where this runs.
        normaliser: of the training labels.
        dataset: with the deleted genes.
        strains: [n] strain numbers, on the host.
        batch_size: strains per forward pass.

    Raises:
        MissingDependencyError: the model's kernel does not run on its device.
    """
    outputs = [p.phenotypes.float() for p in _predictions(model, dataset, strains, batch_size)]
    return normaliser.to(outputs[0].device).restore(torch.cat(outputs)).cpu().numpy()


@torch.inference_mode()
def predict_and_embed(
    model: StrainModel, normaliser: Normaliser, dataset: StrainDataset, strains: Tensor, *, batch_size: int
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """The same, and [n, D] embeddings; None for a model that has none."""
    outputs, embeddings = [], []
    for prediction in _predictions(model, dataset, strains, batch_size):
        outputs.append(prediction.phenotypes.float())
        if prediction.embedding is not None:
            embeddings.append(prediction.embedding.float())
    predicted_ST = normaliser.to(outputs[0].device).restore(torch.cat(outputs))
    return predicted_ST.cpu().numpy(), torch.cat(embeddings).cpu().numpy() if embeddings else None


def _predictions(model: StrainModel, dataset: StrainDataset, strains: Tensor, batch_size: int) -> Iterator[Prediction]:
    """Batch by batch, on the device of the model."""
    device = next(model.parameters()).device
    check_kernel(model.config.kernel, device.type)
    model.eval()
    counts, resident = dataset.offsets.cpu().diff(), dataset.to(device)
    for batch in EpochBatches(strains, batch_size, shuffle=False, seed=0):
        yield model(resident.gather(batch.to(device), int(counts[batch].sum())).genotypes)


def model_rows(
    name: str, part: str, phenotypes: Sequence[str], predicted_ST: NDArray[np.float32], measured_ST: NDArray[np.float32]
) -> list[ResultRow]:
    """Metrics of the model ``name`` on one part, a row per phenotype."""
    return [
        ResultRow(name, part, phenotype, regression_metrics(predicted_ST[:, t], measured_ST[:, t]))
        for t, phenotype in enumerate(phenotypes)
    ]


def null_rows(prepared: Prepared, parts: Iterable[str]) -> list[ResultRow]:
    """Metrics of the null models, fitted on the training part, for every phenotype and part."""
    dataset = prepared.dataset
    everything = Strains(dataset.genes.numpy(), dataset.offsets.numpy(), len(prepared.cell.genes))
    strains = {name: everything.take(numbers.numpy()) for name, numbers in prepared.parts.items()}
    rows = []
    for t, phenotype in enumerate(dataset.phenotypes):
        labels = {name: dataset.labels[numbers, t].numpy() for name, numbers in prepared.parts.items()}
        nulls = fit_null_models(strains["train"], strains["validation"], labels["train"], labels["validation"])
        rows += [
            ResultRow(null.name, part, phenotype, regression_metrics(null.predict(strains[part]), labels[part]), True)
            for null in nulls
            for part in parts
        ]
    return rows


def write_predictions(path: Path, prepared: Prepared, strains: Tensor, predicted_ST: NDArray[np.float32]) -> None:
    """A CSV with one row per strain: its genes, measured and predicted phenotypes in original units."""
    dataset, names = prepared.dataset, prepared.cell.genes.names
    genes, offsets = dataset.genes.tolist(), dataset.offsets.tolist()
    header = ["genes"] + [f"{kind}_{name}" for name in dataset.phenotypes for kind in ("measured", "predicted")]
    with atomic_file(path) as partial, open(partial, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for strain, predicted in zip(strains.tolist(), predicted_ST.tolist(), strict=True):
            deleted = ";".join(names[g] for g in genes[offsets[strain] : offsets[strain + 1]])
            measured = dataset.labels[strain].tolist()
            pairs = [f"{x:.6g}" for pair in zip(measured, predicted, strict=True) for x in pair]
            writer.writerow([deleted, *("" if x == "nan" else x for x in pairs)])
