"""Combinations by number: count and order are those of itertools."""

from __future__ import annotations

import itertools
import math
import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.strains import Strains
from dglcell.errors import GenotypeError, GraphError
from dglcell.graph.vocabulary import Vocabulary
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction.columns import GenotypeColumns
from dglcell.prediction.design import Design, read_genes
from dglcell.prediction.predict import batches
from tests.examples import examples

FORTY = tuple(f"g{i}" for i in range(41))
NAMES = Vocabulary.of(["YAL001C", "YBR020W", "YCL018W", "YDR007W"])


def strains_of(batches: Iterable[GenotypeBatch], size: int) -> list[tuple[int, ...]]:
    """Return the genes of every strain."""
    return [tuple(strain) for batch in batches for strain in batch.genes.reshape(-1, size).tolist()]


@examples(75)
@given(st.data())
def test_order_and_count_are_those_of_itertools(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4))
    genes = data.draw(st.permutations(range(12)).map(lambda order: order[: 12 - size])) + [40, 30][: size % 3]
    expected = list(itertools.combinations(genes, size))
    start = data.draw(st.integers(0, len(expected) - 1))
    limit = data.draw(st.none() | st.integers(1, len(expected) + 5))
    design = Design.of(genes, size, start, limit)
    wanted = expected[start:] if limit is None else expected[start : start + limit]
    assert len(design) == len(wanted)
    first = data.draw(st.integers(0, len(wanted)))
    part = design.strains(first, data.draw(st.integers(first, len(wanted))), FORTY)
    wanted = wanted[first : first + len(part)]
    assert [tuple(strain) for strain in part.targets.reshape(-1, size).tolist()] == wanted
    assert part.num_deletions.tolist() == [size] * len(wanted)


@examples(75)
@given(st.data())
def test_batches_share_their_first_genes(data: st.DataObject) -> None:
    size, count = data.draw(st.integers(1, 4)), data.draw(st.integers(4, 14))
    genes = data.draw(st.permutations(range(20)))[:count]
    total = math.comb(count, size)
    design = Design.of(genes, size, data.draw(st.integers(0, total - 1)), data.draw(st.none() | st.integers(1, total)))
    most, least = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 12))
    strains = design.strains(0, len(design), FORTY)
    found = list(batches(strains, most, least))
    assert strains_of(found, size) == [tuple(strain) for strain in strains.targets.reshape(-1, size).tolist()]
    for batch in found:
        rows, shared = batch.genes.reshape(-1, size), batch.shared
        assert 1 <= batch.num_strains == len(rows) <= most
        assert (rows[:, : len(shared)] == torch.tensor(shared, dtype=int)).all()
        # Strains that share one gene more are too few.
        if len(shared) + 1 < size:
            rest = genes[genes.index(rows[0, len(shared)]) + 1 :]
            assert len(design) < total or math.comb(len(rest), size - len(shared) - 1) < least


@examples(30)
@given(st.data())
def test_each_gene_of_a_combination_takes_each_activity(data: st.DataObject) -> None:
    size, genes = data.draw(st.integers(1, 3)), data.draw(st.permutations(range(6)))
    activities = data.draw(st.permutations([0.0, 0.25, 0.5, 1.5]))[: data.draw(st.integers(1, 3))]
    expected = [
        tuple(zip(chosen, left, strict=True))
        for chosen in itertools.combinations(genes, size)
        for left in itertools.product(activities, repeat=size)
    ]
    start = data.draw(st.integers(0, len(expected) - 1))
    design = Design.of(genes, size, start, activities=activities)
    assert len(design) == len(expected) - start
    strains = design.strains(0, len(design), FORTY)
    assert not any(batch.shared for batch in batches(strains, data.draw(st.integers(1, 40)), 2))
    genes_SK, left_SK = (of.reshape(-1, size).tolist() for of in (strains.targets, strains.activities))
    assert [tuple(zip(genes, left, strict=True)) for genes, left in zip(genes_SK, left_SK, strict=True)] == (
        expected[start:]
    )
    columns = design.columns(strains)
    assert list(columns) == [f"{kind}_{k + 1}" for kind in ("gene", "activity") for k in range(size)]
    assert columns[f"activity_{size}"].tolist() == [left[-1] for left in left_SK]


SEEN: dict[str, tuple[str, ...]] = {"medium": ("glucose", "glycerol"), "temperature": ()}


def wild_type(**covariates: object) -> Strains | None:
    return GenotypeColumns(seen=SEEN).wild_type(NAMES, covariates)


def test_all_strains_have_the_covariates_of_the_design() -> None:
    design = Design.of(range(4), 2, 0, 5, background=wild_type(temperature="30", medium="glycerol"))
    strains = design.strains(1, 4, NAMES.names)
    assert strains.shown("medium").tolist() == ["glycerol"] * 3
    assert [batch.covariates.tolist() for batch in batches(strains, 2)] == [[[1, 30]] * 2, [[1, 30]]]  # type: ignore[union-attr]
    columns = design.columns(strains)
    assert columns["covariate_medium"].to_pylist() == ["glycerol"] * 3
    assert columns["covariate_temperature"].tolist() == [30] * 3


def test_all_triples_of_yeast_are_numbered_without_listing_them() -> None:
    count = 6607
    tracemalloc.start()
    design = Design.of(range(count), 3)
    assert len(design) == math.comb(count, 3) == 48_046_797_735
    first = design.genes_of(np.arange(1000))
    last = design.genes_of(np.array([len(design) - 1]))
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()
    assert first.tolist() == [[0, 1, i] for i in range(2, 1002)]
    assert last.tolist() == [[count - 3, count - 2, count - 1]]
    rng = np.random.default_rng(0)
    strains = np.sort(rng.choice(count, (200, 3), replace=True), axis=1)
    strains = strains[(np.diff(strains) > 0).all(1)]
    numbers = [
        math.comb(count, 3)
        - math.comb(count - a, 3)
        + math.comb(count - a - 1, 2)
        - math.comb(count - b, 2)
        + c
        - b
        - 1
        for a, b, c in strains.tolist()
    ]
    assert len(strains) > 190
    np.testing.assert_array_equal(design.genes_of(np.array(numbers)), strains)


def test_a_description_tells_designs_apart() -> None:
    design = Design.of([3, 1, 2], 2)
    assert design.describe() == Design.of((3, 1, 2), 2, 0, 99).describe() == {
        "design_sha256": "97f9a908d786dffd17280fe72a98dea33e3b6ed7b5128649a7c81932fe78d72b",
        "genes": 3, "deletions": 2, "start": 0, "stop": 3,
    }  # fmt: skip
    others = [([1, 2, 3], 2), ([3, 1, 2], 3), ([3, 1, 2], 2, 1), ([3, 1, 2], 2, 0, 2)]
    of_others = {Design.of(*of).describe()["design_sha256"] for of in others}  # type: ignore[arg-type]
    assert len(of_others - {design.describe()["design_sha256"]}) == 4
    background = wild_type(medium="glucose", temperature=1)
    weak = Design.of([3, 1, 2], 2, activities=[0, 0.5], background=background).describe()
    assert (weak["activities"], weak["covariates"]) == ([0, 0.5], {"medium": "glucose", "temperature": 1})


@pytest.mark.parametrize(
    ("genes", "size", "more", "message"),
    [
        (2, 3, {}, "no triples: there are too few genes\n  got:      2\n  expected: 3 or more\n  do:       list more"),
        (4, 2, {"start": 6}, "`--start` lies behind the last of the pairs\n  got:      6\n  expected: 0 … 5\n"),
        (6607, 6, {}, "too many sets of 6 genes to be numbered\n  got:      115,"),
        (4, 2, {"activities": [0.5, -1]}, "an activity is no amount\n  got:      '-1'"),
        (4, 2, {"activities": [math.nan]}, "an activity is no amount\n  got:      'nan'"),
        (4, 2, {"activities": [0.5, 0.5]}, "an activity of the design is listed twice\n  got:      0.5, 0.5"),
    ],
)
def test_designs_that_cannot_be(genes: int, size: int, more: dict[str, Any], message: str) -> None:
    with pytest.raises(GenotypeError) as error:
        Design.of(range(genes), size, **more)
    assert str(error.value).startswith(message)


def test_a_list_of_genes_keeps_its_order(tmp_path: Path) -> None:
    path = tmp_path / "genes.txt"
    path.write_bytes(b"\xef\xbb\xbf# a comment\r\nYDR007W\r\n\r\n YAL001C  # the other\r\n")
    assert read_genes(path, NAMES) == [3, 0]
    read_end, write_end = os.pipe()  # as `--genes <(…)` gives it
    os.write(write_end, path.read_bytes())
    os.close(write_end)
    assert read_genes(Path(f"/dev/fd/{read_end}"), NAMES) == [3, 0]
    os.close(read_end)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"YAL001C\nYAL001W\nnope\nnope\n", ": the model does not know 2 of 4 genes\n  got:      YAL001W (close"),
        (b"YAL001C\nYBR020W\nYAL001C\n", ": genes are listed twice\n  got:      YAL001C\n  do:       list each once"),
        (None, " not found\n  expected: a text file, one gene name a line"),
    ],
)
def test_unusable_lists_are_refused(tmp_path: Path, text: bytes | None, message: str) -> None:
    path = tmp_path / "genes.txt"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(GenotypeError) as error:
        read_genes(path, NAMES)
    assert f"gene list '{path}'{message}" in str(error.value)


def test_lists_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "genes.txt"
    for content, message in (
        (b"\xff", "cannot be read to its end\n.*utf-8"),
        (b"a\x07b\n", "line 1: a control character"),
    ):
        path.write_bytes(content)
        with pytest.raises(GraphError, match=f"'genes.txt'.*{message}"):
            read_genes(path, NAMES)
