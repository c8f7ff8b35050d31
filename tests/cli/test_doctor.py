"""What the doctor says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

from dglcell.cli import main
from dglcell.cli.doctor import Finding, examine, format_findings
from dglcell.kernels.spmm import kernels_on


def test_everything_required_works_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DGLCELL_RAW", str(tmp_path))
    findings = {finding.what: finding for finding in examine()}
    assert findings["torch"].state == torch.__version__
    assert findings["python"].ok
    assert re.fullmatch(r".+, \d+ cores?, \d+ of them allotted", findings["CPU"].state)
    assert re.fullmatch(r"about [\d,]+ strains/s in training with \d+ threads?, now", findings["quickstart"].state)
    for kernel in kernels_on("cpu"):
        finding = findings[f"kernel {kernel} on cpu"]
        assert (finding.state, finding.ok) == ("gives the right sums", True)
    assert findings["raw files"].state == str(tmp_path)
    assert findings["raw files"].ok


def test_a_package_that_a_kernel_misses_and_a_missing_raw_folder_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DGLCELL_RAW", str(tmp_path / "no"))
    monkeypatch.delitem(sys.modules, "dglcell.kernels.loops_numba", raising=False)
    monkeypatch.delattr("dglcell.kernels.loops_numba", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)  # its import fails
    findings = {finding.what: finding for finding in examine()}
    assert findings["kernel tiled on cpu"].ok is False
    assert "numba" in findings["kernel tiled on cpu"].state
    assert findings["raw files"].ok is False


def test_remedies_follow_what_does_not_work() -> None:
    findings = [Finding("a", "1", ok=True), Finding("bbb", "none", ok=False, do="install it"), Finding("c", "info")]
    assert format_findings(findings) == "ok  a    1\nNO  bbb  none\n         → install it\n    c    info"


def test_the_command_prints_the_findings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DGLCELL_RAW", raising=False)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^ok  torch +{re.escape(torch.__version__)}$", printed, re.MULTILINE)
    assert re.search("^    raw files ", printed, re.MULTILINE)
