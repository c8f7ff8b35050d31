"""Experiments of one's own: the file that is written, and what is said about the strains."""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dglcell.api import load_cell
from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.data.sources import load_source
from dglcell.data.table import IssuesError
from dglcell.errors import ConfigError, DataError
from dglcell.graph.catalogue import GENE_SETS
from dglcell.new_experiment.experiment import write_experiment
from dglcell.new_experiment.table import Wanted
from tests.http_server import serve_folder

TABLE = "name,gene_1,gene_2,growth,note\na,b0008,b2464,0.9,x\nb,b0727,,1.0,\nc,b0728,b0008,,y\nd,b0728,b2464,0.5,z\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("strains.csv")
    path.write_text(TABLE.replace("c,b0728,b0008,,y\n", ""))
    return path


def wanted(table: Path, **more: Any) -> Wanted:
    return Wanted(Path("mine.yaml"), table, **{"cell": "textbook", **more})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What is said of a table without faults, and the file that is written."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "strains.csv").write_text(TABLE.replace("c,b0728,b0008,,y\n", ""))
    asked = replace(wanted(folder / "strains.csv"), file=folder / "mine.yaml")
    return write_experiment(asked), asked.file


def test_columns_are_found_and_the_file_is_valid(written: tuple[str, Path]) -> None:
    said, file = written
    models = (
        "growth of pairs of genes: a kernel ridge of lost reactions is hard to beat; the network passes messages over "
    )
    assert f"{models}each strain's own graph; both are trained, and the better" in " ".join(said.split())
    assert f"# {models}" in file.read_text()
    lines = [line for line in said.splitlines() if not line.startswith(("models", "      "))]
    assert lines[:4] == [
        "strains     3, phenotypes growth",
        "deletions   1 of 1 gene, 2 of 2 genes",
        "genes       4 are deleted, 100% of them are in the cell graph",
        "training    60 epochs of about 2 strains in batches of 8: 60 steps",
    ]
    assert "# 60 epochs of about 2 strains in batches of 8: 60 steps." in file.read_text()
    lines = [line.strip() for line in file.read_text().splitlines()]
    assert lines[lines.index("link: minimum") - 1].startswith(
        "# a strain grows at most as well as one that loses a part"
    )
    assert max(map(len, said.splitlines())) <= 80
    config = load_config(file)
    assert (config.trainer.epochs, config.data.batch_size, config.scheduler.warmup) == (60, 8, 3)
    assert (config.experiment.name, config.cell.model, config.model.name) == ("mine", "textbook", "hetero_cell")
    csv = config.data.source.csv
    assert (csv.genes, csv.phenotypes) == (["gene_1", "gene_2"], {"growth": "growth"})


def test_the_verb_writes_it(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--table", "strains.csv", "--cell", "textbook"]
    assert main(["init", "my exp.v2", *words]) == 0
    assert "my exp.v2.yaml is written. Train with `dglcell train 'my exp.v2.yaml'`." in capsys.readouterr().out
    assert main(["config", "validate", "my exp.v2.yaml"]) == 0
    assert main(["init", "mine", *words, "--model", "set_operator"]) == 0
    assert "# as `--model` says\nextends:\n- base.yaml\n- bases/pairs.yaml\n" in Path("mine.yaml").read_text()
    assert main(["init", "mine", *words, "--model", "dango", "--overwrite"]) == 2
    assert "expected: hetero_cell or set_operator" in capsys.readouterr().err
    assert load_config(Path("mine.yaml")).model.name == "set_operator"


def test_words_in_a_column_of_numbers_are_faults(table: Path) -> None:
    table.write_text("gene_1,growth,yield,note\nb0008,0.9,1,x\nb0727,high,2,y\nb0728,0.8,2,z\n")
    with pytest.raises(DataError) as refused:
        write_experiment(wanted(table, command="dglcell init mine --table strains.csv"))
    assert str(refused.value) == (
        "'strains.csv': 1 fault in 1 of 3 rows\n"
        "  line 3: growth 'high' is no number\n"
        "  do:       mend these lines\n"
        "            or `dglcell init mine --table strains.csv --write-clean strains.clean.csv` "
        "writes a copy without them, and goes on with it\n"
        '            if words mean "not measured", add `--na-values=high`\n'
        "            if a column is no phenotype, name those that are with `--phenotypes COLUMN …`"
    )
    with pytest.raises(ConfigError, match=r"split\.kind"):
        write_experiment(wanted(table, split="rnadom", na_values=["high"]))
    assert not Path("mine.yaml").exists()


def test_advice_can_be_pasted_into_a_shell(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table.write_text("gene_1,growth\nb0008,0.9\nb0727,-\nb0728,not done\nb2464,-0,5\n".replace("-0,5", '"-0,5"'))
    with open(table, "a") as file:
        file.write("b0114,0.1\nb0115,0.2\nb0116,0.3\n")
    command = ["init", "mine", "--table", "strains.csv", "--cell", "textbook"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "line 5: growth '-0,5' has a decimal comma (-0.5 in a clean copy)" in said
    options = shlex.split(said.partition('"not measured", add `')[2].partition("`")[0])
    assert options == ["--na-values=-", "--na-values=not done"]
    (pasted,) = [part for part in said.split("`") if "--write-clean" in part]
    assert main([*shlex.split(pasted)[1:], *options]) == 0
    config = load_config(Path("mine.yaml"))
    assert config.data.source.csv.path == "strains.clean.csv"
    assert load_source(config.data.source).phenotypes["growth"].tolist() == pytest.approx([0.9, -0.5, 0.1, 0.2, 0.3])


def test_all_faults_are_said_at_once_and_a_copy_is_without_them(table: Path) -> None:
    rows = [f"b{n:04d},,{n / 1000}" for n in (8, 114, 115, 116, 351, 356, 451, 474, 485)]
    rows += ["adhE,b1241,1", "b0008,,9.5", ",,1", "adhX,b0008,1", "b0114,b0115,inf", "b0007,,1", "ADH E,,0.5"]
    table.write_text("gene_1,gene_2,growth\n" + "\n".join(rows) + "\n")
    with pytest.raises(IssuesError) as refused:
        write_experiment(wanted(table))
    assert str(refused.value).partition("\n  do:")[0].splitlines() == [
        "'strains.csv': 4 faults in 4 of 16 rows",
        "  line 11: gene 'b1241' is deleted twice (written adhE, b1241)",
        "  line 13: no gene is deleted",
        f"  line 14: unknown gene 'adhX'{load_cell('quickstart').genes.suggestion('adhX')}",
        "  line 15: growth 'inf' is no finite number",
    ]
    said = write_experiment(wanted(table, write_clean=Path("clean.csv")))
    assert "clean copy  clean.csv: 3 rows left out, other faults mended\n" in said
    assert "names       1 of 11 names is no systematic one: `aliases: textbook`" in said
    assert "Training leaves these strains out: `data.unknown_genes: drop`." in said
    config = load_config(Path("mine.yaml"))
    assert config.data.unknown_genes == "drop"
    strains = load_source(config.data.source)
    assert strains.genotypes[-1] == ["b1241"]
    assert len(strains) == 11
    with pytest.raises(ConfigError, match="`--write-clean` names the table itself"):
        write_experiment(wanted(table, write_clean=table))


@pytest.mark.parametrize(("pairs", "singles"), [(57, 3), (30, 20)])
def test_a_few_blank_genes_among_pairs_are_pointed_out(table: Path, pairs: int, singles: int) -> None:
    genes = load_cell("quickstart").genes.names
    both = [f"{a},{b}" for a, b in itertools.islice(itertools.combinations(genes, 2), pairs)]
    alone = [f"{gene}," if number % 2 == 0 else f",{gene}" for number, gene in enumerate(genes[:singles])]
    rows = [f"{strain},{0.5 + number / 1000}" for number, strain in enumerate([*both, *alone])]
    table.write_text("gene_1,gene_2,growth\n" + "\n".join(rows) + "\n")
    said = write_experiment(wanted(table))
    assert f"deletions   {singles} of 1 gene, {pairs} of 2 genes\n" in said
    assert ("blank       lines 59, 60, 61: fewer than 2 genes" in said) == (singles < 20)


def test_cells_have_names_and_what_is_not_there_is_listed(table: Path) -> None:
    write_experiment(wanted(table, cell="ecoli-core"))
    assert load_config(Path("mine.yaml")).cell.model == "textbook"
    with pytest.raises(ConfigError) as refused:
        write_experiment(wanted(table, cell="ecoli-cor"))
    said = "no cell graph is called 'ecoli-cor'\n  expected: yeast, ecoli-core, ecoli, a metabolic model ("
    assert str(refused.value).startswith(said)
    assert "did you mean ecoli-core" in str(refused.value)
    with pytest.raises(ConfigError, match=r"the file of the metabolic model 'mine\.xml' is not there"):
        write_experiment(wanted(table, cell="mine.xml"))


def test_files_that_are_not_here_are_offered(table: Path, tmp_path: Path) -> None:
    raw = str(tmp_path / "raw")
    with pytest.raises(ConfigError) as refused:
        write_experiment(wanted(table, cell="yeast", raw=raw, command="dglcell init mine"))
    said = str(refused.value)
    assert said.startswith("`yeast` needs files that are not here\n  got:      5 files, ")
    assert re.search(r"MB, about \d+ s with 10 Mbit/s\n", said)
    assert "do:       `dglcell init mine --fetch` downloads them and goes on" in said
    assert not Path("mine.yaml").exists()


def test_names_are_fetched_where_the_table_needs_them(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "published").mkdir()
    content = b"Location,Gene,Synonym\n1..2,firstName,b0008\n3..4,elsewhere,b9999\n"
    (tmp_path / "published/names.csv").write_bytes(content)
    table.write_text("gene_1,growth\nfirstname,0.9\nb0727,0.7\nelsewhere,0.1\n")
    source = GENE_SETS["ecoli_names"]
    for address in serve_folder(monkeypatch, tmp_path / "published"):
        file = replace(
            source.file, urls=(f"{address}/names.csv",), sha256=hashlib.sha256(content).hexdigest(), size=len(content)
        )
        monkeypatch.setitem(GENE_SETS, "ecoli_names", replace(source, file=file))
        raw = str(tmp_path / "raw")
        with pytest.raises(
            IssuesError, match=r"unknown gene 'firstname'(.|\n)* --fetch` downloads other names of genes"
        ):
            write_experiment(wanted(table, raw=raw))
        said = write_experiment(wanted(table, raw=raw, fetch=True))
        assert "names       1 of 3 names is no systematic one: `aliases: ecoli_names`" in said
        assert "unknown     1 gene, in 33% of the strains:\n  b9999\n" in said
    config = load_config(Path("mine.yaml"))
    assert load_source(config.data.source, raw).genotypes == [["b0008"], ["b0727"], ["b9999"]]


def test_rows_that_are_merged_are_counted(table: Path) -> None:
    rows = [
        "b0008,b2464,0.9",
        "b0008,b2464,0.9",
        "b2464, B0008,0.90",
        "b0727,,0.7",
        "b0727,,0.71",
        "b0728,,0.5",
        "b0728,,",
    ]
    table.write_text("gene_1,gene_2,growth\n" + "\n".join(rows) + "\n")
    said = write_experiment(wanted(table)).splitlines()
    assert said[0] == "strains     3, phenotypes growth"
    assert said[-2:] == [
        "repeated    3 rows of genes listed before, 2 with equal values: averaged",
        "  lines 5, 6: the same strain, growth 0.7 to 0.71",
    ]
    table.write_text("gene_1,growth\nb0008,0.9\nb0727,0.7\n")
    assert "repeated" not in write_experiment(wanted(table))
