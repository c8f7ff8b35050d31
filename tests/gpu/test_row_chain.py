"""Layers and pairs of relations by kernels on a GPU; tests/kernels runs them by Triton's interpreter without one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from dglcell.kernels import row_chain
from dglcell.models.cell_model import HeteroCell
from dglcell.perturbation.execution import Choices
from dglcell.perturbation.genotype import GenotypeBatch
from tests.gpu.devices import needs_gpu
from tests.kernels.pairs import CASES, mixtures
from tests.models.test_hetero_cell import small_config
from tests.random_cells import STRAINS, make_cell, randomise, results

pytestmark = needs_gpu

PAIRS = {"hidden": 32, "gin_layers": 4, "cross_relation": "pairwise_interaction"}
OPTIONS = ({"gin_layers": 2}, {"gin_layers": 3, "activation": "relu"}, PAIRS)


def results_of(model: HeteroCell, half: bool, one_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    monkeypatch.setattr(row_chain, "DEVICES", ("cuda",) if one_kernel else ())
    model = copy.deepcopy(model).cuda()
    assert model.encoder.chained(torch.bfloat16 if half else torch.float32, torch.device("cuda")) == one_kernel
    model.choose(Choices("node_mask", half=half))
    return [x.double().cpu() for x in results(model, GenotypeBatch.from_lists(STRAINS).to("cuda"))]


@pytest.mark.parametrize(("half", "most"), [(False, 1e-4), (True, 0.05)], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("options", OPTIONS, ids=["gelu", "relu", "pairs"])
@pytest.mark.parametrize("norm", ["layer", "none"])
def test_rows_of_one_kernel_equal_float64(
    half: bool, most: float, options: dict[str, Any], norm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    options = {"hidden": 16, "cross_relation_norm": norm, **options}
    config = small_config(norm=norm, strategy="node_mask", conv="gin", dropout=0.0, **options)
    model = randomise(HeteroCell(make_cell().resident, config, outputs=2))
    right = [x.double() for x in results(copy.deepcopy(model).double(), GenotypeBatch.from_lists(STRAINS))]
    found, again = (results_of(model, half, True, monkeypatch) for _ in range(2))
    plain = results_of(model, half, False, monkeypatch)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True)), "the same bits every time"

    error, of_plain = (_apart(got, right) for got in (found, plain))
    assert error < most
    rounding = 2**-7 if half else 1e-5  # without a norm the base's gradients dwarf those of the differences
    assert error < 5 * of_plain + rounding, "about as exact as operations one by one"


def _apart(found: list[Tensor], right: list[Tensor]) -> float:
    difference = torch.cat([(x - y).flatten() for x, y in zip(found, right, strict=True)])
    return float(difference.norm() / torch.cat([x.flatten() for x in right]).norm())


@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 1e-4), (torch.bfloat16, 0.01)], ids=["float32", "bfloat16"]
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_mixtures_of_pairs_are_about_as_exact_as_operations_one_by_one(
    case: tuple[int, int, str, float], dtype: torch.dtype, most: float
) -> None:
    found, right, plain = mixtures(*case, dtype, "cuda")
    again, *_ = mixtures(*case, dtype, "cuda")
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True)), "the same bits every time"
    for one, other, of in zip(found, plain, right, strict=True):
        error, of_plain = (float((x - of).norm() / of.norm().clamp(min=1e-9)) for x in (one, other))
        assert error < 3 * of_plain + most
