"""Null models that know what the model of new genes of E. coli core knows: bounds from measured strains, and fluxes.

``python -m benchmarks.new_genes_nulls OUT [key=value ...]`` writes the test scores of five draws. Kernels are
chosen on the validation part. All but the bound are held between the same bounds as the model's predictions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import spearmanr

from dglcell.baselines.fit import OWN_SHARES, REACTION_PENALTIES
from dglcell.baselines.reactions import LostSetKernel, Reactions, fit_reaction_kernels
from dglcell.baselines.strains import Strains
from dglcell.config_io import load_config
from dglcell.files import write_json
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.model_files import read_model
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import REACTION
from dglcell.graph.wild_type import wild_type_fluxes
from dglcell.nn.measured import MeasuredStrains
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.training.null_problems import strains_by_part
from dglcell.training.prepare import Prepared, prepare

EXPERIMENT, DRAWS = "conf/106-ecoli-core/gene_disjoint.yaml", 5
Array = NDArray[np.float64]
Candidates = Iterator[tuple[Array, Array]]


def bounds_of(prepared: Prepared, part: str) -> tuple[Array, Array]:
    """[n] the least and the largest growth that measured strains allow, as the link `bounded` has them."""
    dataset, cell = prepared.dataset, ResidentCell.of(prepared.cell)
    counts = dataset.offsets.diff()

    def genotypes(rows: torch.Tensor) -> tuple[GenotypeBatch, torch.Tensor]:
        batch = dataset.gather(rows, int(counts[rows].sum()))
        return batch.genotypes, batch.labels

    made = MeasuredStrains(1, REACTION, whole=True)
    made.remember(cell, *genotypes(prepared.parts["train"]))
    found = []
    for rows in prepared.parts[part].split(512):
        strains = genotypes(rows)[0]
        found.append(torch.cat([made.largest(cell, strains), made(cell, strains)], 1))
    least, largest = torch.cat(found).double().numpy().T
    return least, largest


class FluxReactions(Reactions):
    """Reactions whose neighbourhood also says which of them carry flux in the wild type: a reaction counts by it."""

    weight: Array

    def lost(self, strains: Strains) -> sparse.csr_array:
        return sparse.csr_array(super().lost(strains) @ sparse.diags_array(self.weight)).astype(np.float32)


def with_flux(prepared: Prepared) -> FluxReactions:
    """The same, where a reaction without flux counts a tenth of one with."""
    flux = flux_of(prepared)
    made = FluxReactions(prepared.cell)
    made.weight = np.where(flux > 0, 1.0, 0.1)
    return made


def flux_of(prepared: Prepared) -> Array:
    """[R] the wild type's flux of each reaction, in the order of ``Reactions``."""
    names = np.unique([model_reaction(name) for name in prepared.cell.vocabularies[REACTION].names])
    fluxes = wild_type_fluxes(read_model("textbook"))
    return np.array([abs(fluxes[name]) for name in names])


def kernels(reactions: Reactions, strains: dict[str, Strains], y: Array) -> Candidates:
    """Predictions of the validation and the test part for each setting of the kernel ridge."""
    for own in OWN_SHARES:
        for model in fit_reaction_kernels(strains["train"], y, LostSetKernel(own, reactions), REACTION_PENALTIES):
            yield model.predict(strains["validation"]), model.predict(strains["test"])


def nearest(reactions: Reactions, strains: dict[str, Strains], y: Array) -> Candidates:
    """The same of the mean label of the training strains with the most similar lost reactions."""
    kernel = LostSetKernel(OWN_SHARES[-1], reactions)
    vectors = {part: kernel.features(strains[part]) for part in strains}
    found = []
    for part in ("validation", "test"):
        means = []
        for first in range(0, len(strains[part]), 256):
            near = kernel.between(vectors[part][first : first + 256], vectors["train"])
            best = near >= near.max(1, keepdims=True) - 1e-9
            means.append((best @ y) / best.sum(1))
        found.append(np.concatenate(means))
    yield found[0], found[1]


def scores(y: Array, predicted: Array) -> dict[str, float]:
    """As in the table of a run."""
    return {
        "pearson": float(np.corrcoef(y, predicted)[0, 1]),
        "r2": float(1 - np.square(y - predicted).mean() / y.var()),
        "spearman": float(spearmanr(y, predicted)[0]),
        "mae": float(np.abs(y - predicted).mean()),
    }


def draw(seed: int, keys: list[str]) -> dict[str, dict[str, float]]:
    """Test scores of each null model on one draw."""
    prepared = prepare(load_config(EXPERIMENT, [f"split.seed={seed}", *keys]), command="benchmark")
    strains = strains_by_part(prepared)
    y = {part: prepared.dataset.labels[rows, 0].double().numpy() for part, rows in prepared.parts.items()}
    bounds = {part: bounds_of(prepared, part) for part in ("validation", "test")}
    families = {
        "reaction kernel ridge": kernels(Reactions(prepared.cell), strains, y["train"]),
        "the same, with fluxes": kernels(with_flux(prepared), strains, y["train"]),
        "nearest strain": nearest(Reactions(prepared.cell), strains, y["train"]),
    }
    found = {"largest bound": scores(y["test"], bounds["test"][1])}
    for name, candidates in families.items():
        held = [
            [
                np.minimum(np.maximum(one, bounds[part][0]), bounds[part][1])
                for part, one in zip(bounds, pair, strict=True)
            ]
            for pair in candidates
        ]
        best = min(held, key=lambda pair: float(np.square(pair[0] - y["validation"]).mean()))
        found[name] = scores(y["test"], best[1])
    return found


def main(out: str, *keys: str) -> None:
    """Write the file."""
    found: dict[str, object] = {"command": "python -m benchmarks.new_genes_nulls OUT", "experiment": EXPERIMENT}
    found["draws"] = {str(seed): draw(seed, list(keys)) for seed in range(DRAWS)}
    write_json(Path(out), found)


if __name__ == "__main__":
    main(*sys.argv[1:])
