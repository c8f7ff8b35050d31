"""Experiments of one's own: what columns of a table are taken for, what is a fault, and the file that is written."""

from __future__ import annotations

import hashlib
import itertools
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dglcell.api import load_cell
from dglcell.cli import main
from dglcell.config.read import load_config
from dglcell.data.sources import load_source
from dglcell.data.sources.config import GuideConfig
from dglcell.data.table import IssuesError
from dglcell.errors import ConfigError, DataError
from dglcell.graph.catalogue import GENE_SETS
from dglcell.new_experiment.experiment import write_experiment
from dglcell.new_experiment.table import Wanted
from tests.http_server import serve_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(text: str, **more: Any) -> str:
    Path("strains.csv").write_text(text)
    return write_experiment(Wanted(Path("mine.yaml"), Path("strains.csv"), **{"cell": "textbook", **more}))


TABLE = "name,gene_1,gene_2,growth,note\na,b0008,b2464,0.9,x\nb,b0727,,1.0,\nd,b0728,b2464,0.5,z\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What is said of a table without faults, and the file that is written."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "strains.csv").write_text(TABLE)
    asked = Wanted(folder / "mine.yaml", folder / "strains.csv", cell="textbook")
    return write_experiment(asked), asked.file


def test_columns_are_found_and_the_file_is_valid(written: tuple[str, Path]) -> None:
    said, file = written
    models = "growth of pairs of genes: a kernel ridge of lost reactions is hard to beat; the network passes messages"
    assert f"{models} over each strain's own graph; both are trained, and the better" in " ".join(said.split())
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
    reason = "# a strain grows at most as well as one that loses a part"
    assert lines[lines.index("link: minimum") - 1].startswith(reason)
    assert max(map(len, said.splitlines())) <= 80
    config = load_config(file)
    assert (config.trainer.epochs, config.data.batch_size, config.scheduler.warmup) == (60, 8, 3)
    assert (config.experiment.name, config.cell.model, config.model.name) == ("mine", "textbook", "hetero_cell")
    csv = config.data.source.csv
    assert (csv.genes, csv.phenotypes) == (["gene_1", "gene_2"], {"growth": "growth"})


def test_headers_that_mislead_are_read_as_they_are_meant() -> None:
    for text, *found in (
        ("gene;Growth (µ, 1/h)\nb0008;0,9\nb0727;0,5\n", ["gene"], ["Growth (µ, 1/h)"], [], []),
        ("gene_2,gene_1,activity_1,activity_2,y\nb0008,b0727,.3,0,1\nb0008,b0728,.3,0,2\n", ["gene_2", "gene_1"], ["y"],
         ["activity_2", "activity_1"], []),
        ("gene,carbon source,medium,y,__index_level_0__\nb0008,A,M,1,0\nb0727,B,N,.5,3\n", ["gene"], ["y"], [],
         ["carbon source", "medium"]),
    ):  # fmt: skip
        init(text)
        csv = load_config(Path("mine.yaml")).data.source.csv
        assert [csv.genes, [*csv.phenotypes], csv.activities, [*csv.covariates]] == found
    with pytest.raises(DataError, match=r"are commas in column 'size' decimal\?"):
        init('gene,size\nb0008,"1,694"\nb0727,510\n')


COMMAND = ["init", "mine", "--table", "strains.csv", "--cell", "textbook"]


def test_the_verb_writes_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("strains.csv").write_text(TABLE)
    assert main(["init", "my exp.v2", *COMMAND[2:]]) == 0
    assert "my exp.v2.yaml is written. Train with `dglcell train 'my exp.v2.yaml'`." in capsys.readouterr().out
    assert main(["config", "validate", "my exp.v2.yaml"]) == 0
    assert main([*COMMAND, "--model", "set_operator"]) == 0
    assert "# as `--model` says\nextends:\n- base.yaml\n- bases/pairs.yaml\n" in Path("mine.yaml").read_text()
    assert main([*COMMAND, "--model", "dango", "--overwrite"]) == 2
    assert "expected: hetero_cell or set_operator" in capsys.readouterr().err
    assert load_config(Path("mine.yaml")).model.name == "set_operator"


def test_words_in_a_column_of_numbers_are_faults() -> None:
    text = "gene_1,growth,yield,note\nb0008,0.9,1,x\nb0727,high,2,y\nb0728,0.8,2,z\n"
    with pytest.raises(DataError) as refused:
        init(text, command="dglcell init mine --table strains.csv")
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
        init(text, split="rnadom", na_values=["high"])
    assert not Path("mine.yaml").exists()


def test_advice_can_be_pasted_into_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["b0008,0.9", "b0727,-", "b0728,not done", 'b2464,"-0,5"', "b0114,0.1", "b0115,0.2", "b0116,0.3"]
    Path("strains.csv").write_text("\n".join(["gene_1,growth", *rows]) + "\n")
    assert main(COMMAND) == 2
    said = capsys.readouterr().err
    assert "line 5: growth '-0,5' has a decimal comma (-0.5 in a clean copy)" in said
    options = shlex.split(said.partition('"not measured", add `')[2].partition("`")[0])
    assert options == ["--na-values=-", "--na-values=not done"]
    (pasted,) = [part for part in said.split("`") if "--write-clean" in part]
    assert main([*shlex.split(pasted)[1:], *options]) == 0
    source = load_config(Path("mine.yaml")).data.source
    assert source.csv.path == "strains.clean.csv"
    assert load_source(source).phenotypes["growth"].tolist() == pytest.approx([0.9, -0.5, 0.1, 0.2, 0.3])


def test_all_faults_are_said_at_once_and_a_copy_is_without_them() -> None:
    rows = [f"b{n:04d},,{n / 1000}" for n in (8, 114, 115, 116, 351, 356, 451, 474, 485)]
    rows += ["adhE,b1241,1", "b0008,,9.5", ",,1", "adhX,b0008,1", "b0114,b0115,inf", "b0007,,1", "ADH E,,0.5"]
    text = "gene_1,gene_2,growth\n" + "\n".join(rows) + "\n"
    with pytest.raises(IssuesError) as refused:
        init(text)
    assert str(refused.value).partition("\n  do:")[0].splitlines() == [
        "'strains.csv': 4 faults in 4 of 16 rows",
        "  line 11: gene 'b1241' is deleted twice (written adhE, b1241)",
        "  line 13: no gene is deleted",
        f"  line 14: unknown gene 'adhX'{load_cell('quickstart').genes.suggestion('adhX')}",
        "  line 15: growth 'inf' is no finite number",
    ]
    said = init(text, write_clean=Path("clean.csv"))
    assert "clean copy  clean.csv: 3 rows left out, other faults mended\n" in said
    assert "names       1 of 11 names is no systematic one: `aliases: textbook`" in said
    assert "Training leaves these strains out: `data.unknown_genes: drop`." in said
    config = load_config(Path("mine.yaml"))
    assert config.data.unknown_genes == "drop"
    strains = load_source(config.data.source)
    assert (len(strains), strains.genotypes[-1]) == (11, ["b1241"])
    with pytest.raises(ConfigError, match="`--write-clean` names the table itself"):
        init(text, write_clean=Path("strains.csv"))


@pytest.mark.parametrize(("pairs", "singles"), [(57, 3), (30, 20)])
def test_a_few_blank_genes_among_pairs_are_pointed_out(pairs: int, singles: int) -> None:
    genes = load_cell("quickstart").genes.names
    both = [f"{a},{b}" for a, b in itertools.islice(itertools.combinations(genes, 2), pairs)]
    alone = [f"{gene}," if number % 2 == 0 else f",{gene}" for number, gene in enumerate(genes[:singles])]
    rows = [f"{strain},{0.5 + number / 1000}" for number, strain in enumerate([*both, *alone])]
    said = init("gene_1,gene_2,growth\n" + "\n".join(rows) + "\n")
    assert f"deletions   {singles} of 1 gene, {pairs} of 2 genes\n" in said
    assert ("blank       lines 59, 60, 61: fewer than 2 genes" in said) == (singles < 20)


def test_cells_have_names_and_what_is_not_there_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGLCELL_RAW", str(tmp_path / "raw"))
    init(TABLE, cell="ecoli-core")
    assert load_config(Path("mine.yaml")).cell.model == "textbook"
    Path("mine.yaml").unlink()
    for cell, message in (
        (
            "ecoli-cor",
            r"no cell graph is called 'ecoli-cor'\n  expected: yeast, ecoli-core, ecoli, a metabolic model \(",
        ),
        ("ecoli-cor", "did you mean ecoli-core"),
        ("mine.xml", r"the file of the metabolic model 'mine\.xml' is not there"),
        ("yeast", r"`yeast` needs files that are not here\n  got:      5 files, .*MB, about \d+ s with 10 Mbit/s\n"),
        ("yeast", "do:       `dglcell init mine --fetch` downloads them and goes on"),
    ):
        with pytest.raises(ConfigError, match=message):
            init(TABLE, cell=cell, command="dglcell init mine")
        assert not Path("mine.yaml").exists()


def test_names_are_fetched_where_the_user_asks_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"Location,Gene,Synonym\n1..2,firstName,b0008\n3..4,elsewhere,b9999\n"
    (tmp_path / "published").mkdir()
    (tmp_path / "published/names.csv").write_bytes(content)
    text = "gene_1,growth\nfirstname,0.9\nb0727,0.7\nelsewhere,0.1\n"
    source = GENE_SETS["ecoli_names"]
    monkeypatch.setenv("DGLCELL_RAW", str(tmp_path / "raw"))
    for address in serve_folder(monkeypatch, tmp_path / "published"):
        about = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        file = replace(source.file, urls=(f"{address}/names.csv",), **about)
        monkeypatch.setitem(GENE_SETS, "ecoli_names", replace(source, file=file))
        unknown = r"unknown gene 'firstname'(.|\n)* --fetch` downloads other names of genes"
        with pytest.raises(IssuesError, match=unknown):
            init(text)
        said = init(text, fetch=True)
        assert "names       1 of 3 names is no systematic one: `aliases: ecoli_names`" in said
        assert "unknown     1 gene, in 33% of the strains:\n  b9999\n" in said
    config = load_config(Path("mine.yaml"))
    assert load_source(config.data.source).genotypes == [["b0008"], ["b0727"], ["b9999"]]


def test_rows_that_are_merged_are_counted_and_those_that_differ_most_are_named() -> None:
    pairs = ["b0008,b2464,0.9", "b0008,b2464,0.9", "b2464, B0008,0.90"]
    singles = ["b0727,,0.7", "b0727,,0.71", "b0728,,0.5", "b0728,,"]
    said = init("gene_1,gene_2,growth\n" + "\n".join([*pairs, *singles]) + "\n").splitlines()
    assert said[0] == "strains     3, phenotypes growth"
    assert said[-2:] == [
        "repeated    3 rows of genes listed before, 2 with equal values: averaged",
        "  lines 5, 6: the same strain, growth 0.7 to 0.71",
    ]
    assert "repeated" not in init("gene_1,growth\nb0008,0.9\nb0727,0.7\n")
    genes = ["b0008", "b0114", "b0115", "b0116", "b0351", "b0356", "b0451", "b0474"]
    rows = [f"{gene},{value}" for number, gene in enumerate(genes) for value in (0.1, 0.9, number, 0.5)]
    said = init("gene_1,growth\n" + "\n".join([*rows, "b0485,0.5"]) + "\n").splitlines()
    assert said[-6] == "repeated    24 rows of genes listed before, 0 with equal values: averaged"
    assert said[-5] == "  lines 30, 31, 32, 33: the same strain, growth 0.1 to 7"
    assert said[-1] == "  lines 14, 15, 16, 17: the same strain, growth 0.1 to 3"
    assert load_source(load_config(Path("mine.yaml")).data.source).phenotypes["growth"][1] == pytest.approx(0.625)


# What the columns of a table are taken for.


DOSES = """\
gene_1,activity_1,medium,temperature,growth
b0008,0.5,glucose,37,0.9
b0008,0.1,glucose,37,0.6
b0008,,acetate,37,0.3
,,acetate,30,0.7
b0114:0.25,,glucose,37,0.8
"""


def reasons() -> str:
    lines = map(str.strip, Path("mine.yaml").read_text().splitlines())
    return " ".join(line[2:] for line in lines if line.startswith("# "))


def test_activities_and_covariates_are_found() -> None:
    said = init(DOSES)
    assert said.splitlines()[:6] == [
        "strains     5, phenotypes growth",
        "changes     1 of 0 genes, 4 of 1 gene",
        "activities   0.1 to 0.5; 1 deletion",
        "covariates  medium: acetate, glucose",
        "            temperature: 30 to 37",
        "genes       2 are changed, 100% of them are in the cell graph",
    ]
    assert "new activities and covariates of genes" in reasons()
    config = load_config(Path("mine.yaml"))
    assert (config.data.source.csv.genes, config.data.source.csv.activities) == (["gene_1"], ["activity_1"])
    assert config.model.link == "log"
    activities = load_source(config.data.source).activities
    assert activities is not None
    assert [f"{activity:g}" for activity in activities] == ["0.5", "0.1", "0", "0.25"]


LOCI = "locus,left,Growth medium,note,growth\nb0008,0.5,a,x,0.9\nb0114,0.2,b,y,0.8\nb0115,0.3,b,y,0.7\n"
BESIDE = ["Unnamed: 0", "replicate", "n", "growth_sd", "Growth SEM", "std dev", "p-value", "padj", "sem_glucose"]
BESIDE += ["sd (growth)", "replicates_glucose", "p_value_glucose"]
MEASURED = f"gene,growth,{','.join(BESIDE)}\n" + "\n".join(
    f"{gene},{i / 7},{','.join([str(i)] * len(BESIDE))}" for i, gene in enumerate(["b0008", "b0114"], 1)
)
KNOWN = ["b0008", "b0114", "b0115", "b0116", "b0118"]
NAMES = "gene,locus tag,growth\n" + "".join(
    f"{KNOWN[0] if i == 1 else f'nam{i}'},{gene},0.{i + 1}\n" for i, gene in enumerate(KNOWN)
)
TWO_NAMES = "strain,locus,medium,growth\ntalB,b0008,a,0.1\naceE,b0114,b,0.2\naceF,b0115,b,0.3\n"
CONTROLS = "gene_1,gene_2,score\n" + "".join(
    f"{gene},ctrl,{number / 10}\n" for number, gene in enumerate(["b0008", "b0114", "b0115", "b0116", "b0118"])
)
GUIDES = "gene,site,guide,growth\n" + "".join(
    f"{gene},a,{'ACGT' * 3}{end},0.{number}\n"
    for number, (gene, end) in enumerate(itertools.product(["b0008", "b0114"], ["AAA", "AAC", "AAG"]), 2)
)
MEDIA = "medium,dose,growth\n" + "\n".join(f"{medium},{dose},{0.1 * dose}" for medium in "abc" for dose in (1, 2, 3))


@pytest.mark.parametrize(
    ("text", "options", "said", "found"),
    [
        (LOCI, {"activities": ["left"]}, "", {"covariates": {"medium": "Growth medium"}, "genes": ["locus"]}),
        (LOCI, {"activities": ["left"], "covariates": ["note"]}, "", {"covariates": {"note": "note"}}),
        (LOCI, {"activities": ["left"], "covariates": []}, "", {"covariates": {}, "activities": ["left"]}),
        ("gene;activity;growth\nb0008;0,5;0,9\nb0114:0,25;;0,8\n", {}, "activities   0.25 to 0.5", {"decimal": ","}),
        (
            "gene_1;growth\nb0008;0,9\nb0727;ND\nb0728;0,8\nb2464;1\n",
            {"na_values": ["ND"]},
            'numbers have decimal commas: `decimal: ","`\nleft out    1 row without a phenotype',
            {"decimal": ",", "na_values": ["ND"], "missing": "drop"},
        ),
        (MEASURED, {}, "no phenotypes by their names: Unnamed: 0, replicate", {"phenotypes": {"growth": "growth"}}),
        (MEASURED, {"phenotypes": ["growth", "n"]}, "", {"phenotypes": {"growth": "growth", "n": "n"}}),
        ("gene,n\nb0008,1\nb0114,2\n", {}, "phenotypes n\n", {"phenotypes": {"n": "n"}}),
        ("gene,SD_Ura\nb0008,1\nb0114,2\n", {}, "", {"phenotypes": {"SD_Ura": "SD_Ura"}}),  # a medium
        (NAMES, {}, "not read    gene", {"genes": ["locus tag"]}),  # the other column has one gene of the cell graph
        (
            TWO_NAMES.replace("talB", ""),
            {"aliases": "names.csv", "genes": []},
            "not read    strain",
            {"genes": ["locus"]},
        ),
        (TWO_NAMES, {"aliases": "names.csv"}, "not read    locus", {"genes": ["strain"]}),  # each gene once
        (CONTROLS, {"ignore": ["ctrl"]}, "deletions   5 of 1 gene", {"ignore_genes": ["ctrl"]}),
        (
            "gene,growth,yield\nb0008,1,0.9\nb0114,1,0.8\nb0115,,0.8\n",
            {},
            "the same in all rows, so no phenotype: growth",
            {"phenotypes": {"yield": "yield"}},
        ),
        (
            "gene,medium,growth\nb0008,LB,0.9\nb0114,LB,0.8\nb0115,LB,0.7\n",
            {},
            "the same in all rows, so no covariate: medium",
            {"covariates": {}},
        ),
        (
            "gene,b_number,growth\nnoSuchName,b0008,0.9\nnorThis,b0114,0.8\nnorThat,b0115,0.7\n",
            {},
            "",
            {"genes": ["b_number"]},  # found by what they hold
        ),
        ("gene,activity,y\nb0008,0,.9\nb0114,0,.8\n", {}, "deletions   2 of 1 gene\n", {"activities": ["activity"]}),
        (
            GUIDES,
            {},
            "mismatches  where guides do not match, 15 positions",
            {"guides": GuideConfig("guide", ["gene", "site"])},
        ),
        (
            GUIDES.replace("site", "note"),
            {},
            "no column names the sites of guides, so no covariate: guide",
            {"guides": None},
        ),
        (MEDIA, {"split": "covariate"}, "no column of genes was found, so all rows are the wild type", {"genes": []}),
        (
            "gene_1,growth,yield\nb0008,0.9,1\nb0727,0.7,2\n",
            {},
            "phenotypes are all other columns of numbers; choose with `--phenotypes COLUMN …`",
            {"phenotypes": {"growth": "growth", "yield": "yield"}},
        ),
    ],
)
def test_columns_are_what_they_hold(text: str, options: dict[str, Any], said: str, found: dict[str, Any]) -> None:
    Path("names.csv").write_text("systematic,name\nb0008,talB\nb0114,aceE\nb0115,aceF\n")
    assert said in init(text, **options)
    config = load_config(Path("mine.yaml"))
    assert {name: getattr(config.data.source.csv, name) for name in found} == found
    assert config.split.covariate == ("medium" if options.get("split") == "covariate" else None)


def test_alleles_have_activities_to_learn() -> None:
    alleles = ["b0008,talB-1,ts", "b0008,talB-2,ts", "b0114,aceE-1,damp"]
    rows = [f"{allele},{medium},0.{number}" for number, allele in enumerate(alleles, 5) for medium in "ab"]
    said = init("gene,allele,allele class,medium,growth\n" + "\n".join(rows) + "\n")
    config = load_config(Path("mine.yaml"))
    assert (config.model.activity_from, config.model.activity_hidden) == (["allele", "allele class"], 0)
    assert config.model.covariates is None
    assert "covariates  allele: aceE-1, talB-1, talB-2\n            allele class: damp, ts\n" in said
    rows = [f"{allele},0.{number}" for number, allele in enumerate([*alleles, "b0115,x-1,ts"], 5)]
    said = init("gene,allele,allele class,growth\n" + "\n".join(rows) + "\n")
    config = load_config(Path("mine.yaml"))
    assert (config.model.activity_from, config.model.covariates) == (["allele class"], {"allele class": ["damp", "ts"]})
    assert "allele differs between most strains" in reasons()


PERCENT = r"activities look like percent\n  got: +up to {} in column"
CONSTANT = r"nothing can be learned from growth\n  got: +the same value in 3 rows\n(.|\n)*  do: +"
WORDS = "phenotypes are numbers: write 0 and 1 in place of 'lethal', 'viable' in column 'call'"
CALLS = "gene_1,call,note\nb0008,viable,u\nb0114,lethal,v\nb0115,NA,w\nb0116,viable,x\nb0351,viable,y\nb0356,viable,z\n"
TWICE = ["b0008:0.3;b0114,0.5", "b0115:0.1;b0115,0.4", *(f"b0116:0.{n};b0351,0.6" for n in range(1, 9))]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "gene_1,gene_2,activity_1,growth\nb0008,b0114,0.5,0.9\n",
            {},
            "do not fit the columns of genes\n  got: +activity_1",
        ),
        ("gene,growth\nb0008,0.9\n", {"covariates": ["dose"]}, "no column 'dose', which `--covariates` asks for"),
        ("gene,activity,growth\nb0008,60,0.9\nb0114,0,0.8\n", {}, PERCENT.format(60)),
        ("gene,activity (%),growth\nb0008,5,0.9\nb0114,0,0.8\n", {}, PERCENT.format(5)),
        ("gene,remaining expression (%),y\nb0008,5,.9\nb0114,0,.8\n", {}, PERCENT.format(5)),
        ("gene,% left,growth\nb0008,9,0.9\nb0114,0,0.8\n", {}, PERCENT.format(9)),
        ("gene,Activity,growth\nb0008,60%,0.9\nb0114,0,0.8\n", {}, PERCENT.format(60)),
        ("gene;activity;growth\nb0008;0,5;0,9\nb0114;0,2,5;0,8\n", {}, r"line 3: '0.2.5' is no activity"),
        ("genes,growth\n" + "\n".join(TWICE), {}, r"line 3: gene 'b0115' is changed twice, with activities 0\.1, 0\n"),
        ("gene,growth\nb0008,0.9\n,1\nb0114,0.8\n,1.1\n", {}, "1 fault in 2 of 4 rows\n  lines 3, 5: no gene is del"),
        (
            "gene,growth\nYAL001C,0.9\nYAL002W,1\n",
            {},
            "none of the genes that are deleted\n  got: +YAL(.|\n)*b0008, b09",
        ),
        ("orf,growth\nnone,1\n", {}, r"which columns are genes\?\n.*orf, growth"),
        ("gene_1,growth\nb0008,1\n", {"genes": ["gen"]}, "no column 'gen'"),
        (
            "strain,medium,growth\nx,a,.9\ny,a,.8\nz,b,.7\n",
            {},
            "which columns are genes(.|\n)*or leave strain out if no",
        ),
        (
            "gene,call,n\nb0008,grows,1\nb0114,dies,2\n",
            {},
            "write 0 and 1 in place of 'dies', 'grows' in column 'call'",
        ),
        ("gene,y\n" + "b0009,1\n" * 3 + "ctrl,1\nctrl,2\nb0008,1\n", {}, "if 'ctrl' stands for no deletion"),
        (CONTROLS, {}, "if 'ctrl' stands for no deletion, as controls do, add `--ignore ctrl`"),
        ("gene,growth\nb0008,1\nb0114,1\nb0115,1\n", {}, f"{CONSTANT}add strains with other values"),
        (
            "gene,growth,yield\nb0008,1,0.9\nb0114,1,0.8\nb0115,1,0.8\n",
            {"phenotypes": ["yield", "growth"]},
            f"{CONSTANT}leave such columns out",
        ),
        (CALLS, {}, rf"which columns are phenotypes\?\n(.|\n)*  do:       {WORDS}"),
        (CALLS, {"phenotypes": ["call"]}, f"  do:       {WORDS}$"),
    ],
)
def test_tables_that_cannot_be_used_are_refused(text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        init(text, **options)
    assert not Path("mine.yaml").exists()
