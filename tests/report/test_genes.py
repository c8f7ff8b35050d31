"""What the report says of strains: those that are missed most, by the names that people use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf

from dglcell.config.read import parse_config
from dglcell.graph.cell import read_cell
from dglcell.report.page import UNDEFINED, Grid, write_page
from dglcell.report.run_files import read_run
from dglcell.report.run_page import page_content, strain_names, strain_tables
from dglcell.runs.directory import RunDirectory
from dglcell.training.evaluate import own_names
from tests.html_page import Page


def tables(run: RunDirectory) -> dict[str, Grid]:
    """Title → table, of fitness."""
    return {table.title: table for table in strain_tables(read_run(run.path))["fitness"]}


def test_the_report_names_the_strains_that_are_missed_most(run: RunDirectory) -> None:
    page = Page(write_page("run.html", run.path / "page.html", **page_content(read_run(run.path), b"")))
    assert page.source.index('id="picture"') < page.source.index('id="strains"')
    of_test = read_run(run.path).predictions["test"]["fitness"]
    worst = tables(run)["Worst missed strains"].rows
    assert len(worst) == 10
    wanted = of_test.predicted[np.abs(of_test.predicted - of_test.measured).argmax()]
    assert float(worst[0][1].replace("\N{MINUS SIGN}", "-")) == pytest.approx(wanted, rel=1e-3)


def test_genes_have_the_names_that_people_use(run: RunDirectory) -> None:
    path = run.cell / "cell.json"
    content = json.loads(path.read_text())
    content["standard_names"] = {"b0116": "lpd"}
    path.write_text(json.dumps(content))
    rows = "b0116;b0726,LPD;b0726,1,1\nnobody,nobody,1,1\n,,1,1\nb0116,b0116,1,1\n"
    run.predictions("test").write_text(f"genes,names,measured_fitness,predicted_fitness\n{rows}")
    first, *others = strain_names(run)
    assert first.startswith("LPD (b0116), ")  # as in the user's table
    assert others == ["nobody", "none deleted", "lpd (b0116)"]


def test_names_of_the_users_table_are_known_while_it_is_there(run: RunDirectory, tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("a,b,growth\nSUCB,b0116,1\nsucB,,1\nb0726,nobody,1\n")
    source = {"name": "csv", "csv": {"path": str(table), "genes": ["a", "b"], "phenotypes": {"growth": "growth"}}}
    config = yaml.safe_load(run.config.read_text()) | {"data": {"source": source}}
    parsed, genes = parse_config(OmegaConf.create(config), where="tests"), read_cell(run.cell).genes
    assert own_names(parsed, genes)["b0727"] == "SUCB"
    table.unlink()
    assert not own_names(parsed, genes)


def test_a_run_without_its_cell_graph_or_with_a_damaged_one_has_systematic_names(
    run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    (run.cell / "cell.json").write_text("{")
    assert tables(run)["Worst missed strains"].rows
    assert "the report has systematic names of genes alone: cell graph" in caplog.text
    shutil.rmtree(run.cell)
    assert tables(run)["Worst missed strains"].rows


def test_a_strain_that_was_not_measured_is_shown_and_not_missed(run: RunDirectory) -> None:
    for part in ("test", "validation"):
        run.predictions(part).write_text("genes,measured_fitness,predicted_fitness\nb0116,1,0.9\nb0726,,0.8\n")
    found = tables(run)
    assert [row[2] for row in found["Strongest predicted strains"].rows] == [UNDEFINED, "1"]
    assert len(found["Worst missed strains"].rows) == 1
