"""A suite whose runs are trained, stopped, wrong, and finished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dglcell.cli import main
from tests.config_files import write
from tests.tiny import Tiny

MODEL = '''
from dataclasses import dataclass

import torch
from torch import nn

from dglcell.models.config import ModelConfig
from dglcell.models.model import Prediction, StrainModel


class Additive(StrainModel):
    """The effects of the deleted genes, added up."""

    @dataclass
    class Config(ModelConfig):
        scale: float = 0.1

        def needs_relations(self):
            return False

    def __init__(self, cell, config, outputs, features=None):
        super().__init__()
        self.cell, self.config = cell, config
        self.effects = nn.Parameter(config.scale * torch.randn(cell.num_nodes["gene"], outputs))

    def forward(self, genotypes):
        genes_BK, present_BK = genotypes.padded()
        return Prediction((self.effects[genes_BK] * present_BK.unsqueeze(-1)).sum(1))
'''

SUITE = """\
experiments: [{file}]
models:
  additive: {{model: {{name: "suite_model:Additive"}}}}
  broken: {{split: {{subset: {{size: 7}}}}}}
seeds: [3]
"""


def test_a_model_of_ones_own_gets_a_row_and_a_broken_one_stops_nothing(
    tiny: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "suite_model.py", MODEL)
    file = write(tmp_path, "mine.yaml", SUITE.format(file=tiny.file))
    command = ["benchmark", str(file), f"data.store={tiny.store}", "trainer.epochs=1"]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == ["runs/tiny/additive/seed-3", "runs/tiny/broken/seed-3"]
    assert main(command) == 2
    told = capsys.readouterr()
    assert "1 run of the suite failed" in told.err
    assert "runs/tiny/broken/seed-3" in told.err
    table = (tmp_path / "runs/suites/mine.md").read_text()
    assert table in told.out
    assert "## Controls" in table
    (controls,) = json.loads((tmp_path / "runs/suites/mine.json").read_text())["controls"]
    assert controls["experiment"] == "tiny/additive"
    assert controls["over_strains"][0] < controls["score"] - controls["null_score"] < controls["over_strains"][1]
    trained, missing = json.loads((tmp_path / "runs/suites/mine.json").read_text())["rows"]
    assert trained["model"] == "additive (suite_model:Additive)"
    assert trained["seeds"] == [3]
    assert trained["null"]
    assert missing["why"] == "no results"
    # What is finished is not trained again, and the table is the same.
    assert main([*command, "--only", "additive"]) == 0
    assert "runs/tiny/additive/seed-3 is finished" in capsys.readouterr().out
    assert main([*command, "--table"]) == 0
    assert (tmp_path / "runs/suites/mine.md").read_text() == table
    # A run with other settings does not count.
    assert main([*command, "--table", "optimizer.lr=0.1", "--only", "additive"]) == 0
    assert "has another configuration" in caplog.text
    assert "no results" in (tmp_path / "runs/suites/mine.md").read_text()


def test_a_pipeline_has_builds_arrays_and_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    models = "models: {shipped: {}, short: {trainer.epochs: 1}}"
    text = f"experiments: [quickstart, 106-ecoli-core/random]\n{models}\nseeds: [0, 2]\n"
    file = write(tmp_path, "two.yaml", text)
    assert main(["benchmark", str(file), "--submit", "--dry-run", "trainer.threads=1"]) == 0
    out = capsys.readouterr().out
    # Both experiments read one store.
    assert out.count(" dglcell data build ") == 1
    assert out.count("#SBATCH --array=0-1") == 4
    assert "member=(experiment.name" not in out
    assert "experiment.name=quickstart/short" in out
    assert out.count("member=(seed=2 split.seed=2)") == 4
    assert f"dglcell benchmark {file} trainer.threads=1 --table --output runs/suites/two.md" in out
    assert "4 jobs with runs; nothing was submitted" in out


def test_wrong_names_and_outputs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, "two.yaml", "experiments: [quickstart]\nseeds: [0]\n")
    for arguments, said in (
        (["--only", "quick"], "`--only` names nothing of the suite"),
        (["-o", "table.csv"], "a name that ends with .md"),
        (["-o", "notes.md"], "is there and is something else than a table of a suite"),
    ):
        (tmp_path / "notes.md").write_text("notes")
        assert main(["benchmark", str(file), *arguments]) == 2
        assert said in capsys.readouterr().err
    assert (tmp_path / "notes.md").read_text() == "notes"
    # The output is looked at before all experiments are.
    wrong = write(tmp_path, "wrong.yaml", "experiments: [quickstart, missing]\nseeds: [0]\n")
    for arguments, said in ((["-o", "table.csv"], "a name that ends with .md"), ([], "experiment 'missing' not found")):
        assert main(["benchmark", str(wrong), *arguments]) == 2
        assert said in capsys.readouterr().err
