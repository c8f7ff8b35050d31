"""A share of null models in a model's predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dglcell.baselines.packed import fit_best
from dglcell.baselines.simple import AdditiveRidge
from dglcell.errors import CheckpointError, ConfigError
from dglcell.nn.null_share import NullShare
from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import load_trained
from dglcell.training.fit import make_task
from dglcell.training.null_problems import null_problems, strains_by_part
from dglcell.training.prepare import prepare
from tests.tiny import Tiny, history

SHARE = "model.null_share=0.5"


@pytest.mark.parametrize("normalise", ["standard", "none"])
def test_it_is_what_the_best_null_models_predict(tiny: Tiny, tmp_path: Path, normalise: str) -> None:
    config = tiny.config(tmp_path, SHARE, f"data.normalise={normalise}")
    prepared = prepare(config, command="tests")
    task = make_task(config, prepared, RunDirectory(tmp_path))
    share = task.model.find(NullShare)
    assert share is not None
    rows = prepared.parts["test"]
    batch = prepared.dataset.take(rows).perturbations
    found = task.normaliser.restore(share(batch))[:, 0]
    expected = fit_best(null_problems(prepared)[0])[1].predict(strains_by_part(prepared)["test"])
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)
    task.model.eval()
    share.read = lambda packed: lambda genes, offsets, *_: np.zeros((len(offsets) - 1, 1))
    share.make_room(0)
    without = task.model(batch).phenotypes
    zero = (0 - task.normaliser.shift) / task.normaliser.scale
    assert config.model.null_share == 0.5  # type: ignore[attr-defined]
    alone = 2 * without - zero
    share.read = lambda packed: lambda genes, offsets, *_: np.ones((len(offsets) - 1, 1))
    share.make_room(0)
    one = (1 - task.normaliser.shift) / task.normaliser.scale
    torch.testing.assert_close(task.model(batch).phenotypes, (alone + one) / 2)


def test_training_does_not_see_it(tiny: Tiny, tmp_path: Path) -> None:
    with_share, without = (history(tiny.train(tmp_path / key[-1], key).directory) for key in (SHARE, SHARE[:-3] + "0"))
    assert [row["train/loss"] for row in with_share] == [row["train/loss"] for row in without]
    assert with_share[0]["validation/loss"] < without[0]["validation/loss"]


def test_classes_have_log_odds(tiny: Tiny, tmp_path: Path) -> None:
    table = tmp_path / "viable.csv"
    strains = tiny.config(tmp_path)
    prepared = prepare(strains, command="tests")
    names = prepared.cell.genes.names
    rows = ["gene_1,gene_2,viable"]
    for i, label in enumerate(prepared.dataset.labels[:, 0].tolist()):
        start, end = prepared.dataset.offsets[i : i + 2].tolist()
        genes = [names[gene] for gene in prepared.dataset.targets[start:end].tolist()]
        rows.append(",".join([*genes, *[""] * (2 - len(genes)), str(int(label > 0.1))]))
    table.write_text("\n".join(rows[:400]) + "\n")
    source = (
        f"data.source={{name: csv, csv: {{path: {table}, genes: [gene_1, gene_2], phenotypes: {{viable: viable}}}}}}"
    )
    keys = ("data.store=null", f"paths.data={tmp_path}", "data.phenotypes=null", "loss=bce", "data.normalise=logistic")
    config = tiny.config(tmp_path, SHARE, source, *keys, "split={kind: random, subset: null}")
    prepared = prepare(config, command="tests")
    task = make_task(config, prepared, RunDirectory(tmp_path))
    share = task.model.find(NullShare)
    assert share is not None
    whole = prepared.dataset.take(prepared.parts["train"])
    mean = float(prepared.dataset.labels[prepared.parts["train"]].mean())
    assert float(share(whole.perturbations).sigmoid().mean()) == pytest.approx(mean, abs=0.1)


def test_what_it_cannot_share_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`model.null_share` is no share\n  got:      1"):
        tiny.config(tmp_path, "model.null_share=1")
    with pytest.raises(
        ConfigError, match=r"`model.null_names` has no effect without a share\b.*\n  got:      kernel ridge"
    ):
        tiny.config(tmp_path, "model.null_names=[kernel ridge]")


def test_a_null_model_can_be_chosen_by_name(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path, SHARE, "model.null_names=[additive ridge]")
    prepared = prepare(config, command="tests")
    share = make_task(config, prepared, RunDirectory(tmp_path)).model.find(NullShare)
    assert share is not None
    (model,) = share.predictor().models  # type: ignore[attr-defined]
    assert isinstance(model, AdditiveRidge)


def test_a_checkpoint_with_other_bytes_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    directory = tiny.train(tmp_path, SHARE).directory
    path = directory.checkpoint("last")
    content = torch.load(path, weights_only=False)
    content["state_dict"]["model.null_share.packed"][:50] = 0
    torch.save(content, path)
    with pytest.raises(CheckpointError, match="its null models are damaged"):
        load_trained(directory, "last")
