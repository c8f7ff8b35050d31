"""The control without messages: the same model, its run, and its rows among the null models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.errors import ConfigError
from dglcell.models.config import HeteroCellConfig
from dglcell.training.control import without_messages
from dglcell.training.evaluate import control_rows, evaluate_run
from tests.tiny import BARE, Tiny, history


def test_it_is_the_same_experiment_without_rounds_and_with_more_epochs(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path, "trainer.checkpoint=last")
    control = without_messages(config)
    assert control.run_directory == tmp_path / "tiny-without-messages" / "seed-0"
    assert (control.model.layers, control.trainer.epochs, control.trainer.checkpoint) == (0, 16, "best_loss")
    assert (control.split, control.data, control.seed) == (config.split, config.data, config.seed)
    assert without_messages(config, 3).trainer.epochs == 3


def test_it_has_no_messages_of_other_kinds_either(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "conf" / "106-ecoli-core" / "gene_disjoint.yaml"
    config = load_config(file, [f"paths.runs={tmp_path}"])
    assert config.cell.lose_blocked
    assert config.model.layers > 0
    control = without_messages(config)
    assert isinstance(control.model, HeteroCellConfig)
    assert (control.cell.lose_blocked, control.model.layers) == (False, 0)


@pytest.mark.parametrize("key", ["model.layers=0", "model={name: dango, heads: 2, hidden: 8, reconstruction: false}"])
def test_models_that_pass_no_messages_have_none(tiny: Tiny, tmp_path: Path, key: str) -> None:
    replaced = ("cell.derived=[isoenzyme]", key)
    with pytest.raises(ConfigError, match=r"there is no control without messages[\s\S]*leave `--without-messages` out"):
        without_messages(tiny.config(tmp_path, *replaced))


def test_its_rows_stand_among_the_null_models(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tiny.train(tmp_path).directory
    arguments = ["baselines", str(tiny.file), *tiny.overrides(tmp_path, *BARE), "--without-messages", "--epochs", "3"]
    assert main(arguments) == 0
    assert "without messages" in capsys.readouterr().out
    control = tmp_path / "tiny-without-messages" / "seed-0"
    theirs = json.loads((control / "results.json").read_text())["rows"]
    for path in (run.results, tmp_path / "tiny" / "baselines.json"):
        found = [row for row in json.loads(path.read_text())["rows"] if row["model"] == "without messages"]
        for own, row in zip(found, theirs, strict=True):
            assert own["part"] == row["part"]
            assert {name: row["metrics"][name] for name in own["metrics"]} == own["metrics"]
            assert "pearson" in own["metrics"]
            assert "covered" not in own["metrics"]
        assert all(row["is_null"] for row in found)
        assert {row["part"] for row in found} == {"validation", "test"}
    # Given again, nothing is trained and no row stands twice; an evaluation shows it, too.
    before = (control / "metrics.jsonl").read_bytes()
    assert main(arguments) == 0
    assert (control / "metrics.jsonl").read_bytes() == before
    assert [row["model"] for row in json.loads(run.results.read_text())["rows"]].count("without messages") == 2
    assert "without messages" in [row.model for row in evaluate_run(run.path)]


def test_a_control_of_another_split_is_not_compared_with(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path, *BARE)
    control = tiny.train(tmp_path, "experiment.name=tiny-without-messages", "model.layers=0").directory
    assert len(history(control)) == 2
    sha256 = json.loads(control.environment.read_text())["hashes"]["split"]
    assert len(control_rows(config.run_directory, sha256)) == 2
    assert control_rows(config.run_directory, "0" * 64) == []
    assert control_rows(tmp_path / "other" / "seed-0", sha256) == []


def test_epochs_are_those_of_the_control(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["baselines", str(tiny.file), "--epochs", "3"]) == 2
    assert "--epochs is given without --without-messages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "refusal"),
    [
        ("model.layers=0", "there is no control without messages"),
        (
            "trainer.devices=2",
            r"works with a single device only[\s\S]*call `dglcell baselines FILE --without-messages`",
        ),
    ],
)
def test_a_control_that_cannot_be_is_refused_before_the_training(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, refusal: str
) -> None:
    assert main(["train", str(tiny.file), "--control", "1", *tiny.overrides(tmp_path, *BARE), override]) == 2
    assert re.search(refusal, capsys.readouterr().err)
    assert not (tmp_path / "tiny").exists()


def test_train_shows_controls_beside_the_model(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    arguments = ["train", str(tiny.file), "--control", "1", *tiny.overrides(tmp_path, *BARE, "trainer.epochs=1")]
    for _ in range(2):  # finished runs are not trained again
        assert main(arguments) == 0
        said = capsys.readouterr().out
        assert said.count(" without messages ") == 1, "of the test part"
        assert said.count("intervals for 90 % hold") == 1, "those of what predicts"
    assert "is predicted by" not in caplog.text, "there was nothing to choose from"
    rows = json.loads((tmp_path / "tiny" / "seed-0" / "results.json").read_text())["rows"]
    assert [row["part"] for row in rows if row["model"] == "without messages"] == ["validation", "test"]
