"""What a new guide lacks is measured without the guide itself."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")

from benchmarks.new_guides import PENALTIES, Guides, one_base_apart, ridge, variances

SITES = {"acpS 1 63": "CACGGTCCGC", "acpS 2 80": "TTGACCATGA", "folA 1 12": "GGATCCAATC"}


@pytest.fixture(scope="module")
def guides() -> Guides:
    rows = []
    for site, sequence in SITES.items():
        gene, series, location = site.split()
        for place in [None, *range(10)]:
            changed = sequence if place is None else f"{sequence[:place]}{'ACGT'['TGCA'.index(sequence[place])]}"
            whole = changed if place is None else changed + sequence[place + 1 :]
            growth = 0.5 + 0.04 * (place or 0) + 0.1 * (gene == "folA")
            rows.append((gene, gene, series, location, whole, growth, growth / 2))
    names = ["gene", "b_number", "series", "pam_location", "sequence", "growth_glucose", "growth_glycerol"]
    return Guides(pd.DataFrame(rows, columns=names))


def test_mismatches_are_found(guides: Guides) -> None:
    assert guides.differs.sum(1).tolist() == [0, *[1] * 10] * 3
    assert guides.site.max() == 2
    assert guides.gene.max() == 1


def test_a_fitted_guide_is_predicted_without_itself(guides: Guides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.new_guides.PENALTIES", PENALTIES[2:3])
    kernel, train = guides.kernel(), np.arange(20)
    growth = guides.growth - guides.growth[train].mean()  # so that a mean is not fitted anew
    predicted = ridge(kernel, growth, train, np.arange(20, 33))
    others = np.delete(train, 7)
    weights = np.linalg.solve(kernel[np.ix_(others, others)] + PENALTIES[2] * np.eye(19), growth[others])
    assert predicted[7] == pytest.approx(kernel[7, others] @ weights, abs=1e-10)


def test_trees_do_not_see_the_growth_of_the_guide_itself(guides: Guides) -> None:
    train, nothing = np.arange(25), np.zeros(33)
    before = guides.features(train, nothing)
    growth = guides.growth.copy()
    guides.growth[3] += 10
    try:
        after = guides.features(train, nothing)
    finally:
        guides.growth[:] = growth
    np.testing.assert_array_equal(before[3], after[3])
    assert not np.array_equal(before[4], after[4], equal_nan=True)


def test_shares_of_the_variance(guides: Guides) -> None:
    shares = variances(guides.growth, guides.gene, guides.site)
    assert sum(shares.values()) == pytest.approx(1, abs=2e-3)
    from_the_matching_one = np.tile(0.04 * np.arange(10), 3)
    assert one_base_apart(guides) == pytest.approx(np.square(from_the_matching_one).mean() / 2 / guides.growth.var())
