"""A trained model of E. coli core, and its explanations of some strains, which tests share."""

from __future__ import annotations

import pytest

import dglcell
from dglcell.api import Predictor
from dglcell.explanations.tables import Explanations

GENES = [["b0720"], ["b0008", "b2464"], ["b2029"], ["b0008"]]


@pytest.fixture(scope="session")
def core() -> Predictor:
    """Return a model that reads reactions, with rounds of flux balance."""
    return dglcell.load("ecoli-core")


@pytest.fixture(scope="session")
def of_core(core: Predictor) -> Explanations:
    """Return its explanations of ``GENES``."""
    return core.explain(GENES)
