"""Rows of one strain become one: against plain Python, strain by strain."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglcell.config.read import load_config
from dglcell.data.columns import Provenance, columns_of
from dglcell.data.sources import PartConfig, SourceConfig, UnionConfig, load_source, source_files
from dglcell.data.sources.config import CsvConfig, LaboratoryConfig
from dglcell.data.sources.csv_table import merge_replicates
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError
from dglcell.training.prepare import store_path
from tests.data.sources.sga_tables import KUZMIN2018, KUZMIN2020, kuzmin, read, text
from tests.examples import examples

NAMES = tuple("ABCDE")
SCORES = (-0.5, -0.2, -0.1, 0.0, 0.1, 0.2, 0.5, math.nan)
P_VALUES = (0.01, 0.04, 0.06, 0.9, math.nan)


@st.composite
def row(draw: st.DrawFn) -> tuple[tuple[int, ...], float, float, float]:
    """Return genes, score, its p-value, fitness."""
    genes = tuple(draw(st.permutations(range(len(NAMES))))[: draw(st.integers(1, 3))])
    return genes, *(draw(st.sampled_from(values)) for values in (SCORES, P_VALUES, (0.5, 1.0)))


Rows = list[tuple[tuple[int, ...], float, float, float]]


def measured(rows: Rows, names: tuple[str, ...] = NAMES, source: str = "made up") -> Strains:
    columns = [np.array([r[i] for r in rows], dtype=np.float32) for i in (1, 2, 3)]
    kinds = columns_of(
        phenotype={"score": columns[0], "fitness": columns[2]},
        p_value={"score": columns[1]},
        sd={"fitness": columns[2] / 10},
    )
    about = {"units": {"fitness": "1/h"}, "provenance": Provenance(source)}
    return Strains.from_indices(names, [genes for genes, *_ in rows], columns=kinds, **about)


@given(st.lists(row(), min_size=1, max_size=40))
@examples(30)
def test_means_spreads_and_numbers_are_those_of_each_strain(rows: Rows) -> None:
    table = merge_replicates(measured(rows))
    groups: dict[frozenset[int], Rows] = defaultdict(list)
    for r in rows:
        groups[frozenset(r[0])].append(r)
    assert table.genotypes == [[NAMES[g] for g in group[0][0]] for group in groups.values()]
    repeated = any(len(group) > 1 for group in groups.values())
    assert set(table.of_kind("replicates")) == ({"score", "fitness"} if repeated else set())
    for s, group in enumerate(groups.values()):
        for name, column in (("score", 1), ("fitness", 3)):
            values = [float(np.float32(r[column])) for r in group if not math.isnan(r[column])]
            mean = statistics.fmean(values) if values else math.nan
            np.testing.assert_allclose(table.phenotypes[name][s], mean, rtol=1e-6, atol=1e-7)
            sd = statistics.stdev(values) if len(values) > 1 else math.nan
            if len(group) == 1 and name == "fitness":
                sd = group[0][3] / 10
            np.testing.assert_allclose(table.of_kind("sd")[name][s], sd, rtol=1e-5, atol=1e-7)
            if repeated:
                assert table.of_kind("replicates")[name][s] == len(values)
        p = group[0][2] if len(group) == 1 else math.nan
        np.testing.assert_allclose(table.of_kind("p_value")["score"][s], p, rtol=1e-6)
    counts = table.provenance.counts
    assert counts["strains"] == len(groups)
    assert counts["strains_with_replicates"] == sum(len(group) > 1 for group in groups.values())


def test_a_class_that_becomes_a_number_is_named(caplog: pytest.LogCaptureFixture) -> None:
    merge_replicates(measured([((0,), 0.1, 0.5, 0.0), ((0,), 0.1, 0.5, 1.0), ((1,), 0.0, 0.5, 1.0)]))
    merge_replicates(measured([((0,), 0.1, 0.5, 0.5), ((0,), 0.1, 0.5, 1.5), ((1,), 0.0, 0.5, 0.0)]))  # the reverse
    assert [said.partition(",")[0] for said in caplog.messages] == ["fitness: a strain has both 0 and 1"]


TRI = "trigenic"
A, B, C, D, X = "YAR002W", "YML107C", "YAL048C", "YBR001C", "YNL999W"
OF_2018 = [
    kuzmin(f"{A}+{B}_tm1", "aΔ+bΔ", f"{C}_dma1", "cΔ", TRI, -0.1, 0.01, 0.4, 0.02),
    kuzmin(f"{A}+{B}_tm1", "aΔ+bΔ", f"{D}_tsa1", "d-1", TRI, 0.1, 0.01, 0.9, 0.02),
    kuzmin(f"{A}+{X}_tm2", "aΔ+xΔ", f"{C}_dma1", "cΔ", TRI, 0.2, 0.5, 1.1, 0.03),
    kuzmin(f"{A}+YDL227C_tm3", "aΔ+hoΔ", f"{C}_dma1", "cΔ", "digenic", 0.2, 0.5, 1.1, 0.03),
]
OF_2020 = [
    kuzmin(f"{C}+{B}_tm7", "cΔ+bΔ", f"{A}_dma4", "aΔ", TRI, 0.3, 0.02, 0.6, 0.01),
    kuzmin(f"{C}+{D}_tm8", "cΔ+dΔ", f"{A}_dma4", "aΔ", TRI, 0.4, 0.02, 0.8, 0.01),
    kuzmin(f"{A}+{X}_tm9", "aΔ+xΔ", f"{C}_dma1", "cΔ", TRI, 0.2, 0.5, 1.1, 0.03),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    raw = tmp_path / "interactions"
    raw.mkdir()
    (raw / "aao1729_data_s1.tsv").write_text(text(KUZMIN2018, OF_2018))
    (raw / "aaz5667-Table-S1.tsv").write_text(text(KUZMIN2020, OF_2020))
    # Declares the small files' numbers of rows.
    read("kuzmin2018", tmp_path, monkeypatch, rows=[4])
    read("kuzmin2020", tmp_path, monkeypatch, rows=[3], only=["S1"])
    return tmp_path


def parts(**names: str) -> list[PartConfig]:
    of_2018 = PartConfig("kuzmin2018", laboratory=LaboratoryConfig(kind=TRI), phenotypes=names)
    of_2020 = LaboratoryConfig(kind=TRI, deletions_only=True)
    return [of_2018, PartConfig("kuzmin2020", laboratory=of_2020)]


def union(**options: object) -> SourceConfig:
    return SourceConfig(name="union", union=UnionConfig(**{"parts": parts(), **options}))  # type: ignore[arg-type]


def test_strains_of_both_parts_once_each(folder: Path) -> None:
    table = load_source(union(), str(folder))
    assert table.genotypes == [[A, B, C], [A, B, D], [A, X, C], [C, D, A]]
    np.testing.assert_allclose(table.phenotypes["trigenic_interaction"], [0.1, 0.1, 0.2, 0.4], rtol=1e-6)
    np.testing.assert_allclose(table.phenotypes["fitness"], [0.5, 0.9, 1.1, 0.8], rtol=1e-6)
    np.testing.assert_allclose(table.of_kind("sd")["fitness"], [0.2 / np.sqrt(2), 0.02, 0.03, 0.01], rtol=1e-6)
    assert table.of_kind("replicates")["fitness"].tolist() == [2, 1, 1, 1]
    provenance = table.provenance
    assert (provenance.source, provenance.description) == ("union", "Union of kuzmin2018, kuzmin2020")
    assert set(provenance.files) == {"aao1729_data_s1.tsv", "aaz5667-Table-S1.tsv"}
    assert all(f"Kuzmin et al. {year}" in provenance.citation for year in (2018, 2020))
    assert provenance.parameters["parts"][1]["deletions_only"] is True
    expected = {"rows": 6, "part_1_kuzmin2018_rows": 4, "part_2_kuzmin2020_rows": 3, "strains": 4}
    expected |= {"strains_in_several_parts": 2, "rows_identical_in_another_part": 1, "strains_with_replicates": 1}
    assert expected.items() <= provenance.counts.items()


def test_with_a_table_of_ones_own(folder: Path) -> None:
    (folder / "own.csv").write_text(f"a,b,growth,when\n{D},{A},0.7,today\n{A},{X},0.6,today\n")
    own = PartConfig("csv", CsvConfig(path="own.csv", genes=["a", "b"], phenotypes={"fitness": "growth"}))
    config = union(parts=[own, parts()[0]])
    table = load_source(config, str(folder))
    assert table.genotypes[:3] == [[D, A], [A, X], [A, B, C]]
    assert np.isnan(table.phenotypes["trigenic_interaction"][:2]).all()
    assert source_files(config, str(folder)) == [folder / "own.csv"]
    assert "csv: yours" in table.provenance.licence
    (folder / "more").mkdir()
    (folder / "more/own.csv").write_text(f"a,b,growth\n{D},{X},0.5\n")
    config.union.parts = [own, replace(own, csv=replace(own.csv, path="more/own.csv"))]
    assert [*load_source(config, str(folder)).provenance.files] == ["own.csv", "own.csv of part 2"]


YAML = """
cell: {model: textbook}
data:
  source:
    name: union
    union:
      parts:
        - name: kuzmin2018
          laboratory: {kind: trigenic}
        - {name: kuzmin2020, laboratory: {kind: trigenic, deletions_only: true}}
"""


def test_parts_are_a_list_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "u.yaml"
    path.write_text(YAML)
    config = load_config(path)
    first, second = config.data.source.union.parts
    assert isinstance(first, PartConfig)
    assert (first.laboratory.kind, second.laboratory.deletions_only) == ("trigenic", True)
    assert store_path(config).name.startswith("union-")


WRONG = [
    ("kind: trigenic, deletions_only", "kinds: trigenic, deletions_only", r"unknown key .*parts\[1\].laboratory.kinds"),
    ("{kind: trigenic, deletions", "{where: {a: b}, deletions", r"parts\[1\].laboratory.where` does not apply"),
    ("name: kuzmin2020,", "name: insilico,", r"`data.source.union.parts\[1\].name` is no source that can be part"),
    ("- name: kuzmin2018\n", "- a\n        - name: kuzmin2018\n", r"parts\[0\]` has a wrong value\n.*a"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG)
def test_wrong_keys_name_their_part(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "u.yaml"
    path.write_text(YAML.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_config(path)


def test_a_part_with_names_of_its_own_is_a_phenotype_of_its_own(folder: Path) -> None:
    table = load_source(union(parts=parts(trigenic_interaction="tau_2018")), str(folder))
    assert table.genotypes == [[A, B, C], [A, B, D], [A, X, C], [C, D, A]]
    np.testing.assert_allclose(table.phenotypes["tau_2018"], [-0.1, 0.1, 0.2, math.nan], rtol=1e-6)
    np.testing.assert_allclose(table.phenotypes["trigenic_interaction"], [0.3, math.nan, 0.2, 0.4], rtol=1e-6)
    assert table.of_kind("p_value").keys() == {"tau_2018", "trigenic_interaction"}
    assert table.provenance.parameters["parts"][0]["phenotypes"] == {"trigenic_interaction": "tau_2018"}
    for names, message in (
        ({"tau": "tau_2018"}, r"kuzmin2018 has no phenotype to rename\n.*tau\n.*trigenic_interaction"),
        ({"trigenic_interaction": "fitness"}, r"kuzmin2018 would have two phenotypes of one name\n.*fitness"),
    ):
        with pytest.raises(DataError, match=message):
            load_source(union(parts=parts(**names)), str(folder))


def test_one_part_is_no_union() -> None:
    with pytest.raises(ConfigError, match=r"`data.source.union.parts` names too few sources\n.*1\n.*kuzmin2018"):
        SourceConfig(name="union", union=UnionConfig([PartConfig("kuzmin2018")])).validate()
