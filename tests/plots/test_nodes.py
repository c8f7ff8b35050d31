"""Pictures of values of nodes: which values are shown, and that nothing overlaps or leaves the picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dglcell.plots import ReportData, run_panels
from dglcell.plots.data import NodeChanges
from dglcell.plots.nodes import node_panels
from tests.plots.invented import LONG, RUNS
from tests.plots.test_panels import texts_outside

pytestmark = pytest.mark.filterwarnings("error")


def changes_of(n: int) -> NodeChanges:
    """Changes of a few reactions, predicted with errors."""
    rng = np.random.default_rng(0)
    measured = 3 * rng.normal(size=n)
    return NodeChanges(rng.choice(["PFK", "PGI", LONG], n), measured, measured + rng.normal(size=n))


def test_each_name_with_values_that_change_has_a_panel() -> None:
    run = replace(RUNS["one phenotype, few strains"], node_changes={"flux": changes_of(50), "price": changes_of(2)})
    (panel,) = run_panels(run)["Values of nodes"]
    assert panel.key == "test-flux-changes"
    assert "50 values of 3 nodes" in panel.caption
    shown = np.array([row[1:] for row in panel.table.rows], dtype=float)
    np.testing.assert_array_equal(shown, np.column_stack([changes_of(50).predicted, changes_of(50).measured]))
    assert "Values of nodes" not in run_panels(RUNS["one phenotype, few strains"])


@pytest.mark.parametrize("n", [3, 200, 5000])
@pytest.mark.parametrize("name", ["flux", LONG])
def test_the_panel_is_drawn_within_its_picture(n: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (panel,) = node_panels(ReportData("demo", [], {}, node_changes={name: changes_of(n)}))
    assert texts_outside(panel, monkeypatch) == []


def test_constant_predictions_have_no_correlation_and_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    constant = replace(changes_of(20), predicted=np.zeros(20))
    (panel,) = node_panels(ReportData("demo", [], {}, node_changes={"flux": constant}))
    assert texts_outside(panel, monkeypatch) == []
