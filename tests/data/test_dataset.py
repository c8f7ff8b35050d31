"""The resident data set, and which strains make up each batch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dglcell.data.config import NORMALISATIONS
from dglcell.data.datamodule import StrainDataModule
from dglcell.data.dataset import EpochBatches, Normaliser, check_range, strains_of_cell
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GraphError
from dglcell.graph.vocabulary import Vocabulary
from tests.data.strain_tables import changed, random_table, table_of

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
def test_each_rank_gets_as_many_batches_and_each_strain_is_seen(n: int, batch_size: int, world: int, seed: int) -> None:
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


def test_genes_are_mapped_by_name_and_keep_their_order() -> None:
    table = random_table(50, 20, columns=True)
    vocabulary = Vocabulary.of([*table.names, "AAA", "ZZZ", "Y00000x"])
    dataset = strains_of_cell(table, vocabulary, ["fitness"])
    assert dataset.numpy().genotypes == table.genotypes
    assert dataset.labels[:, 0].tolist() == table.phenotypes["fitness"].tolist()
    assert dataset.units == {"fitness": "1/h"}
    assert dataset.max_deletions == 4
    assert dataset.rows.tolist() == list(range(50))


def test_strains_with_unknown_genes_are_refused_or_dropped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dglcell")
    table = table_of([["a", "B"], ["B"], ["X", "a"], ["a"], ["Y"]])  # case does not count
    vocabulary = Vocabulary.of(["A", "B"])
    with pytest.raises(GraphError) as error:
        strains_of_cell(table, vocabulary)
    assert "2 unknown (X, Y)" in str(error.value)
    assert "`data.unknown_genes: drop`" in str(error.value)
    dataset = strains_of_cell(table, vocabulary, unknown="drop")
    assert dataset.numpy().genotypes == [["A", "B"], ["B"], ["A"]]
    assert dataset.labels[:, 0].tolist() == [0, 1, 3]
    assert dataset.rows.tolist() == [0, 1, 3]
    assert "2 strains left out: the cell graph lacks 2 genes" in caplog.text
    with pytest.raises(DataError, match=r"gene 'A' is written in several ways\n.* A, a\n"):
        strains_of_cell(table_of([["A", "B"], ["a"]]), vocabulary)


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


@pytest.mark.parametrize(
    ("table", "phenotypes", "genes", "message"),
    [
        (random_table(10, 5), ["fitness", "size"], None, r"no phenotype 'size'\n.*\n  expected: among fitness"),
        (table_of([["A"]], fitness=[float("nan")]), None, None, "phenotype 'fitness' has no label at all"),
        (table_of([["A"]]), None, ["B"], r"no strain is left\n  got: +1 strains, 1 of them with genes"),
    ],
)
def test_strains_that_teach_nothing_are_refused(
    table: Strains, phenotypes: list[str] | None, genes: list[str] | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        strains_of_cell(table, Vocabulary.of(genes or table.names), phenotypes, unknown="drop")


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


NAN = float("nan")
TINY, HUGE = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max

columns = st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=50, unique=True)


@given(values=columns, kind=st.sampled_from(["standard", "none"]))
def test_labels_are_shifted_and_scaled_and_come_back(values: list[float], kind: str) -> None:
    labels = torch.tensor([*values, torch.nan]).unsqueeze(1)
    standard = kind == "standard"
    shift, scale = (np.mean(values), np.std(values)) if standard else (0.0, 1.0)
    if not TINY <= scale <= HUGE:
        with pytest.raises(DataError, match=r"does not fit into single precision\n"):
            Normaliser.fit(labels, ("a",), kind)
        return
    normaliser = Normaliser.fit(labels, ("a",), kind)
    assert float(normaliser.shift) == pytest.approx(shift, rel=1e-5, abs=1e-5)
    assert float(normaliser.scale) == pytest.approx(scale, rel=1e-5, abs=1e-30)
    normalised = normaliser.normalise(labels)
    assert normalised[:-1].isfinite().all()
    torch.testing.assert_close(normaliser.restore(normalised), labels, equal_nan=True, rtol=1e-4, atol=1e-3)


def test_under_logistic_labels_stay_and_predictions_are_logits() -> None:
    labels = torch.tensor([[0.0], [1.0], [0.25], [torch.nan]])
    normaliser = Normaliser.fit(labels, ("a",), "logistic")
    torch.testing.assert_close(normaliser.normalise(labels), labels, equal_nan=True)
    logits = torch.tensor([[-100.0], [0.0], [float(np.log(3))]])
    torch.testing.assert_close(normaliser.restore(logits), torch.tensor([[0.0], [0.5], [0.75]]))
    torch.testing.assert_close(normaliser.expect(logits), normaliser.restore(logits))
    standard = Normaliser.fit(labels, ("a",))
    assert standard.expect(logits) is logits


def test_every_phenotype_has_its_own_statistics() -> None:
    labels = torch.tensor([[0.0, 10.0], [2.0, torch.nan], [4.0, 30.0]])
    normaliser = Normaliser.fit(labels, ("a", "b"))
    assert normaliser.shift.tolist() == [2.0, 20.0]
    assert normaliser.scale.tolist() == pytest.approx([(8 / 3) ** 0.5, 10.0])
    assert normaliser.normalise(labels)[:, 1].isnan().tolist() == [False, True, False]
    assert set(normaliser.state_dict()) == {"shift", "scale"}


SPREAD = r"phenotype 'a': the spread of its training labels does not fit into single precision\n  got: .*, labels .*\n"


@pytest.mark.parametrize(
    ("labels", "kinds", "message"),
    [
        # The mean of seven times 0.1 is not exactly 0.1, so that their deviation is not exactly zero.
        ([0.1] * 7, NORMALISATIONS, r"'a' is constant in the training part\n  got: +0.1 in 7 strains"),
        ([5.0, NAN], NORMALISATIONS, r"'a' is constant in the training part\n  got: +5 in 1 strain\n.*add strains"),
        ([NAN] * 4, NORMALISATIONS, "phenotype 'a' has no label in the training part"),
        ([0.0, 1.4e-45], ["standard"], SPREAD + r"  expected: 1.175e-38 … 3.403e\+38\n  do: .*another unit"),
        ([1e-40, 2e-40, 5e-40], ["standard"], SPREAD),
        ([0.5, NAN, 1.5], ["logistic"], r"labels of phenotype 'a' are no probabilities\n  got: +1.5\n.*0 … 1"),
        ([0.5, -0.5], ["logistic"], r"labels of phenotype 'a' are no probabilities\n  got: +-0.5\n"),
    ],
)
def test_labels_that_cannot_be_normalised_are_refused(labels: list[float], kinds: Sequence[str], message: str) -> None:
    column = torch.tensor(labels).unsqueeze(1)
    for kind in kinds:
        with pytest.raises(DataError, match=message):
            Normaliser.fit(column, ("a",), kind)
            check_range(column, ("a",), kind)


def make_module() -> StrainDataModule:
    """Fifty strains in three parts."""
    table = random_table(50, 12, deletions=(0, 4))
    dataset = strains_of_cell(table, Vocabulary.of(table.names))
    parts = {"train": torch.arange(0, 30), "validation": torch.arange(30, 37), "test": torch.arange(37, 50)}
    return StrainDataModule(dataset, parts, batch_size=8, eval_batch_size=5, seed=1)


def test_fillers_are_strains_without_labels() -> None:
    module = make_module()
    loader = module.train_dataloader()
    numbers = loader.dataset[torch.tensor([7, -1 - 3, -1 - 7])]
    assert numbers.strains.tolist() == [7, 3, 7]
    assert numbers.fillers == 2
    batch = module.transfer_batch_to_device(numbers, torch.device("cpu"), 0)
    assert batch.perturbations.num_strains == 3
    assert numbers.num_genes == len(batch.perturbations.genes)
    torch.testing.assert_close(batch.labels[:1], module.dataset.labels[[7]])
    assert batch.labels[1:].isnan().all()
    assert not module.dataset.labels[[3, 7]].isnan().any()


def test_batches_are_gathered_with_the_right_number_of_genes() -> None:
    module = make_module()
    counts = module.dataset.offsets.diff()
    for numbers in module.train_dataloader():
        batch = module.transfer_batch_to_device(numbers, torch.device("cpu"), 0)
        assert numbers.num_genes == len(batch.perturbations.genes) == int(counts[numbers.strains].sum())
        assert batch.rows.tolist() == numbers.strains.tolist()
        torch.testing.assert_close(batch.labels, module.dataset.labels[numbers.strains])
    elsewhere = module.transfer_batch_to_device(numbers, torch.device("meta"), 0)
    assert len(elsewhere.targets) == len(numbers.strains) * module.dataset.max_deletions, "whatever the strains"
