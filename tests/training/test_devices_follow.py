"""Everything a rank computes with follows its model to its device.

Where a tensor stays behind, a rank indexes tensors of its own device with those of another. torch's `meta` device
stands in for a second one: it exists everywhere, and does not mix with the host's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dglcell.data.datamodule import StrainNumbers
from dglcell.runs.directory import RunDirectory
from dglcell.training.fit import make_data, make_task
from dglcell.training.prepare import prepare
from tests.tiny import Tiny

MODELS = {
    "node_mask": ["model.strategy=node_mask"],
    "difference": ["model.strategy=difference"],
    "edge_mask": ["model.strategy=edge_mask"],
    "attention": ["model.conv=gatv2", "model.strategy=edge_mask"],
    "set operator": ["model={name: set_operator}"],
    "compared strains": ["loss={name: mle_wass_supcr, buffer_size: 50}"],
}


def tensors(thing: object, where: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors that can be reached from an object, registered or not, with how."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    parts: dict[str, object] = {}
    if isinstance(thing, Tensor):
        yield where, thing
    elif isinstance(thing, dict):
        parts = {f"{where}[{key!r}]": value for key, value in thing.items()}
    elif isinstance(thing, list | tuple | set):
        parts = {f"{where}[{i}]": value for i, value in enumerate(thing)}
    elif isinstance(thing, nn.Module) or (dataclasses.is_dataclass(thing) and not isinstance(thing, type)):
        parts = {f"{where}.{name}": value for name, value in vars(thing).items()}
    for name, part in parts.items():
        yield from tensors(part, name, seen)


def left_behind(thing: object) -> list[str]:
    """Return names of the tensors that are not on the `meta` device."""
    return [name for name, tensor in tensors(thing, "", set()) if tensor.device.type != "meta"]


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_no_tensor_of_a_task_stays_behind(tiny: Tiny, tmp_path: Path, options: list[str]) -> None:
    config = tiny.config(tmp_path, *options)
    task = make_task(config, prepare(config, command="tests"), RunDirectory(tmp_path))
    assert len(left_behind(task)) > 20
    assert left_behind(task.to("meta")) == []


def test_a_tensor_that_is_not_registered_is_found(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path)
    task = make_task(config, prepare(config, command="tests"), RunDirectory(tmp_path))
    task.model.incidence = {"gene": torch.zeros(2)}
    assert left_behind(task.to("meta")) == ["._modules['model'].incidence['gene']"]


def test_batches_are_gathered_on_the_device_of_their_rank(tiny: Tiny, tmp_path: Path) -> None:
    config = tiny.config(tmp_path)
    data = make_data(config, prepare(config, command="tests"))
    batch = data.transfer_batch_to_device(StrainNumbers(torch.tensor([3, 1]), 3), torch.device("meta"), 0)
    assert batch.labels.shape == (2, 1)
    assert left_behind(batch) == []
    assert {tensor.device.type for _, tensor in tensors(data.dataset, "", set())} == {"cpu"}
