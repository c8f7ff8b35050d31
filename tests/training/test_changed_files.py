"""Files that changed after a store or a run was made from them: nothing is trained on the old ones without a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dglcell.cli import main
from tests.faults.commands import write_files

ARGUMENTS = ["plot=false", "null_models=false", "trainer.epochs=1"]


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Provide an experiment that names its store, trained for one epoch, beside its files."""
    file = write_files(tmp_path / "files", tmp_path)
    assert main(["train", str(file), *ARGUMENTS]) == 0
    return file


@pytest.mark.parametrize("store", [[], ["data.store=null"]], ids=["a named store", "the default store"])
def test_an_edited_table_is_not_trained_on(
    store: list[str],
    experiment: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = [*store, f"paths.data={tmp_path}/data"]
    assert main(["train", str(experiment), *ARGUMENTS, *store, "seed=1"]) == 0
    table = experiment.with_name("strains.csv")
    table.write_text(table.read_text().replace(",0.", ",100."))
    capsys.readouterr()
    assert main(["train", str(experiment), *ARGUMENTS, *store, "seed=2"]) == 2
    said = capsys.readouterr().err
    assert f"error: '{table}' has changed since the store '{tmp_path}/" in said
    assert "' was built from it\n  got:      sha256 " in said
    assert "do:       build it anew with `dglcell data build FILE --overwrite`" in said
    assert main(["train", str(experiment), *ARGUMENTS, *store, "seed=1", "trainer.epochs=2"]) == 0
    assert "has changed since the store" in caplog.text


@pytest.mark.parametrize(
    ("change", "words"),
    [(lambda path: path.write_text(path.read_text() + "g00\tg15\n"), "has changed"), (Path.unlink, "is gone")],
)
def test_a_network_that_changed_is_said_when_a_run_goes_on(
    change: Callable[[Path], object], words: str, experiment: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = experiment.with_name("contacts.tsv")
    change(network)
    assert main(["train", str(experiment), *ARGUMENTS, "trainer.epochs=2"]) == 0
    assert f"'{network}' {words} since the cell graph was made from it; this run keeps the graph" in caplog.text
