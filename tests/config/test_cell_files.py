"""Every file of conf/cells builds a cell graph from files in the real formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.config.read import load_config
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import METABOLIC_RELATIONS, gene_relation
from tests.raw_files import GENES, STRING_CHANNELS, pairs, tiny_overrides, write_raw_folder

CELLS = Path(__file__).resolve().parents[2] / "conf" / "cells"
ALL = sorted(path.stem for path in CELLS.glob("*.yaml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_raw_folder(tmp_path_factory.mktemp("raw"))


def tiny_cell(name: str, folder: Path, *more: str) -> CellGraph:
    path = CELLS / f"{name}.yaml"
    config = load_config(path, [*tiny_overrides(folder, load_config(path).cell), *more])
    return build_cell(config.cell, config.paths.raw)


@pytest.mark.parametrize("name", ALL)
def test_it_builds(name: str, folder: Path) -> None:
    cell = tiny_cell(name, folder)
    assert cell.genes.names == tuple(sorted(GENES))


def test_kuzmin_has_the_relations_of_experiment_006(folder: Path) -> None:
    cell = tiny_cell("kuzmin", folder)
    channels = {f"string12_0_{channel}" for channel in STRING_CHANNELS}
    assert {relation[1] for relation in cell.relations if relation not in METABOLIC_RELATIONS} == {
        "physical", "regulatory", "tflink", *channels,
    }  # fmt: skip
    assert set(METABOLIC_RELATIONS) <= set(cell.relations)
    for name, pairs_of in (("physical", 2 * len(pairs(GENES))), ("regulatory", len(pairs(GENES)))):
        assert len(cell.edges(gene_relation(name))) == pairs_of + len(GENES), "a self-loop for every gene"


def test_pairs_are_stored_once_where_asked_for(folder: Path) -> None:
    cell = tiny_cell("kuzmin", folder, "cell.symmetrise=false", "cell.self_loops=false")
    edges = [len(cell.edges(gene_relation(name))) for name in ("physical", "regulatory")]
    assert edges == [len(pairs(GENES))] * 2


@pytest.mark.parametrize("version", ["9_1", "11_0", "11_5", "12_0"])
def test_dango_has_six_channels_and_no_metabolism(version: str, folder: Path) -> None:
    cell = tiny_cell(f"dango_string{version}", folder)
    assert list(cell.num_nodes) == ["gene"]
    assert {relation[1] for relation in cell.relations} == {f"string{version}_{channel}" for channel in STRING_CHANNELS}
