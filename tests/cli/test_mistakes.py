"""Mistakes that a user can make on the command line and mend: each is named, without a traceback."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dglcell.cli import main
from dglcell.runs.directory import RunDirectory
from tests.tiny import Tiny, process_environment
from tests.tiny import dglcell as run_process


@pytest.fixture
def world(tiny: Tiny, tiny_run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with everything that the wrong commands below need; it is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DGLCELL_RAW", raising=False)
    shutil.copy(tiny.file, "tiny.yaml")
    (tmp_path / "genotypes.csv").write_text("genes\nb0008\n")
    (tmp_path / "strains.csv").write_text("gene_1,fitness\nb0008,1.0\nb0114,much\n")
    (tmp_path / "foreign.csv").write_text("gene_1,fitness\n" + "".join(f"YAL{i:03}W,{i}\n" for i in range(40)))
    (tmp_path / "edges.tsv").write_text("b0008\tb0114\nb0008\tNOPE1\n")
    (tmp_path / "note.txt").write_text("not a model\n")
    shutil.copytree(tiny.store, "torn")
    data = tmp_path / "torn" / "data.mdb"
    data.write_bytes(data.read_bytes()[:100])
    pictures = ("report.*",)
    for name, without in (("run", pictures), ("bad_cell", pictures), ("no_cell", (*pictures, "cell"))):
        shutil.copytree(tiny_run.path, name, ignore=shutil.ignore_patterns(*without))
    (tmp_path / "bad_cell" / "cell" / "edges.npz").write_bytes(b"PK")
    return tmp_path


CSV_SOURCE = ["data.source.name=csv", "data.source.csv.genes=[gene_1]", "data.source.csv.phenotypes.fitness=fitness"]
HEADERLESS = "cell.networks.a.header=false"
EDGES = "cell.networks.a.columns=['0','1']"
STORE = "data.store={store}"

# Command → part of its message. Each is a mistake that a user can make and mend.
MISTAKES: dict[str, tuple[list[str], str]] = {
    "no configuration": (["train", "no.yaml"], "experiment 'no.yaml' not found"),
    "heads do not divide": (["train", "tiny.yaml", "model.local_heads=3"], "`model.local_heads` does not divide"),
    "optimiser option": (
        ["train", "tiny.yaml", "optimizer.options.momentun=0.9", "optimizer.name=SGD"],
        "torch.optim.SGD refuses these settings",
    ),
    "unknown strategy": (["train", "tiny.yaml", STORE, "trainer.strategy=dp3"], "`trainer.strategy` is unknown"),
    "no phenotype": (["train", "tiny.yaml", STORE, "data.phenotypes=[size]"], "the store has no phenotype 'size'"),
    "subset too large": (["train", "tiny.yaml", STORE, "split.subset.size=99999"], "the subset is larger"),
    "no split file": (
        ["train", "tiny.yaml", STORE, "split.kind=file", "split.path=no.npz"],
        "split 'no.npz' not found",
    ),
    "model that is none": (["graph", "describe", "tiny.yaml", "cell.model=note.txt"], "note.txt"),
    "no edge table": (
        ["graph", "describe", "tiny.yaml", "cell.networks.a.path=no.tsv", EDGES, HEADERLESS],
        "raw file 'no.tsv' not found",
    ),
    "unknown gene in a network": (
        ["graph", "describe", "tiny.yaml", EDGES, HEADERLESS, "cell.networks.a.path=edges.tsv", "cell.genes=model"],
        "NOPE1",
    ),
    "no gene list": (["graph", "describe", "tiny.yaml", "cell.genes=no.txt"], "`cell.genes` is neither a choice nor"),
    "graph of a run with overrides": (
        ["graph", "describe", "run", "cell.lose_blocked=true"],
        "run 'run' has the cell graph it was trained on\n  got:      cell.lose_blocked=true\n",
    ),
    "graph of no run": (["graph", "describe", "torn"], "'torn"),
    "no source file": (
        ["data", "build", "tiny.yaml", *CSV_SOURCE, "data.source.csv.path=no.csv"],
        "'no.csv' not found",
    ),
    "genes of another organism": (
        ["train", "tiny.yaml", *CSV_SOURCE, "data.source.csv.path=foreign.csv", "split.subset=null"],
        "`data.unknown_genes: drop`",
    ),
    "unknown source": (
        ["data", "build", "tiny.yaml", "data.source.name=collins"],
        "no data source is called 'collins'",
    ),
    "source without its raw file": (["data", "build", "tiny.yaml", "data.source.name=collins2007"], "DGLCELL_RAW"),
    "folder that is no store": (["data", "stats", "run"], "'run'"),
    "torn store in training": (["train", "tiny.yaml", "data.store=torn"], "torn"),
    "folder that is no run": (["evaluate", "torn"], "'torn' is not a run directory"),
    "no such checkpoint": (["evaluate", "run", "--checkpoint", "epoch7"], "checkpoint 'epoch7' not found"),
    "run without cell graph": (["predict", "no_cell", "genotypes.csv", "-o", "out.csv"], "no_cell/cell"),
    "no genotypes": (["predict", "run", "no.csv", "-o", "out.csv"], "genotype file 'no.csv' not found"),
    "unknown genes": (["predict", "run", "yeast.csv", "-o", "out.csv"], "line 2: unknown gene 'YAL001C'"),
    "two tables to explain": (["explain", "run", "a.csv", "b.csv"], "a table stands alone"),
    "no table to explain": (["explain", "run", "no.csv"], "genotype file 'no.csv' not found"),
    "explained gene of another cell": (
        ["explain", "run", "b0008", "YAL001C b0008:0.3"],
        "1 of 2 strains cannot be predicted\n  strain 'YAL001C b0008:0.3': unknown gene 'YAL001C'",
    ),
    "explained strength": (
        ["explain", "run", "b0008:0.3 b0008"],
        "strain 'b0008:0.3 b0008': gene 'b0008' is changed twice",
    ),
    "explained decimal comma": (
        ["explain", "run", "b0008", "b0114:0.3,b0356:0,5 b0720"],
        "a strength has a decimal comma\n  got:      `0,5` in 'b0114:0.3,b0356:0,5 b0720'\n  expected: a decimal point",
    ),
    "explanations in no format": (["explain", "run", "b0008", "-o", "out.svg"], "the suffix does not say"),
    "unknown device": (["predict", "run", "genotypes.csv", "-o", "out.csv", "--device", "tpu"], "unknown device"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named_without_a_traceback(
    name: str, world: Path, tiny: Tiny, capsys: pytest.CaptureFixture[str]
) -> None:
    (world / "yeast.csv").write_text("genes\nYAL001C\n")
    arguments, expected = MISTAKES[name]
    before = contents(world)
    assert main([a.format(store=tiny.store) if a == STORE else a for a in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    # What is said before the error, e.g. that a store is being built, is not part of it.
    message = captured.err[captured.err.index("error: ") :]
    assert expected in message
    assert "Traceback" not in captured.err
    left = {path: content for path, content in contents(world).items() if before.get(path) != content}
    assert {path for path in left if not path.startswith("data/csv-")} == set()


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder; W&B's and LMDB's lock files do not count."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "run", "genotypes.csv", "-o", "out.csv", "--device", "cuda"],
        ["train", "tiny.yaml", STORE, "trainer.accelerator=gpu"],
    ],
    ids=["predict", "train"],
)
def test_a_gpu_that_is_not_there_is_named(arguments: list[str], world: Path, tiny: Tiny, capsys) -> None:
    assert main([a.format(store=tiny.store) for a in arguments]) == 2
    message = capsys.readouterr().err
    assert "dglcell doctor" in message
    assert not (world / "runs").exists()


def test_batch_sizes_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("0", "many"):
        with pytest.raises(SystemExit):
            main(["predict", "run", "a.csv", "-o", "b.csv", "--batch-size", wrong])
        assert f"'{wrong}' is not a number of 1 or more" in capsys.readouterr().err


def test_bugs_keep_their_traceback(world: Path) -> None:
    code = (
        "import sys, dglcell.config.read as config_io\n"
        "def broken(*arguments, **keywords): raise KeyError('a bug')\n"
        "config_io.load_config = broken\n"
        "from dglcell.cli import main\n"
        "sys.exit(main(['config', 'show', 'tiny.yaml']))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=process_environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("KeyError: 'a bug'\n")


def test_mistakes_in_a_process_of_its_own(world: Path) -> None:
    done = run_process("train", "tiny.yaml", "modl=3", cwd=world)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: tiny.yaml: unknown key `modl`\n")
