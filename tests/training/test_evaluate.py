"""What a finished run leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path

import cobra
import numpy as np
import pytest

from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.metrics import ResultRow
from dglcell.models.config import HeteroCellConfig
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import load_trained
from dglcell.training.evaluate import (
    ablation_rows,
    evaluate_baselines,
    evaluate_run,
    report,
    rows_as_json,
    with_ceilings,
)
from dglcell.training.fit import warn_of_falling_loss
from dglcell.training.predicting import fit_baselines, score
from dglcell.training.prepare import prepare, prepare_run
from dglcell.training.run import without_messages
from tests.tiny import BARE, Tiny, history


def test_baselines_alone_are_those_beside_a_run(tiny_run: RunDirectory, tiny: Tiny, tmp_path: Path) -> None:
    prepared = prepare_run(load_trained(tiny_run).config, tiny_run, "tests", continued=True)
    rows, baselines = evaluate_baselines(tiny.config(tmp_path / "runs"), command="dglcell baselines tiny.yaml")
    assert rows == score(prepared, fit_baselines(prepared)).rows
    written = json.loads((tmp_path / "runs/tiny/baselines.json").read_text())
    assert written["rows"] == rows_as_json(rows)
    assert written["command"] == "dglcell baselines tiny.yaml"
    assert written["hashes"]["split"] == prepared.split.sha256
    assert written["left_out"] == baselines.left_out == {"fitness": {}}
    assert list((tmp_path / "runs/tiny").iterdir()) == [tmp_path / "runs/tiny/baselines.json"]


def test_a_report_without_picture_and_baselines_has_the_network_alone(tiny: Tiny, tmp_path: Path) -> None:
    result = tiny.train(tmp_path, "trainer.epochs=1")
    assert {row.model for row in result.rows} == {"hetero_cell"}
    assert not result.directory.report.exists()
    config = tiny.config(tmp_path, "trainer.epochs=1", "plot=false", "trainer.checkpoint=last")
    again = report(config, result.directory, prepare_run(config, result.directory, "tests", continued=True))
    assert {row.model for row in again} > {"hetero_cell", "training mean"}
    assert json.loads(result.directory.results.read_text())["checkpoint"] == "last.ckpt"


def test_a_table_of_replicates_has_a_ceiling(tmp_path: Path) -> None:
    genes = cobra.io.load_model("textbook").genes[:60]
    rng = np.random.default_rng(0)
    levels = rng.normal(size=60)
    drawn = levels[:, None] + 0.5 * rng.normal(size=(60, 2))
    rows = [f"{gene.id},{value:.4f}" for gene, both in zip(genes, drawn, strict=True) for value in both]
    (tmp_path / "table.csv").write_text("\n".join(["gene,growth", *rows, ""]))
    file = tmp_path / "own.yaml"
    table = "{path: table.csv, genes: [gene], phenotypes: {growth: growth}}"
    file.write_text(f"cell: {{model: textbook}}\ndata: {{source: {{name: csv, csv: {table}}}}}\n")
    config = load_config(file, [f"paths.raw={tmp_path}", f"paths.data={tmp_path / 'data'}"])
    prepared = prepare(config, command="test")
    rows_before = [ResultRow("hetero_cell", part, "growth", {"pearson": 0.5}) for part in ("validation", "test")]
    prepared.store.path.rename(tmp_path / "moved")  # the store was read once, and is not read again
    validation, test = with_ceilings(rows_before, prepared)
    assert validation.metrics == {"pearson": 0.5}
    assert 0.8 < test.metrics["ceiling"] < 1


def test_it_is_the_same_experiment_without_rounds_and_with_more_epochs(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path, "trainer.checkpoint=last")
    ablation = without_messages(config)
    assert ablation.run_directory == tmp_path / "tiny-without-messages" / "seed-0"
    assert (ablation.model.layers, ablation.trainer.epochs, ablation.trainer.checkpoint) == (0, 16, "best_loss")
    assert (ablation.split, ablation.data, ablation.seed) == (config.split, config.data, config.seed)
    assert without_messages(config, 3).trainer.epochs == 3


def test_it_has_no_messages_of_other_kinds_either(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "conf" / "106-ecoli-core" / "gene_disjoint.yaml"
    config = load_config(file, [f"paths.runs={tmp_path}"])
    assert config.cell.lose_blocked
    assert config.model.layers > 0
    ablation = without_messages(config)
    assert isinstance(ablation.model, HeteroCellConfig)
    assert (ablation.cell.lose_blocked, ablation.model.layers) == (False, 0)


def test_its_rows_stand_among_the_baselines(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tiny.train(tmp_path).directory
    arguments = ["baselines", str(tiny.file), *tiny.overrides(tmp_path, *BARE), "--without-messages", "--epochs", "3"]
    assert main(arguments) == 0
    assert "without messages" in capsys.readouterr().out
    ablation = tmp_path / "tiny-without-messages" / "seed-0"
    theirs = json.loads((ablation / "results.json").read_text())["rows"]
    for path in (run.results, tmp_path / "tiny" / "baselines.json"):
        found = [row for row in json.loads(path.read_text())["rows"] if row["model"] == "without messages"]
        for own, row in zip(found, theirs, strict=True):
            assert own["part"] == row["part"]
            assert {name: row["metrics"][name] for name in own["metrics"]} == own["metrics"]
            assert "pearson" in own["metrics"]
            assert "covered" not in own["metrics"]
        assert all(row["is_baseline"] for row in found)
        assert {row["part"] for row in found} == {"validation", "test"}
    # Given again, nothing is trained and no row stands twice; an evaluation shows it, too.
    before = (ablation / "metrics.jsonl").read_bytes()
    assert main(arguments) == 0
    assert (ablation / "metrics.jsonl").read_bytes() == before
    assert [row["model"] for row in json.loads(run.results.read_text())["rows"]].count("without messages") == 2
    assert "without messages" in [row.model for row in evaluate_run(run.path)]


def test_an_ablation_of_another_split_is_not_compared_with(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path, *BARE)
    ablation = tiny.train(tmp_path, "experiment.name=tiny-without-messages", "model.layers=0").directory
    assert len(history(ablation)) == 2
    sha256 = json.loads(ablation.environment.read_text())["hashes"]["split"]
    assert len(ablation_rows(config.run_directory, sha256)) == 2
    assert ablation_rows(config.run_directory, "0" * 64) == []
    assert ablation_rows(tmp_path / "other" / "seed-0", sha256) == []


TRAIN = ["train", "FILE", "--without-messages", "1"]


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["baselines", "FILE", "--epochs", "3"], "--epochs is given without --without-messages"),
        ([*TRAIN, "model.layers=0"], "there is no ablation without messages"),
        (
            [*TRAIN, "cell.derived=[isoenzyme]", "model={name: dango, heads: 2, hidden: 8, reconstruction: false}"],
            r"no ablation without messages[\s\S]*leave `--without-messages` out",
        ),
        (
            [*TRAIN, "trainer.devices=2"],
            r"works with a single device only[\s\S]*call `dglcell baselines FILE --without-messages`",
        ),
    ],
)
def test_an_ablation_that_cannot_be_is_refused_before_the_training(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], refusal: str
) -> None:
    verb, _, *more = words
    overrides = tiny.overrides(tmp_path, *BARE) if verb == "train" else []
    assert main([verb, str(tiny.file), *overrides, *more]) == 2
    assert re.search(refusal, capsys.readouterr().err)
    assert not (tmp_path / "tiny").exists()


def test_train_shows_ablations_beside_the_model(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    overrides = tiny.overrides(tmp_path, *BARE, "trainer.epochs=1")
    arguments = ["train", str(tiny.file), "--without-messages", "1", *overrides]
    for _ in range(2):  # finished runs are not trained again
        assert main(arguments) == 0
        said = capsys.readouterr().out
        assert said.count(" without messages ") == 1, "of the test part"
        assert said.count("intervals for 90 % hold") == 1, "those of what predicts"
    assert "is predicted by" not in caplog.text, "there was nothing to choose from"
    rows = json.loads((tmp_path / "tiny" / "seed-0" / "results.json").read_text())["rows"]
    assert [row["part"] for row in rows if row["model"] == "without messages"] == ["validation", "test"]


@pytest.mark.parametrize(
    ("figure", "losses", "said"),
    [
        (
            "validation",
            [1 / (n + 1) for n in range(10)],
            "the validation loss was still falling at the end, and is 0.1",
        ),
        ("train", [5.0 - n for n in range(5)], "the train loss was still falling"),
        ("validation", [1.0, 0.5, 0.3, 0.3, 0.3], ""),
        ("validation", [1.0, 0.2, 0.3, 0.4, 0.3], ""),
        ("validation", [3.0, 1.0], ""),
        ("validation", [-1.0, -1.1, -1.2, -1.2, -1.21], ""),
    ],
)
def test_a_loss_that_still_falls_is_said(
    caplog: pytest.LogCaptureFixture, figure: str, losses: list[float], said: str
) -> None:
    warn_of_falling_loss([{f"{figure}/loss": loss} for loss in losses])
    assert said in caplog.text
    assert bool(caplog.messages) == bool(said)
