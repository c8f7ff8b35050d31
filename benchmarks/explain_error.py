"""Measure what shares leave of predicted changes: ``python -m benchmarks.explain_error OUT RUN …``.

For models of E. coli core with random weights, one for each convolution and combination, and for trained models,
strains with one to three random deletions are explained in float64 and in float32; models with flux rounds, which know
only float32, in that alone. The error of a strain is what the parts leave of the change that the model itself predicts,
relative to the largest change of all strains. That of a cut is what the shares of nodes behind a layer leave of the
part ``graph``, in the same unit.
"""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dglcell
from dglcell.data.transform import Normaliser
from dglcell.explanations.split import GRAPH, Explainer, Split, check_model
from dglcell.files.atomic import write_json
from dglcell.graph.cell import build_cell
from dglcell.graph.config import CellConfig
from dglcell.graph.resident import ResidentCell
from dglcell.machine.processor import processor_name
from dglcell.models.config import CONVS, HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.genotype import GenotypeBatch

STRAINS, BATCH = 256, 64
DTYPES = {"float64": torch.float64, "float32": torch.float32}


def random_models() -> Iterator[tuple[str, HeteroCell, Normaliser | None]]:
    """Yield models with random weights."""
    cell = ResidentCell.of(build_cell(CellConfig(model="textbook")))
    for conv, combination in itertools.product(CONVS, ("sum", "gated")):
        pool = ["gene", "reaction", "metabolite"]
        config = HeteroCellConfig(hidden=32, layers=3, conv=conv, combination=combination, local_heads=4, pool=pool)
        torch.manual_seed(0)
        model = HeteroCell(cell, config, 1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.2)
        yield f"random weights, {conv}, {combination}", model, None


def trained_models(runs: list[str]) -> Iterator[tuple[str, HeteroCell, Normaliser | None]]:
    """Yield the models of runs."""
    for run in runs:
        member = dglcell.load(run).members[0]
        yield "/".join(Path(run).parts[-2:]), check_model(member.model), member.normaliser


def errors(model: HeteroCell, normaliser: Normaliser | None, dtype: torch.dtype) -> dict[str, float]:
    """Return the largest errors of parts and of cuts."""
    model = copy.deepcopy(model).to(dtype).eval()
    explainer = Explainer(model, None if normaliser is None else copy.deepcopy(normaliser).to(dtype))
    rng, genes = np.random.default_rng(0), model.cell.num_nodes["gene"]
    strains = [rng.choice(genes, rng.integers(1, 4), replace=False).tolist() for _ in range(STRAINS)]
    splits = [
        explainer(GenotypeBatch.from_lists(strains[first : first + BATCH]))[0] for first in range(0, STRAINS, BATCH)
    ]
    largest = max(float(split.change_B.abs().max()) for split in splits)
    return {
        "parts": max(float(split.rest_B.abs().max()) for split in splits) / largest,
        "cuts": max(of_cuts(split, explainer.num_layers) for split in splits) / largest,
    }


def of_cuts(split: Split, num_layers: int) -> float:
    """Return what shares of nodes leave of the part ``graph``, at the layer where it is most."""
    found = []
    for layer in range(num_layers + 1):
        total_B = torch.zeros_like(split.change_B)
        for rows, share_K in split.rows:
            if rows.relation is None and rows.layer == layer:
                total_B.index_add_(0, rows.index.strains, share_K)
        for removed, share_NB in split.removed:
            if removed.layer > layer:
                total_B += share_NB.sum(0)
        found.append(float((total_B - split.parts[GRAPH]).abs().max()))
    return max(found)


def main(out: Path, runs: list[str]) -> None:
    """Measure all models."""
    table: dict[str, Any] = {}
    for name, model, normaliser in itertools.chain(random_models(), trained_models(runs)):
        found = {
            title: errors(model, normaliser, dtype)
            for title, dtype in DTYPES.items()
            if model.flux_rounds is None or dtype == torch.float32
        }
        table[name] = {
            title: {what: float(f"{error:.1e}") for what, error in of.items()} for title, of in found.items()
        }
        print(name, table[name], flush=True)
    names = " ".join("/".join(Path(run).parts[-2:]) for run in runs)
    command = f"python -m benchmarks.explain_error OUT {names}"
    write_json(out, {"command": command, "processor": processor_name(), "strains": STRAINS, "errors": table})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
