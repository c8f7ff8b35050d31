"""`dglcell check`: strategies against DGL's own subgraphs, for runs and experiments, and what the exit status says."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dglcell.cli import main
from dglcell.graph import resident_graph
from dglcell.perturbation.states import States, WholeStates
from dglcell.perturbation.strategies.dgl_graphs import EdgeMask
from dglcell.runs.directory import RunDirectory
from tests.tiny import Tiny


def experiment(tiny: Tiny, folder: Path, *overrides: str) -> list[str]:
    config = tiny.config(folder)
    return [str(tiny.file), f"data.store={config.data.store}", f"paths.runs={folder}", *overrides]


def test_a_run_is_compared_on_its_test_part(tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tiny_run.path), "--strains", "20"]) == 0
    printed = capsys.readouterr().out
    assert re.match(r"\d+ strains of the test part, in double precision, 16 at once\n", printed)
    rows = dict(re.findall(r"^(\w+) +(\d\.\de[+-]\d+) +\d+\.\d+ +\d+\.\d +\d+$", printed, re.MULTILINE))
    assert set(rows) == {"edge_mask", "node_mask", "difference"}
    assert all(float(difference) < 1e-10 for difference in rows.values())
    assert re.search(
        r"\nchecked against DGL: equal to \de-\d+; (DGL is )?(about as|[\d.]+ times as) fast( here)?\n$", printed
    )


def test_quiet_prints_the_last_line_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "ecoli-core", "--strains", "3", "--quiet"]) == 0
    assert re.fullmatch(r"checked against DGL: equal to .*\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("overrides", "compared"),
    [
        (["model.conv=gatv2"], {"edge_mask"}),
        (["model.conv=dgl.nn.GATv2Conv", "model.conv_options={num_heads: 2}"], set()),
        (["model.conv=dgl.nn.GraphConv"], {"edge_mask"}),
    ],
)
def test_an_experiment_is_compared_by_the_strategies_that_run_it(
    tiny: Tiny, tmp_path: Path, overrides: list[str], compared: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["check", *experiment(tiny, tmp_path, "model.strategy=auto", *overrides), "--strains", "4"])
    printed = capsys.readouterr().out
    assert set(re.findall(r"^(\w+) +\d\.\de", printed, re.MULTILINE)) == compared
    assert "difference does not run: " in printed
    assert status == (0 if compared else 3)
    assert compared or printed.endswith("not checked against DGL: edge_subgraph alone computes this model\n")
    assert "with weights drawn at random" in printed


def test_a_strategy_that_computes_something_else_is_found(
    tiny_run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = EdgeMask.aggregate

    def wrong(self: EdgeMask, *args: Any, **keys: Any) -> States:
        states = right(self, *args, **keys)
        assert isinstance(states, WholeStates)
        return WholeStates(states.x_NCH * (1 + 1e-6), states.num_strains)

    monkeypatch.setattr(EdgeMask, "aggregate", wrong)
    assert main(["check", str(tiny_run.path), "--strains", "4", "--quiet"]) == 1
    assert re.fullmatch(r"checked against DGL: edge_mask DIFFERS by \de-0\d\n", capsys.readouterr().out)


def test_without_dgl_it_says_that_nothing_was_checked(
    tiny_run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    resident_graph.dgl_runs_on.cache_clear()
    try:
        assert main(["check", str(tiny_run.path)]) == 3
    finally:
        resident_graph.dgl_runs_on.cache_clear()
    assert re.match(r"not checked against DGL: DGL cannot be imported; got: .*use Python 3.11", capsys.readouterr().out)


def test_models_without_graphs_of_strains_and_keys_for_runs_are_refused(
    tiny: Tiny, tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *experiment(tiny, tmp_path, "model={name: set_operator, hidden: 8}")]) == 2
    assert "error: this model has no graphs of strains to check\n" in capsys.readouterr().err
    assert main(["check", str(tiny_run.path), "model.hidden=8"]) == 2
    assert "is checked as it was trained" in capsys.readouterr().err
