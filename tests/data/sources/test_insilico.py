"""The in-silico screen against plain cobra."""

from __future__ import annotations

import numpy as np
import pytest
from cobra.io import load_model

from dglcell.data.sources.insilico import load_insilico
from dglcell.data.sources.insilico_config import InSilicoConfig
from dglcell.data.table import StrainTable


@pytest.fixture(scope="module")
def full() -> StrainTable:
    return load_insilico(InSilicoConfig(processes=1))


def strain(table: StrainTable, s: int) -> tuple[str, ...]:
    return tuple(table.names[g] for g in table.genes[table.offsets[s] : table.offsets[s + 1]])


def test_full_textbook_screen_has_every_strain_once(full: StrainTable) -> None:
    assert np.bincount(full.num_deletions).tolist() == [0, 137, 9_316, 419_220]
    assert len({frozenset(strain(full, s)) for s in range(len(full))}) == len(full)


def test_fitness_equals_plain_cobra(full: StrainTable) -> None:
    model = load_model("textbook")
    model.tolerance = 1e-9
    wild = model.slim_optimize()
    rng = np.random.default_rng(1)
    fitness = full.phenotypes["fitness"]
    # Half of the sample where deletions hurt without killing, since most strains are like the wild type.
    hurt = np.flatnonzero((fitness > 0) & (fitness < 1))
    sample = [*range(137), *rng.choice(len(full), 150), *rng.choice(hurt, 150)]
    for s in sample:
        with model:
            for gene in strain(full, s):
                model.genes.get_by_id(gene).knock_out()
            expected = model.slim_optimize(error_value=0.0) / wild
        assert fitness[s] == pytest.approx(expected, abs=1e-7), strain(full, s)
