"""What tests of predictions share."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dglcell.runs import RunDirectory
    from dglcell.training.checkpoint import Trained


@pytest.fixture(scope="module")
def trained(tiny_run: RunDirectory) -> Trained:
    """Return the tiny heterograph model."""
    from dglcell.training.checkpoint import load_trained

    return load_trained(tiny_run)


@dataclass
class Predict:
    """``dglcell predict`` of the tiny run, in a folder of its own."""

    run: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: object, run: Path | None = None, status: int = 0) -> str:
        """Run the command and return what it prints, and what errors say."""
        from dglcell.cli import main

        self.capsys.readouterr()
        assert main(["predict", str(run or self.run), *map(str, words)]) == status
        return "".join(self.capsys.readouterr())

    def table(self, text: str, *options: str, run: Path | None = None) -> list[dict[str, str]]:
        """Return rows of the predictions of a CSV with this text, which are in ``out.csv``."""
        Path("in.csv").write_text(text)
        self("in.csv", "-o", "out.csv", "--overwrite", *options, run=run)
        return rows_of("out.csv")

    def design(self, out: str, *options: str, run: Path | None = None) -> Any:
        """Return the table of a design, of the genes in ``genes.txt`` if there are any."""
        import pyarrow.parquet as pq

        genes = ["--genes", "genes.txt"] if Path("genes.txt").exists() else []
        self(*genes, "-o", out, *options, run=run)
        return pq.read_table(out)


def rows_of(path: str) -> list[dict[str, str]]:
    """Return the rows of a CSV."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def predict(
    tiny_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Predict:
    """Return the command, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return Predict(tiny_run.path.absolute(), capsys)
