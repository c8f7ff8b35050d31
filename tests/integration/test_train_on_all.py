"""A run whose strains all train: it predicts, and says everywhere that nothing was tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dglcell
from dglcell.cli import main
from dglcell.errors import ConfigError
from dglcell.report.comparison import write_comparison
from dglcell.report.page import NO_TEST_PART
from dglcell.report.runs import find_runs, format_runs
from dglcell.runs.directory import RunDirectory
from dglcell.training.evaluate import evaluate_baselines
from dglcell.training.run import train
from tests.integration.test_resume import assert_same_end
from tests.report.pages import Page
from tests.tiny import Tiny, history

ALL = ("split.kind=none", "trainer.checkpoint=last")


@pytest.fixture(scope="module")
def run(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Trained on every strain, with its report."""
    return train(tiny.config(tmp_path_factory.mktemp("all"), *ALL)).directory


def test_no_file_has_a_number_of_a_part_that_is_not_there(run: RunDirectory) -> None:
    results = json.loads(run.results.read_text())
    assert (results["rows"], results["epoch"], results["checkpoint"]) == ([], 1, "last.ckpt")
    assert json.loads(run.environment.read_text())["strains"] == {"train": 300, "validation": 0, "test": 0}
    assert not [key for row in history(run) for key in row if "validation" in key]
    assert [path.name for path in run.checkpoints.iterdir()] == ["last.ckpt"]
    assert not run.predictions("test").exists()


def test_the_page_says_that_there_is_no_test_part(run: RunDirectory) -> None:
    page = Page(run.page)
    page.check()
    assert "There is no test part" in page.source
    assert "validation part" not in " ".join(page.alternatives)
    assert run.report.is_file()


def test_commands_say_it_too(run: RunDirectory, tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run.path)]) == 0
    assert capsys.readouterr().out == NO_TEST_PART + "\n"
    assert " ".join(format_runs(find_runs(run.path.parent)).split()).endswith("2/2 2 fitness no test part")
    with pytest.raises(ConfigError, match=r"leaves no strain on which baselines can be compared\n.*another `split"):
        evaluate_baselines(tiny.config(run.path, *ALL))


def test_it_predicts(run: RunDirectory) -> None:
    predictor = dglcell.load(run.path)
    assert predictor.predict([["b0008"], ["b0114", "b0115"]]).predicted_fitness.notna().all()
    for table in (predictor.results, dglcell.evaluate(predictor)):
        assert table.empty
        assert "part" in table.columns


def test_runs_with_and_without_a_test_part_are_compared(
    run: RunDirectory, tiny_run: RunDirectory, tmp_path: Path
) -> None:
    source = write_comparison([tiny_run.path, run.path], tmp_path / "both.html").read_text()
    assert "tiny: every strain trained, so that there is no test part" in source
    assert "There is" not in write_comparison([run.path], tmp_path / "one.html").read_text()


def test_a_continued_run_ends_like_one_that_never_stopped(tiny: Tiny, run: RunDirectory, tmp_path: Path) -> None:
    stopped = tiny.train(tmp_path, *ALL, "trainer.epochs=1", "scheduler.name=none").directory
    assert len(history(stopped)) == 1
    continued = tiny.train(tmp_path, *ALL).directory
    assert_same_end(continued, run)
