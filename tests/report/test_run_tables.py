"""Tables of a finished run."""

from __future__ import annotations

import math

import pytest

from dglcell.errors import CheckpointError
from dglcell.report.run_files import read_run
from dglcell.report.run_tables import read_doses
from dglcell.runs.directory import RunDirectory

DOSES = "genes,names,strengths,medium,measured_y,predicted_y\n"


def test_doses_are_those_of_strains_that_change_a_single_gene(run: RunDirectory) -> None:
    assert read_doses(run, "test") is None  # of deletions
    table = DOSES + "b1,pgi,0.5,LB,1,1\nb1;b2,pgi;x,0.5;0,LB,1,1\n,,,M9,1,1\nb2,x,0,M9,,1\n"
    run.predictions("test").write_text(table)
    doses = read_doses(run, "test")
    assert doses is not None
    assert doses.genes.tolist() == ["pgi", "", "", "x"]
    assert doses.strengths.tolist() == pytest.approx([0.5, math.nan, math.nan, 0], nan_ok=True)
    assert doses.media.tolist() == ["LB", "LB", "M9", "M9"]
    assert not doses.learned
    lines = zip(table.splitlines(), ("learned_strengths", "0.25", "0.25;0", "", "0"), strict=True)
    run.predictions("test").write_text("\n".join(f"{line},{more}" for line, more in lines))
    doses = read_doses(run, "test")
    assert doses is not None
    assert doses.learned
    assert doses.strengths[0] == 0.25
    run.predictions("test").write_text(DOSES + "b1,pgi,half,LB,1,1\n")
    with pytest.raises(CheckpointError, match=r"predictions_test\.csv' is damaged"):
        read_doses(run, "test")


@pytest.mark.parametrize(
    "content",
    ["", "genes,measured_y,predicted_y\na,1\n", "genes,measured_y,predicted_y\na,1,x\n", "genes,measured_y\na,1\n"],
)
def test_damaged_predictions(run: RunDirectory, content: str) -> None:
    run.predictions("test").write_text(content)
    with pytest.raises(CheckpointError, match=r"predictions_test\.csv' is damaged"):
        read_run(run.path)
