"""The tables that the defaults of `dglcell init` are measured on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.own_tables import CLASSES, CORE, TABLES, OwnTable, interacting, measure, viable
from dglcell.new_experiment.settings import GROWTH, PAIRS, choose_settings
from dglcell.training.run import train

OF_CORE = {table.name: table for table in TABLES if table.cell == CORE}

ROWS = {
    "growth-60": (60, {1, 2}),
    "growth-144": (144, {1, 2}),
    "singles-137": (137, {1}),
    "growth-3000": (3000, {1, 2}),
    "pairs-3000": (3000, {2}),
    "growth-30000": (29453, {1, 2, 3}),
    "viable-1000": (1000, {1, 2}),
    "epsilon-5000": (5000, {2}),
}


def test_there_are_twelve() -> None:
    assert len({table.name for table in TABLES}) == 12
    assert set(ROWS) == set(OF_CORE)
    assert set(CLASSES) < {table.name for table in TABLES}


@pytest.mark.parametrize("name", ROWS)
def test_they_are_what_they_are_called_and_the_same_each_time(name: str, tmp_path: Path) -> None:
    rows = OF_CORE[name].make()
    assert (len(rows), {len(genes) for genes, _ in rows}) == ROWS[name]
    assert len({genes for genes, _ in rows}) == len(rows)
    assert {label for _, label in rows} <= {0.0, 1.0} if name in CLASSES else True
    assert OF_CORE[name].make() == rows
    assert OF_CORE[name].write(tmp_path / "table.csv") == len(rows)
    assert len((tmp_path / "table.csv").read_text().splitlines()) == len(rows) + 1


def test_scores_become_classes() -> None:
    rows = [((str(i),), float(i)) for i in range(10)]
    assert [label for _, label in interacting(rows, 0.2)] == [1.0, 1.0, *[0.0] * 8]
    assert [label for _, label in viable(rows, 7.5)] == [*[0.0] * 8, 1.0, 1.0]


def test_a_table_is_given_to_init_and_train(monkeypatch: pytest.MonkeyPatch) -> None:
    def quick(*arguments: object) -> object:
        chosen = choose_settings(*arguments)  # type: ignore[arg-type]
        chosen.keys["trainer"]["epochs"] = 2
        return chosen

    monkeypatch.setattr("dglcell.new_experiment.experiment.choose_settings", quick)
    monkeypatch.setattr("benchmarks.own_tables.train", lambda config: train(replace(config, plot=False)))
    here = Path.cwd()
    few = OwnTable("few", CORE, "growth", lambda: OF_CORE["growth-144"].make()[::3])
    found = measure(few, seeds=2)
    assert Path.cwd() == here
    assert (found["rows"], found["splits"], found["chosen"]["model"]) == (48, 2, GROWTH)
    assert found["difference"] == pytest.approx(found["score"] - found["best_null_score"], abs=1e-3)
    assert len(found["each_split"][GROWTH]) == 2
    assert PAIRS not in found["each_split"]
