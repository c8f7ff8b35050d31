"""What the report says of strains and genes: planted findings are found, chance is not, and names are people's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import false_discovery_control, fisher_exact

from dglcell.graph.gene_sets import GeneSets
from dglcell.report.genes import GenesOfRun, GeneTable, enrichments, first_genes, gene_effects, genes_tables
from dglcell.report.page import UNDEFINED, write_page
from dglcell.report.run_files import read_run
from dglcell.report.run_page import page_content
from dglcell.runs.directory import RunDirectory
from tests.report.pages import Page

GENES = [f"g{i:03}" for i in range(100)]


def tables(run: RunDirectory) -> dict[str, GeneTable]:
    """Title → table, of fitness."""
    return {table.title: table for table in genes_tables(read_run(run.path))["fitness"]}


def rows(table: GeneTable) -> list[list[str]]:
    """Of a table that has some."""
    assert table.grid is not None
    return table.grid.rows


def test_effects_are_those_of_the_genes() -> None:
    generator = np.random.default_rng(0)
    truth = dict(zip(GENES, generator.standard_normal(100), strict=True))
    strains = [tuple(generator.choice(GENES, 2, replace=False)) for _ in range(4000)]
    measured = np.array([1 + truth[a] + truth[b] for a, b in strains])
    measured[::7] = np.nan
    found = gene_effects(strains, 0.5 * measured + np.isnan(measured), measured)
    expected = np.array([truth[gene] for gene in found.genes])
    centred = found.measured - found.measured.mean() - (expected - expected.mean())
    assert np.abs(centred).max() < 0.1
    np.testing.assert_allclose(2 * found.predicted[np.isfinite(found.predicted)], found.measured, atol=0.1)
    counted = sum(not np.isnan(value) and GENES[0] in strain for strain, value in zip(strains, measured, strict=True))
    assert found.strains[0] == counted


def test_a_gene_that_is_missed_stands_out_and_one_strain_alone_does_not() -> None:
    strains = [*[("often", other) for other in GENES], *[("calm", other) for other in GENES], ("once", "calm")]
    measured = np.zeros(201)
    predicted = np.array([*[1.0] * 100, *[0.0] * 100, 1.2])
    found = gene_effects(strains, predicted, measured)
    assert found.genes[int(found.error.argmax())] == "often"


def test_chances_are_those_of_fishers_test_corrected_over_all_sets() -> None:
    chosen = GENES[:10]
    sets = GeneSets("sort", {"half in": (*GENES[:4], *GENES[50:54]), "out": (*GENES[60:70],), "few": (*GENES[8:13],)})
    found = {one.name: one for one in enrichments([sets], chosen, GENES)}
    expected = {}
    for name, genes in sets.members.items():
        inside = len(set(genes) & set(chosen))
        table = [[inside, 10 - inside], [len(genes) - inside, 90 - len(genes) + inside]]
        expected[name] = fisher_exact(table, alternative="greater").pvalue
        assert found[name].p == pytest.approx(expected[name])
    q = dict(zip(expected, false_discovery_control([*expected.values()]), strict=True))
    assert {name: one.q for name, one in found.items()} == pytest.approx(q)
    assert found["half in"].inside == tuple(GENES[:4])
    assert found["half in"].expected == pytest.approx(0.8)


def test_sets_that_are_too_small_too_large_or_the_same_are_not_tested_again() -> None:
    sets = GeneSets("a", {"two": (*GENES[:2],), "most": (*GENES[:60],), "one": (*GENES[:5],)})
    again = GeneSets("b", {"same": (*GENES[:5], "unknown")})
    assert [(one.name, one.kind) for one in enrichments([sets, again], GENES[:10], GENES)] == [("one", "a")]
    assert enrichments([], GENES[:10], GENES) == []


def test_genes_that_are_as_good_as_the_next_are_not_chosen_by_their_names() -> None:
    values = np.array([1.0, 3.0, *[2.0] * 98])
    assert first_genes(values).tolist() == [1]
    assert first_genes(np.arange(100.0)).tolist() == [*range(99, 89, -1)]
    assert first_genes(np.zeros(100)).tolist() == []
    assert len(first_genes(np.arange(1000.0))) == 50
    assert len(first_genes(np.arange(20.0))) == 5


def test_chance_finds_as_few_sets_as_the_correction_says() -> None:
    generator, found = np.random.default_rng(0), 0
    sets = GeneSets("s", {f"s{i}": tuple(generator.choice(GENES, 8, replace=False)) for i in range(40)})
    for _ in range(200):
        chosen = generator.choice(GENES, 10, replace=False).tolist()
        found += enrichments([sets], chosen, GENES)[0].q <= 0.1
    assert found / 200 <= 0.13


def test_the_report_names_strains_and_genes_before_the_figures(run: RunDirectory) -> None:
    files = read_run(run.path)
    content = page_content(files, files.report_data(), lambda panel: b"")
    page = Page(write_page("run.html", run.path / "page.html", **content))
    assert page.source.index('id="results"') < page.source.index('id="genes"') < page.source.index('id="section-1"')
    found = tables(run)
    predictions = read_run(run.path).predictions["test"]["fitness"]
    error = np.abs(predictions.predicted - predictions.measured)
    worst = rows(found["Worst missed strains"])
    assert len(worst) == 10
    assert float(worst[0][1].replace("\N{MINUS SIGN}", "-")) == pytest.approx(
        predictions.predicted[error.argmax()], rel=1e-3
    )
    assert len(rows(found["Genes with the largest effects"])) == 10
    assert "set" in found["Sets among the genes with the largest effects"].note


def test_genes_have_the_names_that_people_use(run: RunDirectory) -> None:
    path = run.cell / "cell.json"
    content = json.loads(path.read_text())
    content["standard_names"] = {"b0116": "lpd"}
    path.write_text(json.dumps(content))
    about = GenesOfRun.read(run, ["test"])
    assert about.strain(("b0116", "b0726")).startswith("lpd (b0116), ")
    assert about.shown("nobody") == "nobody"


def test_names_are_those_of_the_users_table(run: RunDirectory, tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("a,b,growth\nSUCB,b0116,1\nsucB,,1\nb0726,nobody,1\n")
    source = {"name": "csv", "csv": {"path": str(table), "genes": ["a", "b"], "phenotypes": {"growth": "growth"}}}
    config = yaml.safe_load(run.config.read_text())
    config["data"]["source"] = source
    run.config.write_text(yaml.safe_dump(config))
    about = GenesOfRun.read(run, ["test"])
    assert about.strain(("b0727", "b0726", "b0116")) == "SUCB (b0727), sucA (b0726), lpd (b0116)"
    table.unlink()
    assert GenesOfRun.read(run, ["test"]).shown("b0727") == "sucB (b0727)"


def test_planted_sets_are_found(run: RunDirectory) -> None:
    complexes = next(sets for sets in GenesOfRun.read(run, []).sets if sets.kind == "enzyme complex").members
    planted, genes = complexes["ATPS4r#1"], GenesOfRun.read(run, []).genes.names
    for part in ("test", "validation"):
        strains = [*planted, *(gene for gene in genes if gene not in planted)]
        lines = [f"{gene},{-float(gene in planted)},{-float(gene in planted)}" for gene in strains]
        run.predictions(part).write_text("genes,measured_fitness,predicted_fitness\n" + "\n".join(lines) + "\n")
    run.embedding.unlink(missing_ok=True)
    found = tables(run)
    first = rows(found["Sets among the genes with the largest effects"])[0]
    assert first[0] == "ATPS4r#1"
    assert first[1] == f"{len(planted)} of {len(planted)}"
    assert float(first[3]) < 1e-6
    assert "No gene stands out" in found["Sets among the genes that are missed"].note
    strongest = rows(found["Strongest predicted strains"])[: len(planted)]
    assert {name.rpartition("(")[2].rstrip(")") for name, *_ in strongest} == set(planted)


def test_a_run_without_its_cell_graph_or_with_a_damaged_one_has_no_sets(
    run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    (run.cell / "cell.json").write_text("{")
    assert "names sets" in tables(run)["Sets among the genes with the largest effects"].note
    assert "the report names no sets of genes: cell graph" in caplog.text
    shutil.rmtree(run.cell)
    assert rows(tables(run)["Genes with the largest effects"])


def test_few_genes_are_not_compared(run: RunDirectory) -> None:
    for part in ("test", "validation"):
        run.predictions(part).write_text("genes,measured_fitness,predicted_fitness\nb0116,1,0.9\nb0726,,0.8\n")
    run.embedding.unlink(missing_ok=True)
    found = tables(run)
    assert found["Sets among the genes that are missed"].note == "Too few genes to compare sets: 1, and it takes 20."
    assert [row[2] for row in rows(found["Strongest predicted strains"])] == [UNDEFINED, "1"]
