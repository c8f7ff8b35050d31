"""Measure how many digits of what a model reads are right: ``python -m benchmarks.precision OUT``.

Relative errors against float64 on the generated cell graph of yeast size, of a ``hetero_cell`` with fresh weights and
of the same one after a short training on random targets. Strains come in triples: gene i deleted, gene j deleted, both
deleted. Four errors are taken, the first three for every triple:

- of pooled differences z_w − z_i, which the global head reads;
- of second differences z(ij) − z(i) − z(j) + z_w, which hold all that pooled states say about an interaction;
- of predictions, by a global head alone, which reads nothing but pooled differences;
- of the gradient of a squared error over the strains of two pairs: one vector of all parameters.

An error is ``‖a − a₆₄‖ / ‖a₆₄‖``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.cells import generated_cell
from dglcell.files.atomic import write_json
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE
from dglcell.machine import keep_freed_memory
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation.execution import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs import environment

WAYS = [(strategy, half) for strategy in ("difference", "node_mask") for half in (False, True)]
"""Strategy, and whether differences are in bfloat16."""

TRAINING = {"steps": 30, "batch_size": 8, "lr": 1e-3}
PAIRS_OF_GRADIENT = 2


def make_model(cell: CellGraph, layers: int) -> HeteroCell:
    """Make GIN with fresh weights, H = 64, genes alone; the head on deleted genes, which reads no difference, is left
    out.
    """
    torch.manual_seed(0)
    config = HeteroCellConfig(hidden=64, layers=layers, metabolism=False, local_head=False, combination="none")
    return HeteroCell(ResidentCell.of(cell), config)


def train(model: HeteroCell) -> None:
    """Train briefly on random pairs of genes with random targets."""
    generator = torch.Generator().manual_seed(1)
    number, size = model.cell.num_nodes[GENE], int(TRAINING["batch_size"])
    optimiser = torch.optim.AdamW(model.parameters(), lr=TRAINING["lr"])
    for _ in range(int(TRAINING["steps"])):
        genes = torch.randint(number, (size, 2), generator=generator)
        targets = torch.randn(size, 1, generator=generator)
        out = model(GenotypeBatch.from_lists([sorted(set(pair)) for pair in genes.tolist()]))
        optimiser.zero_grad()
        F.mse_loss(out.phenotypes, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()


def outcome(model: HeteroCell, pairs: list[list[int]]) -> dict[str, Tensor]:
    """Return what a model computes for all strains, and a loss's gradient for those of the first pairs."""
    model.train()  # in training mode nothing is kept from call to call; there is no dropout
    model.zero_grad(set_to_none=True)
    with torch.no_grad():
        out = model(strains_of(pairs))
    first = out.embedding.double().unflatten(0, (len(pairs), 3))
    few = model(strains_of(pairs[:PAIRS_OF_GRADIENT])).phenotypes
    targets = torch.randn(len(few), 1, generator=torch.Generator().manual_seed(2))
    F.mse_loss(few, targets.to(few.dtype)).backward()
    gradients = [p.grad.flatten().double() for p in model.parameters() if p.grad is not None]
    return {
        "differences": first.flatten(1),
        "second_differences": first[:, 0] + first[:, 1] - first[:, 2],
        "predictions": out.phenotypes.double().view(len(pairs), 3),
        "gradients": torch.cat(gradients).unsqueeze(0),
    }


def strains_of(pairs: list[list[int]]) -> GenotypeBatch:
    """Return the strains of every pair: without i, without j and without both."""
    return GenotypeBatch.from_lists([strain for i, j in pairs for strain in ([i], [j], [i, j])])


def measure(model: HeteroCell, about: dict[str, Any], pairs: list[list[int]]) -> list[dict[str, Any]]:
    """Return errors of every way to compute one model, against float64."""
    model.choose(Choices("node_mask"))
    exact = outcome(model.double(), pairs)
    model.float()
    ratios = exact["second_differences"].norm(dim=1) / exact["differences"].norm(dim=1) * 3**0.5
    rows = []
    for strategy, half in WAYS:
        model.choose(Choices(strategy, half=half))
        found = outcome(model, pairs)
        errors = {key: ((found[key] - known).norm(dim=1) / known.norm(dim=1)).tolist() for key, known in exact.items()}
        row = {
            **about,
            "strategy": strategy,
            "differences": "bfloat16" if half else "float32",
            "second_over_first": statistics.median(ratios.tolist()),
            "median": {key: statistics.median(values) for key, values in errors.items()},
            "maximum": {key: max(values) for key, values in errors.items()},
        }
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def main() -> None:
    """Measure the model untrained and trained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT", help="JSON")
    parser.add_argument("--pairs", type=int, default=5, metavar="N", help="of genes (default: 5)")
    parser.add_argument("--layers", type=int, default=3, metavar="L", help="(default: 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of genes (default: 1)")
    options = parser.parse_args()
    keep_freed_memory()
    cell = generated_cell(scale=options.scale)
    model = make_model(cell, options.layers)
    drawn = random.Random(0).sample(range(len(cell.genes)), 2 * options.pairs)
    pairs = [sorted(drawn[k : k + 2]) for k in range(0, len(drawn), 2)]
    about = {"genes": len(cell.genes), "edges": cell.num_edges, "layers": options.layers, "hidden": 64}
    rows: list[dict[str, Any]] = []
    for trained in (False, True):
        if trained:
            train(model)
        rows += measure(model, {**about, "pairs": len(pairs), "trained": trained}, pairs)
        content = {"environment": environment("python -m benchmarks.precision OUT"), "training": TRAINING, "rows": rows}
        write_json(options.out, content)


if __name__ == "__main__":
    main()
