"""`dglcell check`: strategies against DGL's own subgraphs, for runs and experiments, and what the exit status says."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch

from dglcell.cli import main
from dglcell.cli.check import Finding, compare, examine, format_findings
from dglcell.graph import resident_graph
from dglcell.kernels.spmm import kernels_on
from dglcell.models.cell_model import HeteroCell
from dglcell.models.config import HeteroCellConfig
from dglcell.perturbation.dgl_graphs import EdgeMask
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.states import States, WholeStates
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import Trained, load_trained
from tests.random_cells import textbook_cell
from tests.tiny import BARE, Tiny, process_environment


def test_a_run_is_compared_on_its_test_part(tiny_run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tiny_run.path), "--strains", "20"]) == 0
    printed = capsys.readouterr().out
    assert re.match(r"\d+ strains of the test part, in double precision, 16 at once\n", printed)
    rows = dict(re.findall(r"^(\w+) +(\d\.\de[+-]\d+) +\d+\.\d+ +\d+\.\d$", printed, re.MULTILINE))
    assert set(rows) == {"edge_mask", "node_mask", "difference"}
    assert all(float(difference) < 1e-10 for difference in rows.values())
    assert re.search(
        r"\nchecked against DGL: equal to \de-\d+; (DGL is )?(about as|[\d.]+ times as) fast( here)?\n$", printed
    )


@pytest.mark.parametrize(
    ("options", "compared"),
    [
        ({"conv": "gatv2"}, {"edge_mask"}),
        ({"conv": "dgl.nn.GATv2Conv", "conv_options": {"num_heads": 2}}, set()),
        ({"conv": "sage"}, {"edge_mask", "node_mask", "difference"}),
    ],
)
def test_a_model_is_compared_by_the_strategies_that_run_it(options: dict[str, Any], compared: set[str]) -> None:
    cell = textbook_cell()
    model = HeteroCell(cell, HeteroCellConfig(hidden=8, layers=1, **options)).double().eval()
    found, left_out = compare(model, GenotypeBatch.from_lists([[0], [1, 2]], cell.num_nodes["gene"]))
    reference, *others = found
    assert (reference, {*others}) == ("edge_subgraph", compared)
    assert all(found[name].difference(found[reference]) < 1e-10 for name in others)
    assert len(left_out) == 3 - len(compared)
    assert all(" does not run: " in line for line in left_out)


def test_a_strategy_that_computes_something_else_is_found(
    tiny_run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = EdgeMask.aggregate

    def wrong(self: EdgeMask, *args: Any, **keys: Any) -> States:
        states = right(self, *args, **keys)
        assert isinstance(states, WholeStates)
        return WholeStates(states.x_NCH * (1 + 1e-6), states.num_strains)

    monkeypatch.setattr(EdgeMask, "aggregate", wrong)
    assert main(["check", str(tiny_run.path), "--strains", "4", "--quiet"]) == 1  # the last line alone
    assert re.fullmatch(r"checked against DGL: edge_mask DIFFERS by \de-0\d\n", capsys.readouterr().out)


def test_without_dgl_it_says_that_nothing_was_checked(
    tiny_run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "ecoli-core", "--strains", "3"]) == 0
    assert "3 strains drawn at random, for " in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "dgl", None)
    resident_graph.dgl_runs_on.cache_clear()
    try:
        assert main(["check", str(tiny_run.path)]) == 3
    finally:
        resident_graph.dgl_runs_on.cache_clear()
    assert re.match(r"not checked against DGL: DGL cannot be imported; got: .*use Python 3.11", capsys.readouterr().out)


def test_models_without_graphs_of_strains_are_refused(
    tiny_run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without(directory: RunDirectory) -> Trained:
        trained = load_trained(directory)
        trained.model.own_graphs = False
        return trained

    monkeypatch.setattr("dglcell.training.checkpoint.load_trained", without)
    assert main(["check", str(tiny_run.path)]) == 2
    assert "error: this model has no graphs of strains to check\n" in capsys.readouterr().err


def test_the_doctor_names_what_works_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DGLCELL_RAW", str(tmp_path))
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^ok  torch +{re.escape(torch.__version__)}$", printed, re.MULTILINE)
    assert re.search(rf"^ok  raw files +{tmp_path}$", printed, re.MULTILINE)
    assert re.search(r"^    CPU +.+, \d+ cores?, \d+ of them allotted$", printed, re.MULTILINE)
    for kernel in kernels_on("cpu"):
        assert re.search(rf"^ok  kernel {kernel} on cpu +gives the right sums$", printed, re.MULTILINE)
    monkeypatch.setenv("DGLCELL_RAW", str(tmp_path / "no"))
    monkeypatch.delitem(sys.modules, "dglcell.kernels.loops_numba", raising=False)
    monkeypatch.delattr("dglcell.kernels.loops_numba", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)  # its import fails
    findings = {finding.what: finding for finding in examine()}
    assert findings["kernel tiled on cpu"].ok is False
    assert "numba" in findings["kernel tiled on cpu"].state
    assert findings["raw files"].ok is False
    made = [Finding("a", "1", ok=True), Finding("bbb", "none", ok=False, do="install it"), Finding("c", "info")]
    assert format_findings(made) == "ok  a    1\nNO  bbb  none\n         → install it\n    c    info"


# Modules that installed packages import if they are there, as in a block `try`, or that are mostly there.
OPTIONAL = re.compile(rb"^[ \t]+(?:import|from)[ \t]+([A-Za-z]\w*)", re.MULTILINE)
COMMANDS = (
    "data build {experiment} data.store=built data.source.insilico.processes=2 data.source.insilico.pairs=none",
    "train {experiment} data.store={store} trainer.epochs=1 paths.runs=new " + " ".join(BARE),
    "predict ecoli-core in.csv",
)
"""They import different packages, and the first one starts processes."""

PROGRAM = """\
import sys
from dglcell.cli import main
assert [main(line.split()) for line in sys.argv[1:]] == [0] * len(sys.argv[1:])
assert not [folder for folder in sys.path if not folder]
"""


def test_no_file_runs_that_only_lies_in_the_working_folder(tiny: Tiny, tmp_path: Path) -> None:
    packages, folder = Path(sysconfig.get_path("purelib")), tmp_path / "folder"
    folder.mkdir()
    names = {path.stem for path in packages.iterdir()}
    names |= {name.decode() for path in packages.glob("*/*.py") for name in OPTIONAL.findall(path.read_bytes())}
    traps = {name for name in names - {*sys.stdlib_module_names, "dglcell"} if name.isidentifier()}
    assert len(traps) > 300
    for name in traps:  # each leaves a file beside the folder when it runs
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / name)!r} + '.sprung', 'w')\nraise ImportError\n")
    (folder / "in.csv").write_text("genes\nb0008\n")
    (tmp_path / "mine.yaml").write_text(tiny.file.read_text())
    (tmp_path / "program.py").write_text(PROGRAM)
    lines = [line.format(experiment=tmp_path / "mine.yaml", store=tiny.store) for line in COMMANDS]
    environment = {name: value for name, value in process_environment().items() if name != "PYTHONSAFEPATH"}
    for command in ([str(tmp_path / "program.py"), *lines], ["-m", "dglcell", "config", "show", "../mine.yaml"]):
        done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert [path.name for path in tmp_path.glob("*.sprung")] == []
