"""What the benchmark of titrated CRISPRi compares the model with."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")

from benchmarks.crispri import (
    Activity,
    by_need,
    features,
    gene_of,
    guide_keys,
    needs,
    noise_ceilings,
    with_few,
    with_means,
)
from dglcell.config.read import load_config
from dglcell.data.columns import SD, Column
from dglcell.data.strains import Strains


def strains() -> Strains:
    found = Strains.from_names(
        [["a"], ["a"], [], ["b"]],
        phenotypes={"growth": [0.2, 0.4, 1.0, 0.8]},
        conditions={"medium": ["x", "x", "x", "x"], "mismatch_2": [0, 1, 0, 0], "mismatch_1": [0, 0, 0, 1]},
    )
    return found.with_(columns={**found.columns, Column(SD, "growth"): np.full(4, 0.1, dtype=np.float32)})


def test_activity_is_a_product_over_mismatches() -> None:
    pairs = [("AC", "AC", 1.0), ("TC", "AC", 0.9), ("AG", "AC", 0.1), ("TG", "AC", 0.09)]
    activity = Activity(pd.DataFrame([*pairs] * 1000, columns=["variant", "original", "relgfp"]))
    assert activity(strains()) == pytest.approx([1, 0.9, 0, 0.1], abs=0.005)


def test_trees_see_guides_and_deletions() -> None:
    found = features(strains(), np.array([1, 0.9, 0, 0.1]), pd.DataFrame({"lb": [0.7, 0.8]}, index=["a", "c"]))
    assert found[:, 2:].tolist() == [[0, 1, 0, 0.7], [1, 0.9, 0, 0.7], [0, 0, 1, -1], [1, 0.1, 1, -1]]


def test_genes_are_moved_to_their_means() -> None:
    genes = gene_of(strains())
    assert genes.tolist() == [0, 0, -1, 1]
    moved = with_means(np.array([0.0, 1.0, 5.0, 5.0]), np.array([3.0, 4.0, 1.0, 2.0]), genes)
    assert moved.tolist() == [3.0, 4.0, 1.0, 2.0]


def test_a_few_measurements_move_a_whole_gene() -> None:
    genes = np.repeat([0, 1, 2], 4)
    predicted = np.tile([0.0, 0.1, 0.2, 0.3], 3)
    assert with_few(predicted, predicted + genes, genes, 1) == pytest.approx(1)
    assert np.corrcoef(predicted, predicted + genes)[0, 1] < 0.5


def test_what_errors_of_measurement_leave() -> None:
    found = noise_ceilings(strains().take(np.array([0, 2, 3])))
    assert found["x"] == pytest.approx(np.sqrt(1 - 0.01 / np.var([0.2, 1.0, 0.8])), abs=1e-4)


def test_a_guide_is_the_same_in_every_medium() -> None:
    both = strains().take(np.array([0, 0]))
    assert guide_keys(both)[0] == guide_keys(both)[1] == (0, 0, 0)
    assert len({*guide_keys(strains())}) == 4


def test_a_gene_that_is_needed_less_matters_less() -> None:
    growth = np.array([0.5, 0.5, 0.5, 0.5])
    found = by_need(growth, ["less", "more", "never", ""], {"less": 2, "more": 1, "never": 0}, {"less": 1, "more": 3})
    assert found.tolist() == [0.75, 0.5, 0.5, 0.5]


def test_glycolysis_is_needed_on_sugars_alone() -> None:
    config = load_config("conf/110-mathis2020-crispri/new_medium.yaml", ["cell.model=textbook", "cell.more_genes=null"])
    config.cell.media = {"glucose": {}, "acetate": {"EX_glc__D_e": 0, "EX_ac_e": 10}}
    found = needs(config)
    assert found["glucose"]["b3916"] > 1  # pfkA
    assert found["acetate"]["b3916"] == pytest.approx(0, abs=1e-6)
    assert found["acetate"]["b4015"] > 1  # aceA
