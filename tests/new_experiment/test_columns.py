"""Tables of one's own: what their columns are taken for, what is said about them, and what counts as a fault."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from dglcell.config.read import load_config
from dglcell.data.sources import load_source
from dglcell.data.sources.config import GuideConfig
from dglcell.errors import DataError
from dglcell.new_experiment.experiment import write_experiment
from dglcell.new_experiment.table import Wanted

DOSES = """\
gene_1,activity_1,medium,temperature,growth
b0008,0.5,glucose,37,0.9
b0008,0.1,glucose,37,0.6
b0008,,acetate,37,0.3
,,acetate,30,0.7
b0114:0.25,,glucose,37,0.8
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(text: str, **more: Any) -> str:
    Path("strains.csv").write_text(text)
    return write_experiment(Wanted(Path("mine.yaml"), Path("strains.csv"), **{"cell": "textbook", **more}))


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
BESIDE = ["Unnamed: 0", "replicate", "n", "growth_sd", "Growth SEM", "std dev", "p-value", "padj"]
MEASURED = f"gene,growth,{','.join(BESIDE)}\n" + "\n".join(
    f"{gene},{i / 7},{','.join([str(i)] * len(BESIDE))}" for i, gene in enumerate(["b0008", "b0114"], 1)
)
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
def test_columns_are_taken_for_what_they_hold(
    text: str, options: dict[str, Any], said: str, found: dict[str, Any]
) -> None:
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


def test_strains_whose_rows_differ_most_are_named() -> None:
    genes = ["b0008", "b0114", "b0115", "b0116", "b0351", "b0356", "b0451", "b0474"]
    rows = [f"{gene},{value}" for number, gene in enumerate(genes) for value in (0.1, 0.9, number, 0.5)]
    said = init("gene_1,growth\n" + "\n".join([*rows, "b0485,0.5"]) + "\n").splitlines()
    assert said[-6] == "repeated    24 rows of genes listed before, 0 with equal values: averaged"
    assert said[-5] == "  lines 30, 31, 32, 33: the same strain, growth 0.1 to 7"
    assert said[-1] == "  lines 14, 15, 16, 17: the same strain, growth 0.1 to 3"
    assert load_source(load_config(Path("mine.yaml")).data.source).phenotypes["growth"][1] == pytest.approx(0.625)
