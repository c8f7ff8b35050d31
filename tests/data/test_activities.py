"""Activities of targets and covariates of strains, from a table to a store and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.columns import COVARIATE, PHENOTYPE, ROW, Column, columns_of
from dglcell.data.config import SplitConfig
from dglcell.data.sources import SourceConfig, load_source
from dglcell.data.sources.config import CsvConfig, GuideConfig
from dglcell.data.sources.csv_table import guide_covariates, joined
from dglcell.data.split import make_split
from dglcell.data.store import Store, build_store
from dglcell.data.strains import Strains
from dglcell.data.table import Rows, split_activity
from dglcell.errors import ConfigError, DataError, GenotypeError
from tests.data.strain_tables import assert_same_strains, random_table, table_of, with_columns

HEADER = "gene_1,activity_1,gene_2,activity_2,medium,temp,growth\n"
ROWS = (
    "pgi,0.3,pfkA,,glucose,30,0.5\n"
    "pgi,0.5,,,glucose,30,0.7\n"
    "pgi,0.5,,,glycerol,30,0.6\n"
    ",,,,glycerol,37,1.0\n"
    "pgi,0.5,,,glycerol,30,0.8\n"
)


def read(tmp_path: Path, rows: str = ROWS, header: str = HEADER, **keys: object) -> Strains:
    path = tmp_path / "table.csv"
    path.write_text(header + rows)
    options: dict[str, object] = {
        "genes": ["gene_1", "gene_2"],
        "activities": ["activity_1", "activity_2"],
        "phenotypes": {"growth": "growth"},
        "covariates": {"medium": "medium", "temperature": "temp"},
    }
    config = CsvConfig(path=str(path), **{**options, **keys})  # type: ignore[arg-type]
    return load_source(SourceConfig("csv", csv=config))


def test_a_table_with_activities_and_covariates_comes_back_from_its_store(tmp_path: Path) -> None:
    strains = read(tmp_path)
    store = build_store(strains, tmp_path / "store", command="test")
    found = Store(tmp_path / "store").read()
    assert store.sha256 == found.sha256 == strains.sha256
    assert found.genotypes == [["pgi", "pfkA"], ["pgi"], ["pgi"], []]
    assert found.activities is not None
    assert found.activities.tolist() == pytest.approx([0.3, 0.0, 0.5, 0.5])
    assert found.covariates == {"medium": ("glucose", "glycerol"), "temperature": ()}
    assert found.of_kind(COVARIATE)["temperature"].tolist() == [30, 30, 30, 37]
    assert found.phenotypes["growth"].tolist() == pytest.approx([0.5, 0.7, 0.7, 1.0])  # rows 3 and 5 are replicates


def test_activities_may_stand_behind_genes(tmp_path: Path) -> None:
    apart = read(tmp_path)
    rows = "pgi:0.3;pfkA,glucose,30,0.5\npgi:0.5,glucose,30,0.7\npgi:0.5,glycerol,30,0.7\n,glycerol,37,1.0\n"
    behind = read(tmp_path, rows, "genes,medium,temp,growth\n", genes=["genes"], activities=[])
    assert behind.genotypes == apart.genotypes
    assert np.array_equal(behind.activities, apart.activities)


WRONG = [
    *(
        (f"pgi,{left},,,glucose,30,1", f"'{left}' is no activity of a gene")
        for left in (-1, "half", "nan", "1e39", "1_0")
    ),
    ("pgi,1e-9,,,glucose,30,1", "'1e-9' is no activity of a gene, which is 0 for a deletion"),
    ("pgi,0.5,pgi,0.3,glucose,30,1", "gene 'pgi' is changed twice, with activities 0.5, 0.3"),
    ("pgi:0.3,0.2,,,glucose,30,1", "an activity is given twice: 'pgi:0.3' and '0.2'"),
    (",0.3,,,glucose,30,1", "an activity has no gene: '' and '0.3'"),
    ("pgi,0.3,,,,30,1", "covariate medium is blank, and every strain needs it"),
]


def test_wrong_rows_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refusal:
        read(tmp_path, ROWS + "".join(f"{row}\n" for row, _ in WRONG))
    for line, (_, what) in enumerate(WRONG, start=7):
        assert f"line {line}: {what}" in str(refusal.value)


def test_a_gene_may_have_a_colon_before_a_whole_number() -> None:
    assert split_activity("HGNC:1100") == ("HGNC:1100", "")
    assert split_activity("HGNC:1100:0.25") == ("HGNC:1100", "0.25")
    assert split_activity("pgi:0") == ("pgi", "0")


def test_rows_of_a_frame() -> None:
    def changes(**columns: list[object]) -> object:
        return Strains.from_dataframe(pd.DataFrame(columns)).changes

    two = np.float32(0.2)
    assert changes(gene_1=["pgi", "pgi:0.2"], gene_2=["pfkA", None]) == [{"pgi": 0, "pfkA": 0}, {"pgi": two}]
    assert changes(genes=["pgi;pfkA", "pgi"], activities=["0.5;", ""]) == [{"pgi": 0.5, "pfkA": 0}, {"pgi": 0}]
    with pytest.raises(GenotypeError, match="row 0: an activity is given twice"):
        changes(gene_1=["pgi:0.2"], activity_1=["0.3"])
    with pytest.raises(GenotypeError, match="row 0: gene 'pgi' is changed twice"):
        changes(gene_1=["pgi:0.2"], gene_2=["pgi"])
    # A column with gaps holds floats.
    assert changes(gene_1=[945006, 945007], gene_2=[945008, None]) == [["945006", "945008"], ["945007"]]


def some_strains(seed: int, number: int) -> Strains:
    numbers = np.random.default_rng(seed)
    strains = [
        {f"g{gene}": float(numbers.choice([0, 0.25, 0.5])) for gene in numbers.choice(6, numbers.integers(0, 3), False)}
        for _ in range(number)
    ]
    medium = numbers.choice(["LB", "MOPS"], number)
    return Strains.from_names(strains, phenotypes={"y": numbers.normal(size=number)}, covariates={"medium": medium})


def test_a_random_split_parts_activities_and_media_of_one_gene() -> None:
    strains = some_strains(0, 60)
    keys = {}
    for number, key in enumerate(strains.strain_keys):
        of = strains.slice(number, number + 1)
        assert of.activities is not None
        gene = of.genotypes[0]
        order = np.argsort(gene)
        what = (tuple(np.array(gene)[order]), tuple(of.activities[order]), float(of.of_kind(COVARIATE)["medium"][0]))
        keys.setdefault(what, set()).add(int(key))
    assert all(len(found) == 1 for found in keys.values())
    assert len(set.union(*keys.values())) == len(keys)
    plain = Strains.from_names([["a", "b"], ["c"]])
    assert np.array_equal(plain.strain_keys, plain.gene_set_keys)
    split = make_split(SplitConfig(kind="random", fractions=[0.4, 0.3, 0.3]), strains, "0" * 64)
    single = [set(strains.take(split.indices(part)).targets) for part in ("train", "test")]
    assert single[0] & single[1]


def test_a_covariate_split_keeps_media_apart() -> None:
    medium = ["a", "b", "c", "d", "e"] * 12
    strains = Strains.from_names([["x"]] * 60, phenotypes={"y": np.arange(60)}, covariates={"medium": medium})

    def divided(covariate: str = "medium", **options: Any) -> list[list[str]]:
        split = make_split(SplitConfig(kind="covariate", covariate=covariate, **options), strains, "0" * 64)
        return [[medium[row] for row in split.indices(part)] for part in ("train", "validation", "test")]

    media = [set(of) for of in divided(fractions=[0.6, 0.2, 0.2])]
    assert [len(found) for found in media] == [3, 1, 1]
    assert set.union(*media) == set("abcde")
    assert sorted(sorted({*divided(folds=5, fold=fold)[2]}) for fold in range(5)) == [[value] for value in "abcde"]
    train, validation, test = divided(test_values=["b"], fractions=[0.6, 0.2, 0.2])
    assert (set(test), len(test), len(validation), len(train)) == ({"b"}, 12, 12, 36)
    with pytest.raises(DataError, match=r"`split.test_values`: no strain has the medium 'f'"):
        divided(test_values=["f"])
    with pytest.raises(DataError, match="the split needs a covariate 'dose'"):
        divided("dose")


def test_test_strains_can_have_a_new_gene_in_a_new_medium() -> None:
    genes, media = np.repeat(list("abcdefghij"), 5).tolist(), ["a", "b", "c", "d", "e"] * 10
    strains = Strains.from_names([[gene] for gene in genes], covariates={"medium": media})
    config = SplitConfig(kind="gene_disjoint", fractions=[0.6, 0.2, 0.2])
    genes_only = make_split(config, strains, "0" * 64)
    both = make_split(replace(config, covariate="medium", test_values=["b", "d"]), strains, "0" * 64)
    new = np.isin(media, ["b", "d"])
    for part, is_new in (("train", False), ("validation", False), ("test", True)):
        expected = [row for row in genes_only.indices(part) if new[row] == is_new]
        assert both.indices(part).tolist() == expected
    assert both.parameters["test_values"] == ["b", "d"]


def test_a_table_with_a_column_for_each_medium(tmp_path: Path) -> None:
    rows = "pgi:0.3,0.5,0.1,0.9,\npfkA,0.7,0.2,,\npykF,,,,\n"
    by_medium = {"glucose": {"growth": "glc"}, "glycerol": {"growth": "gly"}}
    header = "genes,glc,sd_glc,gly,sd_gly\n"
    wide: dict[str, object] = {"genes": ["genes"], "activities": [], "phenotypes": {}, "covariates": {}}
    spread = {"glucose": {"growth": "sd_glc"}, "glycerol": {"growth": "sd_gly"}}
    strains = read(tmp_path, rows, header, **wide, by_medium=by_medium, sds_by_medium=spread)
    assert strains.genotypes == [["pgi"], ["pfkA"], ["pgi"]]
    counts = {"rows": 3, "rows_filtered_out": 0, "rows_not_measured": 1, "rows_with_the_same_cells": 0}
    assert counts.items() <= strains.provenance.counts.items()
    assert strains.covariates == {"medium": ("glucose", "glycerol")}
    assert strains.of_kind(COVARIATE)["medium"].tolist() == [0, 0, 1]
    assert strains.phenotypes["growth"].tolist() == pytest.approx([0.5, 0.7, 0.9])
    assert strains.of_kind("sd")["growth"].tolist() == pytest.approx([0.1, 0.2, np.nan], nan_ok=True)
    with pytest.raises(DataError, match="line 3: growth by medium 'much' is no number"):
        read(tmp_path, rows.replace("0.7", "much"), header, **wide, by_medium=by_medium)
    with pytest.raises(ConfigError, match=r"`data.source.csv.by_medium` stands in place of `phenotypes`"):
        read(tmp_path, rows, header, **{**wide, "phenotypes": {"growth": "glc"}}, by_medium=by_medium)


def guides_of(*sequences: str, series: str = "1") -> Rows:
    frame = pd.DataFrame({"guide": sequences, "gene": "a", "series": series})
    return Rows("t.csv", frame, np.arange(len(frame)))


def test_mismatches_of_guides(tmp_path: Path) -> None:
    rows = "a,1,ACGT,0.1\na,1,ACGA,0.5\na,1,TCGT,0.4\na,2,GGGG,0.2\n,,,1.0\n"
    wide: dict[str, object] = {"genes": ["gene"], "activities": [], "covariates": {}}
    guides = GuideConfig("guide", ["gene", "series"])
    strains = read(tmp_path, rows, "gene,series,guide,growth\n", **wide, guides=guides)
    assert strains.covariates["site"] == ("a 1 ACGT", "a 2 GGGG", "none")
    alone = guide_covariates(guides, guides_of("ACGA"), strains.covariates["site"])
    assert alone["site"].tolist() == ["a 1 ACGT"]
    assert [float(alone[f"mismatch_{place}"][0]) for place in (4, 3, 2, 1)] == [0, 0, 0, 1]
    table = np.stack([strains.of_kind(COVARIATE)[f"mismatch_{place}"] for place in (4, 3, 2, 1)], axis=1)
    assert table.tolist() == [[0] * 4, [0, 0, 0, 1], [1, 0, 0, 0], [0] * 4, [0] * 4]
    with_distance = replace(guides, distance="series")
    far = read(tmp_path, rows, "gene,series,guide,growth\n", **wide, guides=with_distance)
    assert far.of_kind(COVARIATE)["distance"].tolist() == [1, 1, 1, 2, 0]
    far_off = r"a guide has no distance\n  got:      'near'\n  expected: a number, or an empty cell"
    with pytest.raises(DataError, match=far_off):
        guide_covariates(with_distance, guides_of("ACGT", series="near"))
    for sequence, got in (("ACGX", "'ACGX'"), ("ACG", "lengths 3, 4")):
        with pytest.raises(DataError, match=rf"sequences of guides cannot be compared\n  got:      {got}"):
            guide_covariates(guides, guides_of("ACGT", sequence))


TABLES = [random_table(30, 9, (0, 4), columns=True), random_table(30, 9, (2, 2)), some_strains(1, 30)]


@given(rows=st.lists(st.integers(0, 29), min_size=1, max_size=12), fillers=st.integers(0, 5))
@pytest.mark.parametrize("table", TABLES)
def test_strains_are_taken_alike_from_arrays_and_from_tensors(table: Strains, rows: list[int], fillers: int) -> None:
    taken = table.take(np.array(rows))
    assert taken.changes == [table.changes[row] for row in rows]
    for column, values in table.columns.items():
        np.testing.assert_array_equal(taken.columns[column], values[rows])
    whole = joined([table.slice(0, rows[0]), table.slice(rows[0], 30)])
    assert_same_strains(whole, table)
    assert (whole.changes, whole.covariates) == (table.changes, table.covariates)
    tensors = table.to("cpu").take(torch.tensor(rows), len(taken.targets) + fillers)
    assert tensors.targets.tolist() == [*taken.targets.tolist(), *[-1] * fillers]
    assert_same_strains(tensors.with_(targets=tensors.targets[: len(taken.targets)]).numpy(), taken)
    assert tensors.perturbations.most == table.max_deletions


def test_what_a_part_lacks_is_missing_and_genes_are_matched_by_name() -> None:
    one, other = table_of([["A", "B"]]), table_of([["C", "A"], []])
    other = other.with_(columns=columns_of(phenotype={"score": np.array([1, 2], np.float32)}), units={"score": "x"})
    both = joined([one, other])
    assert both.genotypes == [["A", "B"], ["C", "A"], []]
    np.testing.assert_array_equal(both.labels, [[0, np.nan], [np.nan, 1], [np.nan, 2]])
    assert both.units == {"fitness": "1", "score": "x"}


def test_the_hash_covers_everything_but_the_order_of_names_and_what_no_store_keeps() -> None:
    fitness = np.arange(3, dtype=np.float32)
    base = with_columns(table_of([["A"], ["A", "B"], ["C"]]), phenotype={"a": fitness, "b": fitness})
    variants = [
        base,
        replace(base, targets=base.targets[::-1]),
        replace(base, offsets=np.array([0, 2, 3, 4])),
        replace(base, names=("A", "B", "D")),
        replace(base, units={"a": "1/h"}),
        with_columns(base, phenotype={"a": fitness, "b": fitness + 1}),
        with_columns(base, phenotype={"a": fitness, "c": fitness}),
        with_columns(base, p_value={"a": fitness}),
        with_columns(base, sd={"a": fitness}),
        with_columns(base, replicates={"a": fitness}),
    ]
    assert len({strains.sha256 for strains in variants}) == len(variants)
    turned = replace(base, names=base.names[::-1], targets=2 - base.targets)
    numbered = replace(base, columns={Column(ROW): np.arange(3), **base.columns})
    assert base.sha256 == turned.sha256 == numbered.sha256 == base.slice(0, 3).sha256


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"offsets": np.array([0, 1])}, "offsets do not cover the targets"),
        ({"offsets": np.array([0, 3, 2])}, "offsets do not cover"),
        ({"targets": np.array([0, 2])}, r"targets outside their names\n  got: +0 … 2\n  expected: 0 … 1"),
        ({"names": ("A", " B")}, r"the name of a gene cannot be used\n  got: +' B'"),
        ({"columns": {Column(PHENOTYPE, "a"): np.zeros(3)}}, r"column 'a' has the wrong length\n  got: +3\n.*2"),
    ],
)
def test_what_does_not_fit_together_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        replace(Strains(("A", "B"), np.array([0, 1]), np.array([0, 1, 2])), **fields)


@pytest.mark.parametrize(
    ("strains", "beside", "message"),
    [
        ([{"a": 0.5}, {"b": -0.5}], {}, "strain 1: the activity of gene 'b' is no amount"),
        ([["a"], ["b"]], {"covariates": {"dose": [30, np.nan]}}, "strain 1: covariate 'dose' is not a finite number"),
        ([["a"], ["b"]], {"covariates": {"medium": [None, "LB"]}}, "strain 0: covariate 'medium' is missing\n.*None\n"),
        ([["a"], ["b"]], {"phenotypes": {"fitness": [1.0, np.inf]}}, "strain 1: fitness is infinite"),
        ([["a"]], {"phenotypes": {"fitness": ["high"]}}, "a column of phenotypes holds no numbers\n.*'high'"),
        ([["a"]], {"phenotypes": {"fitness": [[1, 2]]}}, r"column 'fitness' has the wrong length\n  got: +1, 2\n.*1"),
        ([["a"]], {"phenotypes": {"fitness": 1.0}}, "column 'fitness' has the wrong length"),
        (["a"], {}, r"a strain is a list of genes\n  got: +'a'"),
        ([None], {}, r"a strain is a list of genes\n  got: +None"),
    ],
)
def test_strains_in_python_that_are_refused(strains: list, beside: dict, message: str) -> None:
    with pytest.raises((DataError, GenotypeError), match=message):
        Strains.from_names(strains, **beside)


def test_some_targets_of_strains_are_kept() -> None:
    strains = Strains.from_names(
        [{"a": 0.0, "b": 0.5}, {"b": 0.5}, {}, {"c": 0.0}], covariates={"dose": [1.0, 2.0, 3.0, 4.0]}
    )
    deleted = strains.with_targets(strains.left() == 0)
    assert [list(genes) for genes in deleted.genotypes] == [["a"], [], [], ["c"]]
    assert deleted.left().tolist() == [0, 0]
    assert deleted.columns == strains.columns
    assert deleted.with_(activities=None).num_deletions.tolist() == [1, 0, 0, 1]
