from __future__ import annotations

import numpy as np
import pytest

from dglcell.data.report import table_stats
from tests.data.strain_tables import random_table, table_of


def test_counts_of_a_small_table() -> None:
    stats = table_stats(table_of([["A", "B"], ["B", "A"], ["B"], ["C", "A", "B"]], fitness=[1, 2, 3, np.nan]))
    assert stats.strains == 4
    assert stats.by_deletions == {1: 1, 2: 2, 3: 1}
    assert stats.distinct_gene_sets == 3
    assert (stats.genes, stats.names) == (3, 3)
    assert stats.frequent_genes == (("B", 4), ("A", 3), ("C", 1))
    (label,) = stats.labels
    assert (label.name, label.unit, label.measured, label.missing) == ("fitness", "1", 3, 1)
    assert (label.mean, label.sd) == (2.0, pytest.approx(np.sqrt(2 / 3)))
    assert label.quantiles == (1.0, 1.5, 2.0, 2.5, 3.0)
    assert sum(label.histogram) == 3


def test_columns_of_p_values_and_sds_are_counted() -> None:
    table = random_table(100, 10, columns=True)
    table.p_values["s_score"][:30] = np.nan
    fitness, score = table_stats(table).labels
    assert (fitness.p_values, fitness.sds) == (0, 100)
    assert (score.p_values, score.sds) == (70, 0)
    assert (fitness.replicated, fitness.most_replicates) == (int((table.replicates["fitness"] > 1).sum()), 3)
    assert (score.replicated, score.most_replicates) == (0, 0)


def test_large_offsets_do_not_swallow_the_spread() -> None:
    values = [1e6 + i % 2 * 0.0625 for i in range(10_000)]
    (label,) = table_stats(table_of([["A"]] * 10_000, fitness=values)).labels
    assert label.mean == pytest.approx(1_000_000.03125, rel=1e-12)
    assert label.sd == pytest.approx(0.03125)


@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [np.nan, np.nan, 2.0]])
def test_equal_labels_have_a_histogram(values: list[float]) -> None:
    (label,) = table_stats(table_of([["A"], ["B"], ["C"]], fitness=values)).labels
    assert sum(label.histogram) == label.measured
    assert label.sd == 0


def test_a_phenotype_without_a_measurement() -> None:
    (label,) = table_stats(table_of([["A"], ["B"]], fitness=[np.nan, np.nan])).labels
    assert (label.measured, label.missing) == (0, 2)
    assert np.isnan([label.mean, label.sd, *label.quantiles]).all()
