"""What an experiment can say: every wrong value is named by its key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.errors import ConfigError
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.schema import METABOLIC_RELATIONS, RESERVED, gene_relation
from tests.config_files import refusal
from tests.raw_files import GENES, STRING_CHANNELS, pairs, tiny_overrides, write_raw_folder


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=-1", "`seed` is out of range\n  got:      -1"),
        ("experiment.name=../../etc", "`experiment.name` leads out of `paths.runs`"),
        ("trainer.epochs=0", "`trainer.epochs` is too small\n  got:      0\n  expected: 1 or more"),
        ("trainer.checkpoint=best", "`trainer.checkpoint` is unknown\n  got:      best\n  expected: best_loss"),
        ("trainer.gradient_clip_val=0", "`trainer.gradient_clip_val` must be positive"),
        (
            "trainer.accumulate_grad_batches={0: 0}",
            "`trainer.accumulate_grad_batches[0]` is too small\n  got:      0\n  expected: 1 or more",
        ),
        ("loss=rmse", "`loss.name` is unknown\n  got:      rmse\n  expected: mse, huber, bce"),
        ("optimizer.lr=0", "`optimizer.lr` must be positive"),
        ("model.norm=batch", "norm 'batch' takes statistics over nodes or strains"),
        (
            "data.normalise=logistic",
            "`data.normalise: logistic` goes with losses of logits, and with no other\n  got:      `loss",
        ),
        ("split.kind=Gene_disjont", "did you mean gene_disjoint"),
        ("loss.name=hubr", "MODULE:CLASS of your own\n  do:       did you mean huber?"),
        (
            "split.kind=none",
            "`split.kind: none` leaves no validation part, and other keys need one\n  got:      `trainer.checkpoint`\n"
            "  do:       set `trainer.checkpoint=last`; the model is that of the last epoch",
        ),
    ],
)
def test_wrong_values_are_refused_by_key(minimal: Path, override: str, expected: str) -> None:
    assert expected in refusal(minimal, override)


def test_all_keys_that_need_a_validation_part_are_named(minimal: Path) -> None:
    keys = ["trainer.checkpoint=last", "trainer.patience=3", "scheduler.name=plateau"]
    message = refusal(minimal, "split.kind=none", *keys)
    assert "set `trainer.patience=null`, `scheduler.name=none`; the model" in message
    assert load_config(minimal, ["split.kind=none", keys[0]]).split.trains_on_all


def test_a_schedule_is_never_above_the_rate(minimal: Path) -> None:
    keys = ["optimizer.lr=1e-6", "scheduler.min_lr=1e-5"]
    assert "`scheduler.min_lr` is above `optimizer.lr`" in refusal(minimal, "scheduler.name=plateau", *keys)
    assert load_config(minimal, ["scheduler.name=none", *keys]).optimizer.lr == 1e-6


def test_a_model_or_a_cell_without_relations_is_refused_before_anything_is_built(minimal: Path) -> None:
    assert "`cell` gives no relations" in refusal(minimal, "cell.metabolism=false")
    message = refusal(minimal, "model.metabolism=false")
    assert message.startswith("no relation is left for the model\n  got:      no relation with reactions, no `cell.net")
    assert load_config(minimal, ["model.metabolism=false", "cell.derived=[isoenzyme]"]).cell.derived == ["isoenzyme"]
    assert load_config(minimal, ["model.metabolism=false", "model.layers=0"]).model.layers == 0
    with pytest.raises(ConfigError, match="`cell` is empty"):
        Config().validate()  # made in Python


def test_what_is_written_out_so_that_it_is_read_without_torch_is_what_there_is() -> None:
    assert {name for name in dir(torch.nn.Module) if re.fullmatch("[a-z][a-z0-9_]*", name)} <= RESERVED


CELLS = Path(__file__).resolve().parents[2] / "conf" / "cells"
ALL = sorted(path.stem for path in CELLS.glob("*.yaml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_raw_folder(tmp_path_factory.mktemp("raw"))


def tiny_cell(name: str, folder: Path, *more: str) -> CellGraph:
    path = CELLS / f"{name}.yaml"
    config = load_config(path, [*tiny_overrides(folder, load_config(path).cell), *more])
    return build_cell(config.cell, config.paths.raw)


@pytest.mark.parametrize("name", ALL)
def test_it_builds(name: str, folder: Path) -> None:
    cell = tiny_cell(name, folder)
    assert cell.genes.names == tuple(sorted(GENES))


def test_kuzmin_has_the_relations_of_experiment_006(folder: Path) -> None:
    cell = tiny_cell("kuzmin", folder)
    channels = {f"string12_0_{channel}" for channel in STRING_CHANNELS}
    assert {relation[1] for relation in cell.relations if relation not in METABOLIC_RELATIONS} == {
        "physical", "regulatory", "tflink", *channels,
    }  # fmt: skip
    assert set(METABOLIC_RELATIONS) <= set(cell.relations)
    for name, pairs_of in (("physical", 2 * len(pairs(GENES))), ("regulatory", len(pairs(GENES)))):
        assert len(cell.edges(gene_relation(name))) == pairs_of + len(GENES), "a self-loop for every gene"


def test_pairs_are_stored_once_where_asked_for(folder: Path) -> None:
    cell = tiny_cell("kuzmin", folder, "cell.symmetrise=false", "cell.self_loops=false")
    edges = [len(cell.edges(gene_relation(name))) for name in ("physical", "regulatory")]
    assert edges == [len(pairs(GENES))] * 2


@pytest.mark.parametrize("version", ["9_1", "11_0", "11_5", "12_0"])
def test_dango_has_six_channels_and_no_metabolism(version: str, folder: Path) -> None:
    cell = tiny_cell(f"dango_string{version}", folder)
    assert list(cell.num_nodes) == ["gene"]
    assert {relation[1] for relation in cell.relations} == {f"string{version}_{channel}" for channel in STRING_CHANNELS}
