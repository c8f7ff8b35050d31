"""What the report says of strains: those that are missed most, by the names that people use."""

from __future__ import annotations

import numpy as np
import pytest

from dglcell.report.page import UNDEFINED, Grid, write_page
from dglcell.report.run_files import read_run
from dglcell.report.run_page import page_content, strain_names, strain_tables
from dglcell.runs import RunDirectory
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
    rows = "b0116;b0726,lpd;b0726,1,1\nnobody,nobody,1,1\n,,1,1\n"
    run.predictions("test").write_text(f"genes,names,measured_fitness,predicted_fitness\n{rows}")
    assert strain_names(run) == ["lpd (b0116), b0726", "nobody", "none deleted"]
    run.predictions("test").write_text("genes,measured_fitness,predicted_fitness\nb0116;b0726,1,1\n")  # earlier runs
    assert strain_names(run) == ["b0116, b0726"]


def test_a_strain_that_was_not_measured_is_shown_and_not_missed(run: RunDirectory) -> None:
    for part in ("test", "validation"):
        run.predictions(part).write_text("genes,measured_fitness,predicted_fitness\nb0116,1,0.9\nb0726,,0.8\n")
    found = tables(run)
    assert [row[2] for row in found["Strongest predicted strains"].rows] == [UNDEFINED, "1"]
    assert len(found["Worst missed strains"].rows) == 1
