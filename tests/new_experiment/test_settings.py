"""What is chosen for tables of different size and kind."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dglcell.api import load_cell
from dglcell.config.read import load_config, parse_yaml
from dglcell.data.columns import columns_of
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from dglcell.graph.schema import CATALYSES
from dglcell.new_experiment.experiment import GROWTH, PAIRS, Facts, Schedule, choose_settings, with_reasons

FITNESS = Facts(strains=3000, fewest=1, most=2, classes=False, fitness=True, genes=137)


@pytest.mark.parametrize(
    ("facts", "model", "link"),
    [
        (FITNESS, GROWTH, "minimum"),
        (replace(FITNESS, most=1), GROWTH, "log"),
        (replace(FITNESS, fitness=False), PAIRS, "identity"),
        (replace(FITNESS, fitness=False, most=1), GROWTH, "identity"),
        (replace(FITNESS, fitness=False, fewest=3, most=3), PAIRS, "identity"),
        (replace(FITNESS, fitness=False, fewest=2, metabolic=True), GROWTH, "identity"),
        (replace(FITNESS, fitness=False, classes=True), GROWTH, None),
        (replace(FITNESS, fitness=False, classes=True, fewest=2), PAIRS, None),
    ],
)
def test_labels_and_deletions_choose_the_model(facts: Facts, model: str, link: str | None) -> None:
    chosen = choose_settings(facts, "random")
    assert chosen.model == model
    assert chosen.keys.get("model", {}).get("link") == link
    assert ("normalise" in chosen.keys["data"]) == (facts.classes and model == GROWTH)
    assert (chosen.keys.get("trainer", {}).get("checkpoint") == "best_average_precision") == facts.classes


def test_labels_are_told_apart() -> None:
    cell = load_cell("quickstart")
    bare = copy(cell)
    bare.content = {relation: edges for relation, edges in cell.content.items() if relation != CATALYSES}
    names = cell.genes.names[:2]

    def facts(**columns: list[float]) -> Facts:
        genes, offsets = np.array([0, 0, 1, 1]), np.array([0, 1, 3, 4])
        labels = {name: np.array(values) for name, values in columns.items()}
        return Facts.of(Strains(names, genes, offsets, columns_of(phenotype=labels)), bare)

    nan = float("nan")
    assert facts(y=[0.9, 0.5, nan]) == Facts(3, 1, 2, False, True, 137, False)
    assert facts(y=[1, 0, nan]).what == "classes"
    assert facts(y=[-1, 0, 1]).what == "scores"
    assert facts(y=[0.9, 0.5, 1], z=[1, 0, 1]).what == "scores"  # training takes no classes for growth
    assert facts(y=[0.9, 0.5, 1], z=[-1, 0.5, 1]).what == "scores"

    bare = cell
    assert facts(y=[0.9, 0.5, nan]).metabolic


def test_strains_that_cannot_train_are_no_part_of_the_facts() -> None:
    cell = load_cell("quickstart")
    strains = [["b0008"], ["b0114"], ["b9999"], ["b0114", "b9998"]]
    table = Strains.from_names(strains, phenotypes={"y": [0.0, 1.0, -3.0, 0.5]})
    assert Facts.of(table, cell) == Facts(2, 1, 1, True, False, 137, True, known=False)
    said = r"every strain deletes a gene that the cell graph lacks\n  got:      b9998, b9999"
    with pytest.raises(DataError, match=said):
        Facts.of(Strains.from_names(strains[2:], phenotypes={"y": [0.0, 1.0]}), cell)


def test_few_strains_leave_more_to_test() -> None:
    few, many = (choose_settings(replace(FITNESS, strains=strains), "random") for strains in (300, 3000))
    assert few.keys["split"]["fractions"] == [0.7, 0.15, 0.15]
    assert many.keys["split"]["fractions"] == [0.8, 0.1, 0.1]
    everything = choose_settings(FITNESS, "none")
    assert everything.keys["split"] == {"kind": "none"}
    assert everything.keys["trainer"]["checkpoint"] == "last"
    assert everything.schedule.strains == 3000


@pytest.mark.parametrize("model", [GROWTH, PAIRS])
def test_there_are_steps_enough_and_smaller_tables_have_more_epochs(model: str) -> None:
    schedules = [Schedule.of(strains, model) for strains in (1, 40, 92, 800, 2_400, 24_000, 110_000)]
    assert all(one.steps >= min(100, 20 * one.strains) for one in schedules)
    assert [one.batch for one in schedules] == sorted(one.batch for one in schedules)
    assert [one.epochs for one in schedules] == sorted((one.epochs for one in schedules), reverse=True)
    assert Schedule.of(2400, model, 6600).epochs < Schedule.of(2400, model, 137).epochs
    chosen = choose_settings(replace(FITNESS, strains=800), "none", model)
    assert chosen.keys["scheduler"]["warmup"] <= 0.05 * Schedule.of(800, model).steps + 1
    assert chosen.keys["trainer"]["epochs"] == schedules[3].epochs
    assert chosen.keys["data"]["batch_size"] == schedules[3].batch


def test_reasons_stand_above_their_keys_and_change_nothing() -> None:
    content = {"a": {"b": [1, {"x": "y: z"}], "c": 2}, "c": "${not: this}", "d": {"c": "x"}}
    text = with_reasons(content, {"a.c": "one", "d.c": "words " * 40})
    lines = text.splitlines()
    assert lines[lines.index("  c: 2") - 1] == "  # one"
    assert lines[lines.index("  c: x") - 1].startswith("  # words")
    assert "#" not in lines[0]
    assert 100 < max(map(len, lines)) <= 120
    again = parse_yaml(text, where="test")
    assert (again.a.c, again.d.c, again["c"]) == (2, "x", "${not: this}")


def test_another_model_takes_its_own_settings(tmp_path: Path) -> None:
    text = "extends: [base.yaml, bases/growth.yaml]\ncell: {model: textbook, derived: [isoenzyme]}\n"
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "other.yaml").write_text(text.replace("growth", "pairs"))
    (tmp_path / "third.yaml").write_text("extends: mine.yaml\n")
    for name, model, other in (("mine", PAIRS, "other"), ("other", GROWTH, "mine"), ("third", PAIRS, "other")):
        found = load_config(tmp_path / f"{name}.yaml", [f"model.name={model}"])
        expected = load_config(tmp_path / f"{other}.yaml")
        assert (found.model, found.optimizer, found.cell) == (expected.model, expected.optimizer, expected.cell)
    assert load_config(tmp_path / "mine.yaml", ["model.name=hetero_cell"]).model.hidden == 32


@pytest.mark.parametrize(
    ("changed", "blocked", "asked"),
    [
        ({}, True, True),
        ({"fitness": False}, False, True),  # other measurements of single deletions
        ({"fitness": False, "classes": True, "most": 2}, True, False),
        ({"most": 2}, True, False),  # compared with measured strains, which covariates are not
        ({"most": 2, "weakened": True}, True, True),
        ({"metabolic": False}, False, False),
        ({"strains": 6000}, True, False),
    ],
)
def test_tables_of_metabolic_genes_are_told_what_the_metabolic_model_says(
    changed: dict[str, object], blocked: bool, asked: bool
) -> None:
    facts = replace(FITNESS, **{"most": 1, "metabolic": True, **changed})  # type: ignore[arg-type]
    chosen = choose_settings(facts, "random")
    assert chosen.keys.get("cell", {}).get("lose_blocked", False) is blocked
    assert chosen.keys.get("data", {}).get("fba") == ({"name": "fba_growth"} if asked else None)
    assert ("data.fba" in chosen.reasons) == asked
