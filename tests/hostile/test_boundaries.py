"""One table for each boundary: what it is given, and what the one message names; nothing is written."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dglcell.cli import main
from dglcell.errors import GenotypeError
from dglcell.files.atomic import no_formula
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs import RunDirectory
from tests.integration.processes import heed_interrupts
from tests.tiny import process_environment

EXPERIMENT, MINIMAL = "experiment.yaml", "cell: {model: textbook}\n"
VALIDATE = ("config", "validate", EXPERIMENT)
RUN, LONG, LOOP, FILE = "RUN", "x" * 300, "loop", "file.txt"

CONFIGURATIONS: dict[str, tuple[str | bytes, str]] = {
    "an escape": ("cell: {model: 'text\x1b[31mbook'}\n", EXPERIMENT),
    "not utf-8": (b"cell: {model: \xff\xfe}\n", EXPERIMENT),
    "python object": ("cell: !!python/object/apply:os.system ['touch x']\n", EXPERIMENT),
    "a variable that is not set": ("experiment: {name: '${oc.env:DGLCELL_NOT_SET}'}\n", "experiment.name"),
    "a section that is a number": (MINIMAL + "trainer: 3\n", "`trainer`"),
}

OVERRIDES: list[tuple[str, str]] = [
    ("=3", "=3"),
    ("data.store=None", "write null"),
    ("tracking.wandb=None", "`tracking.wandb`"),
    ("seed={a: 1}", "`seed`"),
    ("seed=" + "9" * 10_000, "seed"),
    ("optimizer.lr=.nan", "`optimizer.lr`"),
    ("optimizer.lr=1e999", "`optimizer.lr`"),
    ("optimizer.name=__class__", "`optimizer.name`"),
    ("trainer.epochs=99999999999999999999", "`trainer.epochs`"),
    ('data.phenotypes=["a\\nb"]', "`data.phenotypes[0]`"),
    ("model.pool=[gene, planet]", "`model.pool`"),
    ("cell.networks={'../up': {path: x, columns: [b, c]}}", "../up"),
    ("experiment.name=../../outside", "`experiment.name`"),
    ("experiment.name=" + LONG, "`experiment.name`"),
    ('experiment.name="a\\u2028b"', "`experiment.name`"),
    ("slurm.options=[touch x]", "`slurm.options`"),
    ('slurm.setup=["--a\\n#SBATCH --wrap=x"]', "`slurm.setup[0]`"),
    ('slurm.environment={A: "b\\nc"}', "`slurm.environment.A`"),
]

SOURCE = """\
cell: {model: textbook}
data: {source: {name: csv, csv: {path: strains.csv, genes: [gene_1, gene_2], phenotypes: {fitness: score}}}}
"""
HEADER, ROW = "gene_1,gene_2,score\n", "b0001,b0002,0.5\n"

TABLES: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "strains.csv"),
    "a header twice": ("gene_1,gene_1,score\n" + ROW, "'gene_1'"),
    "a long row": (HEADER + ROW + "b0001,b0002,1,2\n", "line 3"),
    "inf": (HEADER + ROW + "b0001,b0003,inf\n", "line 3"),
    "a formula": (HEADER + ROW + 'b0001,b0003,"=1+1"\n', "line 3"),
    "a gene twice": (HEADER + ROW + "b0003, b0003 ,1\n", "line 3"),
    "nul in a name": (HEADER + ROW + "b00\0 03,b0004,1\n", "line 3"),
    "escape in a name": (HEADER + ROW + "\x1b[31mb0003,b0004,1\n", "line 3"),
    "torn utf-16": ((HEADER + ROW).encode("utf-16")[:-1], "strains.csv"),
    "torn gzip": (gzip.compress((HEADER + ROW * 1000).encode())[:-9], "strains.csv"),
    "a spreadsheet": (b"PK\x03\x04" + bytes(200), "strains.csv"),
}

GENOTYPES: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "in.csv"),
    "no gene": ("genes\n;;\n", "line 2"),
    "an unknown gene": ("genes\nb0008;nothing\n", "nothing"),
    "a gene with an escape": ("genes\n\x1b[31mb0008\n", "line 2"),
    "not utf-8": (b"genes\n\xff\xfe\n", "in.csv"),
    "the column that will be written": ("genes,predicted_fitness\nb0008,1\n", "predicted_fitness"),
    "a long unknown gene": ("genes\n" + "x" * 100_000 + "\n", "line 2"),
    "a negative activity": ("genes\nb0008:0.5;b0114\nb0008:-0.5\n", "b0008:-0.5"),
    "an infinite activity": ("gene_1,activity_1\nb0008,inf\n", "line 2"),
    "a thousand unknown genes": ("genes\n" + "".join(f"x{n}\n" for n in range(1_000)), "1,000 of 1,000"),
}


def model(**changes: Any) -> str:
    """Return a metabolic model of one reaction as cobra writes it in JSON; ``changes`` are of the reaction."""
    reaction = {"id": "R1", "name": "", "metabolites": {"a_c": -1.0, "b_c": 1.0}, "lower_bound": 0.0}
    reaction |= {"upper_bound": 1000.0, "gene_reaction_rule": "g1 and g2", **changes}
    metabolites = [{"id": name, "name": name, "compartment": "c"} for name in ("a_c", "b_c")]
    genes = [{"id": name, "name": name} for name in ("g1", "g2")]
    whole = {"metabolites": metabolites, "reactions": [reaction], "genes": genes, "id": "small", "version": "1"}
    return json.dumps(whole | {"compartments": {"c": "cytosol"}})


RULE = " and ".join("(" + " or ".join(f"g{n}_{k}" for k in range(10)) + ")" for n in range(12))
LAUGHS = "<!DOCTYPE x [<!ENTITY a0 'ha'>" + "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 12))
LAUGHS += (
    "]>\n<sbml xmlns='http://www.sbml.org/sbml/level3/version1/core' level='3' version='1'><model id='&a11;'/></sbml>"
)

MODELS: dict[str, tuple[str, str | bytes, str]] = {
    # name: (file, content, what the message names)
    "empty": ("model.json", b"", "model.json"),
    "torn": ("model.json", model()[:-30], "model.json"),
    "deep lists": ("model.json", "[" * 5_000 + "]" * 5_000, "model.json"),
    "stoichiometry of nan": ("model.json", model(metabolites={"a_c": float("nan")}), "R1"),
    "bounds the wrong way round": ("model.json", model(lower_bound=5, upper_bound=-5), "model.json"),
    "a rule with a call": ("model.json", model(gene_reaction_rule="__import__('os').system('touch x')"), "model.json"),
    "a rule that multiplies": ("model.json", model(gene_reaction_rule=RULE), "R1"),
    "sbml that is html": ("model.xml", "<html><body/></html>", "model.xml"),
    "sbml that laughs": ("model.xml", LAUGHS, "model.xml"),
    "yaml that is an object": ("model.yml", "!!python/object/apply:os.system ['touch x']\n", "model.yml"),
    "matlab that is bytes": ("model.mat", bytes(range(256)) * 4, "model.mat"),
    "another extension": ("model.exe", b"MZ", ".exe"),
}

NETWORK = "cell: {networks: {near: {path: edges.tsv, columns: [a, b], weight: w, min_weight: 0}}}\n"
EDGES: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "edges.tsv"),
    "a header twice": ("a\tb\tb\tw\nx\ty\tz\t1\n", "'b'"),
    "a weight of inf": ("a\tb\tw\nx\ty\tinf\n", "line 2"),
    "an empty end": ("a\tb\tw\nx\t\t1\n", "line 2"),
    "nul": ("a\tb\tw\nx\0\ty\t1\n", "edges.tsv"),
    "not utf-8": (b"a\tb\tw\n\xff\ty\t1\n", "edges.tsv"),
    "html": ("<!DOCTYPE html>\n<html><body>Not found</body></html>\n", "edges.tsv"),
}

VERBS = [("evaluate", "@"), ("predict", "@", FILE), ("report", "@"), ("data", "stats", "@"), ("train", "@")]
PLACES = [("nowhere", "nowhere"), (LONG, "xxx"), (LOOP, LOOP), (f"{FILE}/a", FILE), (FILE, FILE)]

COMMANDS: list[tuple[tuple[str, ...], str]] = [
    (("job", "render", EXPERIMENT, "--seeds", "0-99999999999999"), "--seeds"),
    (("job", "render", "a\nb.yaml"), "control character"),
    (("train", EXPERIMENT, "paths.runs=/proc"), "/proc"),
    (("train", EXPERIMENT, "resume=nowhere.ckpt"), "nowhere.ckpt"),
    (("train", EXPERIMENT, "data.store=" + LOOP), LOOP),
    (("predict", RUN, FILE, "-o", "nowhere/" + LONG + ".csv"), "xxx"),
    (("predict", RUN, "--all-pairs", "--limit", "0", "-o", "out.csv"), "--limit"),
    (("predict", RUN, "--all-pairs", "--activity", "nan", "-o", "out.csv"), "nan"),
    (("predict", RUN, FILE, "--checkpoint", "../../etc/passwd", "-o", "out.csv"), "passwd"),
]

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "one"}
VARIABLES: list[tuple[dict[str, str], tuple[str, ...], str]] = [
    ({"HERE": "a\nb"}, (*VALIDATE, "experiment.name=${oc.env:HERE}"), "experiment.name"),
    ({"HERE": "\x1b[31m"}, (*VALIDATE, "paths.runs=${oc.env:HERE}"), "paths.runs"),
    ({**SLURM, "SLURM_NTASKS": "-1"}, ("train", EXPERIMENT), "SLURM_NTASKS"),
    ({**SLURM, "SLURM_NNODES": "9" * 5_000}, ("train", EXPERIMENT), "SLURM_NNODES"),
]


@dataclass(frozen=True)
class Input:
    name: str  #: of the test
    arguments: tuple[str, ...]  #: after ``dglcell``
    says: str  #: what the message has to name: the key, file, line or gene to mend
    files: Mapping[str, str | bytes] = field(default_factory=dict)  #: path below the working folder → content
    environment: Mapping[str, str] = field(default_factory=dict)


def inputs() -> Iterator[Input]:
    describe, build = ("graph", "describe", EXPERIMENT), ("data", "build", EXPERIMENT, "data.store=store")
    for name, (content, says) in CONFIGURATIONS.items():
        yield Input(f"configuration: {name}", VALIDATE, says, {EXPERIMENT: content})
    for number, (override, says) in enumerate(OVERRIDES):
        yield Input(f"override {number}: {override[:30]!a}", (*VALIDATE, override), says)
    for name, (content, says) in TABLES.items():
        yield Input(f"table: {name}", build, says, {EXPERIMENT: SOURCE, "strains.csv": content})
    for name, (content, says) in GENOTYPES.items():
        yield Input(f"genotypes: {name}", ("predict", RUN, "in.csv", "-o", "out.csv"), says, {"in.csv": content})
    for name, (file, content, says) in MODELS.items():
        files = {EXPERIMENT: f"cell: {{model: ./{file}}}\n", file: content}
        yield Input(f"model: {name}", describe, says, files)
    for name, (content, says) in EDGES.items():
        yield Input(f"network: {name}", describe, says, {EXPERIMENT: NETWORK, "edges.tsv": content})
    for words in VERBS:
        for place, says in PLACES:
            arguments = tuple(place if word == "@" else word for word in words)
            yield Input(f"{words[0]} {place[:10]}", arguments, says)
    for number, (arguments, says) in enumerate(COMMANDS):
        yield Input(f"command {number}: {' '.join(arguments)[:30]!a}", arguments, says)
    for number, (environment, arguments, says) in enumerate(VARIABLES):
        yield Input(f"variable {number}", arguments, says, environment=environment)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return everything below a folder: path → kind and content."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("hostile", [pytest.param(one, id=one.name) for one in inputs()])
def test_it_is_refused(
    hostile: Input, tiny_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It ends with 2 and one message, which names what to mend and is fit for a terminal; nothing is written."""
    given = {EXPERIMENT: MINIMAL, FILE: "text\n", "a\nb.yaml": MINIMAL, **hostile.files}
    for name, content in given.items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    os.symlink(LOOP, tmp_path / LOOP)
    monkeypatch.chdir(tmp_path)
    for name, value in hostile.environment.items():
        monkeypatch.setenv(name, value)
    before = tree(tmp_path)
    try:
        status = main([str(tiny_run.path) if word == RUN else word for word in hostile.arguments])
    except SystemExit as stop:  # argparse exits by itself
        status = stop.code if isinstance(stop.code, int) else 1
    said = capsys.readouterr().err
    assert tree(tmp_path) == before, "something was written"
    assert status == 2, said
    assert said.startswith(("error: ", "usage: dglcell")), said
    assert said.count("error: ") == 1, said
    assert "Traceback" not in said
    assert hostile.says in said, said[:1_000]
    assert len(said) < 5_000, "a hostile value is repeated at length"
    assert said.replace("\n", "").isprintable()


@pytest.mark.parametrize("strain", [[1.5], ["a"], [None], [True], [float("nan")], [[1]], "12", 5, [-1], [99], [2**70]])
def test_genotypes_from_python(strain: Any) -> None:
    with pytest.raises(GenotypeError, match="strain 1"):
        GenotypeBatch.from_lists([[0], strain], num_genes=10)


def test_an_interrupt_before_anything_runs_is_no_traceback(tmp_path: Path) -> None:
    for delay in (0.05, 0.1, 0.15, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", "dglcell", "config", "show"],
            cwd=tmp_path, env=process_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=heed_interrupts,
        )  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if "argparse" in line:  # the first that main() imports; what comes before it is the interpreter's own start
                break
        time.sleep(delay / 10)
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.communicate()[1]


def test_escape_codes_of_a_stranger_s_results_are_written_out(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = json.loads(run.results.read_text())
    for row in results["rows"]:
        row["model"] = "\x1b]0;owned\x07" + row["model"]
    run.results.write_text(json.dumps(results))
    assert main(["runs", str(tmp_path)]) == 0
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
