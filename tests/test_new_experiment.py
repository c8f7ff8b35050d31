"""Experiments of one's own: the file that is written, and what is said about the strains."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.config_io import load_config
from dglcell.data.sources import load_source
from dglcell.errors import ConfigError, DataError
from dglcell.new_experiment import Wanted, ask, write_experiment

TABLE = "name,gene_1,gene_2,growth,note\na,b0008,b2464,0.9,x\nb,b0727,,1.0,\nc,b0728,b0008,,y\nd,b0728,b2464,0.5,z\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("strains.csv")
    path.write_text(TABLE.replace("c,b0728,b0008,,y\n", ""))
    return path


def wanted(table: Path, **more: object) -> Wanted:
    return Wanted(Path("mine.yaml"), table, None, "textbook", **more)  # type: ignore[arg-type]


def test_columns_are_found_and_the_file_is_valid(table: Path) -> None:
    said = write_experiment(wanted(table))
    assert said.splitlines() == [
        "strains     3, phenotypes growth",
        "genes       4 are deleted, 100.0% of them are in the cell graph",
    ]
    config = load_config(Path("mine.yaml"))
    assert config.experiment.name == "mine"
    assert config.cell.model == "textbook"
    assert (config.data.source.csv.genes, config.data.source.csv.phenotypes) == (
        ["gene_1", "gene_2"],
        {"growth": "growth"},
    )


def test_without_a_test_part_the_last_epoch_is_the_model(table: Path) -> None:
    write_experiment(wanted(table, split="none"))
    assert load_config(Path("mine.yaml")).trainer.checkpoint == "last"


def test_unknown_genes_are_said_with_close_names(table: Path) -> None:
    table.write_text(table.read_text() + "e,b0007,b0008,0.1,\n")
    said = write_experiment(wanted(table))
    assert "80.0% of them are in the cell graph" in said
    assert "unknown     1 gene, in 25.0% of the strains:\n  b0007\n" in said
    assert "`data.unknown_genes: drop`" in said


def test_what_cannot_be_an_experiment_leaves_nothing(table: Path) -> None:
    for more, words in (
        ({"split": "rnadom"}, "split.kind"),
        ({"phenotypes": ["note"]}, "no column|finite number"),
        ({"genes": ["gen"]}, "no column 'gen'"),
    ):
        with pytest.raises((ConfigError, DataError), match=words):
            write_experiment(wanted(table, **more))
    table.write_text("gene_1,growth\nYAL001C,1\nYAL002W,2\n")
    with pytest.raises(DataError, match="none of the genes that are deleted\n  got:      YAL001C"):
        write_experiment(wanted(table))
    table.write_text("orf,growth\nb0008,1\n")
    with pytest.raises(DataError, match=r"which columns are genes\?\n.*orf, growth"):
        write_experiment(wanted(table))
    assert [path.name for path in Path().iterdir()] == ["strains.csv"]


def test_a_file_is_not_replaced(table: Path) -> None:
    Path("mine.yaml").write_text("seed: 1\n")
    with pytest.raises(ConfigError, match=r"'mine\.yaml' exists already"):
        write_experiment(wanted(table))
    assert Path("mine.yaml").read_text() == "seed: 1\n"


def test_answers_make_the_same_as_options(table: Path) -> None:
    answers = iter(["strains.csv", "textbook", ""])
    assert ask(Path("mine.yaml"), lambda question: next(answers)) == wanted(table)
    answers = iter(["collins2007", "", "gene_disjoint"])
    assert ask(Path("a.yaml"), lambda question: next(answers)) == Wanted(
        Path("a.yaml"), None, "collins2007", "yeast", "gene_disjoint"
    )


def test_the_verb_writes_it(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "mine", "--table", "strains.csv", "--cell", "textbook"]) == 0
    assert "mine.yaml is written. Train with `dglcell train mine.yaml`." in capsys.readouterr().out
    assert main(["config", "validate", "mine.yaml"]) == 0
    assert main(["init", "other"]) == 2
    assert "`--table FILE` or `--screen NAME`" in capsys.readouterr().err


def test_a_column_with_a_few_words_is_left_out_and_this_is_said(table: Path) -> None:
    table.write_text("gene_1,growth,plate,note\nb0008,0.9,1,x\nb0727,high,2,y\nb0728,0.8,2,z\n")
    said = write_experiment(wanted(table)).splitlines()
    assert said[0] == "strains     3, phenotypes plate"
    assert said[-1] == (
        "left out    column 'growth': 1 cell is no number, line 3 has 'high'; "
        "`--na-values high` reads such cells as not measured"
    )


def test_words_for_what_is_not_measured(table: Path) -> None:
    table.write_text("gene_1,growth\nb0008,0.9\nb0727,-\nb0728,N/A\nb2464,not done\nb0114,0.2\nb0115,0.3\nb0116,\n")
    with pytest.raises(DataError, match=r"line 3 has '-'; `--na-values - 'not done'` reads such cells"):
        write_experiment(wanted(table))
    said = write_experiment(wanted(table, na_values=["-", "not done"])).splitlines()
    assert said[0] == "strains     3, phenotypes growth"
    assert said[-1] == "left out    4 rows without a phenotype: `missing: drop`"
    assert load_config(Path("mine.yaml")).data.source.csv.na_values == ["-", "not done"]


@pytest.mark.parametrize("phenotypes", [[], ["growth"]])
def test_decimal_commas(table: Path, phenotypes: list[str]) -> None:
    table.write_text("gene_1;growth\nb0008;0,9\nb0727;ND\nb0728;0,8\nb2464;1\n")
    said = write_experiment(wanted(table, na_values=["ND"], phenotypes=phenotypes))
    assert 'numbers have decimal commas: `decimal: ","`' in said
    config = load_config(Path("mine.yaml"))
    assert config.data.source.csv.decimal == ","
    assert load_source(config.data.source).phenotypes["growth"].tolist() == pytest.approx([0.9, 0.8, 1.0])


def test_several_columns_of_numbers_are_said_to_be_all(table: Path) -> None:
    table.write_text("gene_1,growth,plate\nb0008,0.9,1\nb0727,0.7,2\n")
    assert write_experiment(wanted(table)).splitlines()[-1] == (
        "phenotypes are all columns of numbers; choose with `--phenotypes COLUMN …`"
    )


def test_other_names_of_genes(table: Path) -> None:
    table.write_text("gene_1,growth\ntalB,0.9\nb0727,0.7\n")
    Path("names.tsv").write_text("systematic\tcommon\nb0008\ttalB\n")
    said = write_experiment(wanted(table, aliases="names.tsv"))
    assert "2 are deleted, 100.0% of them are in the cell graph" in said
    assert load_config(Path("mine.yaml")).data.source.csv.aliases == "names.tsv"


def test_the_name_of_an_experiment_may_have_a_point_and_a_space(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "my exp.v2", "--table", "strains.csv", "--cell", "textbook"]) == 0
    assert Path("my exp.v2.yaml").is_file()
    assert "`dglcell train 'my exp.v2.yaml'`" in capsys.readouterr().out
