"""Closed standard streams, interrupts before anything runs, and texts that would steer a terminal or a spreadsheet."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.files.atomic import no_formula
from dglcell.runs.directory import RunDirectory
from tests.integration.processes import heed_interrupts
from tests.tiny import process_environment


def test_an_interrupt_before_anything_runs_is_no_traceback(tmp_path: Path) -> None:
    for delay in (0.05, 0.1, 0.15, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "dglcell", "config", "show"],
            cwd=tmp_path, env=process_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=heed_interrupts,
        )  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if "argparse" in line or "dglcell" in line:
                break
        time.sleep(delay / 10)
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.communicate()[1]


def test_escape_codes_of_a_stranger_s_results_are_written_out(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path / "runs" / "tiny" / "seed-0")
    shutil.copytree(tiny_run.path, run.path)
    results = json.loads(run.results.read_text())
    for row in results["rows"]:
        row["model"] = "\x1b]0;owned\x07" + row["model"]
    run.results.write_text(json.dumps(results))
    assert main(["runs", str(tmp_path / "runs")]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\\x1b]0;owned" in said


def test_the_name_of_a_column_is_no_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", "s3cr3t")
    rows = [f"b{number},0.{number}" for number in range(1, 9)]
    (tmp_path / "t.csv").write_text("\n".join(["gene_1,${oc.env:TOKEN}", *rows]) + "\n")
    main(["init", "mine", "--table", "t.csv", "--cell", "textbook"])
    said = capsys.readouterr()
    assert "s3cr3t" not in said.out + said.err
    assert "s3cr3t" not in "".join(path.read_text() for path in tmp_path.glob("*.yaml"))


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-a", "@x", "\tx", "\rx"])
def test_no_text_is_a_formula(cell: str) -> None:
    assert no_formula(cell) == f"'{cell}"
    assert [no_formula(number) for number in ("-1.5", "+2", "-inf", "a=b")] == ["-1.5", "+2", "-inf", "a=b"]


def test_predictions_begin_no_cell_with_a_formula(tiny_run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("genes,=note,x\nb0008;b0114,=HYPERLINK(1),-2\n")
    assert main(["predict", str(tiny_run.path), str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv")]) == 0
    header, row = (tmp_path / "out.csv").read_text().splitlines()
    assert header.startswith("genes,'=note,x,predicted_by,predicted_fitness")
    assert row.startswith("b0008;b0114,'=HYPERLINK(1),-2,")


def test_messages_name_no_temporary_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from dglcell.cli import _say

    _say("'/a/.out.csv.partial-0123456789-17-99-0123abcd': No space left on device")
    assert capsys.readouterr().err == "error: '/a/out.csv': No space left on device\n"
