"""The machine's ceilings and a step's ideal time, by hand."""

from __future__ import annotations

import pytest

from benchmarks.timing import Ceilings, ideal_seconds, measure_ceilings
from dglcell.models.config import HeteroCellConfig

RELATION = ("gene", "physical", "gene")


def test_ideal_time_is_bytes_plus_flops() -> None:
    config = HeteroCellConfig(hidden=8, layers=2, conv="gin", gin_layers=2, gin_hidden=16)
    # Three strains and the wild type, 100 edges, 10 genes.
    gathered = 2 * 2 * 100 * 4 * 8 * 4
    convolutions = 2 * 10 * (8 * 16 + 16 * 8)
    pooling = 10 * (8 * 8 + 8 * 4)
    flops = 3 * 2 * 4 * (convolutions + pooling)
    found = ideal_seconds(config, {RELATION: 100}, {"gene": 10}, 3, "float32", Ceilings(1e3, 1e4))
    assert found == pytest.approx(gathered / 1e3 + flops / 1e4)
    half = ideal_seconds(config, {RELATION: 100}, {"gene": 10}, 3, "bfloat16", Ceilings(1e3, 1e30))
    assert half == pytest.approx(gathered / 2 / 1e3)


def test_sage_has_two_linear_layers_per_relation() -> None:
    config = HeteroCellConfig(hidden=8, layers=1, conv="sage")
    found = ideal_seconds(config, {RELATION: 100}, {"gene": 10}, 1, "float32", Ceilings(1e30, 1.0))
    assert found == pytest.approx(3 * 2 * 2 * (10 * 2 * 64 + 10 * (64 + 32)))


def test_ceilings_are_of_a_machine() -> None:
    rates = measure_ceilings("cpu", "float32", budget=0.05)
    assert 1e8 < rates.copy_bytes_per_second < 1e13
    assert 1e8 < rates.gemm_flops_per_second < 1e15
