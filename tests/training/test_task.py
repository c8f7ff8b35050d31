"""What is optimised and measured."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.callbacks import GradientAccumulationScheduler
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from dglcell.data.columns import PHENOTYPE, Column
from dglcell.data.store import Store, build_store
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError
from dglcell.graph.cell import build_cell
from dglcell.metrics import best_threshold, classification_metrics, f1
from dglcell.optimizers import count_steps
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs import RunDirectory
from dglcell.training import task as task_module
from dglcell.training.callbacks import leave_group
from dglcell.training.checkpoint import load_trained, read_checkpoint
from dglcell.training.fit import fit, make_callbacks, make_task, make_trainer
from dglcell.training.prepare import node_features, prepare
from dglcell.training.run import set_up_process, train
from dglcell.training.signals import StopSignals
from dglcell.training.task import Replay, WholeStep, Work, fits, say_epoch
from tests.data.strain_tables import changed
from tests.tiny import BARE, Tiny, history


def with_labels(tiny: Tiny, folder: Path, **phenotypes: np.ndarray) -> Tiny:
    table = Store(tiny.store).read()
    columns = {name: values.astype(np.float32) for name, values in phenotypes.items()}
    build_store(changed(table, **columns), folder / "store", command="tests")
    return Tiny(tiny.file, folder / "store")


@pytest.fixture(scope="module")
def two(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Return two phenotypes: fitness, and its negative square with a third of the labels missing."""
    fitness = Store(tiny.store).read().phenotypes["fitness"]
    other = -np.square(fitness)
    other[np.random.default_rng(0).random(len(other)) < 1 / 3] = np.nan
    return with_labels(tiny, tmp_path_factory.mktemp("two"), fitness=fitness, other=other)


def test_several_phenotypes_with_missing_labels_are_learnt_together(two: Tiny, tmp_path: Path) -> None:
    result = two.train(tmp_path, "data.phenotypes=null", "trainer.epochs=6", "optimizer.lr=0.05", "baselines=true")
    rows = history(result.directory)
    sizes = {name: rows[0][f"train/{name}/n"] + rows[0][f"validation/{name}/n"] for name in ("fitness", "other")}
    assert sizes["fitness"] == 270
    assert 150 < sizes["other"] < 210
    for name in ("fitness", "other"):
        assert rows[-1][f"validation/{name}/pearson"] > 0.6
    expected = (rows[-1]["validation/fitness/pearson"] + rows[-1]["validation/other/pearson"]) / 2
    assert rows[-1]["validation/pearson"] == pytest.approx(expected)
    # The loss is the mean over all labels that are there, in normalised units.
    parts = [(rows[-1][f"validation/{n}/n"], rows[-1][f"validation/{n}/normalised/mse"]) for n in ("fitness", "other")]
    mean = sum(n * mse for n, mse in parts) / sum(n for n, _ in parts)
    assert rows[-1]["validation/loss"] == pytest.approx(mean, rel=1e-5)
    assert {row.phenotype for row in result.rows} == {"fitness", "other"}
    table = pd.read_csv(result.directory.predictions("test"))
    both = [f"{what}_{name}" for name in ("fitness", "other") for what in ("measured", "predicted")]
    assert list(table) == ["genes", "names", *both, "network_fitness", "network_other"]
    missing = table[table["measured_other"].isna()]
    assert 0 < len(missing) < len(table)
    assert missing["predicted_other"].notna().all()


def test_label_statistics_come_from_the_training_part_alone(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path)
    prepared = prepare(config, command="tests")
    labels = Store(tiny.store).read().phenotypes["fitness"].copy()
    outside = np.concatenate([prepared.dataset.rows[prepared.parts[p]].numpy() for p in ("validation", "test")])
    labels[outside] += 100
    changed = with_labels(tiny, tmp_path, fitness=labels)
    again = prepare(changed.config(tmp_path), command="tests")
    for name, strains in prepared.parts.items():
        assert torch.equal(strains, again.parts[name])
    assert again.dataset.labels[again.parts["test"]].mean() > 90
    directory = RunDirectory(tmp_path)
    before, after = (make_task(config, p, directory).normaliser for p in (prepared, again))
    assert torch.equal(before.shift, after.shift)
    assert torch.equal(before.scale, after.scale)
    train = prepared.dataset.labels[prepared.parts["train"]].double()
    assert float(before.shift) == pytest.approx(float(train.mean()), rel=1e-6)
    assert float(before.scale) == pytest.approx(float(train.std(unbiased=False)), rel=1e-6)


def test_a_run_of_a_gpu_goes_on_on_a_cpu(tiny: Tiny, tmp_path: Path) -> None:
    directory = tiny.train(tmp_path, "trainer.epochs=1").directory
    content = torch.load(directory.last, weights_only=True)
    (group,) = content["optimizer_states"][0]["param_groups"]
    assert group["capturable"] is False
    group["capturable"] = True  # as on a GPU
    torch.save(content, directory.last)
    assert len(history(tiny.train(tmp_path, "trainer.epochs=2").directory)) == 2


def test_the_whole_schedule_fits_the_steps_that_are_made(tiny: Tiny, tmp_path: Path) -> None:
    options = ["scheduler.name=cosine_restarts", "scheduler.interval=step", "scheduler.min_lr=0.0001"]
    rows = history(
        tiny.train(tmp_path, *options, "trainer.accumulate_grad_batches={0: 2, 2: 4}", "trainer.epochs=4").directory
    )
    assert rows[-1]["step"] == count_steps(4, 4, {0: 2, 2: 4}) == 6
    rates = [row["learning_rate"] for row in rows]
    assert rates == sorted(rates, reverse=True)
    expected = [1e-4 + (3e-3 - 1e-4) * (1 + np.cos(np.pi * last / 6)) / 2 for last in (1, 3, 4, 5)]
    assert rates == pytest.approx(expected)


def test_ranks_do_not_send_each_other_the_graph_in_every_step(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path)
    task = make_task(config, prepare(config, command="tests"), RunDirectory(tmp_path))
    assert len(list(task.buffers())) > 10
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        assert not DistributedDataParallel(task).modules_buffers
    finally:
        leave_group()


def test_terms_of_a_loss_are_recorded_and_add_up_to_it(two: Tiny, tmp_path: Path) -> None:
    keys = "supcr: 0.2, adaptive: false, buffer_size: 50, temperature: 0.2, temperature_final: 0.1"
    loss, distance = f"loss={{name: mle_wass_supcr, wasserstein: 0.5, {keys}}}", "wasserstein"
    options = ["data.phenotypes=null", loss, "data.batch_size=50"]
    rows = history(two.train(tmp_path, *options, "trainer.epochs=6", "optimizer.lr=0.02").directory)
    for row in rows:
        for part in ("train", "validation"):
            terms = {name: row[f"{part}/loss/{name}"] for name in ("mse", distance, "supcr")}
            total = terms["mse"] + 0.5 * terms[distance] + 0.2 * terms["supcr"]
            assert row[f"{part}/loss"] == pytest.approx(total, rel=1e-5)
            labels = [(row[f"{part}/{n}/n"], row[f"{part}/{n}/normalised/mse"]) for n in ("fitness", "other")]
            mse = sum(n * mse for n, mse in labels) / sum(n for n, _ in labels)
            assert terms["mse"] == pytest.approx(mse, rel=1e-5)
    # τ falls with the epoch that is running.
    assert [row["train/loss/temperature"] for row in rows] == pytest.approx([0.2 * 0.5 ** (e / 6) for e in range(6)])
    assert rows[-1]["train/loss"] < rows[0]["train/loss"]
    # Not in training, where more strains are compared once the buffer has some.
    assert rows[-1]["validation/loss/supcr"] < rows[0]["validation/loss/supcr"]


def test_classes_are_learnt_as_probabilities(tiny: Tiny, tmp_path: Path) -> None:
    fitness = Store(tiny.store).read().phenotypes["fitness"]
    binary = with_labels(tiny, tmp_path, grows=(fitness >= np.nanmedian(fitness)).astype(np.float32))
    options = ["data.phenotypes=[grows]", "loss=bce", "data.normalise=logistic", "model.combination=mean"]
    result = binary.train(tmp_path, *options, "trainer.epochs=6", "optimizer.lr=0.02")
    rows = history(result.directory)
    assert rows[0]["train/loss"] == pytest.approx(np.log(2), rel=0.1)
    assert rows[-1]["train/loss"] < 0.8 * rows[0]["train/loss"]
    assert rows[-1]["validation/pearson"] > 0.5
    assert rows[-1]["validation/grows/mse"] == pytest.approx(rows[-1]["validation/grows/normalised/mse"])
    lines = result.directory.predictions("test").read_text().splitlines()[1:]
    predicted = np.array([float(line.split(",")[2]) for line in lines])
    assert 0 <= predicted.min() < 0.5 < predicted.max() <= 1
    trained = load_trained(result.directory)
    assert trained.normaliser.kind == "logistic"
    with torch.no_grad():
        outputs = trained.model(GenotypeBatch.from_lists([[0, 1]])).phenotypes
    assert torch.equal(trained.normaliser.restore(outputs), outputs.sigmoid())


DANGO = "{name: dango, hidden: 8, heads: 2, zero_weights: {isoenzyme: 0.5}}"


@pytest.mark.parametrize(
    "options",
    [
        ["model.conv=sage", "model.combination=mean", "model.strategy=edge_mask"],
        ["model.local_head=false", "model.combination=none", "model.pool=[gene,reaction,metabolite]"],
        ["trainer.precision=64-true", "split.kind=gene_disjoint"],
        ["trainer.precision=bf16", "model.layers=3"],
        ["trainer.precision=bf16", "model.layers=2", "model.strategy=difference", "model.conv=sage"],
        ["data.eval_batch_size=7", "model.layers=0"],
        ["cell.derived=[isoenzyme]", f"model={DANGO}", "loss=dango"],
    ],
    ids=" ".join,
)
def test_other_models_and_precisions_train_and_predict(tiny: Tiny, tmp_path: Path, options: list[str]) -> None:
    result = tiny.train(tmp_path, "trainer.epochs=1", *options)
    assert all(np.isfinite(row["validation/loss"]) for row in history(result.directory))
    assert all(np.isfinite(row.metrics["mse"]) for row in result.rows)


def test_the_best_checkpoints_are_the_best(tiny: Tiny, tmp_path: Path) -> None:
    options = ["trainer.epochs=5", "optimizer.lr=0.1", "trainer.checkpoint=best_pearson"]
    directory = tiny.train(tmp_path, *options).directory
    rows = history(directory)
    best = {
        name: read_checkpoint(directory.checkpoint(name))["epoch"] for name in ("best_loss", "best_pearson", "last")
    }
    assert best["best_loss"] == min(rows, key=lambda row: row["validation/loss"])["epoch"]
    assert best["best_pearson"] == max(rows, key=lambda row: row["validation/pearson"])["epoch"]
    assert best["last"] == 4


def test_fixed_features_are_used_and_travel_with_the_checkpoint(tiny: Tiny, tmp_path: Path) -> None:
    table = tmp_path / "features.csv"
    table.write_text("gene,length\nb0008,951\nb0114,2664\nb0115,1893\n")
    options = [f"model.features.gene={table}", "model.features.reaction=wild_type", "model.pool=[gene,reaction]"]
    result = tiny.train(tmp_path, *options, "trainer.epochs=1")
    state = read_checkpoint(result.directory.checkpoint("last"))["state_dict"]
    assert state["model.encoder.features.gene"].count_nonzero() == 3
    assert state["model.encoder.features.reaction"].shape == (207, 10)
    assert state["model.encoder.project.gene.weight"].any()
    table.unlink()
    trained = load_trained(result.directory)
    assert trained.model(GenotypeBatch.from_lists([[0, 1]])).phenotypes.isfinite().all()


@pytest.mark.parametrize(
    ("node_type", "said"),
    [
        ("protein", r"`model.features` names no node type\n  got:      protein"),
        ("reaction", r"`model.features.reaction: wild_type` needs a model\n  do:       set `cell.model`"),
    ],
)
def test_features_that_cannot_be_are_refused(tiny: Tiny, tmp_path: Path, node_type: str, said: str) -> None:
    config = tiny.config(tmp_path, f"model.features.{node_type}=wild_type")
    cell = build_cell(config.cell)
    with pytest.raises(ConfigError, match=said):
        node_features(dataclasses.replace(config, cell=dataclasses.replace(config.cell, model=None)), cell)


@pytest.fixture(scope="module")
def screen(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Fitness, and whether it is impaired, with a tenth of these labels missing."""
    fitness = Store(tiny.store).read().phenotypes["fitness"]
    sick = (fitness < 0.97).astype(np.float32)
    assert 0.1 < sick.mean() < 0.9
    sick[np.random.default_rng(0).random(len(sick)) < 0.1] = np.nan
    return with_labels(tiny, tmp_path_factory.mktemp("classes"), sick=sick, fitness=fitness)


OPTIONS = (
    "data.phenotypes=[sick]",
    "trainer.checkpoint=best_average_precision",
    "trainer.epochs=4",
    "split.subset.size=400",
    "optimizer.lr=0.04",
)


@pytest.fixture(scope="module")
def run(screen: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return train(screen.config(tmp_path_factory.mktemp("runs"), *OPTIONS, "plot=false")).directory


def measured_and_predicted(run: RunDirectory, part: str) -> tuple[np.ndarray, np.ndarray]:
    """From the table of predictions of the network, NaN where a label is missing."""
    rows = list(csv.DictReader(run.predictions(part).open()))
    network = "network" if "network_sick" in rows[0] else "predicted"
    return tuple(np.array([float(row[f"{k}_sick"] or "nan") for row in rows]) for k in ("measured", network))  # type: ignore[return-value]


def test_epochs_record_the_metrics_of_classes(run: RunDirectory) -> None:
    rows = history(run)
    for row in rows:
        for part in ("train", "validation"):
            assert row[f"{part}/average_precision"] == row[f"{part}/sick/average_precision"]
            assert row[f"{part}/sick/brier"] == row[f"{part}/sick/mse"]
            assert 0 < row[f"{part}/sick/prevalence"] < 1
    assert rows[-1]["train/average_precision"] > rows[-1]["train/sick/prevalence"] + 0.2
    best = read_checkpoint(run.checkpoint("best_average_precision"))["epoch"]
    assert best == max(rows, key=lambda row: row["validation/average_precision"])["epoch"]
    assert json.loads(run.results.read_text())["checkpoint"] == "best_average_precision.ckpt"


def test_results_are_those_of_the_predictions_at_the_validation_part_s_threshold(run: RunDirectory) -> None:
    found = {(row["model"], row["part"]): row for row in json.loads(run.results.read_text())["rows"]}
    measured, predicted = measured_and_predicted(run, "validation")
    threshold = best_threshold(predicted, measured)
    for part in ("validation", "test"):
        row = found["hetero_cell", part]
        measured, predicted = measured_and_predicted(run, part)
        assert row["kind"] == "classification"
        for name, value in classification_metrics(predicted, measured).items():
            assert row["metrics"][name] == pytest.approx(value, rel=1e-4)
        assert row["metrics"]["threshold"] == pytest.approx(threshold, rel=1e-4)
        assert row["metrics"]["f1"] == pytest.approx(f1(predicted, measured, threshold - 1e-5))
        mean = found["training mean", part]["metrics"]
        assert mean["average_precision"] == pytest.approx(mean["prevalence"])
        assert (mean["auroc"], mean["prevalence"]) == (0.5, row["metrics"]["prevalence"])
        assert 0 < found["additive ridge", part]["metrics"]["auroc"] <= 1
    assert found["hetero_cell", "test"]["metrics"]["n"] < 40


def test_the_best_average_precision_of_numbers_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"best_average_precision` is for phenotypes of 0 and 1\n  do: .*best_loss"):
        tiny.train(tmp_path, "trainer.checkpoint=best_average_precision")
    assert not list(tmp_path.rglob("*.ckpt"))


def test_numbers_and_classes_are_learnt_together(screen: Tiny, tmp_path: Path) -> None:
    result = screen.train(tmp_path, "data.phenotypes=null", "trainer.epochs=2")
    assert {(row.phenotype, row.kind) for row in result.rows} == {("sick", "classification"), ("fitness", "regression")}
    row = history(result.directory)[-1]
    assert row["validation/average_precision"] == row["validation/sick/average_precision"]
    pearsons = [row[f"validation/{name}/pearson"] for name in ("sick", "fitness")]
    assert row["validation/pearson"] == pytest.approx(np.mean(pearsons))


def record(work: Work, batch: Strains) -> Replay:
    """Return what a CUDA graph does, on a CPU: the same work on the same tensors; nothing derived from them is kept."""
    return lambda: work(batch.map(lambda tensor: tensor))


def plainly(work: Work, batch: Strains) -> Sequence[Tensor]:
    return work(batch)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "WORTH", 2)
    monkeypatch.setattr(task_module, "ASIDE", 1)


def trained(tiny: Tiny, folder: Path, *, whole: bool) -> tuple[dict[str, Tensor], RunDirectory]:
    config = tiny.config(folder, *BARE, "data.batch_size=20", "model.dropout=0.1")
    directory, signals = RunDirectory(config.run_directory), StopSignals(False)
    directory.checkpoints.mkdir(parents=True)
    set_up_process(config)
    prepared = prepare(config, command="test")
    trainer = make_trainer(config, directory, make_callbacks(config, directory, prepared.dataset.kinds, signals))
    task = make_task(config, prepared, directory)
    if whole:
        task.whole_step = WholeStep(task._whole, record, plainly)
    fit(task, trainer, prepared, None, signals)
    assert not whole or task.whole_step._recorded
    return task.state_dict(), directory


def test_whole_steps_are_lightnings_bit_for_bit(tiny: Tiny, tmp_path: Path) -> None:
    (expected, plain), (found, whole) = (trained(tiny, tmp_path / str(w), whole=w) for w in (False, True))
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert history(whole) == history(plain)
    last = [torch.load(directory.last, weights_only=True) for directory in (plain, whole)]
    assert last[0]["loops"] == last[1]["loops"]


def batch_of(strains: int, first: float) -> Strains:
    labels = {Column(PHENOTYPE, "y"): np.arange(strains, dtype=np.float32) + np.float32(first)}
    genes = [[strain] for strain in range(strains)]
    return Strains.from_indices(tuple(f"g{i}" for i in range(9)), genes, columns=labels, units={"y": ""}).to("cpu")


def test_a_step_is_recorded_when_enough_of_its_kind_were_done() -> None:
    did: list[str] = []

    def work(batch: Strains) -> list[Tensor]:
        did.append("work")
        return [batch.labels]

    def recorded(work: Work, batch: Strains) -> Replay:
        did.append("record")
        return lambda: (did.append("replay"), [batch.labels])[1]

    whole = WholeStep(work, recorded, plainly)

    def step(strains: int, first: float, key: int) -> str:
        did.clear()
        batch = batch_of(strains, first)
        assert torch.equal(whole(batch, key)[0], batch.labels)
        return " ".join(did)

    assert [step(4, float(i), 0) for i in range(4)] == ["work", "work", "record replay", "replay"]
    assert step(3, 9.0, 0) == "work", "a last, shorter batch is done as ever"
    assert step(4, 10.0, 0) == "replay", "and does not undo the recording"
    assert [step(4, float(i), 1) for i in range(3)] == ["work", "work", "record replay"], "another key"


def test_steps_that_cannot_be_recorded_are_done_as_ever() -> None:
    def fails(work: Work, batch: Strains) -> Replay:
        raise RuntimeError("operation not permitted when stream is capturing")

    whole = WholeStep(lambda batch: [batch.labels + 1], fails, plainly)
    assert [float(whole(batch_of(2, float(i)), 0)[0][0, 0]) for i in range(5)] == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("settings", "right"),
    [
        ({}, True),
        ({"precision": "64-true"}, True),
        ({"precision": "bf16-mixed"}, False),
        ({"accumulate_grad_batches": 2}, False),
        ({"callbacks": [GradientAccumulationScheduler({3: 2})]}, False),  # it accumulates later
    ],
    ids=["plain", "double", "mixed", "accumulating", "accumulating later"],
)
def test_steps_that_are_not_alike_are_no_whole(settings: dict[str, Any], right: bool) -> None:
    assert fits(pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, **settings)) == right


def test_a_terminal_shows_one_epoch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for epoch in (1, 2):
        say_epoch(f"epoch {epoch}/2", epoch / 2, in_place=True)
    assert capsys.readouterr().out == "\x1b[K[######------] epoch 1/2\r\x1b[K[############] epoch 2/2\n"
