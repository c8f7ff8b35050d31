"""Runs go on as if they had not stopped, with all that their models keep beside weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from dglcell.config.experiment import Config
from dglcell.config.read import parse_config
from dglcell.data.columns import MEASURED, Column
from dglcell.errors import ConfigError
from dglcell.models.cell_model import CellModel
from dglcell.models.model import StrainModel
from dglcell.models.terms.link import Link
from dglcell.nn.config import LINKS
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import load_trained
from dglcell.training.fit import make_task
from dglcell.training.predicting import predict_strains
from dglcell.training.prepare import Prepared, prepare
from tests.tiny import Tiny, history

KEEPING = ("model.link=minimum",)
OPERATOR = ("model.name=set_operator", "model.local_heads=2")


@pytest.fixture(scope="module")
def run(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return tiny.train(tmp_path_factory.mktemp("links"), *KEEPING).directory


@pytest.mark.parametrize("model", [(), OPERATOR], ids=["hetero_cell", "set_operator"])
def test_a_run_goes_on_and_predicts_with_what_its_checkpoint_keeps(
    tiny: Tiny, run: RunDirectory, tmp_path: Path, model: tuple[str, ...]
) -> None:
    whole = tiny.train(tmp_path / "whole", *KEEPING, *model).directory if model else run
    part = tiny.train(tmp_path / "part", *KEEPING, *model, "trainer.epochs=1").directory
    again = tiny.train(tmp_path / "part", *KEEPING, *model).directory
    assert part.path == again.path
    one, other = (load_trained(directory, "last").model.state_dict() for directory in (whole, again))
    assert all(torch.equal(other[name], weight) for name, weight in one.items())
    assert history(whole) == history(again)
    assert len(one["terms.link.measured.genes"]) > 0
    assert int(one["terms.link.codes"][0]) == LINKS["minimum"]


def test_a_key_that_has_left_is_passed_over_where_it_did_nothing() -> None:
    assert parse_config(OmegaConf.create({"start_from": None}), where="a run") == Config()
    guides = {"data": {"source": {"csv": {"guides": {"places_by_sequence": False}}}}}
    assert parse_config(OmegaConf.create(guides), where="a run").data.source.csv.guides is not None
    with pytest.raises(ConfigError, match=r"a run: unknown key `start_from`\n.*\n.*load_state_dict"):
        parse_config(OmegaConf.create({"start_from": "runs/first"}), where="a run")


def link_of(model: StrainModel) -> Link:
    assert isinstance(model, CellModel)
    link = model.terms["link"]
    assert isinstance(link, Link)
    return link


@pytest.fixture(scope="module")
def prepared(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tiny.config(tmp_path_factory.mktemp("prepared")), command="test")


def test_a_checkpoint_predicts_with_the_training_strains(run: RunDirectory, prepared: Prepared) -> None:
    trained = load_trained(run)
    link = link_of(trained.model)
    assert link.measured is not None
    train = prepared.parts["train"]
    assert link.measured.labels.equal(prepared.dataset.labels[train])
    strains = torch.cat([train, prepared.parts["test"]])
    predicted = predict_strains(trained.model, trained.normaliser, prepared.dataset, strains, batch_size=64)
    bound_ST = link.measured(trained.model.cell, prepared.dataset.take(train).perturbations)
    # In original units, once: were normalisation left out or done twice, lethal strains would not come out near 0.
    lethal = bound_ST[:, 0] == 0
    assert lethal.any()
    assert abs(predicted[: len(train)][lethal.numpy()]).max() < 0.01
    assert predicted.max() < 1.14


def test_no_label_of_another_part_is_read(tiny: Tiny, prepared: Prepared, tmp_path: Path) -> None:
    dataset, train = prepared.dataset, prepared.parts["train"]

    def only_of_training(column: Column, values: torch.Tensor) -> torch.Tensor:
        if column.kind not in MEASURED:
            return values
        hidden = torch.full_like(values, 0.123)
        hidden[train] = values[train]
        return hidden

    columns = {column: only_of_training(column, values) for column, values in dataset.columns.items()}
    others = replace(prepared, dataset=dataset.with_(columns=columns))
    config = tiny.config(tmp_path, *KEEPING)
    one, other = (make_task(config, p, RunDirectory(tmp_path)).state_dict() for p in (prepared, others))
    assert list(one) == list(other)
    assert all(weight.equal(other[name]) for name, weight in one.items())


def test_links_of_a_fitness_are_refused_for_scores(tiny: Tiny, tmp_path: Path) -> None:
    message = (
        r"`model.link: log` is for phenotypes relative .*\n  got: +phenotype 'digenic_interaction'\n.*\n.*identity"
    )
    with pytest.raises(ConfigError, match=message):
        tiny.train(tmp_path, "model.link=log", "data.phenotypes=[digenic_interaction]")
    assert not list(tmp_path.rglob("*.yaml"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["model.link=loog"], r"`model.link` is unknown\n  got: +loog\n.*identity, log, saturation, minimum, bounded"),
        (
            ["model.link=log", "data.normalise=logistic", "loss=bce"],
            r"`data.normalise: logistic` is a link already\n  got: +`model.link: log`\n.*set `model.link: identity`",
        ),
    ],
)
def test_links_that_do_not_fit_the_rest_are_refused(tiny: Tiny, tmp_path: Path, keys: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny.config(tmp_path, *keys)
