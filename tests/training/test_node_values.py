"""Values of nodes from a screen to training, evaluation, and prediction."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from cobra.io import load_model
from cobra.util.array import create_stoichiometric_matrix

import dglcell
from dglcell.cli import main
from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.columns import NODE_ROW, Column
from dglcell.data.node_values import CellValues, NodeValues
from dglcell.data.sources.fluxes import FLUX, HIGHEST, LOWEST
from dglcell.errors import CheckpointError, ConfigError, DataError
from dglcell.metrics import NODES
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from dglcell.training.evaluate import evaluate_run
from dglcell.training.fit import make_task
from dglcell.training.node_values import (
    READ_TOGETHER,
    MassBalance,
    NodeScores,
    bare_node_heads,
    limit_node_heads,
    scaled_values,
    spread,
)
from dglcell.training.prepare import Prepared, prepare_run, settle_what_models_see
from dglcell.training.run import train
from tests.tiny import TINY, Tiny

KEYS = ("data.source.insilico.fluxes=true", "data.source.insilico.pairs='600'", "data.nodes={flux: {type: reaction}}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiment, its store and its run."""
    folder = tmp_path_factory.mktemp("nodes")
    (folder / "nodes.yaml").write_text(TINY)
    return folder


def config_of(folder: Path, *more: str) -> Config:
    paths = (f"paths.data={folder / 'data'}", f"paths.runs={folder / 'runs'}")
    return load_config(folder / "nodes.yaml", [*KEYS, "plot=false", *paths, *more])


@pytest.fixture(scope="module")
def run(folder: Path) -> RunDirectory:
    """A run that learns fluxes beside fitness."""
    return train(config_of(folder)).directory


@pytest.fixture(scope="module")
def prepared(run: RunDirectory) -> Prepared:
    """What it was trained on."""
    return prepare_run(load_trained(run).config, run, "tests", continued=True)


def test_metrics_are_those_of_the_whole_table() -> None:
    rng = np.random.default_rng(0)
    target, scale = rng.normal(size=(40, 5)), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    predicted = target + rng.normal(size=target.shape)
    target[rng.random(target.shape) < 0.2] = np.nan
    target[:, 4], predicted[:, 3] = 0.5, 0.0  # a node that does not vary here, and a constant prediction
    target[7] = np.nan
    scores = NodeScores(scale)
    for rows in np.array_split(np.arange(40), 3):
        scores.add(predicted[rows], target[rows])
    found = scores.metrics()
    measured = ~np.isnan(target)
    r = [np.corrcoef(predicted[m, i], target[m, i])[0, 1] for i, m in enumerate(measured.T[:3])]
    assert found["pearson"] == pytest.approx(np.mean([*r, 0.0]))
    error = np.where(measured, predicted - target, 0)
    spread = [np.square(target[m, i] - target[m, i].mean()).sum() for i, m in enumerate(measured.T[:4])]
    square = np.square(scale[:4])
    assert found["r2"] == pytest.approx(1 - (np.square(error[:, :4]) * square).sum() / (spread * square).sum())
    assert found["mae"] == pytest.approx((np.abs(error) * scale).sum() / measured.sum())
    assert (found["n"], found["nodes"]) == (39, 4)
    assert np.isnan(NodeScores(scale).metrics()["pearson"])


def test_a_run_learns_fluxes_and_compares_null_models(run: RunDirectory, prepared: Prepared) -> None:
    results = json.loads(run.results.read_text())
    assert {row["phenotype"] for row in results["rows"]} == {"fitness"}
    test = {row["model"]: row["metrics"] for row in results[NODES] if row["part"] == "test"}
    assert list(test) == [
        *("hetero_cell", "mean of training strains", "nearest training strain", "kernel ridge on lost reactions")
    ]
    assert test["mean of training strains"]["pearson"] == 0
    assert all(metrics["n"] == test["hetero_cell"]["n"] > 20 for metrics in test.values())
    epochs = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert epochs[-1]["train/loss/flux"] < epochs[0]["train/loss/flux"]
    assert "validation/loss/flux" in epochs[0]
    again = {(row.model, row.part): row.metrics for row in evaluate_run(run.path) if row.kind == NODES}
    assert again["hetero_cell", "test"]["pearson"] == pytest.approx(test["hetero_cell"]["pearson"], abs=1e-5)
    for null, metrics in list(test.items())[1:]:
        assert metrics["ahead"] == pytest.approx(test["hetero_cell"]["pearson"] - metrics["pearson"], abs=1e-9)
        assert metrics["ahead_low"] < metrics["ahead"] < metrics["ahead_high"]
        assert metrics["ahead_genes_low"] < metrics["ahead_genes_high"]
        assert "ahead" not in again[null, "validation"]


def test_fluxes_are_told_from_other_values_and_weighed_by_the_stoichiometry(folder: Path, prepared: Prepared) -> None:
    head, values, cell = bare_node_heads(config_of(folder), prepared)[FLUX], prepared.nodes[FLUX], prepared.cell
    balance = MassBalance.of(head, values, cell)
    assert balance is not None
    model = load_model("textbook")
    rows = [[m.id for m in model.metabolites].index(name) for name in cell.vocabularies["metabolite"].names]
    columns = np.argsort([reaction.id for reaction in model.reactions])
    expected = create_stoichiometric_matrix(model)[rows][:, columns]
    np.testing.assert_allclose(balance.stoichiometry.toarray(), expected, atol=1e-6)
    strains = prepared.parts["test"].numpy()
    target = scaled_values(head, values, strains)
    right, wrong = (NodeScores(head.scale.double().numpy(), balance=balance) for _ in range(2))
    measured = np.where(np.isnan(target), 0, target)
    right.add(measured, target)
    wrong.add(measured + np.random.default_rng(0).normal(size=target.shape), target)
    assert right.metrics()["unbalanced"] < 1e-3 < 0.05 < wrong.metrics()["unbalanced"] < 1
    other = replace(values, values=replace(values.values, values=values.values.values + 1))
    assert MassBalance.of(head, other, cell) is None


def test_the_spread_is_that_of_all_strains_however_few_are_read_at_a_time() -> None:
    rng = np.random.default_rng(0)
    size = READ_TOGETHER // 2  # two strains at a time
    values = 1e3 + rng.normal(size=(6, size)).astype(np.float32)
    values[2, : size // 2] = np.nan
    names = tuple(map(str, range(size)))
    of_cell = CellValues(NodeValues("gene", names, values, ""), np.arange(size), np.array([1, -1, 2, 3, 4, 5]))
    mean, sd, number, largest = spread(of_cell, np.arange(6))
    measured = values[1:].astype(np.float64)
    np.testing.assert_allclose(mean, np.nanmean(measured, axis=0))
    np.testing.assert_allclose(sd, np.nanstd(measured, axis=0), rtol=1e-6)
    np.testing.assert_allclose(largest, np.nanmax(np.abs(measured - values[0]), axis=0))
    assert number[[0, -1]].tolist() == [4, 5]


def test_the_loss_of_validation_does_not_look_beyond_the_largest_change_in_training(
    folder: Path, prepared: Prepared
) -> None:
    (head,) = bare_node_heads(config_of(folder), prepared).values()
    largest = head.largest.clone()
    limit_node_heads({"flux": head}, prepared)  # as a continued run does
    assert torch.equal(head.largest, largest)
    train = head.scaled(torch.from_numpy(prepared.nodes["flux"].of_strains(prepared.parts["train"].numpy())))
    within = head.within_training(train)
    torch.testing.assert_close(within, train, equal_nan=True)
    largest = train.abs().nan_to_num().amax(0)
    torch.testing.assert_close(head.within_training(train.sign() * 1e6).abs().nan_to_num().amax(0), largest)


def test_values_of_training_strains_are_read_once_at_a_start(
    folder: Path, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    of_strains = CellValues.of_strains

    def note(values: CellValues, strains: np.ndarray) -> np.ndarray:
        read.append(len(strains))
        return of_strains(values, strains)

    monkeypatch.setattr(CellValues, "of_strains", note)
    config = settle_what_models_see(config_of(folder, "model.compile=false"), prepared)
    make_task(config, prepared, RunDirectory(tmp_path))
    assert read.count(len(prepared.parts["train"])) == 1  # beside the batches of steps that are timed


def test_null_models_of_values_are_fitted_without_a_model(
    run: RunDirectory, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*KEYS, f"paths.data={folder / 'data'}", f"paths.runs={tmp_path}"]
    assert main(["baselines", str(folder / "nodes.yaml"), *arguments]) == 0
    beside_run = [row for row in json.loads(run.results.read_text())[NODES] if row["is_null"]]
    written = json.loads((tmp_path / "tiny" / "baselines.json").read_text())[NODES]
    for one, other in zip(written, beside_run, strict=True):
        assert one["model"] == other["model"]
        own = {name: value for name, value in other["metrics"].items() if not name.startswith("ahead")}
        assert one["metrics"] == pytest.approx(own)
    assert "kernel ridge on lost reactions" in capsys.readouterr().out


def test_values_that_change_are_written_and_drawn(run: RunDirectory, prepared: Prepared, tmp_path: Path) -> None:
    table = pd.read_csv(run.node_changes)
    assert [*table] == ["values", "node", "wild_type", "spread", "measured", "predicted"]
    values, test = prepared.nodes[FLUX], prepared.parts["test"].numpy()
    of_test = dict(zip(values.values.names, values.of_strains(test)[:, np.argsort(values.columns)].T, strict=True))
    for _, row in table[::50].iterrows():
        assert np.nanmin(np.abs(of_test[row["node"]] - row["measured"])) < 1e-3
        assert abs(row["measured"] - row["wild_type"]) > 1e-4 * row["spread"]
    changed = np.abs(values.of_strains(test) - values.wild_type) > 1e-2
    assert changed.sum() * 0.9 < len(table) <= changed.size


def test_a_run_with_values_of_nodes_goes_on(folder: Path, tmp_path: Path) -> None:
    few = ("split.subset.size=60", f"paths.runs={tmp_path}", "null_models=false")
    train(config_of(folder, *few, "trainer.epochs=1"))
    run = train(config_of(folder, *few, "trainer.epochs=2")).directory
    assert len(run.metrics.read_text().splitlines()) == 2
    with pytest.raises(ConfigError, match=r"has another configuration\n.*data.nodes.flux.zero_if_lost: False → True"):
        train(config_of(folder, *few, "data.nodes={flux: {type: reaction, zero_if_lost: true}}"))


def test_predicted_fluxes_are_balanced_where_asked_for(folder: Path, tmp_path: Path) -> None:
    zero = "data.nodes={flux: {type: reaction, zero_if_lost: true}}"
    keys = ("model.balanced_values=[flux]", zero, "null_models=false", "trainer.epochs=1")
    few = ("split.subset.size=60", f"paths.runs={tmp_path}")
    result = train(config_of(folder, *keys, *few))
    unbalanced = [row.metrics["unbalanced"] for row in result.rows if row.kind == NODES]
    assert len(unbalanced) == 2
    assert max(unbalanced) < 1e-5  # single precision
    trained = load_trained(result.directory)
    projection = trained.model.node_heads[FLUX].projection
    assert projection is not None
    assert (projection - torch.eye(95)).abs().max() > 0.1
    found = dglcell.load(result.directory.path).predict_nodes([["b0008", "b2464"], ["b0727"]])
    amounts = create_stoichiometric_matrix(load_model("textbook"))
    columns = [f"flux:{reaction.id}" for reaction in load_model("textbook").reactions]
    fluxes = found[columns].to_numpy()
    assert np.abs(fluxes @ amounts.T).max() < 1e-3 < np.abs(fluxes[0] - fluxes[1]).max()


def test_ranges_of_fluxes_are_learned_and_predicted_like_other_values(folder: Path, tmp_path: Path) -> None:
    names = (LOWEST, HIGHEST)
    nodes = ", ".join(f"{name}: {{type: reaction, zero_if_lost: true}}" for name in names)
    screen = ("data.source.insilico.ranges=true", "data.source.insilico.pairs='100'", "plot=false")
    few = ("split.subset.size=60", f"paths.data={tmp_path}", f"paths.runs={tmp_path}", "trainer.epochs=1")
    config = load_config(folder / "nodes.yaml", [*screen, f"data.nodes={{{nodes}}}", *few])
    result = train(config)
    test = {(row.phenotype, row.model): row.metrics for row in result.rows if row.kind == NODES and row.part == "test"}
    assert {phenotype for phenotype, _ in test} == {*names}
    assert all(metrics["n"] > 5 and "unbalanced" not in metrics for metrics in test.values())
    found = dglcell.load(result.directory.path).predict_nodes([["b0008"], ["b0727"]])
    assert [f"{name}:PFK" in found for name in names] == [True, True]
    asked = replace(config.data, nodes={FLUX: config.data.nodes[LOWEST]})
    with pytest.raises(DataError, match=r"(?s)no values of nodes called 'flux'.*lowest_flux.*`ranges: true` for"):
        train(replace(config, data=asked, paths=replace(config.paths, runs=str(tmp_path / "other"))))


def test_values_that_are_no_fluxes_cannot_be_balanced(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "activity.csv"
    table.write_text("genes,PFK,PGI\n,1,2\nb0008,0,2.5\nb0114,1.5,0\nb0726,0.5,3\nb0727,0.7,1\nb1602,2,1\n")
    keys = [f"data.nodes={{activity: {{type: reaction, path: {table}}}}}", "model.balanced_values=[activity]"]
    few = ("data.source.insilico.pairs=none", "split.kind=none", "split.subset=null", "trainer.checkpoint=last")
    with pytest.raises(DataError, match=r"(?s)'activity' are no fluxes of all reactions.*2 of 95 reactions.*leave"):
        train(config_of(folder, *keys, *few, f"paths.runs={tmp_path}"))


def test_a_batch_has_the_values_of_its_strains(prepared: Prepared) -> None:
    store = prepared.store.read()
    rows = store.columns[Column(NODE_ROW, FLUX)]
    assert (rows == -1).any()
    values = prepared.nodes[FLUX]
    numbers = prepared.parts["train"].numpy()[:20]
    of_store = prepared.dataset.rows.numpy()[numbers]
    order = [store.nodes[FLUX].names.index(name) for name in sorted(store.nodes[FLUX].names)]
    expected = np.where(rows[of_store, None] >= 0, store.nodes[FLUX].values[rows[of_store]][:, order], np.nan)
    np.testing.assert_array_equal(values.of_strains(numbers), expected)


def test_fluxes_are_predicted_from_the_command_line_and_in_python(run: RunDirectory, tmp_path: Path) -> None:
    strains = tmp_path / "strains.csv"
    strains.write_text("genes,note\nb0008;b2464,a\nb0727,b\n")
    output, nodes = tmp_path / "out.csv", tmp_path / "fluxes.csv"
    assert main(["predict", str(run.path), str(strains), "-o", str(output), "--nodes", str(nodes)]) == 0
    found = pd.read_csv(nodes)
    assert found.columns[:3].tolist() == ["genes", "note", "flux:ACALD"]
    assert len(found.columns) == 2 + 95
    assert len(pd.read_csv(output)) == len(found) == 2
    in_python = dglcell.load(run.path).predict_nodes([["b0008", "b2464"], ["b0727"]])
    np.testing.assert_allclose(found[in_python.columns], in_python, atol=1e-4)
    head = load_trained(run).model.node_heads[FLUX]
    assert in_python["flux:Biomass_Ecoli_core"].between(-5, 5).all()
    assert int(head.known.sum()) == 95


def test_a_model_without_heads_predicts_no_nodes(tiny_run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"(?s)predicts no values of nodes.*an experiment with `data.nodes`"):
        dglcell.load(tiny_run.path).predict_nodes([["b0008"]])


def test_what_does_not_fit_is_refused_before_training(folder: Path, tiny: Tiny, tmp_path: Path) -> None:
    runs = f"paths.runs={tmp_path}"
    with pytest.raises(DataError, match=r"(?s)no values of nodes called 'price'.*flux.*fluxes: true"):
        train(config_of(folder, runs, "data.nodes={price: {type: metabolite}}"))
    with pytest.raises(DataError, match=r"(?s)no values of nodes called 'flux'.*a store without values"):
        train(tiny.config(tmp_path, "data.nodes={flux: {type: reaction}}"))
    with pytest.raises(DataError, match=r"(?s)`data.nodes.flux.type` is not that of the values.*gene.*reaction"):
        train(config_of(folder, runs, "data.nodes={flux: {type: gene}}"))
    for keys, said in (
        (["model.name=set_operator"], r"(?s)`data.nodes` needs a model.*set_operator.*hetero_cell"),
        (["loss.nodes={price: 1.0}"], r"(?s)`loss.nodes` weighs values.*price.*among flux"),
        (["loss.phenotypes=0", "loss.nodes={flux: 0.0}"], "leaves the predictions without any term"),
        (["data.nodes={a/b: {}}"], "a name that no file can have|unknown|letters"),
        (["data.nodes={flux: {type: organelle}}"], "data.nodes.flux.type"),
    ):
        with pytest.raises(ConfigError, match=said):
            config_of(folder, *keys).validate()


def test_a_table_of_ones_own_is_learned_without_phenotypes(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "expression.csv"
    table.write_text("genes,b0008,b0114\n,1,2\nb0008,0,2.5\nb0114,1.5,0\nb0726,0.5,3\nb0727,0.7,1\nb1602,2,1\n")
    nodes = f"data.nodes={{expression: {{type: gene, path: {table}}}}}"
    keys = ("split.kind=none", "split.subset=null", "loss.phenotypes=0", "trainer.checkpoint=last")
    few = ("data.source.insilico.pairs=none", f"paths.runs={tmp_path}")
    run = train(config_of(folder, nodes, *keys, *few)).directory
    found = dglcell.load(run.path).predict_nodes([["b0008"]])
    assert found.columns.tolist()[-2:] == ["expression:b0008", "expression:b0114"]
    assert len(found.columns) == 95 + 2  # and the fluxes, which the experiment has in any case
