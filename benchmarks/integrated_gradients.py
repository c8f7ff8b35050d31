"""Compare explanations with integrated gradients: ``python -m benchmarks.integrated_gradients OUT RUN STRAINS POINTS``.

Integrated gradients are an independent second opinion. The reactions that a strain loses are weakened step by step from
strength 1 to 0, all by the same amount, and the gradient of the score for their strengths is added up along the way
(Sundararajan et al. 2017, arXiv 1703.01365). They split the same change of the score over the same lost reactions as
the explanation does at the start, but with autograd's own derivatives, and by another rule. The score is what the graph
says, before links and bounds. With few points the sum misses the change, which is the error of the method. POINTS are
one number or several.
"""

from __future__ import annotations

import copy
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

import dglcell
from benchmarks.explain_fba import drawn
from dglcell.explanations.split import Explainer, check_model
from dglcell.files.atomic import write_json
from dglcell.graph.schema import REACTION
from dglcell.machine.processor import processor_name
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.genotype import GenotypeBatch, ReactionStrengths
from dglcell.perturbation.sent import keep_masks

SAME = "same_first"
"""This is whether both name the same reaction first."""

CANDIDATES = 150
"""Of so many sick test strains, those that lose several reactions are taken."""

LEAST = 1e-3
"""Strengths below this are nearly zero, and no points of the way lie there."""


def score_model(model: Any) -> HeteroCell:
    """Return a copy in float64 that predicts the score, without link, bounds and null models."""
    found = copy.deepcopy(check_model(model)).double().eval()
    found.link, found.null_share = None, None
    return found


def integrated(model: HeteroCell, genotypes: GenotypeBatch, points: int) -> tuple[NDArray[np.float64], float]:
    """Return the integrated gradient of each lost reaction of one strain, [lost], and the change of the score.

    Args:
        model: a model that predicts scores.
        genotypes: the strain.
        points: number of points along the way (Gauss and Legendre).
    """
    lost = (~keep_masks(model.cell, genotypes)[REACTION][:, 0]).nonzero().squeeze(1)
    total = torch.zeros(len(lost), dtype=torch.float64)
    for point, weight in zip(*np.polynomial.legendre.leggauss(points), strict=True):
        left = torch.full((len(lost),), max(LEAST, (1 - point) / 2), dtype=torch.float64, requires_grad=True)
        score = model(_weakened(lost, left)).phenotypes[0, 0]
        [gradient] = torch.autograd.grad(score, left)
        total -= weight / 2 * gradient
    with torch.no_grad():
        change = model(genotypes).phenotypes[0, 0] - model(GenotypeBatch.from_lists([[]])).phenotypes[0, 0]
    return total.numpy(), float(change)


def _weakened(lost: Tensor, left: Tensor) -> GenotypeBatch:
    empty = GenotypeBatch.from_lists([[]])
    own = ReactionStrengths(lost, torch.tensor([0, len(lost)]), left)
    return GenotypeBatch(empty.genes, empty.offsets, 0, strengths=torch.zeros(0, dtype=torch.float64), reactions=own)


def explained(model: HeteroCell, genotypes: GenotypeBatch) -> NDArray[np.float64]:
    """Return the share of each lost reaction of one strain in the change of the score, [lost]."""
    [split] = Explainer(model)(genotypes)
    lost = (~keep_masks(model.cell, genotypes)[REACTION][:, 0]).nonzero().squeeze(1)
    total = torch.stack([share_NB[:, 0] for removed, share_NB in split.removed if removed.node_type == REACTION]).sum(0)
    return total[lost].numpy()


def main(out: Path, run: Path, number: int, points: list[int]) -> None:
    """Explain strains that lose at least two reactions both ways."""
    predictor = dglcell.load(run)
    model = score_model(predictor.model)
    found: dict[str, list[float]] = {}
    shown = 0
    for strain in drawn(run, CANDIDATES)[0]:
        genotypes = GenotypeBatch.from_lists([[predictor.cell.genes.index(gene) for gene in strain.split(";")]])
        began = time.perf_counter()
        shares = explained(model, genotypes)
        found.setdefault("seconds_explanation", []).append(time.perf_counter() - began)
        if len(shares) < 2:
            continue
        for count in points:
            began = time.perf_counter()
            gradients, change = integrated(model, genotypes, count)
            values = {
                "seconds": time.perf_counter() - began,
                "error": abs(gradients.sum() - change) / abs(change),
                "correlation": float(np.corrcoef(gradients, shares)[0, 1]),
                "rank_correlation": float(spearmanr(gradients, shares).statistic),
                SAME: float(np.argmax(np.abs(gradients)) == np.argmax(np.abs(shares))),
            }
            for name, value in values.items():
                found.setdefault(f"{name}_{count}", []).append(value)
        found.setdefault("error_explanation", []).append(abs(shares.sum() - change) / abs(change))
        shown += 1
        if shown == number:
            break
    write_json(
        out,
        {
            "command": f"python -m benchmarks.integrated_gradients OUT RUN {number} {' '.join(map(str, points))}",
            "processor": processor_name(),
            "strains": shown,
            "medians": {name: float(f"{np.median(values):.4g}") for name, values in found.items() if SAME not in name},
            "shares": {name: float(f"{np.mean(values):.4g}") for name, values in found.items() if SAME in name},
        },
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [int(count) for count in sys.argv[4:]])
