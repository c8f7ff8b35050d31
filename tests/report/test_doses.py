"""Dose–response curves: which genes are shown, from which strains, and that nothing overlaps or leaves the picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dglcell.report.pictures import MOST_GENES, described, overview, responses
from dglcell.report.run_files import Predictions, RunFiles
from tests.report.invented import RUNS, files, png_size

pytestmark = pytest.mark.filterwarnings("error")


def doses_of(n: int, genes: list[str], media: list[str], seed: int = 0) -> tuple[pd.DataFrame, Predictions]:
    """n strains that weaken random genes in random media, every seventh not measured."""
    rng = np.random.default_rng(seed)
    left = rng.choice([0.0, 0.1, 0.3, 0.5, 0.9, 1.2], n)
    doses = pd.DataFrame({"genes": rng.choice(genes, n), "activities": left, "medium": rng.choice(media, n)})
    measured = rng.normal(size=n)
    measured[::7] = np.nan
    return doses, Predictions(measured, rng.normal(size=n))


def run_of(n: int, genes: list[str], media: list[str], phenotype: str = "growth") -> RunFiles:
    found = {part: doses_of(n, genes, media, seed) for seed, part in enumerate(("test", "validation"))}
    predictions = {part: {phenotype: p} for part, (_, p) in found.items()}
    return files([], predictions, doses={part: doses for part, (doses, _) in found.items()})


def test_the_genes_with_the_most_measured_strains_are_shown() -> None:
    run = run_of(120, ["", *(f"g{i}" for i in range(9))], ["LB", "M9"])
    parts = [run.doses[part].assign(y=run.predictions[part]["growth"].measured) for part in run.doses]
    measured = pd.concat(parts).dropna().query("genes != ''")
    found, counts = responses(run, "growth"), measured.genes.value_counts()
    assert [len(response) for response in found.values()] == counts.iloc[:MOST_GENES].tolist()
    for gene, response in found.items():
        own = measured[measured.genes == gene].sort_values(["activities", "y"])
        assert response.activities.is_monotonic_increasing
        again = response.sort_values(["activities", "measured"])
        assert again[["activities", "measured"]].to_numpy().tolist() == own[["activities", "y"]].to_numpy().tolist()
    assert png_size(overview(run))[1] > png_size(overview(replace(run, doses={})))[1]


def test_only_runs_with_weakened_genes_have_the_panel() -> None:
    run = run_of(60, ["a", "b"], [""])
    assert "along what is left of a gene" in described(run)
    deleted = {part: doses.assign(activities=0) for part, doses in run.doses.items()}
    several = {part: doses.assign(genes="") for part, doses in run.doses.items()}
    for other in (replace(run, doses=deleted), replace(run, doses=several), RUNS["one phenotype, few strains"]):
        assert "along what is left" not in described(other)
