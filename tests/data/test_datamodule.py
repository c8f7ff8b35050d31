"""Loaders of strain numbers, and the batches gathered from them."""

from __future__ import annotations

import torch

from dglcell.data.datamodule import StrainDataModule, genes_in_batch
from dglcell.data.dataset import strains_of_cell
from dglcell.graph.vocabulary import Vocabulary
from tests.data.strain_tables import random_table


def make_module() -> StrainDataModule:
    """Fifty strains in three parts."""
    table = random_table(50, 12, deletions=(0, 4))
    dataset = strains_of_cell(table, Vocabulary.of(table.names))
    parts = {"train": torch.arange(0, 30), "validation": torch.arange(30, 37), "test": torch.arange(37, 50)}
    return StrainDataModule(dataset, parts, batch_size=8, eval_batch_size=5, seed=1)


def test_parts_do_not_mix_and_batches_have_their_sizes() -> None:
    module = make_module()
    for loader, expected, size in (
        (module.train_dataloader(), range(0, 30), 8),
        (module.val_dataloader(), range(30, 37), 5),
    ):
        batches = [batch.strains for batch in loader]
        assert sorted(torch.cat(batches).tolist()) == list(expected)
        assert max(map(len, batches)) <= size
        assert len(batches) == len(loader)
    assert torch.cat([b.strains for b in module.train_dataloader()]).tolist() != list(range(30))
    assert torch.cat([b.strains for b in module.val_dataloader()]).tolist() == list(range(30, 37))


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


def test_batches_on_a_gpu_have_one_shape() -> None:
    module = make_module()
    assert genes_in_batch(8, 11, 3, torch.device("cpu")) == 11
    assert genes_in_batch(8, 11, 3, torch.device("meta")) == 24
    assert len({len(numbers.strains) for numbers in module.train_dataloader()}) <= 2


def test_batches_are_gathered_with_the_right_number_of_genes() -> None:
    module = make_module()
    counts = module.dataset.offsets.diff()
    for numbers in module.train_dataloader():
        batch = module.transfer_batch_to_device(numbers, torch.device("cpu"), 0)
        assert numbers.num_genes == len(batch.perturbations.genes) == int(counts[numbers.strains].sum())
        assert batch.rows.tolist() == numbers.strains.tolist()
        torch.testing.assert_close(batch.labels, module.dataset.labels[numbers.strains])
