"""Predictions of whole designs: the strains of itertools, the numbers of the table, continued after a kill."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from dglcell import api
from dglcell.cli import main
from dglcell.cli import predict as cli_predict
from dglcell.config.read import load_config
from dglcell.data.config import TRAIN, VALIDATION
from dglcell.data.split import Split
from dglcell.data.store import Store
from dglcell.errors import ConfigError
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.choose.autotuned import Autotuned
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction import predict as module
from dglcell.prediction.conditions import seen_by, wild_type_in
from dglcell.prediction.design import Design
from dglcell.prediction.predict import predict_design
from dglcell.prediction.ranking import RANKINGS, Ranking
from dglcell.runs.directory import RunDirectory
from dglcell.training.autotune import Autotuning
from dglcell.training.batch_trials import Trial
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.run import train
from tests.tiny import Tiny, seeing_conditions


@pytest.fixture(scope="module")
def trained(tiny_run: RunDirectory) -> Trained:
    """Return the tiny heterograph model."""
    return load_trained(tiny_run)


@pytest.fixture(scope="module")
def set_run(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a set operator trained on the tiny experiment."""
    more = ("model={name: set_operator, hidden: 8, layers: 1}", "trainer.epochs=1")
    return tiny.train(tmp_path_factory.mktemp("set"), *more).directory


@pytest.fixture
def genes(trained: Trained, tmp_path: Path) -> list[str]:
    """Return a list of nine genes, not in the order of the vocabulary, in the file ``genes.txt``."""
    names = [trained.cell.genes.names[i] for i in (5, 3, 90, 11, 30, 2, 60, 7, 1)]
    (tmp_path / "genes.txt").write_text("\n".join(names))
    return names


def by_table(run: RunDirectory, folder: Path, strains: list[tuple[str, ...]]) -> np.ndarray:
    """Return predictions of the same strains from a CSV."""
    (folder / "in.csv").write_text("\n".join(["genes", *map(";".join, strains)]) + "\n")
    assert main(["predict", str(run.path), str(folder / "in.csv"), "-o", str(folder / "table.parquet")]) == 0
    found = pq.read_table(folder / "table.parquet")
    assert found["genes"].to_pylist() == [";".join(strain) for strain in strains]
    return found["predicted_fitness"].to_numpy()


def rows_of(path: Path) -> list[tuple[str, ...]]:
    """Return the genes of every row."""
    table = pq.read_table(path)
    columns = [name for name in table.column_names if name.startswith("gene_")]
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize("model", ["hetero_cell", "set_operator"])
@pytest.mark.parametrize("size", [2, 3])
def test_a_design_is_predicted_as_a_table_would_be(
    model: str,
    size: int,
    tiny_run: RunDirectory,
    set_run: RunDirectory,
    genes: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tiny_run if model == "hetero_cell" else set_run
    out = tmp_path / "out.parquet"
    option = "--all-pairs" if size == 2 else "--all-triples"
    arguments = ["--genes", str(tmp_path / "genes.txt"), "-o", str(out), "--batch-size", "11"]
    assert main(["predict", str(run.path), option, *arguments]) == 0
    strains = list(itertools.combinations(genes, size))
    printed = capsys.readouterr().out
    assert f"{len(strains)} of {len(strains)} strains" in printed
    assert "strains/s" in printed
    assert f"{len(strains)} predictions written to {out}" in printed
    assert rows_of(out) == strains
    found = pq.read_table(out)
    np.testing.assert_allclose(found["predicted_fitness"].to_numpy(), by_table(run, tmp_path, strains), rtol=1e-5)
    assert found.schema.types == [*([pa.dictionary(pa.int32(), pa.string())] * size), pa.float32()]
    about = json.loads(found.schema.metadata[b"dglcell"])
    assert (about["genes"], about["deletions"], about["stop"]) == (9, size, len(strains))
    assert [len(sha256) for sha256 in about["checkpoint_sha256"]] == [64]
    assert not list(tmp_path.glob("*.parts"))


class TestPrecision:
    """``--precision``, and what ``auto`` takes."""

    def predict(self, run: RunDirectory, out: Path, *more: str) -> int:
        return main(["predict", str(run.path), "--all-pairs", "--limit", "60", "-o", str(out), *more])

    def test_differences_in_bfloat16_predict_nearly_the_same(self, tiny_run: RunDirectory, tmp_path: Path) -> None:
        assert self.predict(tiny_run, tmp_path / "single.parquet", "--precision", "32-true") == 0
        assert self.predict(tiny_run, tmp_path / "half.parquet", "--precision", "bf16") == 0
        single, half = (
            pq.read_table(tmp_path / f"{name}.parquet")["predicted_fitness"].to_numpy() for name in ("single", "half")
        )
        assert 0 < np.abs(half - single).max() < 0.02 * np.ptp(single)

    def test_a_design_is_continued_in_its_own_precision(
        self, tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out.parquet"
        assert self.predict(tiny_run, out) == 0
        assert self.predict(tiny_run, out, "--precision", "bf16") == 2
        assert f"'{out}' exists already" in capsys.readouterr().err

    def test_a_model_without_differences_has_one_precision(
        self, set_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.predict(set_run, tmp_path / "out.csv", "--precision", "bf16") == 2
        assert (
            "bfloat16 is for differences between the states of strains, and this model has none\n"
            "  got:      --precision bf16 and a model `set_operator`\n  do:       leave --precision out"
        ) in capsys.readouterr().err
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("compiled", ["auto", "false"])
    def test_a_gpu_takes_what_a_measurement_finds(
        self, compiled: str, tiny_run: RunDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trained = load_trained(tiny_run)
        monkeypatch.setattr(module, "UNTUNED_DEVICES", ())
        monkeypatch.setattr(trained.model, "config", dataclasses.replace(trained.config.model, compile=compiled))
        asked: list[int] = []

        def measured(model: Any, batch: Any, differences: torch.dtype | None) -> Autotuning:
            asked.append(batch.num_strains)
            assert differences == torch.bfloat16
            return Autotuning(Autotuned("node_mask", dense_share=0.5), {})

        monkeypatch.setattr(module, "autotuned_for", measured)
        module.resolve_autotuned([trained], Design.of(range(12), 2), 20, "bf16")
        found = trained.model.autotuned
        assert asked == [20]
        assert (found.strategy, found.differences, found.compile) == ("node_mask", "bfloat16", compiled == "auto")

    @pytest.mark.parametrize(("together", "apart", "pays"), [(1.0, 2.0, True), (2.0, 1.0, False)])
    def test_a_gpu_shares_deletions_where_that_is_faster(
        self, together: float, apart: float, pays: bool, tiny_run: RunDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trained = load_trained(tiny_run)
        monkeypatch.setattr(trained.model, "config", dataclasses.replace(trained.config.model, strategy="auto"))
        trials = iter([Trial(8, together, None), Trial(8, apart, None)])
        for name, value in {
            "UNTUNED_DEVICES": (),
            "WORTH_SHARING": 5,
            "autotuned_for": lambda *_: Autotuning(Autotuned("node_mask"), {}),
            "measure": lambda *_: next(trials),
        }.items():
            monkeypatch.setattr(module, name, value)
        module.resolve_autotuned([trained], Design.of(range(12), 2), 8, "32-true")
        assert (trained.model.autotuned.shares, trained.model.shares_deletions) == (pays, pays)

    def test_the_command_line_knows_every_precision(self) -> None:
        assert module.PRECISIONS == cli_predict.PRECISIONS


def test_without_a_list_all_genes_of_the_model_are_meant(set_run: RunDirectory, tmp_path: Path) -> None:
    names = load_trained(set_run).cell.genes.names
    arguments = ["predict", str(set_run.path), "--all-pairs", "--start", "100", "--limit", "50", "-o"]
    assert main([*arguments, str(tmp_path / "out.parquet")]) == 0
    strains = list(itertools.combinations(names, 2))[100:150]
    assert rows_of(tmp_path / "out.parquet") == strains
    assert main([*arguments, str(tmp_path / "out.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "out.csv").open(newline="")))
    assert [(row["gene_1"], row["gene_2"]) for row in rows] == strains
    written = pq.read_table(tmp_path / "out.parquet")["predicted_fitness"].to_pylist()
    assert [np.float32(row["predicted_fitness"]) for row in rows] == written


def test_parts_make_the_same_file_and_row_groups_of_their_size(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    design, told = Design.of(range(12), 3), list[str]()
    predict_design([trained], design, tmp_path / "b.parquet", batch_size=20, report=told.append)
    monkeypatch.setattr(module, "PART_STRAINS", 60)
    predict_design([trained], design, tmp_path / "a.parquet", batch_size=20, report=told.append)
    assert pq.read_table(tmp_path / "a.parquet").equals(pq.read_table(tmp_path / "b.parquet"), check_metadata=True)
    assert [line.split(",")[0] for line in told] == [f"{n} of 220 strains" for n in (220, 60, 120, 180, 220)]
    with pq.ParquetFile(tmp_path / "a.parquet") as file:
        assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [60, 60, 60, 40]
        assert "RLE_DICTIONARY" in file.metadata.row_group(0).column(0).encodings
        assert "RLE_DICTIONARY" not in file.metadata.row_group(0).column(3).encodings


@pytest.mark.parametrize("size", [2, 3])
def test_what_strains_share_is_computed_once_and_changes_no_prediction(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    config = dataclasses.replace(trained.config.model, strategy="difference")
    monkeypatch.setattr(trained.model, "config", config)
    design, batches = Design.of(range(12), size), list[tuple[int, ...]]()
    watched = trained.model.register_forward_pre_hook(lambda _, given: batches.append(given[0].shared))
    alone, together = tmp_path / "alone.parquet", tmp_path / "together.parquet"
    predict_design([trained], design, alone, batch_size=8, report=lambda _: None)
    assert not any(batches)
    batches.clear()
    predict_design([trained], design, together, batch_size=8, worth_sharing=5, report=lambda _: None)
    watched.remove()
    assert {len(shared) for shared in batches} == set(range(size))
    assert rows_of(alone) == rows_of(together)
    found, expected = (pq.read_table(path)["predicted_fitness"].to_numpy() for path in (together, alone))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


class TestStrengths:
    """Designs of weakened genes, and conditions."""

    def predict(self, run: RunDirectory, folder: Path, out: str, *more: str) -> int:
        genes = ["--genes", str(folder / "genes.txt"), "-o", str(folder / out)]
        return main(["predict", str(run.path), *genes, *more])

    def test_a_design_is_predicted_as_a_table_would_be(
        self, tiny_run: RunDirectory, genes: list[str], tmp_path: Path
    ) -> None:
        assert self.predict(tiny_run, tmp_path, "out.csv", "--all-pairs", "--strength", "0,0.25,2") == 0
        with (tmp_path / "out.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == ["gene_1", "gene_2", "strength_1", "strength_2", "predicted_fitness"]
        assert len(rows) == 36 * 9
        assert [(row["strength_1"], row["strength_2"]) for row in rows[:9]] == [
            *itertools.product(("0", "0.25", "2"), repeat=2)
        ]
        strains = [tuple(f"{row[f'gene_{k}']}:{float(row[f'strength_{k}'])}" for k in (1, 2)) for row in rows]
        found = [float(row["predicted_fitness"]) for row in rows]
        np.testing.assert_allclose(found, by_table(tiny_run, tmp_path, strains), rtol=1e-5)
        assert self.predict(tiny_run, tmp_path, "plain.parquet", "--all-pairs") == 0
        plain = pq.read_table(tmp_path / "plain.parquet")["predicted_fitness"].to_numpy()
        np.testing.assert_allclose(found[::9], plain, atol=1e-6)

    def test_doses_of_single_genes_go_on_where_they_stopped(
        self,
        tiny_run: RunDirectory,
        trained: Trained,
        genes: list[str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        doses = ("--all-singles", "--strength", "0,0.5,1")
        assert self.predict(tiny_run, tmp_path, "whole.parquet", *doses) == 0
        whole = pq.read_table(tmp_path / "whole.parquet")
        assert whole["gene_1"].to_pylist() == [gene for gene in genes for _ in range(3)]
        assert whole["strength_1"].to_pylist() == [0, 0.5, 1] * 9
        assert len({round(value, 5) for value in whole["predicted_fitness"].to_pylist()[2::3]}) == 1
        assert json.loads(whole.schema.metadata[b"dglcell"])["strengths"] == [0, 0.5, 1]
        assert self.predict(tiny_run, tmp_path, "whole.parquet", *doses) == 0
        assert "is complete already" in capsys.readouterr().out
        assert self.predict(tiny_run, tmp_path, "whole.parquet", "--all-singles") == 2
        design = Design.of([trained.cell.genes.index(gene) for gene in genes], 1, strengths=[0, 0.5, 1])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "PART_STRAINS", 4)
            predict_design([trained], design, tmp_path / "parts", batch_size=4, report=lambda _: None)
            (tmp_path / "parts" / "part-00003.parquet").unlink()
            predict_design([trained], design, tmp_path / "parts", batch_size=4, report=lambda _: None)
        np.testing.assert_allclose(
            pq.read_table(tmp_path / "parts")["predicted_fitness"].to_numpy(),
            whole["predicted_fitness"].to_numpy(),
            rtol=1e-5,
        )

    def test_rankings_keep_strengths(self, tiny_run: RunDirectory, genes: list[str], tmp_path: Path) -> None:
        ranked = ("--all-pairs", "--strength", "0.5,1", "--rank", "unexpected", "--top", "5")
        assert self.predict(tiny_run, tmp_path, "top.parquet", *ranked) == 0
        found = pq.read_table(tmp_path / "top.parquet")
        assert found.column_names == [
            *(f"{kind}_{k}" for kind in ("gene", "name", "strength") for k in (1, 2)),
            "predicted_fitness",
            "additive_fitness",
        ]
        away = np.abs(found["predicted_fitness"].to_numpy() - found["additive_fitness"].to_numpy())
        assert (np.diff(away) <= 0).all()

    def test_a_model_that_knows_deletions_only_refuses_before_anything_is_written(
        self,
        tiny_run: RunDirectory,
        genes: list[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def refuse(model: object, genotypes: GenotypeBatch) -> None:
            genotypes.refuse_strengths("this model", "another")

        monkeypatch.setattr(HeteroCell, "forward", refuse)
        (tmp_path / "in.csv").write_text("genes\nb0008:0.5\n")
        for arguments in (["--all-singles", "--strength", "0.5", "--batch-size", "4"], [str(tmp_path / "in.csv")]):
            assert main(["predict", str(tiny_run.path), *arguments, "-o", str(tmp_path / "out.csv")]) == 2
            assert "strengths cannot be expressed by this model" in capsys.readouterr().err
        assert sorted(os.listdir(tmp_path)) == ["genes.txt", "in.csv"]

    def test_all_strains_have_the_conditions_that_are_given(
        self,
        tiny_run: RunDirectory,
        genes: list[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        (tmp_path / "in.csv").write_text("genes,temperature\nb0008,30\n,37\n")
        medium = ("--condition", "medium=glycerol")
        assert main(["predict", str(tiny_run.path), str(tmp_path / "in.csv"), *medium]) == 2
        assert "does not see a condition 'medium'\n  expected: none" in capsys.readouterr().err
        monkeypatch.setattr(api, "load_trained", lambda *of: seeing_conditions(load_trained(*of)))
        assert self.predict(tiny_run, tmp_path, "out.parquet", "--all-pairs", *medium) == 2
        refused = capsys.readouterr().err
        assert "'temperature', which the model sees\n  got:      medium=glycerol\n  expected: temperature: " in refused
        assert "do:       give each as --condition NAME=VALUE" in refused
        warm = ("--condition", "temperature=30")
        assert self.predict(tiny_run, tmp_path, "out.parquet", "--all-pairs", *medium, *warm) == 0
        found = pq.read_table(tmp_path / "out.parquet")
        assert found.column_names == [
            "gene_1",
            "gene_2",
            "condition_medium",
            "condition_temperature",
            "predicted_fitness",
        ]
        assert found.to_pylist()[35]["condition_medium"] == "glycerol"
        about = json.loads(found.schema.metadata[b"dglcell"])
        assert about["conditions"] == {"medium": "glycerol", "temperature": 30}
        table = ["predict", str(tiny_run.path), str(tmp_path / "in.csv"), *medium, "-o", str(tmp_path / "out.csv")]
        assert main(table) == 0
        with (tmp_path / "out.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["condition_medium"] for row in rows] == ["glycerol"] * 2
        assert [row["genes"] for row in rows] == ["b0008", ""]
        assert rows[0]["predicted_fitness"] != rows[1]["predicted_fitness"] != ""


@pytest.fixture(scope="module", params=["seen", "learnt", "in media"])
def doses(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return the model; one also learns from the medium what is left of genes, and one has a cell graph with media."""
    folder, learnt = tmp_path_factory.mktemp("conditions"), request.param == "learnt"
    rows = [
        f"{gene},{'' if learnt or not gene else 0.25},{medium},{30 + number},{number % 3 / 2}"
        for number, gene in enumerate(("b0008", "b0114", "b0115", "b0720", "b1241", "b2464", "b0351", ""))
        for medium in ("glucose", "glycerol")
    ]
    (folder / "doses.csv").write_text("\n".join(["orf,left,agar,celsius,growth", *rows]) + "\n")
    columns = {"genes": ["orf"], "strengths": ["left"], "phenotypes": {"growth": "growth"}}
    conditions = {"medium": "agar", "temperature": "celsius"}
    source = {"name": "csv", "csv": {"path": str(folder / "doses.csv"), **columns, "conditions": conditions}}
    media = {"glucose": {}, "glycerol": {"EX_glc__D_e": 0.0, "EX_ac_e": 10.0}}
    model = {"hidden": 8, "layers": 1, "local_heads": 2, "strategy": "difference"}
    config = {
        "experiment": {"name": "doses"},
        "cell": {"model": "textbook"} | ({"media": media} if request.param == "in media" else {}),
        "data": {"store": str(folder / "store"), "batch_size": 4, "source": source},
        "model": model | ({"strength_from": ["medium"]} if learnt else {}),
        "optimizer": {"lr": 0.01},
        "trainer": {"epochs": 2, "threads": 1, "accelerator": "cpu"},
        "paths": {"runs": str(folder)},
        "plot": False,
        "null_models": False,
    }
    (folder / "doses.yaml").write_text(yaml.safe_dump(config))
    return train(load_config(folder / "doses.yaml")).directory


class TestConditions:
    """Models that were trained on a table with two media and several temperatures."""

    def test_a_medium_makes_a_difference(self, doses: RunDirectory, tmp_path: Path) -> None:
        text = "orf,left,agar,celsius\nb0720,0.5,glucose,30\nb0720,0.5,glycerol,30\nb0720,0.5,glycerol,35\n"
        (tmp_path / "in.csv").write_text(text + ",,glucose,30\n,,glycerol,30\n")
        assert main(["predict", str(doses.path), str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv")]) == 0
        with (tmp_path / "out.csv").open(newline="") as file:
            found = [float(row["predicted_growth"]) for row in csv.DictReader(file)]
        # Where a medium only says what is left of genes, it says nothing of the wild type.
        is_learnt = bool(load_trained(doses).config.model.strength_from)
        assert len({round(value, 6) for value in found}) == (4 if is_learnt else 5)

    def test_a_design_is_predicted_as_a_table_would_be(self, doses: RunDirectory, tmp_path: Path) -> None:
        trained = load_trained(doses)
        background = wild_type_in(seen_by(trained), {"medium": "glycerol", "temperature": 33}, "")
        design = Design.of(range(8), 2, background=background)
        for worth_sharing, name in ((2, "shared.parquet"), (99, "apart.parquet")):
            predict_design(
                [trained],
                design,
                tmp_path / name,
                batch_size=5,
                worth_sharing=worth_sharing,
                report=lambda _: None,
            )
        shared, apart = pq.read_table(tmp_path / "shared.parquet"), pq.read_table(tmp_path / "apart.parquet")
        assert shared.column_names[2:4] == ["condition_medium", "condition_temperature"]
        again = api.load(doses.path).predict(shared.drop_columns(["predicted_growth"]).to_pandas())
        for table in (shared, apart):
            np.testing.assert_allclose(table["predicted_growth"].to_numpy(), again.predicted_growth, atol=1e-5)

    def test_strengths_and_media_of_a_table_are_chosen_as_a_batch(self, doses: RunDirectory, tmp_path: Path) -> None:
        learnt = bool(load_trained(doses).config.model.strength_from)
        rows = [
            f"{gene},{'' if learnt else left},{medium},{30 + left}"
            for gene in ("b0720", "b1241", "b2464")
            for left in (0, 0.4)
            for medium in ("glucose", "glycerol")
        ]
        (tmp_path / "in.csv").write_text("\n".join(["orf,left,agar,celsius", *rows]) + "\n")
        out = ["--interval", "0.5", "--batch", "4", "-o", str(tmp_path / "next.csv")]
        for strategy in ("informative", "effect", "sick"):
            assert main(["next", str(doses.path), str(tmp_path / "in.csv"), "--strategy", strategy, *out]) == 0
            with (tmp_path / "next.csv").open(newline="") as file:
                found = list(csv.DictReader(file))
            assert [row["rank"] for row in found] == ["1", "2", "3", "4"]
            chosen = [",".join(row[name] for name in ("orf", "left", "agar", "celsius")) for row in found]
            assert len({*chosen} & {*rows}) == 4
            assert all(float(row["low_growth"]) <= float(row["high_growth"]) for row in found)
        design = ["--all-pairs", "--limit", "30", "--strength", "0.3,0.6"][: 3 if learnt else 5]
        conditions = ["--condition", "medium=glycerol", "--condition", "temperature=31"]
        assert main(["next", str(doses.path), *design, *conditions, *out]) == 0
        with (tmp_path / "next.csv").open(newline="") as file:
            first = next(csv.DictReader(file))
        assert (first["condition_medium"], first["condition_temperature"]) == ("glycerol", "31")
        assert learnt or first["strength_2"] in ("0.3", "0.6")


def test_a_slow_model_has_small_parts(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_SECONDS", 0.0)
    told: list[str] = []
    predict_design([trained], Design.of(range(6), 2), tmp_path / "a.parquet", batch_size=4, report=told.append)
    assert [line.split(",")[0] for line in told] == [f"{n} of 15 strains" for n in (4, 8, 12, 15)]


@pytest.fixture(scope="module")
def seeds(tiny_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment with two runs, of which the second predicts on a wider scale."""
    runs = tmp_path_factory.mktemp("seeds")
    for seed in ("seed-0", "seed-1"):
        shutil.copytree(tiny_run.path, runs / seed)
    path = RunDirectory(runs / "seed-1").checkpoint("best_loss")
    content = torch.load(path, weights_only=True)
    content["state_dict"]["normaliser.scale"] *= 1.5
    torch.save(content, path)
    return runs


class TestRanking:
    """The first strains of a design."""

    def predict(self, run: Path, out: Path, *more: str) -> pa.Table:
        assert main(["predict", str(run), "--all-pairs", "--limit", "60", "-o", str(out), *more]) == 0
        return pq.read_table(out)

    @pytest.mark.parametrize(
        ("by", "key"),
        [
            ("lowest", lambda table: -table["predicted_fitness"].to_numpy()),
            ("highest", lambda table: table["predicted_fitness"].to_numpy()),
            ("largest", lambda table: np.abs(table["predicted_fitness"].to_numpy())),
            ("certain", lambda table: np.abs(table["predicted_fitness"].to_numpy()) / table["sd_fitness"].to_numpy()),
            ("uncertain", lambda table: table["sd_fitness"].to_numpy()),
        ],
    )
    def test_rows_are_those_of_the_whole_design(
        self, seeds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str, key: Callable[..., np.ndarray]
    ) -> None:
        whole = self.predict(seeds, tmp_path / "whole.parquet")
        assert whole.column_names == ["gene_1", "gene_2", "predicted_fitness", "sd_fitness"]
        capsys.readouterr()
        found = self.predict(seeds, tmp_path / "top.parquet", "--top", "7", "--rank", by)
        assert f"the first 7 of 60 predictions written to {tmp_path / 'top.parquet'}" in capsys.readouterr().out
        expected = whole.take(np.argsort(-key(whole), kind="stable")[:7])
        assert found.column_names[2:4] == ["name_1", "name_2"]
        genes = load_trained(RunDirectory(seeds / "seed-0")).cell.genes
        assert found["name_1"].to_pylist() == [genes.standard(gene) for gene in found["gene_1"].to_pylist()]
        assert found.drop_columns(["name_1", "name_2"]).to_pylist() == expected.to_pylist()
        about = json.loads(found.schema.metadata[b"dglcell"])
        assert (about["rank"], about["top"], about["phenotype"]) == (by, 7, "fitness")
        assert len(about["checkpoint_sha256"]) == 2

    def test_the_first_of_all_parts_are_those_of_one(
        self, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ranking, design = Ranking.of("highest", 9, None, [trained], tmp_path), Design.of(range(12), 2)
        for name, size in (("many.parquet", 10), ("one.parquet", 1000)):
            monkeypatch.setattr(module, "PART_STRAINS", size)
            predict_design([trained], design, tmp_path / name, batch_size=5, ranking=ranking, report=lambda _: None)
        many, one = pq.read_table(tmp_path / "many.parquet"), pq.read_table(tmp_path / "one.parquet")
        assert len(many) == 9
        assert many.to_pylist() == one.to_pylist()

    def test_unexpected_strains_differ_from_an_additive_model_of_the_training_part(
        self, tiny: Tiny, tiny_run: RunDirectory, tmp_path: Path
    ) -> None:
        found = self.predict(tiny_run.path, tmp_path / "top.parquet", "--top", "60", "--rank", "unexpected")
        strains, split = Store(tiny.store).read(), Split.load(tiny_run.split)
        names = load_trained(tiny_run).cell.genes.names
        deleted = np.array([[name in genes for name in names] for genes in strains.genotypes], float)
        train, validation = (np.flatnonzero(split.part == part) for part in (TRAIN, VALIDATION))
        fitness = strains.phenotypes["fitness"].astype(float)
        centre, mean, models = deleted[train].mean(0), fitness[train].mean(), []
        for alpha in (0.1, 1.0, 10.0, 100.0, 1000.0):
            x = deleted[train] - centre
            effects = np.linalg.solve(x.T @ x + alpha * np.eye(len(names)), x.T @ (fitness[train] - mean))
            error = np.square((deleted[validation] - centre) @ effects + mean - fitness[validation]).mean()
            models.append((error, effects))
        effects = min(models, key=lambda model: model[0])[1]
        pairs = [[names.index(row["gene_1"]), names.index(row["gene_2"])] for row in found.to_pylist()]
        expected = effects[np.array(pairs)].sum(1) + mean - centre @ effects
        np.testing.assert_allclose(found["additive_fitness"].to_numpy(), expected, rtol=1e-5, atol=1e-6)
        surprise = np.abs(found["predicted_fitness"].to_numpy() - found["additive_fitness"].to_numpy())
        assert (np.diff(surprise) <= 1e-6).all()

    def test_what_cannot_be_ranked_is_refused(self, trained: Trained, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"`--rank certain` requires several seeds or intervals\n  got: +one run"):
            Ranking.of("certain", 1, None, [trained], tmp_path)
        with pytest.raises(ConfigError, match=r"ranked by one phenotype\n  got: +growth\n  expected: fitness"):
            Ranking.of("lowest", 1, "growth", [trained], tmp_path)
        two = dataclasses.replace(trained, phenotypes=("fitness", "growth"))
        with pytest.raises(ConfigError, match=r"got: +a model of 2\n  expected: fitness or growth\n  do: +name one"):
            Ranking.of("lowest", 1, None, [two], tmp_path)

    def test_the_command_line_knows_every_ranking(self) -> None:
        assert tuple(RANKINGS) == cli_predict.RANKINGS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [],
            "what shall be predicted?\n  got:      nothing\n  expected: a CSV, or --all-singles, --all-pairs or",
        ),
        (["x.csv", "--all-pairs"], "what shall be predicted?\n  got:      x.csv and --all-pairs\n"),
        (["--all-pairs", "--all-triples"], "got:      --all-pairs and --all-triples\n"),
        (["--all-pairs", "--rank", "lowest"], "how many strains of the ranking are wanted?\n  expected: --top N"),
        (["x.csv", "--strength", "0.5"], "this is a table\n  got:      --strength\n"),
        (
            ["x.csv", "--condition", "a=1", "--condition", "a=2"],
            "gives a condition twice\n  got:      a, a",
        ),
        (["x.csv", "--top", "3"], "this is a table\n  got:      --top\n"),
        (
            ["x.csv", "--limit", "3", "--genes", "g"],
            "some options are of designs, and this is a table\n  got:      --genes, --limit\n  do:       leave",
        ),
        (
            ["x.csv", "-o", "o.txt"],
            "'o.txt': the suffix does not say which format is wanted\n  got:      .txt\n",
        ),
        (["x.csv", "-o", "out"], "got:      no suffix\n  expected: .csv or .parquet\n"),
        (["--all-pairs", "--top", "3", "-o", "out"], "got:      no suffix\n  expected: .csv or .parquet\n"),
        (["--all-pairs", "-o", "o.txt"], "expected: .csv or .parquet, or no suffix for a folder of Parquet files\n"),
    ],
)
def test_wrong_options(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = [] if "-o" in arguments else ["-o", "out.csv"]
    assert main(["predict", str(tmp_path), *arguments, *output]) == 2
    assert message in capsys.readouterr().err


def test_parquet_without_pyarrow(
    tiny_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "in.csv").write_text("genes\nb0008\n")
    for arguments in (
        [str(tmp_path / "in.csv"), "-o", str(tmp_path / "x.parquet")],
        ["--all-pairs", "-o", str(tmp_path / "x.csv")],
    ):
        assert main(["predict", str(tiny_run.path), *arguments]) == 2
        error = capsys.readouterr().err
        assert "Parquet files, and predictions of whole designs, need pyarrow\n  do:       pip install" in error
    assert os.listdir(tmp_path) == ["in.csv"]
    assert main(["predict", str(tiny_run.path), str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv")]) == 0


def test_a_table_to_parquet(tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.parquet"
    source.write_text("note,gene_1,gene_2\nä,b0008, b0114 \n,b0115,\n")
    assert main(["predict", str(tiny_run.path), str(source), "-o", str(target)]) == 0
    table = pq.read_table(target)
    assert table.column_names == ["note", "gene_1", "gene_2", "predicted_fitness"]
    assert table["note"].to_pylist() == ["ä", ""]
    assert table["gene_2"].to_pylist() == ["b0114", None]
    assert pa.types.is_dictionary(table.schema.field("gene_1").type)
    source.write_text("x,x,genes\n1,2,b0008\n")
    assert main(["predict", str(tiny_run.path), str(source), "-o", str(target)]) == 2
    assert "two columns are called 'x'\n  do:       give every column a name of its own" in capsys.readouterr().err
    assert len(pq.read_table(target)) == 2
