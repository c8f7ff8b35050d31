"""The resident data set, and which strains make up each batch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from dglcell.data import strains as strains_module
from dglcell.data.dataset import EpochBatches, strains_of_cell
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GraphError
from dglcell.graph.vocabulary import Vocabulary
from tests.data.strain_tables import changed, names, random_table, table_of

# Batches of strain numbers: every strain once, the same for the same seed, fair between ranks.


def ranks(
    n: int, batch_size: int, world: int, *, shuffle: bool, seed: int = 0, epoch: int = 0
) -> list[list[list[int]]]:
    """Batches of every rank; strain numbers are 100, 101, …"""
    found = []
    for rank in range(world):
        sampler = EpochBatches(
            torch.arange(100, 100 + n), batch_size, shuffle=shuffle, seed=seed, rank=rank, world_size=world
        )
        sampler.set_epoch(epoch)
        batches = [batch.tolist() for batch in sampler]
        assert len(batches) == len(sampler)
        found.append(batches)
    return found


@given(n=st.integers(1, 60), batch_size=st.integers(1, 20), world=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_every_rank_gets_as_many_batches_and_every_strain_is_seen(
    n: int, batch_size: int, world: int, seed: int
) -> None:
    for shuffle in (False, True):
        found = ranks(n, batch_size, world, shuffle=shuffle, seed=seed)
        assert len({len(batches) for batches in found}) == 1
        assert all(len(batch) <= batch_size for batches in found for batch in batches)
        seen = [strain for batches in found for batch in batches for strain in batch]
        assert sorted(strain for strain in seen if strain >= 0) == list(range(100, 100 + n))
        if not shuffle:
            assert len(seen) == n
            continue
        assert {sum(map(len, batches)) for batches in found} == {-(-n // world)}
        # Only in the last batches, and behind all others.
        order = [strain for step in zip(*found, strict=True) for row in itertools.zip_longest(*step) for strain in row]
        order = [strain for strain in order if strain is not None]
        assert order[n:] == [-1 - order[i % n] for i in range(-n % world)]


def test_in_evaluation_the_order_is_kept() -> None:
    assert ranks(5, 2, 1, shuffle=False) == [[[100, 101], [102, 103], [104]]]
    assert ranks(5, 2, 2, shuffle=False) == [[[100, 102], [104]], [[101], [103]]]


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    first = ranks(40, 7, 1, shuffle=True, seed=3, epoch=2)
    assert first == ranks(40, 7, 1, shuffle=True, seed=3, epoch=2)
    assert first != ranks(40, 7, 1, shuffle=True, seed=3, epoch=3)
    assert first != ranks(40, 7, 1, shuffle=True, seed=4, epoch=2)
    torch.manual_seed(99)
    assert first == ranks(40, 7, 1, shuffle=True, seed=3, epoch=2)


def test_a_batch_of_two_ranks_together_is_a_batch_of_one() -> None:
    whole = ranks(40, 10, 1, shuffle=True)[0]
    halves = ranks(40, 5, 2, shuffle=True)
    for i, batch in enumerate(whole):
        assert sorted(batch) == sorted(halves[0][i] + halves[1][i])


# The resident data set: strains of a table on the genes of a cell graph.


def strains_of(dataset: Strains, vocabulary: Vocabulary) -> list[list[str]]:
    """Return names of the deleted genes of every strain, in order."""
    genes, offsets = dataset.targets.tolist(), dataset.offsets.tolist()
    return [[vocabulary.names[g] for g in genes[a:b]] for a, b in itertools.pairwise(offsets)]


def test_genes_are_mapped_by_name_and_keep_their_order() -> None:
    table = random_table(50, 20, columns=True)
    vocabulary = Vocabulary.of([*table.names, "AAA", "ZZZ", "Y00000x"])
    dataset = strains_of_cell(table, vocabulary, ["fitness"])
    assert strains_of(dataset, vocabulary) == table.genotypes
    assert dataset.labels[:, 0].tolist() == table.phenotypes["fitness"].tolist()
    assert dataset.units == {"fitness": "1/h"}
    assert dataset.max_deletions == 4
    assert dataset.rows.tolist() == list(range(50))


def test_strains_with_unknown_genes_are_refused_or_dropped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dglcell")
    table = table_of([["A", "B"], ["B"], ["X", "A"], ["A"], ["Y"]])
    vocabulary = Vocabulary.of(["A", "B"])
    with pytest.raises(GraphError) as error:
        strains_of_cell(table, vocabulary)
    assert "2 unknown (X, Y)" in str(error.value)
    assert "`data.unknown_genes: drop`" in str(error.value)
    dataset = strains_of_cell(table, vocabulary, unknown="drop")
    assert strains_of(dataset, vocabulary) == [["A", "B"], ["B"], ["A"]]
    assert dataset.labels[:, 0].tolist() == [0, 1, 3]
    assert dataset.rows.tolist() == [0, 1, 3]
    assert "2 strains left out: the cell graph lacks 2 genes" in caplog.text


def test_names_that_no_strain_deletes_do_not_matter() -> None:
    table = random_table(30, 10)
    used = {table.names[gene] for gene in table.targets[: table.offsets[5]]}
    part = table.slice(0, 5)
    assert len(used) < 10
    assert len(strains_of_cell(part, Vocabulary.of(used))) == 5


def test_strains_without_any_chosen_label_are_left_out() -> None:
    table = random_table(60, 20, columns=True)
    missing = np.isnan(table.phenotypes["s_score"])
    vocabulary = Vocabulary.of(table.names)
    both = strains_of_cell(table, vocabulary)
    assert list(both.phenotypes) == ["fitness", "s_score"]
    assert len(both) == 60
    assert both.labels[:, 1].isnan().tolist() == missing.tolist()
    one = strains_of_cell(table, vocabulary, ["s_score"])
    assert one.rows.tolist() == np.flatnonzero(~missing).tolist()
    assert not one.labels.isnan().any()


def test_a_wild_type_strain_stays() -> None:
    table = table_of([[], ["A"], []])
    dataset = strains_of_cell(table, Vocabulary.of(["A"]))
    assert dataset.offsets.tolist() == [0, 0, 1, 1]
    batch = dataset.take(torch.tensor([2, 0]), 0)
    assert batch.perturbations.offsets.tolist() == [0, 0, 0]


def test_wrong_phenotypes_are_refused() -> None:
    table = random_table(10, 5, columns=True)
    vocabulary = Vocabulary.of(table.names)
    with pytest.raises(DataError, match=r"no phenotype 'size'\n.*\n  expected: among fitness, s_score"):
        strains_of_cell(table, vocabulary, ["fitness", "size"])
    empty = table_of([["A"]], fitness=[float("nan")])
    with pytest.raises(DataError, match="phenotype 'fitness' has no label at all"):
        strains_of_cell(empty, Vocabulary.of(["A"]))
    with pytest.raises(DataError, match=r"no strain is left\n  got: +1 strains, 1 of them with genes"):
        strains_of_cell(table_of([["A"]]), Vocabulary.of(["B"]), unknown="drop")


def test_labels_of_0_and_1_are_classes() -> None:
    values = {
        "yes_or_no": [0, 1, 1, np.nan],
        "never": [0, 0, 0, 0],
        "rate": [0, 1, 0.5, 1],
        "minus": [0, 1, -1, 1],
        "fitness": [0.2, 1.1, np.nan, 1],
    }
    columns = {name: np.array(labels) for name, labels in values.items()}
    table = changed(table_of([["A"], ["B"], ["A", "B"], ["C"]]), **columns)
    dataset = strains_of_cell(table, Vocabulary.of(["A", "B", "C"]))
    assert dataset.kinds == ("classification", "classification", "regression", "regression", "regression")
    assert dataset.to("cpu").kinds == dataset.kinds


@given(st.data())
def test_pieces_change_nothing(data: st.DataObject) -> None:
    table = random_table(data.draw(st.integers(1, 40)), 9, (0, 5), seed=data.draw(st.integers(0, 50)), columns=True)
    known = Vocabulary.of([*data.draw(st.lists(st.sampled_from(names(9)), min_size=5)), "ZZZ"])
    expected = [
        (row, strain)
        for row, strain in enumerate(table.genotypes)
        if all(gene in known for gene in strain) and not np.isnan(table.phenotypes["s_score"][row])
    ]
    assume(expected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strains_module, "PIECE", data.draw(st.integers(1, 12)))
        dataset = strains_of_cell(table, known, ["s_score"], unknown="drop")
    assert dataset.rows.tolist() == [row for row, _ in expected]
    assert strains_of(dataset, known) == [strain for _, strain in expected]
    assert dataset.labels[:, 0].tolist() == table.phenotypes["s_score"][dataset.rows.numpy()].tolist()
    assert dataset.max_deletions == max(len(strain) for _, strain in expected)
    assert (dataset.targets.dtype, dataset.offsets.dtype) == (torch.int32, torch.int64)
