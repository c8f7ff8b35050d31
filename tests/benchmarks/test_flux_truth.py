"""Which fluxes change in strains of E. coli core, and which deletions are responsible."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cobra.flux_analysis import flux_variability_analysis
from cobra.io import load_model

from benchmarks.flux_truth import (
    PARSIMONIOUS,
    RANGES,
    Fluxes,
    Truth,
    changes,
    fluxes_of,
    responsible,
    subsets,
    truth_of,
)


def test_the_smallest_subsets_that_take_the_growth_are_responsible() -> None:
    assert subsets(2) == [(), (0,), (1,), (0, 1)]
    assert responsible(np.array([1.0, 1.0, 0.5, 0.5])) == {(1,)}
    assert responsible(np.array([1.0, 0.0, 0.0, 0.0])) == {(0,), (1,)}
    assert responsible(np.array([1.0, 1.0, 1.0, 0.0])) == {(0, 1)}
    triple = [1.0, 1.0, 1.0, 1.0, 0.2, 1.0, 1.0, 0.2]
    assert responsible(np.array(triple)) == {(0, 1)}


def test_truth_of_strains_whose_reasons_are_known(tmp_path: Path) -> None:
    model = load_model("textbook")
    found = truth_of(model, ["b2029", "b0723"], ["b0008;b2464;b2029"])  # gnd; sdhA; both transaldolases, and gnd
    found.save(tmp_path / "truth.npz")
    again = Truth.read(tmp_path / "truth.npz")
    for one, other in zip(found[:1] + found[3:4], again[:1] + again[3:4], strict=True):
        assert one == other
    np.testing.assert_array_equal(found.kept, again.kept)
    reactions = [reaction.id for reaction in model.reactions]
    assert not found.kept[0][reactions.index("GND")]
    assert again.changed[RANGES][0][reactions.index("THD2")]
    assert again.changed[PARSIMONIOUS][0][reactions.index("THD2")]
    assert again.growth.shape == (1, 8)
    assert again.growth[0, 0] == pytest.approx(1)
    before = fluxes_of(model)
    assert not any(values.any() for values in changes(before, before).values())


def test_ranges_are_computed_where_they_decide() -> None:
    model, strains = load_model("textbook"), ["b2029", "b0723", "b0008;b2464", "b0116;b1723"]
    found = truth_of(model, strains, ["b0008;b2464;b2029"]).changed

    def whole() -> Fluxes:
        ranges = flux_variability_analysis(model, fraction_of_optimum=1.0, processes=1)
        return fluxes_of(model)._replace(low=ranges["minimum"].to_numpy(), high=ranges["maximum"].to_numpy())

    before = whole()
    for number, strain in enumerate(strains):
        with model:
            for gene in strain.split(";"):
                model.genes.get_by_id(gene).knock_out()
            expected = changes(before, whole())
        for definition, changed in expected.items():
            np.testing.assert_array_equal(found[definition][number], changed)
    assert found[RANGES].any(1).all()
