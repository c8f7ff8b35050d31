"""Predictions with intervals: of one run, of several seeds, in rankings, and of exported models."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dglcell import api
from dglcell.cli import main
from dglcell.data.config import ALIKE_EVERYWHERE
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DglcellError
from dglcell.prediction.design import Design
from dglcell.prediction.export import export
from dglcell.prediction.predict import Intervals
from dglcell.report.run_files import read_predictions, read_run
from dglcell.runs import RunDirectory
from dglcell.training.evaluate import evaluate_run
from dglcell.uncertainty import FEWEST, Calibration, conformal_quantile
from tests.prediction.conftest import Predict
from tests.tiny import Tiny

STRAINS = [["b0008", "b2464"], ["b0727"]]


@pytest.fixture(scope="module")
def seeds(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two seeds on one split, of which most strains validate."""
    runs, split = tmp_path_factory.mktemp("seeds"), ("split.subset.size=420", "split.fractions=[0.3,0.6,0.1]")
    for seed in (0, 1):
        tiny.train(runs, f"seed={seed}", *split, "trainer.epochs=1")
    return runs / "tiny"


def test_an_interval_is_the_prediction_with_a_quantile_of_validation_errors(tiny_run: RunDirectory) -> None:
    found = api.load(tiny_run.path).predict(STRAINS, interval=0.8)
    known = read_predictions(tiny_run, "validation")["fitness"]
    assert len(known.measured) == 30  # so few that all intervals are equally wide
    half = conformal_quantile(np.abs(known.measured - known.predicted), 0.8)
    np.testing.assert_allclose(found.high_fitness - found.predicted_fitness, half, rtol=1e-4)
    np.testing.assert_allclose(found.predicted_fitness - found.low_fitness, half, rtol=1e-4)


def test_the_test_part_says_what_they_are_worth(tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    known = read_predictions(tiny_run, "test")["fitness"]
    run = read_run(tiny_run.path)
    calibrated, own = (row for row in run.rows if row.model == run.results["predicts"]["fitness"]["name"])
    assert (calibrated.part, "covered" in calibrated.metrics, own.part) == ("validation", False, "test")
    half = conformal_quantile(Calibration.load(tiny_run.calibration).phenotypes["fitness"].errors, 0.9)
    assert own.metrics["width"] == own.metrics["constant_width"] == pytest.approx(2 * half)
    assert own.metrics["covered"] == np.mean(np.abs(known.measured - known.predicted) <= half)
    again = next(row for row in evaluate_run(tiny_run.path) if (row.model, row.part) == (own.model, "test"))
    assert own.metrics == pytest.approx(again.metrics)
    assert main(["evaluate", str(tiny_run.path)]) == 0
    printed = capsys.readouterr().out
    assert f"fitness: intervals for 90 % hold {round(30 * own.metrics['covered'])} of 30 test" in printed


def test_a_table_and_a_design_have_the_ends_of_intervals(predict: Predict) -> None:
    share = ("--interval", "0.9")
    (row, _) = predict.table("genes\n" + "".join(f"{';'.join(genes)}\n" for genes in STRAINS), *share)
    assert list(row) == ["genes", "predicted_by", "predicted_fitness", "low_fitness", "high_fitness"]
    Path("genes.txt").write_text("\n".join(STRAINS[0]))
    design = predict.design("out.parquet", "--all-pairs", *share)
    np.testing.assert_allclose(design["high_fitness"].to_numpy(), float(row["high_fitness"]), rtol=1e-5)
    # A design that was begun with other intervals is not continued.
    predict("--all-pairs", "--genes", "genes.txt", "--interval", "0.8", "-o", "out.parquet", status=2)
    Path("in.csv").write_text("genes,low_fitness\nb0008,1\n")  # a column of that name
    predict("in.csv", *share, status=2)
    predict("in.csv", "-o", "other.csv")


def test_several_seeds_are_calibrated_together(seeds: Path) -> None:
    predictor = api.load(seeds)
    tables = [read_predictions(RunDirectory(path), "validation")["fitness"] for path in predictor.directories]
    mean = np.mean([table.predicted for table in tables], axis=0)
    found = Intervals.of(predictor.members, 0.9).calibration.phenotypes["fitness"]
    errors = np.abs(tables[0].measured - mean)
    assert len(found.errors) == len(errors) - min(1000, len(errors) // 2)
    assert np.abs(found.errors[:, None] - errors).min(1).max() < 2e-5
    assert len(errors) >= FEWEST  # enough to learn a difficulty from, but on new media all are equally wide
    members = [
        dataclasses.replace(
            member, config=dataclasses.replace(member.config, split=dataclasses.replace(member.config.split, kind=kind))
        )
        for member, kind in zip(predictor.members, ALIKE_EVERYWHERE * 2, strict=True)
    ]
    alike = Intervals.of(members, 0.9).calibration.phenotypes["fitness"]
    np.testing.assert_array_equal(alike.scores, alike.errors)
    np.testing.assert_allclose(np.sort(alike.errors), np.sort(errors), atol=2e-5)
    frame = predictor.predict(STRAINS, interval=0.9)
    assert (frame.low_fitness < frame.predicted_fitness).all()
    assert {"sd_fitness", "high_fitness"} <= set(frame.columns)


def test_rankings_use_intervals_in_place_of_the_spread(predict: Predict, seeds: Path) -> None:
    ranked, one = ("--all-singles", "--top", "5", "--by", "uncertain", "-o", "a.csv"), seeds / "seed-0"
    predict(*ranked, status=2)
    predict(*ranked, "--interval", "0.9", run=one)
    predict("--all-singles", "--interval", "0.9", "-o", "all.csv", run=one)
    first, everything = pd.read_csv("a.csv"), pd.read_csv("all.csv")
    width = np.sort(everything.high_fitness - everything.low_fitness)[::-1]
    np.testing.assert_allclose(first.high_fitness - first.low_fitness, width[:5], rtol=1e-5)


def test_an_exported_model_has_intervals_also_without_its_strains(tiny_run: RunDirectory, tmp_path: Path) -> None:
    about = {"organism": "E. coli", "licence": "CC0", "limits": ["It is a test."], "description": "A test"}
    made = export(tiny_run.path, tmp_path / "tiny-model", about, strains=False)
    assert "calibration.npz" in json.loads((made / "card.json").read_text())["files"]
    expected, found = (api.load(path).predict(STRAINS, interval=0.9) for path in (tiny_run.path, made))
    np.testing.assert_allclose(found.high_fitness, expected.high_fitness, rtol=1e-5)


def test_genes_beyond_the_validation_part_are_told(tiny_run: RunDirectory, caplog: pytest.LogCaptureFixture) -> None:
    predictor = api.load(tiny_run.path)
    intervals = Intervals.of(predictor.members, 0.9)
    training = np.ones_like(intervals.calibration.training)
    training[:2] = 0
    calibration = dataclasses.replace(
        intervals.calibration, training=training, structure=np.zeros_like(intervals.calibration.structure)
    )
    stricter = dataclasses.replace(intervals, calibration=calibration)
    caplog.clear()
    stricter.warn_of_new_genes(Design.of([2, 3, 4], 2))
    assert not caplog.messages
    stricter.warn_of_new_genes(Design.of([0, 2, 3], 2))
    stricter.warn_of_new_genes(Strains.from_indices(predictor.cell.genes.names, [[0], [1], [2]]))
    assert [text.partition(":")[0] for text in caplog.messages] == ["strains with 1 gene of the design", "2 strains"]


def refused(run: Path, message: str, coverage: float = 0.9, **how: str) -> None:
    """Check that intervals are refused with a message."""
    with pytest.raises(DglcellError, match=message):
        api.load(run, **how).predict(STRAINS, interval=coverage)


def test_what_has_no_intervals_is_refused(tiny: Tiny, tiny_run: RunDirectory, seeds: Path, tmp_path: Path) -> None:
    refused(tiny_run.path, r"got:      90\n  expected: a share of the strains between 0 and 1", 90)
    refused(tiny_run.path, r"got:      30 strains to calibrate them with\n  expected: 99 or more", 0.99)
    refused(tiny_run.path, "calibrated for what was best on the validation part", predict_with="network")
    run = RunDirectory(Path(shutil.copytree(seeds / "seed-0", tmp_path / "copied")))
    kept = Calibration.load(run.calibration)
    dataclasses.replace(kept, epoch=7).save(run.calibration)
    refused(run.path, "are of another checkpoint")
    dataclasses.replace(kept, training=kept.training[1:]).save(run.calibration)
    refused(run.path, "is of another run")
    run.calibration.unlink()
    refused(run.path, "has no intervals")
    shutil.copytree(seeds, tmp_path / "both")
    path = RunDirectory(tmp_path / "both/seed-1").predictions("validation")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    refused(tmp_path / "both", "are of other strains")
    with pytest.raises(ConfigError, match="no validation part in common"):
        api.load([tiny_run.path, seeds / "seed-0"]).predict(STRAINS, interval=0.9)
    everything = tiny.train(tmp_path, "split.kind=none", "trainer={epochs: 1, checkpoint: last}").directory
    assert not everything.calibration.exists()
    refused(everything.path, "with `split.kind: none`|`split.kind: none` has no strains")
