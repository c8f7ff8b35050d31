"""Sets of genes: of the metabolic model, of reactions, and of tables that a configuration or the catalogue names."""

from __future__ import annotations

from pathlib import Path

import cobra
import pytest
from cobra.core import Group

from dglcell.graph.catalogue import NetworkConfig
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.config import CellConfig
from dglcell.graph.gene_sets import SETS_OF_GENOMES, gene_sets
from dglcell.graph.gene_space import SimilarityConfig, SimilaritySource
from dglcell.graph.metabolism import Metabolism


def kinds(cell: CellGraph, config: CellConfig, raw: str | None = None) -> dict[str, dict[str, tuple[str, ...]]]:
    """Kind → name → genes."""
    return {sets.kind: dict(sets.members) for sets in gene_sets(cell, config, raw)}


def small_model() -> cobra.Model:
    """Return two reactions: one says its subsystem itself, the other is in a group."""
    model = cobra.Model("small")
    a, b = (cobra.Metabolite(name, compartment="c") for name in ("a_c", "b_c"))
    first, second = cobra.Reaction("R1"), cobra.Reaction("R2")
    first.add_metabolites({a: -1, b: 1})
    second.add_metabolites({b: -1})
    model.add_reactions([first, second])
    first.gene_reaction_rule, second.gene_reaction_rule = "g1 and g2 and g3", "g4 or g1"
    first.subsystem = "S_Transport__Inner_Membrane"
    model.add_groups([Group("g", name="Breathing", members=[second])])
    return model


def test_subsystems_are_those_of_reactions_or_of_groups() -> None:
    found = Metabolism.from_model(small_model()).subsystems
    assert found == {"Transport, Inner Membrane": ("g1", "g2", "g3"), "Breathing": ("g1", "g4")}


def test_subsystems_and_complexes_are_kept_with_the_cell_graph(tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    cobra.io.save_json_model(small_model(), str(file))
    config = CellConfig(model=str(file))
    build_cell(config).save(tmp_path / "cell")
    found = kinds(CellGraph.load(tmp_path / "cell"), config)
    assert found["subsystem"]["Transport, Inner Membrane"] == ("g1", "g2", "g3")
    assert found["enzyme complex"] == {"R1#1": ("g1", "g2", "g3")}


def test_a_model_without_subsystems_has_genes_around_metabolites() -> None:
    config = CellConfig(model="textbook")
    found = kinds(build_cell(config), config)
    assert set(found) == {"enzyme complex", "genes around a metabolite"}
    assert found["enzyme complex"]["AKGDH#1"] == ("b0116", "b0726", "b0727")
    assert "b0116" in found["genes around a metabolite"]["akg_c"]
    assert not {"atp_c", "h2o_c", "nadh_c"} & set(found["genes around a metabolite"])


def test_tables_of_the_configuration_are_sets_and_lost_ones_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sets.csv"
    path.write_text("gene,set\nb0116,one\nb0726,one\nb0727,two\nnobody,two\n")
    table = NetworkConfig(path=str(path), columns=["gene", "set"], layout="groups", header=True, unknown="drop")
    similar = SimilarityConfig(sources={"pathways": SimilaritySource(sets=table)})
    config = CellConfig(model="textbook", genes="model", networks={"my_complexes": table}, similarity=similar)
    cell = build_cell(config)
    found = kinds(cell, config)
    assert found["my complexes"] == {"one": ("b0116", "b0726"), "two": ("b0727",)}
    assert found["pathways"] == found["my complexes"]
    path.unlink()
    with caplog.at_level("INFO", "dglcell"):
        assert "my complexes" not in kinds(cell, config)
    assert "no sets of genes from 'my_complexes': raw file" in caplog.text


def test_files_of_the_catalogue_are_used_where_they_are(raw: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    path.write_text("a,b\nYBL099W,YDR298C\n")  # two subunits of the ATP synthase
    config = CellConfig(networks={"net": NetworkConfig(path=str(path), columns=["a", "b"])})
    found = kinds(build_cell(config), config, str(raw))
    assert {name.replace("_", " ") for names in SETS_OF_GENOMES.values() for name in names} <= set(found)
    assert found["go slim sgd"]["mitochondrion"] == ("YBL099W", "YDR298C")


@pytest.mark.slow
def test_a_yeast_model_has_its_subsystems(raw: Path) -> None:
    config = CellConfig(model="iMM904")
    found = kinds(build_cell(config, str(raw)), config, str(raw))
    assert len(found["subsystem"]) > 40
    assert "Oxidative Phosphorylation" in found["subsystem"]
