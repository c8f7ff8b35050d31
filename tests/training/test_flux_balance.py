"""Rounds of flux balance in media and with weakened genes, against the in-silico screen of linear programmes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cobra
import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.errors import ConfigError, GraphError
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.model import StrainModel, make_model
from dglcell.nn.flux_rounds import FluxRounds
from dglcell.nn.null_share import NullShare
from dglcell.runs.directory import RunDirectory
from dglcell.training.fit import make_task
from dglcell.training.flux_balance import SolveAhead, start_flux_rounds
from dglcell.training.prepare import Prepared, prepare, settle_what_models_see
from dglcell.training.run import train
from tests.nn.test_flux_rounds import with_a_slow_cofactor
from tests.tiny import history

EXPERIMENT = """\
experiment: {{name: media}}
cell:
  model: textbook
  lose_blocked: true
  media: &media {{glucose: {{}}, pyruvate: {{EX_glc__D_e: 0, EX_pyr_e: 20}}, "no oxygen": {{EX_o2_e: 0}}}}
data:
  source:
    name: insilico
    insilico: {{model: textbook, strengths: [0, 0.3, 0.8], pairs: "40", triples: none, media: *media, processes: 1}}
  phenotypes: [fitness]
split: {{kind: condition, condition: medium, test_values: [pyruvate]}}
model: {{name: hetero_cell, hidden: 8, layers: 1, flux_rounds: 2048, link: bounded}}
paths: {{data: {folder}}}
"""

WEAKENED = """\
experiment: {{name: weakened}}
cell: {{model: textbook, lose_blocked: true}}
data:
  source:
    name: insilico
    insilico: {{model: textbook, strengths: [0, 0.3, 0.8], pairs: "40", triples: none, fluxes: true, processes: 1}}
  phenotypes: [fitness]
  nodes: {{flux: {{type: reaction, zero_if_lost: true}}}}
model: {{name: hetero_cell, hidden: 8, layers: 0, flux_rounds: 4096, flux_values: [flux]}}
paths: {{data: {folder}}}
"""


COFACTOR = """\
experiment: {{name: cofactor}}
cell: {{model: {folder}/cofactor.json, lose_blocked: true}}
data:
  source: {{name: insilico, insilico: {{model: {folder}/cofactor.json, strengths: [0, 0.5], processes: 1}}}}
  phenotypes: [fitness]
  batch_size: 4
split: {{kind: none}}
model: {{name: hetero_cell, hidden: 8, layers: 0, flux_rounds: 64}}
trainer: {{accelerator: cpu, threads: 1, checkpoint: last}}
plot: false
null_models: false
paths: {{data: {folder}, runs: {folder}}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Prepared, StrainModel]:
    folder = tmp_path_factory.mktemp("media")
    file = folder / "media.yaml"
    file.write_text(EXPERIMENT.format(folder=folder))
    config = load_config(file)
    prepared = prepare(config, command="tests")
    config = settle_what_models_see(config, prepared)
    torch.manual_seed(0)
    model = make_model(config.model, ResidentCell.of(prepared.cell), 1).eval()
    model.fit_conditions(prepared.dataset.perturbations.conditions)
    start_flux_rounds(model, config, prepared)
    return config, prepared, model


def test_rounds_find_the_growth_of_weakened_strains_in_each_medium(
    run: tuple[Config, Prepared, StrainModel],
) -> None:
    _, prepared, model = run
    rounds, strains = model.find(FluxRounds), prepared.dataset
    assert rounds is not None
    growth, certain = rounds(model.cell, model.in_conditions(strains.perturbations))
    found, expected = growth[:, -1].numpy(), strains.labels[:, 0].numpy()
    assert np.abs(found - expected).mean() < 0.005
    assert np.corrcoef(found, expected)[0, 1] > 0.995
    exact = (certain[:, 0] == certain[:, 1]).numpy()
    assert exact.mean() > 0.5
    np.testing.assert_allclose(found[exact], expected[exact], atol=1e-3)
    wild = (strains.num_deletions == 0).numpy()
    assert wild.sum() == 3
    np.testing.assert_allclose(found[wild], expected[wild], atol=1e-3)
    assert len(set(expected[wild].round(2))) == 3


def test_linear_programmes_solve_what_the_rounds_do_not(run: tuple[Config, Prepared, StrainModel]) -> None:
    _, prepared, model = run
    started = model.find(FluxRounds)
    assert started is not None
    rounds = FluxRounds(model.cell, 16, limited=True, exact=True)
    rounds.load_state_dict(started.state_dict())
    strains = prepared.dataset
    growth, certain = rounds(model.cell, model.in_conditions(strains.perturbations))
    np.testing.assert_allclose(growth[:, -1], strains.labels[:, 0], atol=2e-4)
    assert torch.equal(certain[:, 0], certain[:, 1])


def test_rounds_find_the_fluxes_of_weakened_strains(tmp_path: Path) -> None:
    file = tmp_path / "weakened.yaml"
    file.write_text(WEAKENED.format(folder=tmp_path))
    config = load_config(file)
    prepared = prepare(config, command="tests")
    config = settle_what_models_see(config, prepared)
    model = make_model(config.model, ResidentCell.of(prepared.cell), 1).eval()
    start_flux_rounds(model, config, prepared)
    rounds, strains = model.find(FluxRounds), prepared.dataset.perturbations
    assert rounds is not None
    values = prepared.nodes["flux"]
    expected = values.of_strains(np.arange(len(prepared.dataset))) - values.wild_type
    grows = (prepared.dataset.labels[:, 0].numpy() > 0.05) & np.isfinite(expected).all(axis=1)
    found = rounds.changes(model.cell, strains).numpy()
    assert np.abs(expected[grows]).mean() > 0.3
    assert np.abs(found - expected)[grows].mean() < 0.1
    assert (found[prepared.dataset.num_deletions.numpy() == 0] == 0).all()
    weakened = prepared.dataset.numpy().strengths
    assert weakened is not None
    assert set(np.unique(weakened)) == {0, np.float32(0.3), np.float32(0.8)}


def test_fluxes_in_several_media_are_not_computed_by_rounds(run: tuple[Config, Prepared, StrainModel]) -> None:
    config, prepared, _ = run
    keys = replace(config.model, nodes={"flux": "reaction"}, flux_values=["flux"])  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"(?s)`model.flux_values` is for strains in one.*glucose.*no `cell.media`"):
        make_model(keys, ResidentCell.of(prepared.cell), 1)


def test_null_models_of_strains_with_strengths_see_the_growth(
    run: tuple[Config, Prepared, StrainModel], tmp_path: Path
) -> None:
    config, prepared, _ = run
    keys = replace(config.model, null_share=0.9, flux_rounds=256)  # type: ignore[call-arg]
    task = make_task(replace(config, model=keys), prepared, RunDirectory(tmp_path))
    share = task.model.find(NullShare)
    assert share is not None
    assert share.sees_growth
    rows = prepared.parts["test"]
    batch = prepared.dataset.take(rows).perturbations
    with torch.no_grad():
        predicted = task.normaliser.restore(task.model.eval()(batch).phenotypes)[:, 0].numpy()
    labels = prepared.dataset.labels[rows, 0].numpy()
    assert np.corrcoef(predicted, labels)[0, 1] > 0.95  # null models without it cannot know a new medium
    again = make_task(replace(config, model=replace(keys, flux_rounds=0)), prepared, RunDirectory(tmp_path / "without"))
    assert not again.model.find(NullShare).sees_growth  # type: ignore[union-attr]
    assert not HeteroCellConfig(flux_rounds=8, null_share=0.5).nulls_see_growth(), "deletions alone"


def test_a_continued_run_solves_all_strains_before_its_first_step(
    run: tuple[Config, Prepared, StrainModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, prepared, _ = run
    task = make_task(replace(config, model=replace(config.model, flux_rounds=16)), prepared, RunDirectory(tmp_path))
    rounds = task.model.find(FluxRounds)
    assert rounds is not None
    some = task.model.in_conditions(prepared.dataset.perturbations)
    expected, _ = rounds(task.model.cell, some)
    rounds._known = None  # as after a restart
    SolveAhead(prepared.dataset).on_train_start(pl.Trainer(logger=False), task)
    monkeypatch.setattr("dglcell.nn.flux_rounds._Problem.solve", None)
    torch.testing.assert_close(rounds(task.model.cell, some)[0], expected)


def test_a_run_goes_on_whose_rounds_have_pools_of_cofactors(tmp_path: Path) -> None:
    cobra.io.save_json_model(with_a_slow_cofactor(), str(tmp_path / "cofactor.json"))
    file = tmp_path / "cofactor.yaml"
    file.write_text(COFACTOR.format(folder=tmp_path))
    first, second = (train(load_config(file, [f"trainer.epochs={epochs}"]), "tests") for epochs in (1, 2))
    assert first.directory.path == second.directory.path
    assert [line["epoch"] for line in history(second.directory)] == [0, 1]
    weights = torch.load(second.directory.checkpoint("last"), weights_only=False)["state_dict"]
    assert "model.flux_rounds.pools" in weights


def test_a_medium_in_which_nothing_grows_is_named(run: tuple[Config, Prepared, StrainModel]) -> None:
    config, prepared, model = run
    media = {**config.cell.media, "no oxygen": {"EX_glc__D_e": 0}}
    starved = replace(config, cell=replace(config.cell, media=media))
    with pytest.raises(
        GraphError,
        match=r"grow in the medium 'no oxygen'.*\n  got:      no balanced flux\n.*per hour\n.*`cell.media.no oxygen`",
    ):
        start_flux_rounds(model, starved, prepared)


def test_the_link_passes_on_what_is_certain(run: tuple[Config, Prepared, StrainModel]) -> None:
    _, prepared, model = run
    strains = prepared.dataset
    rounds = model.find(FluxRounds)
    assert rounds is not None
    batch = strains.perturbations
    _, certain = rounds(model.cell, model.in_conditions(batch))
    link = model.link  # type: ignore[attr-defined]
    link.choose(["bounded"], torch.zeros(1), torch.ones(1))
    with torch.no_grad():
        predicted = model(batch).phenotypes[:, 0]
    exact = certain[:, 0] == certain[:, 1]
    torch.testing.assert_close(predicted[exact], certain[exact, 0], atol=1e-5, rtol=0)


def test_strength_0_is_the_deletion_and_from_1_on_the_wild_type(run: tuple[Config, Prepared, StrainModel]) -> None:
    _, prepared, model = run
    rounds, strains = model.find(FluxRounds), prepared.dataset
    assert rounds is not None
    assert strains.strengths is not None
    some = torch.arange(0, len(strains), 7)
    batch = strains.take(some)
    order = torch.tensor([model.cell.media.index(name) for name in strains.conditions["medium"]])
    media = order[batch.of_kind("condition")["medium"].long()]
    for left in (1.0, 2.0):
        strengths = torch.full((len(batch.targets),), left)
        whole = rounds(model.cell, model.in_conditions(batch.with_(strengths=strengths).perturbations))
        torch.testing.assert_close(whole[0][:, -1], rounds.units[media], atol=1e-3, rtol=0)
    gone = batch.with_(strengths=torch.zeros(len(batch.targets))).perturbations
    deleted = batch.with_(strengths=None).perturbations
    torch.testing.assert_close(
        rounds(model.cell, model.in_conditions(gone))[0],
        rounds(model.cell, model.in_conditions(deleted))[0],
        atol=1e-6,
        rtol=0,
    )


def test_media_that_do_not_fit_are_refused(tmp_path: Path, run: tuple[Config, Prepared, StrainModel]) -> None:
    file = tmp_path / "media.yaml"
    file.write_text(EXPERIMENT.format(folder=tmp_path).replace("media: *media, ", ""))
    config = load_config(file, ["split.kind=random", "split.condition=null", "split.test_values=[]"])
    with pytest.raises(ConfigError, match="the cell graph has media, and the model does not see in which"):
        settle_what_models_see(config, prepare(config, command="tests"))
    config, prepared, _ = run
    fewer = ResidentCell.of(prepared.cell)
    fewer.media = fewer.media[:2]
    with pytest.raises(ConfigError, match="the cell graph does not know the medium 'no oxygen' of the strains"):
        make_model(config.model, fewer, 1)
