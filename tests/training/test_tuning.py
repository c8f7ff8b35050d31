"""Searches: real trainings, judged on the validation part, stopped and continued."""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.errors import ConfigError, DataError, DglcellError, StoppedError
from dglcell.metrics import ResultRow
from dglcell.runs import RunDirectory
from dglcell.training import tuning
from dglcell.training.run import RunResult
from dglcell.training.tuning import Search, read_space
from tests.tiny import Tiny, process_environment

SPACE = "optimizer.lr: {low: 1.0e-4, high: 1.0e-2, log: true}\nmodel.hidden: [4, 8]\n"


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return path


def search(tiny: Tiny, space: Path, runs: Path, *more: str) -> Search:
    return Search.of(tiny.file, tiny.overrides(runs, "trainer.epochs=1", *more), read_space(space))


def table(folder: Path) -> list[dict[str, str]]:
    with open(folder / "trials.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_the_best_trial_is_written(tiny: Tiny, space: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = tiny.overrides(tmp_path / "my runs", "epochs=1", "slurm.time=2:00:00")
    command = ["tune", str(tiny.file), *keys, "--space", str(space)]
    assert main([*command, "--trials", "2"]) == 0
    folder = tmp_path / "my runs" / "tiny-tuning"
    printed = capsys.readouterr().out
    assert re.search(r"^trial-1: [\d.-]+ \(best [\d.-]+; 2 of 2 done\)  optimizer.lr=", printed, re.MULTILINE)
    assert f"Train with `dglcell train '{folder / 'best.yaml'}'`." in printed
    rows = table(folder)
    found = [float(row["validation"]) for row in rows]
    assert found == sorted(found, reverse=True)
    paths = [folder / f"trial-{row['trial']}" / "seed-0" / "results.json" for row in rows]
    results = [json.loads(path.read_text())["rows"] for path in paths]
    scores = [row["metrics"]["pearson"] for run in results for row in run if row["part"] == "validation"]
    assert found == pytest.approx(scores, rel=1e-5)
    best = load_config(folder / "best.yaml")
    assert (best.experiment.name, best.experiment.expected) == ("tiny-tuned", None)
    assert f"{best.optimizer.lr:.6g}" == f"{float(rows[0]['optimizer.lr']):.6g}"
    trial = load_config(folder / f"trial-{rows[0]['trial']}" / "seed-0" / "config.yaml")
    assert replace(best, experiment=trial.experiment, plot=False, baselines=False) == trial
    assert (best.trainer.epochs, best.slurm.time) == (1, "2:00:00")
    # Trials that are finished count; more of them are other ones.
    assert main([*command, "--trials", "2"]) == 0
    assert "trial-" not in capsys.readouterr().out
    assert main([*command, "--trials", "3"]) == 0
    assert len({row["optimizer.lr"] for row in table(folder)}) == 3


def test_values_that_were_trained_are_not_trained_again(
    tiny: Tiny, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.write_text("model.hidden: [4, 8]\n")
    trained: list[int] = []

    def score(self: Search, number: int, values: dict[str, Any], *_: object) -> float:
        trained.append(values["model.hidden"])
        return 0.5

    monkeypatch.setattr(Search, "_train", score)
    made = search(tiny, space, tmp_path)
    made.run(3, "tests")
    assert len(trained) == len({*trained}) < len(table(made.folder)) == 3


def test_a_trial_that_fails_is_left_out_unless_nothing_works(
    tiny: Tiny, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = iter([False, True, False])

    def sometimes(config: Any, command: str, signals: Any) -> RunResult:
        if next(times):
            raise ConfigError("these values do not go together")
        return RunResult(RunDirectory(tmp_path), [ResultRow("own", "validation", "fitness", {"pearson": 0.5})])

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "train", sometimes)
        search(tiny, space, tmp_path / "runs").run(2, "tests")
    assert "trial-1 failed and is left out: optimizer.lr=" in caplog.text
    assert "these values do not go together" in caplog.text
    assert len(table(tmp_path / "runs" / "tiny-tuning")) == 2

    def never(config: Any, command: str, signals: Any) -> RunResult:
        raise ConfigError("nothing works")

    monkeypatch.setattr(tuning, "train", never)
    with pytest.raises(ConfigError, match="nothing works"):
        search(tiny, space, tmp_path / "others").run(2, "tests")


def test_a_stopped_search_ends_with_the_same_trials(
    tiny: Tiny, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: set[int] = set()

    def score(self: Search, number: int, values: dict[str, Any], command: str, signals: Any) -> float:
        if self.folder.is_relative_to(tmp_path / "stopped") and number not in stopped:
            stopped.add(number)
            raise StoppedError(15)
        if number == 3:
            raise DataError("these values do not go together")
        return -abs(math.log(values["optimizer.lr"]) + 6)

    monkeypatch.setattr(Search, "_train", score)
    whole, again = (search(tiny, space, tmp_path / runs) for runs in ("whole", "stopped"))
    whole.run(14, "tests")
    for _ in range(15):
        with pytest.raises(StoppedError):
            again.run(14, "tests")
    again.run(14, "tests")
    assert table(again.folder) == table(whole.folder)
    assert {int(row["trial"]) for row in table(whole.folder)} == {*range(15)} - {3}
    assert len({row["optimizer.lr"] for row in table(whole.folder)}) == 14


@pytest.mark.slow
def test_two_processes_search_together(tiny: Tiny, space: Path, tmp_path: Path) -> None:
    keys = tiny.overrides(tmp_path / "runs", "trainer.epochs=1")
    command = [sys.executable, "-m", "dglcell", "tune", str(tiny.file), *keys, "--space", str(space), "--trials", "5"]
    processes = [subprocess.Popen(command, env=process_environment(), cwd=tmp_path) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    rates = [row["optimizer.lr"] for row in table(tmp_path / "runs" / "tiny-tuning")]
    assert len(rates) == 5
    assert len(set(rates)) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "names no key to search for"),
        ("model.hidden: [8]", "`model.hidden` has no values to choose from\n  got:      [8]"),
        ("model.hidden: 8", "`model.hidden` has no values to choose from"),
        ("model.hidden: {low: 8, high: 8}", "{low: NUMBER, high: LARGER NUMBER, log: true or false}"),
        ("optimizer.lr: {low: 0, high: 1, log: true}", "with `log: true` numbers must be above 0"),
        ("optimizer.lr: {low: .nan, high: 1}", "has no values to choose from"),
        ("optimizer.lr: {low: true, high: 2}", "has no values to choose from"),
        ("model.hidden: [8, [9]]", "has no values to choose from"),
        ("model.hiden: [4, 8]", "unknown key `model.hiden`"),
        ("model.hidden: [4, -8]", "model.hidden"),
    ],
)
def test_wrong_spaces_are_refused_before_anything_is_trained(
    tiny: Tiny, space: Path, tmp_path: Path, text: str, message: str
) -> None:
    space.write_text(text)
    with pytest.raises(DglcellError) as error:
        search(tiny, space, tmp_path / "runs").run(1, "tests")
    assert message in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_a_search_needs_a_validation_part_and_one_device(tiny: Tiny, space: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a search needs a validation part"):
        search(tiny, space, tmp_path, "split={kind: none}", "trainer.checkpoint=last")
    with pytest.raises(ConfigError, match=r"a search trains on one device"):
        search(tiny, space, tmp_path, "trainer.devices=2", "trainer.strategy=ddp")
