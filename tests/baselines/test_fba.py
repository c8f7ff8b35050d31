"""What flux balance analysis says, as a baseline."""

from __future__ import annotations

import numpy as np
import pytest

from dglcell.baselines.curves import AsComputed
from dglcell.baselines.fit import families_of, fit_null_models, left_out_null_models
from dglcell.data.columns import COMPUTED, CONDITION, Column, Provenance
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from tests.baselines.invented import problem_of, strains_of


def with_growth(strains: Strains, growth: np.ndarray) -> Strains:
    provenance = Provenance("csv", parameters={COMPUTED: {"fba_growth": {"simulator": "FbaGrowth"}}})
    columns = {**strains.columns, Column(CONDITION, "fba_growth"): growth.astype(np.float32)}
    return strains.with_(columns=columns, provenance=provenance)


def test_a_curve_that_never_falls() -> None:
    rng = np.random.default_rng(0)
    growth = rng.uniform(0, 1, 80)
    y = np.where(growth > 0.5, 1.0, 0.2) + rng.normal(0, 0.02, 80)
    strains = with_growth(strains_of([[gene] for gene in range(80)], 80), growth)
    models = fit_null_models(problem_of(strains, y))
    raw, curve = models["FBA"], models["FBA, rising curve"]
    np.testing.assert_allclose(raw.predict(strains), growth, atol=1e-6)
    predicted = curve.predict(strains)[np.argsort(growth)]
    assert (np.diff(predicted) >= 0).all()
    assert np.abs(predicted - y[np.argsort(growth)]).mean() < 0.05
    beyond = curve.predict(with_growth(strains, growth * 100))
    assert beyond.max() == predicted.max()


def test_it_is_there_where_the_column_is() -> None:
    strains = strains_of([[gene] for gene in range(20)], 20)
    problem = problem_of(strains, np.arange(20.0))
    assert "FBA" not in families_of(problem)
    simulated = problem_of(with_growth(strains, np.arange(20.0)), np.arange(20.0))
    assert {"FBA", "FBA, rising curve"} <= families_of(simulated).keys()
    own = strains.with_(provenance=Provenance("csv", parameters={COMPUTED: {"cost": {"simulator": "Cost"}}}))
    own = own.with_(columns={Column(CONDITION, "cost"): np.ones(20, np.float32)})
    assert "needs the growth" in left_out_null_models(problem_of(own, np.arange(20.0)))["FBA"]


def test_strains_without_the_column_are_refused() -> None:
    with pytest.raises(DataError, match="FBA: the strains have no column 'fba_growth'"):
        AsComputed("fba_growth").predict(strains_of([[0]], 1))
