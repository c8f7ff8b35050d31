"""From a configuration to cell graph, store, data set and split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.columns import BLOCKED, Column
from dglcell.errors import DataError
from dglcell.graph.resident import ResidentCell, SteadyState
from dglcell.graph.schema import REACTION
from dglcell.models.terms.link import blocked_reactions
from dglcell.perturbation.sent import keep_masks
from dglcell.prediction.measured import rows_on
from dglcell.runs import RunDirectory
from dglcell.training import prepare as prepare_module
from dglcell.training.fit import make_task
from dglcell.training.prepare import Prepared, build, prepare, settle_what_models_see, store_path, strains_in_media
from dglcell.training.run import settle_checkpoint
from tests.tiny import Tiny


def test_stores_are_named_by_what_shapes_them(tiny: Tiny, tmp_path: Path) -> None:
    def path(*overrides: str) -> Path:
        return store_path(tiny.config(tmp_path, "data.store=null", f"paths.data={tmp_path}", *overrides))

    assert path().parent == tmp_path
    assert path().name.startswith("insilico-")
    assert path("data.source.insilico.processes=2", "seed=5") == path()
    assert path("data.source.insilico.pairs=none") != path()
    assert store_path(tiny.config(tmp_path)) == tiny.store


def test_parts_are_disjoint_and_numbered_by_strains_of_the_data_set(tiny: Tiny, tmp_path: Path) -> None:
    prepared = prepare(tiny.config(tmp_path), command="tests")
    everyone = torch.cat(list(prepared.parts.values()))
    assert len(everyone) == len(everyone.unique()) == 300
    for name, strains in prepared.parts.items():
        rows = prepared.dataset.rows[strains].tolist()
        assert rows == prepared.split.indices(name).tolist()


def test_splits_of_every_sort_come_from_a_configuration(tiny: Tiny, tmp_path: Path) -> None:
    def sizes(*overrides: str) -> list[int]:
        prepared = prepare(tiny.config(tmp_path, "split.subset=null", *overrides), command="tests")
        prepared.split.save(tmp_path / "split.npz")
        return [len(strains) for strains in prepared.parts.values()]

    whole = sum(sizes())
    first, second = (sizes("split.kind=stratified", "split.folds=4", f"split.fold={fold}") for fold in (0, 1))
    assert sum(first) == sum(second) == whole
    assert first[1] == second[2]
    file = ["split.kind=file", f"split.path={tmp_path / 'split.npz'}"]
    assert sizes(*file) == second
    # Every gene of the model is metabolic.
    assert sum(sizes(*file, "split.subset.size=100")) == 100
    assert sum(sizes("split.kind=gene_split_2", "split.test_genes=20")) < whole


def test_a_part_that_loses_all_its_strains_is_named(tiny: Tiny, tmp_path: Path) -> None:
    genes = tmp_path / "genes.txt"
    genes.write_text("b0008\nb0114\n")
    config = tiny.config(
        tmp_path, f"cell.genes={genes}", "cell.unknown=drop", "data.unknown_genes=drop", "split.subset.size=40"
    )
    with pytest.raises(DataError, match=r"no strain of the train part is left\n  got: +0 of 32 train, "):
        prepare(config, command="tests")


def test_a_table_that_was_edited_after_its_store_was_built_is_refused(
    tiny: Tiny, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "strains.csv"
    rows = [f"b{number},{i}.5" for i, number in enumerate(("0008", "0114", "0115", "0116", "0118", "0351"))]
    table.write_text("\n".join(["gene,fitness", *rows, ""]))
    source = ["data.source.name=csv", f"data.source.csv.path={table}", "data.source.csv.genes=[gene]"]
    source += ["data.source.csv.phenotypes={fitness: fitness}", "split.subset=null", f"paths.data={tmp_path}"]
    config = tiny.config(tmp_path, "data.store=null", *source)
    first = prepare(config, command="tests")
    assert len(prepare(config, command="tests").dataset) == len(rows)
    table.write_text(table.read_text().replace("0.5", "0.75"))
    message = r"strains.csv' has changed since the store .*\n  do: +build it anew"
    with pytest.raises(DataError, match=message):
        prepare(config, command="tests")
    model: Any = SimpleNamespace(phenotypes=())
    with pytest.raises(DataError, match=message):  # so does `evaluate --on`
        rows_on([model], tiny.file, tiny.overrides(tmp_path, "data.store=null", *source))
    # A run that was started on the store goes on with it, and says so.
    assert len(prepare(config, command="tests", cell=first.cell, split=first.split).dataset) == len(rows)
    assert "this run keeps the strains that it began with" in caplog.text
    build(config, "tests", overwrite=True)
    assert prepare(config, command="tests").dataset.labels.min() == 0.75


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["split.subset.size=300"], None),
        (["split.subset.size=200"], "a choice needs 30 validation strains, and there are 20"),
        (["split.kind=gene_disjoint", "split.subset=null"], "a choice needs 30 genes that training never deletes"),
        (["split.kind=none", "split.subset=null", "trainer.checkpoint=last"], None),
    ],
    ids=str,
)
def test_an_epoch_is_chosen_by_enough_strains_and_genes(
    tiny: Tiny, tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: list[str], said: str | None
) -> None:
    config = tiny.config(tmp_path, *keys)
    prepared = prepare(config, command="tests")
    why = prepared.too_few_to_choose()
    assert (why is None) if said is None else (said in str(why))
    with caplog.at_level("INFO", logger="dglcell"):
        settled = settle_checkpoint(config, prepared)
    assert settled.trainer.checkpoint == (config.trainer.checkpoint if said is None else "last")
    assert ("the last epoch is reported, and not `trainer.checkpoint: best_loss`" in caplog.text) == (said is not None)


def test_new_genes_count_however_the_split_is_called(tiny: Tiny, tmp_path: Path) -> None:
    keys = ["split.kind=gene_disjoint", "split.subset=null"]
    split = prepare(tiny.config(tmp_path / "first", *keys), command="tests").split
    split.save(tmp_path / "split.npz")
    config = tiny.config(tmp_path, f"split={{kind: file, path: {tmp_path / 'split.npz'}}}")
    assert "genes that training never deletes" in str(prepare(config, command="tests").too_few_to_choose())


def test_early_stopping_by_a_few_is_warned_of(tiny: Tiny, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tiny.config(tmp_path, "split.subset.size=200", "trainer.patience=2")
    settle_checkpoint(config, prepare(config, command="tests"))
    assert "early stopping and the schedule `plateau` follow the validation part all the same" in caplog.text


MEDIA = {"glucose": {}, "fructose": {"EX_glc__D_e": 0.0, "EX_fru_e": 10.0}, "closed": {"EX_o2_e": 0.0}}


def config_of(folder: Path, **more: Any) -> Config:
    screen = {
        "model": "textbook",
        "pairs": "60",
        "triples": "none",
        "processes": 1,
        "activities": [0, 0.3],
        "media": MEDIA,
    }
    content = {
        "experiment": {"name": "blocked"},
        "cell": {"model": "textbook", "lose_blocked": True, "media": MEDIA},
        "data": {"source": {"name": "insilico", "insilico": screen}, "phenotypes": ["fitness"]},
        "model": {"hidden": 8, "layers": 1, "pool": ["gene", "reaction"], **more},
        "split": {"kind": "random"},
        "paths": {"data": str(folder)},
    }
    (folder / "blocked.yaml").write_text(yaml.safe_dump(content))
    return load_config(folder / "blocked.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blocked")


@pytest.fixture(scope="module")
def prepared(folder: Path) -> Prepared:
    return prepare(config_of(folder), command="")


def test_the_lists_are_what_every_step_would_find(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, cell = prepared.dataset, ResidentCell.of(prepared.cell)
    lists = dataset.columns[Column(BLOCKED)]
    assert lists.dtype == torch.int16
    rows = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))[:100]
    batch = dataset.take(rows)
    known = strains_in_media(batch, cell)
    asked = replace(known, blocked=None)
    expected, reactions = keep_masks(cell, asked), blocked_reactions(cell, asked)
    assert not torch.equal(reactions.sum(0), reactions.new_zeros(100).sum(0).expand(100))
    monkeypatch.setattr(SteadyState, "blocked", None)  # nobody may look for them again
    torch.testing.assert_close(blocked_reactions(cell, known), reactions)
    for node_type, keep_NB in keep_masks(cell, known).items():
        torch.testing.assert_close(keep_NB, expected[node_type])
    part = keep_masks(cell, known.part(10, 30))[REACTION]
    torch.testing.assert_close(part, expected[REACTION][:, 10:30])


@pytest.mark.parametrize("strategy", ["difference", "node_mask"])
def test_a_model_predicts_the_same_with_them(folder: Path, prepared: Prepared, strategy: str) -> None:
    config = settle_what_models_see(config_of(folder, strategy=strategy), prepared)
    batch = prepared.dataset.take(prepared.parts["test"][:12]).perturbations
    torch.manual_seed(0)
    model = make_task(config, prepared, RunDirectory(folder)).model.eval()
    with torch.no_grad():
        known, asked = (model(one).phenotypes for one in (batch, replace(batch, blocked=None)))
    torch.testing.assert_close(known, asked)


def test_they_are_looked_for_in_steps_where_they_are_not_known_before(
    folder: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = prepared.dataset.with_(
        columns={of: values for of, values in prepared.dataset.columns.items() if of.kind != BLOCKED}
    )
    config = config_of(folder)
    assert Column(BLOCKED) in prepare_module.with_blocked(bare, prepared.cell, config).columns
    monkeypatch.setattr(prepare_module, "MOST_STRAINS", 10)
    assert prepare_module.with_blocked(bare, prepared.cell, config) is bare
    monkeypatch.undo()
    config.model.activity_from = ["medium"]
    assert prepare_module.with_blocked(bare, prepared.cell, config) is bare
