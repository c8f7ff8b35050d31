"""Tables whose strains differ by more than deleted genes: what their columns are taken for, and what is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.data.sources import load_source
from dglcell.data.table import IssuesError
from dglcell.errors import DataError
from dglcell.new_experiment.cell import Wanted
from dglcell.new_experiment.experiment import write_experiment

DOSES = """\
gene_1,strength_1,medium,temperature,growth
b0008,0.5,glucose,37,0.9
b0008,0.1,glucose,37,0.6
b0008,,acetate,37,0.3
,,acetate,30,0.7
b0114:0.25,,glucose,37,0.8
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(text: str, **more: object) -> str:
    Path("strains.csv").write_text(text)
    more = {"cell": "textbook", **more}
    return write_experiment(Wanted(Path("mine.yaml"), Path("strains.csv"), **more))  # type: ignore[arg-type]


def reasons() -> str:
    lines = map(str.strip, Path("mine.yaml").read_text().splitlines())
    return " ".join(line[2:] for line in lines if line.startswith("# "))


def test_strengths_and_conditions_are_found() -> None:
    said = init(DOSES)
    assert said.splitlines()[:6] == [
        "strains     5, phenotypes growth",
        "changes     1 of 0 genes, 4 of 1 gene",
        "strengths   0.1 to 0.5; 1 deletion",
        "conditions  medium: acetate, glucose",
        "            temperature: 30 to 37",
        "genes       2 are changed, 100% of them are in the cell graph",
    ]
    assert "new strengths and conditions of genes" in reasons()
    assert said.splitlines()[-1] == "media       are names only; `cell.media` says what cells take up in each"
    config = load_config(Path("mine.yaml"))
    csv = config.data.source.csv
    assert (csv.genes, csv.strengths, csv.phenotypes) == (["gene_1"], ["strength_1"], {"growth": "growth"})
    assert csv.conditions == {"medium": "medium", "temperature": "temperature"}
    assert config.model.link == "log"
    strengths = load_source(config.data.source).strengths
    assert strengths is not None
    assert [f"{strength:g}" for strength in strengths] == ["0.5", "0.1", "0", "0.25"]


def test_names_that_the_user_gives_come_first() -> None:
    for options, conditions in (
        (["--conditions", "note"], {"note": "note"}),
        (["--conditions"], {}),
        ([], {"medium": "Growth medium"}),
    ):
        text = "locus,left,Growth medium,note,growth\nb0008,0.5,a,x,0.9\nb0114,0.2,b,y,0.8\nb0115,0.3,b,y,0.7\n"
        Path("strains.csv").write_text(text)
        command = ["init", "mine", "--table", "strains.csv", "--cell", "textbook", "--overwrite", *options]
        assert main([*command, "--strengths", "left", "--phenotypes", "growth"]) == 0
        config = load_config(Path("mine.yaml"))
        assert config.data.source.csv.conditions == conditions
        assert config.data.source.csv.genes == ["locus"]
        assert config.data.source.csv.strengths == ["left"]


def test_columns_that_do_not_fit_are_refused() -> None:
    text = "gene_1,gene_2,strength_1,growth\nb0008,b0114,0.5,0.9\n"
    with pytest.raises(DataError) as refused:
        init(text)
    assert str(refused.value) == (
        "'strains.csv': the columns of strengths do not fit the columns of genes\n"
        "  got:      strength_1 beside gene_1, gene_2\n"
        "  expected: a column of strengths for each column of genes, in the same order\n"
        "  do:       name them with `--strengths COLUMN …`, or give `--strengths` alone if they are none"
    )
    with pytest.raises(DataError, match="no column 'dose', which `--conditions` asks for"):
        init(text, conditions=["dose"])
    assert not Path("mine.yaml").exists()


def test_faults_of_strengths_and_conditions_are_listed() -> None:
    rows = ["b0008,0.5,a,37,0.5", "b0008,0.50,a,37.0,9", "b0008,0.5,b,37,9", "b0114,half,a,30,0.6"]
    rows += [
        "b0115,-1,a,30,0.5",
        "b0116,0.1,,30,0.5",
        ",0.5,a,30,0.6",
        "b0118:0.2,0.1,a,30,0.6",
        "b0351,0.2,b,30,0.5",
        "b0356,,a,30,0.4",
        "b0451,,a,30,0.55",
    ]
    text = "\n".join([DOSES.splitlines()[0], *rows]) + "\n"
    with pytest.raises(IssuesError) as refused:
        init(text)
    a_strength = "no strength of a gene, which is 0 for a deletion, 1 for the wild type, or another finite number"
    assert str(refused.value).partition("\n  do:")[0].splitlines() == [
        "'strains.csv': 6 faults in 7 of 11 rows",
        "  lines 2, 3: b0008:0.5, medium a, temperature 37 has contradicting values: growth 0.5 and 9",
        f"  line 5: 'half' is {a_strength} from 1e-06 upwards",
        f"  line 6: '-1' is {a_strength} from 1e-06 upwards",
        "  line 7: condition medium is blank, and every strain needs it",
        "  line 8: a strength has no gene: '' and '0.5'",
        "  line 9: a strength is given twice: 'b0118:0.2' and '0.1'",
    ]
    assert "strains     4, phenotypes growth\n" in init(text, write_clean=Path("clean.csv"))


def test_a_gene_that_is_changed_twice_is_named_with_both_strengths() -> None:
    rows = ["b0008:0.3;b0114,0.5", "b0115:0.1;b0115,0.4", *(f"b0116:0.{n};b0351,0.6" for n in range(1, 9))]
    with pytest.raises(IssuesError, match=r"line 3: gene 'b0115' is changed twice, with strengths 0\.1, 0\n"):
        init("genes,growth\n" + "\n".join(rows) + "\n")


def test_of_many_contradictions_a_few_are_shown_and_a_mean_is_offered() -> None:
    genes = ["b0008", "b0114", "b0115", "b0116", "b0351", "b0356", "b0451", "b0474"]
    rows = [f"{gene},{value}" for gene in genes for value in (0.1, 0.9, 5, 0.5)]
    alone = ["b0485,0.51", "b0505,0.49", "b0509,0.52"] + [f"b{n:04d},0.5" for n in (721, 722, 723, 724, 726, 727)]
    text = "gene_1,growth\n" + "\n".join([*rows, *alone]) + "\n"
    with pytest.raises(IssuesError) as refused:
        init(text)
    lines = str(refused.value).splitlines()
    assert lines[0] == "'strains.csv': 8 faults in 32 of 41 rows"
    assert lines[1] == "  lines 2, 3, 4, 5: b0008 has contradicting values: growth from 0.1 to 5 in 4 rows"
    assert lines[6] == "  and 3 more contradictions"
    assert "if they are replicates that vary so much, `dglcell init … --average` takes their mean" in lines[-1]
    said = init(text, average=True)
    assert "repeated    24 rows of genes listed before, 0 with equal values: averaged" in said
    assert load_source(load_config(Path("mine.yaml")).data.source).phenotypes["growth"][0] == pytest.approx(1.625)


@pytest.mark.parametrize(("column", "cell"), [("strength", "60"), ("strength (%)", "5"), ("Strength", "60%")])
def test_strengths_in_percent_are_refused(column: str, cell: str) -> None:
    text = f"gene,{column},growth\nb0008,{cell},0.9\nb0114,0,0.8\n"
    message = rf"strengths look like percent\n  got: +up to {cell.strip('%')} in column '{re.escape(column)}'\n"
    with pytest.raises(DataError, match=message):
        init(text)
    if "%" not in cell:
        assert "strengths   " in init(text, strengths=[column])


def test_strengths_may_have_decimal_commas() -> None:
    said = init("gene;strength;growth\nb0008;0,5;0,9\nb0114:0,25;;0,8\nb0115;;high\n", na_values=["high"])
    assert "strengths   0.25 to 0.5; 0 deletions\n" in said
    strengths = load_source(load_config(Path("mine.yaml")).data.source).strengths
    assert strengths is not None
    assert strengths.tolist() == [0.5, 0.25]
    with pytest.raises(IssuesError, match=r"line 3: '0.2.5' is no strength(.|\n)*  do: +mend these lines\n +or"):
        init("gene;strength;growth\nb0008;0,5;0,9\nb0114;0,2,5;0,8\n")


def test_rows_without_genes_are_one_fault() -> None:
    with pytest.raises(IssuesError, match=r"1 fault in 2 of 4 rows\n  lines 3, 5: no gene is deleted\n"):
        init("gene,growth\nb0008,0.9\n,1\nb0114,0.8\n,1.1\n")
    with pytest.raises(IssuesError, match="lines 2, 3: no gene is deleted\n"):
        init("gene,growth\n,1\n,1.1\n")
    with pytest.raises(DataError, match="expected: names like b0008, b0903, b1849, b2492, b3737\n"):
        init("gene,growth\nYAL001C,0.9\nYAL002W,1\n")


def test_columns_beside_a_measurement_are_no_phenotypes() -> None:
    beside = ["Unnamed: 0", "replicate", "n", "growth_sd", "Growth SEM", "std dev", "p-value", "padj"]
    rows = [f"{gene},{i / 7},{','.join([str(i)] * len(beside))}" for i, gene in enumerate(["b0008", "b0114"], 1)]
    text = f"gene,growth,{','.join(beside)}\n" + "\n".join(rows) + "\n"
    said = init(text)
    assert said.startswith("strains     2, phenotypes growth\n")
    assert said.splitlines()[-1].startswith("no phenotypes by their names: Unnamed: 0, replicate, n, growth_sd")
    assert init(text, phenotypes=["growth", "n"]).startswith("strains     2, phenotypes growth, n\n")
    assert init("gene,n\nb0008,1\nb0114,2\n").startswith("strains     2, phenotypes n\n")


def test_controls_are_offered_to_stand_for_no_deletion() -> None:
    genes = [f"b{number:04}" for number in (8, 114, 115, 116, 118)]
    rows = "".join(f"{gene},ctrl,{number / 10}\n" for number, gene in enumerate(genes))
    with pytest.raises(IssuesError, match=r"if 'ctrl' stands for no deletion, as controls do, add `--ignore ctrl`"):
        init(f"gene_1,gene_2,score\n{rows}")
    assert "deletions   5 of 1 gene" in init(f"gene_1,gene_2,score\n{rows}", ignore=["ctrl"])
    assert load_config(Path("mine.yaml")).data.source.csv.ignore_genes == ["ctrl"]


def test_what_never_varies_is_no_phenotype() -> None:
    said = init("gene,growth,yield\nb0008,1,0.9\nb0114,1,0.8\nb0115,,0.8\n")
    assert said.startswith("strains     3, phenotypes yield\n")
    assert said.splitlines()[-1] == "the same in all rows, so no phenotype: growth"
    refused = (
        r"nothing can be learned from growth\n  got: +the same value in 3 rows\n(.|\n)*  do: +leave such columns out"
    )
    with pytest.raises(DataError, match=refused.replace("leave such columns out", "add strains with other values")):
        init("gene,growth\nb0008,1\nb0114,1\nb0115,1\n")
    with pytest.raises(DataError, match=refused):
        init("gene,growth,yield\nb0008,1,0.9\nb0114,1,0.8\nb0115,1,0.8\n", phenotypes=["yield", "growth"])


def test_words_for_classes_are_said() -> None:
    text = (
        "gene_1,call,note\nb0008,viable,u\nb0114,lethal,v\nb0115,NA,w\nb0116,viable,x\nb0351,viable,y\nb0356,viable,z\n"
    )
    advice = "phenotypes are numbers: write 0 and 1 in place of 'lethal', 'viable' in column 'call'"
    with pytest.raises(DataError, match=rf"which columns are phenotypes\?\n(.|\n)*  do:       {advice}"):
        init(text)
    with pytest.raises(IssuesError, match=rf"  do:       {advice}$"):
        init(text, phenotypes=["call"])


def test_genes_that_are_deleted_once_are_new_in_the_test_part() -> None:
    init("gene,growth\nb0008,0.9\nb0114,0.8\nb0115,0.7\n")
    assert "most strains change a gene that no other strain changes, so that test strains have new genes" in reasons()


def test_columns_of_genes_are_also_found_by_what_they_hold() -> None:
    init("gene,b_number,growth\nnoSuchName,b0008,0.9\nnorThis,b0114,0.8\nnorThat,b0115,0.7\n")
    assert load_config(Path("mine.yaml")).data.source.csv.genes == ["b_number"]


def test_alleles_have_strengths_to_learn() -> None:
    alleles = ["b0008,talB-1,ts", "b0008,talB-2,ts", "b0114,aceE-1,damp"]
    rows = [f"{allele},{medium},0.{number}" for number, allele in enumerate(alleles, 5) for medium in "ab"]
    said = init("gene,allele,allele class,medium,growth\n" + "\n".join(rows) + "\n")
    config = load_config(Path("mine.yaml"))
    assert (config.model.strength_from, config.model.strength_hidden) == (["allele", "allele class"], 0)
    assert config.model.conditions is None
    assert "conditions  allele: aceE-1, talB-1, talB-2\n            allele class: damp, ts\n" in said
    rows = [f"{allele},0.{number}" for number, allele in enumerate([*alleles, "b0115,x-1,ts"], 5)]
    said = init("gene,allele,allele class,growth\n" + "\n".join(rows) + "\n")
    config = load_config(Path("mine.yaml"))
    assert (config.model.strength_from, config.model.conditions) == (["allele class"], {"allele class": ["damp", "ts"]})
    assert "allele differs between most strains" in reasons()


def test_media_alone_and_new_media() -> None:
    rows = [f"{medium},{dose},{0.1 * dose}" for medium in ("a", "b", "c") for dose in (1, 2, 3)]
    said = init("medium,dose,growth\n" + "\n".join(rows) + "\n", split="condition")
    assert "9 of 0 genes" in said
    assert "\nno column of genes was found, so all rows are the wild type; `--genes COLUMN` names one\n" in said
    assert "genes  " not in said
    config = load_config(Path("mine.yaml"))
    assert config.split.condition == "medium"
    assert config.data.source.csv.genes == []


def test_a_column_of_genes_with_an_unknown_name_is_asked_for() -> None:
    values = {"acpS": 1, "argG": 0.99, "aroB": 1.01, "birA": 0.98, "carA": 0.1}
    rows = [f"{gene},{medium},{value}" for gene, value in values.items() for medium in ("LB", "M9")]
    with pytest.raises(IssuesError, match="Medium M9 has contradicting values") as refused:
        init("Gen,Medium,Wachstum\n" + "\n".join(rows) + "\n")
    assert "do:       no column of genes was found, so all rows are the wild type; `--genes" in str(refused.value)


def test_a_condition_with_one_value_is_none() -> None:
    said = init("gene,medium,growth\nb0008,LB,0.9\nb0114,LB,0.8\nb0115,LB,0.7\n")
    assert "the same in all rows, so no condition: medium" in said
    assert load_config(Path("mine.yaml")).data.source.csv.conditions == {}
