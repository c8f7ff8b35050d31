"""What the benchmark of titrated CRISPRi compares models with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.crispri_taught import GRID, LENGTH, FluxBalance, growth_of_genes, mismatches, student, summary, teacher
from dglcell.data.strains import Strains
from dglcell.nn.null_share import GROWTH


def guides(genes: list[list[str]], numbers: list[int], growth: list[float]) -> Strains:
    """Strains whose guides have so many mismatches."""
    places = {f"mismatch_{LENGTH - i}": [float(i < number) for number in numbers] for i in range(LENGTH)}
    return Strains.from_names(genes, phenotypes={"growth": growth}, conditions={**places, "site": ["x"] * len(genes)})


CURVES = {"a": GRID, "b": np.minimum(1, 2 * GRID), "c": GRID**2}


def test_what_mismatches_leave_of_a_gene_follows_from_training_genes() -> None:
    train = guides([["a"], ["b"], ["a"], []], [0, 0, 5, 0], [0.25, 0.5, 0.75, 1.0])
    assert mismatches(train).tolist() == [0, 0, 5, 0]
    balance = FluxBalance(CURVES, train, train.phenotypes["growth"])
    new = guides([["c"], ["c"], []], [0, 5, 5], [0, 0, 0])
    assert balance.predict(new) == pytest.approx([0.25**2, 0.75**2, 1.0])
    seen = balance.seen_by(new)
    assert seen.of_kind("condition")[GROWTH] == pytest.approx([0.25**2, 0.75**2, 1.0])


def test_growth_between_computed_strengths_is_interpolated() -> None:
    screen = Strains.from_names([{"a": 0.5}, ["a"], ["b"], {"b": 0.5}], phenotypes={"fitness": [0.8, 0.2, 1.0, 1.0]})
    growth = growth_of_genes(screen)
    assert growth["a"][[0, 25, 50, 75, 100]] == pytest.approx([0.2, 0.5, 0.8, 0.9, 1.0])
    assert growth["b"] == pytest.approx(np.ones(len(GRID)))


def test_a_student_has_the_cell_of_its_teacher_and_does_not_see_places() -> None:
    taught_by, taught = teacher([]), student([], 3, "runs/teacher")
    assert taught.cell == taught_by.cell
    assert taught_by.loss.phenotypes == 0
    assert taught_by.data.source.insilico.strengths[0] == 0
    assert taught.model.conditions == {f"mismatch_{place}": [] for place in range(LENGTH, 0, -1)}
    assert (taught.split.kind, taught.split.seed, taught.seed) == ("gene_disjoint", 3, 3)
    assert student([], 3).start_from is None


def test_leads_of_the_taught_model_leave_out_what_does_not_vary() -> None:
    draws: list[dict[str, Any]] = [
        {"scores": {"taught by fluxes": {"pearson": r}, "other": {"pearson": 0.1}, "training mean": {"pearson": None}}}
        for r in (0.4, 0.2)
    ]
    found = summary(draws)
    assert found.keys() == {"taught by fluxes", "other"}
    assert found["other"]["taught_ahead"][0] == pytest.approx(0.2)
