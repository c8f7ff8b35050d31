"""Closed standard streams, interrupts before anything runs, and texts that would steer a terminal or a spreadsheet."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dglcell.cli import main
from dglcell.config.read import as_plain_text, load_config, to_yaml
from dglcell.errors import ConfigError
from dglcell.files.atomic import no_formula
from dglcell.files.owner import LEASE_SECONDS, Lease
from dglcell.runs.directory import RunDirectory
from tests.examples import examples
from tests.hostile import (
    test_configurations,
    test_genotypes,
    test_models,
    test_networks,
    test_paths,
    test_tables,
)
from tests.hostile.inputs import Input, tree, write
from tests.integration.processes import PATIENCE, heed_interrupts, start
from tests.tiny import Tiny, process_environment

SHELL = shutil.which("sh")
"""Its path is looked up here, because hostile inputs have variables that hide it."""


def shell(
    command: str, cwd: Path, variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    """Run ``dglcell …`` as a shell does."""
    program = f"{sys.executable} -m dglcell {command}"
    environment = {**process_environment(), **variables}
    return subprocess.run(
        [str(SHELL), "-c", program],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        errors="replace",
    )


VERBS = ["--version", "config show", "runs {runs}", "report {run}", "evaluate {run}", "data stats {store}", "doctor"]
CLOSED = [">&-", "<&-", "2>&-", ">&- <&- 2>&-"]


@pytest.mark.parametrize("closed", [pytest.param(one, marks=pytest.mark.slow) for one in CLOSED])
@pytest.mark.parametrize("verb", VERBS)
def test_closed_streams(tiny: Tiny, tiny_run: RunDirectory, tmp_path: Path, verb: str, closed: str) -> None:
    run = tmp_path / "runs" / "tiny" / "seed-0"
    shutil.copytree(tiny_run.path, run)
    words = verb.format(run=run, runs=tmp_path / "runs", store=tiny.store)
    done = shell(f"{words} {closed}", tmp_path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


EVERYTHING = (
    test_configurations.files, test_configurations.overrides, test_genotypes.tables, test_models.files,
    test_networks.weighted, test_networks.keys, test_paths.places, test_paths.commands, test_tables.tables,
    test_tables.asides,
)  # fmt: skip
"""All that makes hostile inputs."""


@pytest.mark.slow
@pytest.mark.parametrize("make", EVERYTHING, ids=lambda make: f"{make.__module__}.{make.__name__}")
def test_hostile_inputs_with_closed_streams(
    tiny_run: RunDirectory, tmp_path: Path, make: Callable[[], Iterator[Input]]
) -> None:
    for number, hostile in enumerate(make()):
        folder = tmp_path / str(number)
        folder.mkdir()
        if make in (test_paths.places, test_paths.commands):
            test_paths.furnish(folder)
        write(folder, hostile.files)
        before = tree(folder)
        words = [str(tiny_run.path) if word == test_genotypes.RUN else word for word in hostile.arguments]
        if any("\0" in word or len(word) > 100_000 for word in words):
            continue  # no shell passes them on
        closed = CLOSED[number % len(CLOSED)]
        done = shell(f"{shlex.join(words)} {closed}", folder, hostile.environment)
        assert done.returncode == 2, (hostile.name, done)
        assert "Traceback" not in done.stderr + done.stdout, hostile.name
        assert tree(folder) == before, hostile.name


def test_a_run_is_finished_without_a_standard_output(tiny: Tiny, tmp_path: Path) -> None:
    closed = "import os, sys; os.close(0); os.close(1); sys.stdin = sys.stdout = None"  # as after `>&- <&-`
    process = start(tiny, tmp_path, "trainer.epochs=1", before=closed)
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "Traceback" in said) == (0, False)
    assert json.loads((tmp_path / "tiny" / "seed-0" / "results.json").read_text())["rows"]


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


@given(st.lists(st.sampled_from(["\\", "$", "{", "}", "oc.env:HOME", "x", "${", "'", ": ", "#"])).map("".join))
def test_plain_text_stays_plain_text(text: str) -> None:
    escaped = OmegaConf.create(OmegaConf.to_yaml(OmegaConf.create(as_plain_text({"a": text, "b": [text]}))))
    assert OmegaConf.to_container(escaped, resolve=True) == {"a": text, "b": [text]}


def test_an_escaped_variable_is_not_looked_up(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cr3t")
    config = tiny.config(tmp_path, r"experiment.description=\${oc.env:TOKEN}")
    assert config.experiment.description == "${oc.env:TOKEN}"
    written = tmp_path / "again.yaml"
    written.write_text(to_yaml(config))
    assert load_config(written).experiment.description == "${oc.env:TOKEN}"
    assert "s3cr3t" not in to_yaml(load_config(written))


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("experiment: {name: no}", "is a text, and YAML reads this word as true or false"),
        ("experiment: {name: ' '}", "has characters that nobody sees"),
        ('experiment: {name: "a\\u200bb"}', "has characters that nobody sees"),
        (f"experiment: {{name: {'a' * 1_000_000}}}", "`experiment.name` is too long"),
        ("optimizer: {lr: 1:30.5}", "`optimizer.lr` has a wrong value"),
        ("data: {source: {name: csv, csv: {phenotypes: {no: f}}}}", "keys like no, on and 12 need quotes"),
    ],
    ids=range(6),
)
def test_names_and_numbers_that_are_read_otherwise_than_written(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.yaml").write_text(f"{text}\ncell: {{model: textbook}}\n")
    with pytest.raises(ConfigError, match=said):
        load_config(tmp_path / "x.yaml").validate()


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-a", "@x", "\tx", "\rx"])
def test_no_text_is_a_formula(cell: str) -> None:
    assert no_formula(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["-1.5", "+2", "-inf", "b0001", "a=b", ""])
def test_numbers_and_other_texts_stay(cell: str) -> None:
    assert no_formula(cell) == cell


def test_predictions_begin_no_cell_with_a_formula(tiny_run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("genes,=note,x\nb0008;b0114,=HYPERLINK(1),-2\n")
    assert main(["predict", str(tiny_run.path), str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv")]) == 0
    header, row = (tmp_path / "out.csv").read_text().splitlines()
    assert header.startswith("genes,'=note,x,predicted_fitness")
    assert row.startswith("b0008;b0114,'=HYPERLINK(1),-2,")


COLUMNS = {
    "far dates": pa.array([-(2**40), 2**40], pa.timestamp("s")),
    "an unknown zone": pa.array([0, 1], pa.timestamp("us", "Nowhere/Land")),
    "bytes": pa.array([b"\xff", b"\xfe"], pa.binary()),
    "no UTF-8": pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    ),
    "long times": pa.array([2**62, 5], pa.duration("s")),
    "structs": pa.array([{"a": 1}, None]),
    "escape codes": pa.array(["\x1b[31mred", ""]),
}


@pytest.mark.parametrize("what", COLUMNS)
def test_parquet_of_strangers(
    tiny_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    pq.write_table(pa.table({"genes": ["b0008", "b0114"], what: COLUMNS[what]}), tmp_path / "in.parquet")
    status = main(["predict", str(tiny_run.path), str(tmp_path / "in.parquet"), "-o", str(tmp_path / "out.csv")])
    said = capsys.readouterr().err
    assert status in (0, 2)
    assert (status == 0) == (tmp_path / "out.csv").exists()
    assert status == 0 or "cannot be written as text" in said or "line 2: a control character" in said


CELLS = st.one_of(
    st.none(), st.text(max_size=6), st.integers(-(2**63), 2**63 - 1), st.floats(), st.binary(max_size=6),
    st.datetimes(), st.lists(st.integers(0, 9), max_size=2), st.sampled_from(["b0008", "b0114", "b0008;b0114", "\0"]),
)  # fmt: skip
NAMES = st.one_of(st.sampled_from(["genes", "gene_1", "gene_2", "predicted_fitness"]), st.text(max_size=4))


@pytest.mark.slow
@examples(400)
@given(st.lists(st.tuples(NAMES, st.lists(CELLS, min_size=2, max_size=2)), min_size=1, max_size=3))
def test_parquet_that_nobody_would_think_of(tiny_run: RunDirectory, columns: list[tuple[str, list[object]]]) -> None:
    try:
        table = pa.table([pa.array(cells) for _, cells in columns], names=[name for name, _ in columns])
    except (pa.ArrowException, UnicodeEncodeError):
        return  # there is no such table
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()) as said, redirect_stdout(StringIO()):
        given_, made = Path(folder) / "in.parquet", Path(folder) / "out.csv"
        pq.write_table(table, given_)
        status = main(["predict", str(tiny_run.path), str(given_), "-o", str(made)])
        assert (status, "Traceback" in said.getvalue()) in ((0, False), (2, False))
        assert made.exists() == (status == 0)


def test_a_lease_of_the_future_blocks_nobody(tmp_path: Path) -> None:
    lock = tmp_path / "owner.json"
    stranger = Lease(lock, tmp_path)
    assert stranger.acquire() is None
    content = json.loads(lock.read_text())
    lock.write_text(json.dumps({**content, "process": {**content.get("process", {}), "host": "elsewhere"}}))
    then = time.time() + 20 * LEASE_SECONDS
    os.utime(lock, (then, then))
    assert Lease(lock, tmp_path).acquire() is None


def test_messages_name_no_temporary_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from dglcell.cli import _say

    _say("'/a/.out.csv.partial-0123456789-17-99-0123abcd': No space left on device")
    assert capsys.readouterr().err == "error: '/a/out.csv': No space left on device\n"
