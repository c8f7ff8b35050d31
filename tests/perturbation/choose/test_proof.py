"""Kernels that are right, wrong or broken, and what becomes of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dglcell
from dglcell.cli import doctor
from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell, ResidentRelation
from dglcell.kernels.spmm import KERNELS, spmm_reference
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.choose import proof
from dglcell.perturbation.choose.autotuned import Rates
from dglcell.perturbation.choose.proof import Proof, Proofs
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.training import autotune
from tests.random_cells import resident_cell

CPU = torch.device("cpu")
RELATION = ("gene", "physical", "gene")


def small_cell() -> ResidentCell:
    """40 genes, 300 edges, one of the genes a hub and some without edges."""
    generator = torch.Generator().manual_seed(0)
    u, v = torch.randint(0, 35, (2, 300), generator=generator)
    v[:60] = 3
    return resident_cell({RELATION: (u, v)}, {"gene": 40})


def without_an_edge(edges: ResidentRelation, x: Tensor, weighted: bool) -> Tensor:
    less = ResidentRelation(edges.relation, edges.src[:-1], edges.dst[:-1], edges.num_src, edges.num_dst)
    return spmm_reference(less, x, weighted)


def wrong_gradient(edges: ResidentRelation, x: Tensor, weighted: bool) -> Tensor:
    return 1.001 * spmm_reference(edges, x, weighted) - 0.001 * spmm_reference(edges, x.detach(), weighted)


def no_number(edges: ResidentRelation, x: Tensor, weighted: bool) -> Tensor:
    return spmm_reference(edges, x, weighted) * torch.nan


def failing(edges: ResidentRelation, x: Tensor, weighted: bool) -> Tensor:
    raise RuntimeError("CUDA error: an illegal memory access was encountered\nlong advice")


def too_large(edges: ResidentRelation, x: Tensor, weighted: bool) -> Tensor:
    raise ConfigError("too large")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a cache of the test's own."""
    monkeypatch.setenv("DGLCELL_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("shape", [(1, 5), (3, 50), (70, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kernel", ["reference", "csr", "dense", "tiled"])
def test_a_right_kernel_is_proven(kernel: str, dtype: torch.dtype, shape: tuple[int, int]) -> None:
    assert Proofs(CPU).holds(kernel, small_cell()[RELATION], shape, dtype, CPU)
    seen = Proofs(CPU).known[kernel]
    assert seen.ok
    assert seen.seen.endswith(f"gene/physical/gene, {shape[0]} x {shape[1]} columns in {str(dtype)[6:]}")


@pytest.mark.parametrize(
    ("kernel", "dtype", "text"),
    [
        (without_an_edge, torch.float32, "differs from the reference by"),
        (without_an_edge, torch.bfloat16, "differs from the reference by"),
        (wrong_gradient, torch.float32, "differs from the reference by 1.0e-03 on gene/physical/gene, 2 x 4 columns"),
        (no_number, torch.float32, "differs from the reference by nan"),
        (failing, torch.float32, "failed on gene/physical/gene, 2 x 4 columns in float32: RuntimeError: CUDA error"),
    ],
)
def test_a_wrong_or_failing_kernel_is_dropped_with_a_warning_and_not_tried_again(
    kernel: object, dtype: torch.dtype, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    edges = small_cell()[RELATION]
    monkeypatch.setitem(KERNELS, "csr", kernel)  # type: ignore[arg-type]
    assert not Proofs(CPU).holds("csr", edges, (2, 4), dtype, CPU)
    assert f"kernel 'csr' is not used on this machine: it {text}" in caplog.text
    assert "long advice" not in caplog.text
    caplog.clear()
    monkeypatch.setitem(KERNELS, "csr", lambda *arguments: pytest.fail("tried again"))
    assert not Proofs(CPU).holds("csr", edges, (2, 4), torch.float64, CPU)
    assert caplog.text == ""


def test_a_kernel_that_is_too_large_for_a_relation_is_left_out_there_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "dense", too_large)
    proofs = Proofs(CPU)
    assert not proofs.holds("dense", small_cell()[RELATION], (2, 4), torch.float32, CPU)
    assert proofs.known == {}


def test_proofs_are_of_a_machine_and_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    Proofs(CPU).add("csr", Proof(False, "was wrong"))
    assert Proofs("cpu").known == {"csr": Proof(False, "was wrong")}
    monkeypatch.setattr(dglcell, "__version__", "another")
    assert Proofs(CPU).known == {}


@pytest.mark.parametrize("content", ["{", "[]", '{"kernels": {"csr": 1}}'])
def test_a_damaged_memory_is_made_anew(content: str, caplog: pytest.LogCaptureFixture) -> None:
    Proofs(CPU).add("csr", Proof(True, "was right"))
    Proofs(CPU).path.write_text(content)
    assert Proofs(CPU).known == {}
    assert "kernels prove themselves anew" in caplog.text


def test_auto_times_only_what_is_proven_and_the_doctor_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (autotune, doctor):
        monkeypatch.setattr(module, "MUST_PROVE", ("cpu",))
    monkeypatch.setattr(autotune, "SMALL_STEP", 0)
    monkeypatch.setattr(autotune, "SECONDS", float("inf"))
    monkeypatch.setattr(autotune, "WORTH_TIMING", float("inf"))
    monkeypatch.setattr(autotune, "measure_rates", lambda *_: Rates(1e10, 1e11))  # measured in `test_cost.py`
    monkeypatch.setitem(KERNELS, "tiled", without_an_edge)
    monkeypatch.setitem(KERNELS, "dense", failing)
    monkeypatch.setitem(KERNELS, "dgl", too_large)
    model = HeteroCell(small_cell(), HeteroCellConfig(hidden=8, layers=2, metabolism=False, compile="false"))
    with caplog.at_level(logging.WARNING, logger="dglcell"):
        found = autotune.autotuned_for(model, GenotypeBatch.from_lists([[0, 5], [7]]), torch.bfloat16)
    for seconds in found.reasons["product_seconds"].values():
        assert set(seconds) == {"reference", "csr"}
    assert caplog.text.count("is not used on this machine") == 2
    findings = {finding.what: finding for finding in doctor.examine()}
    assert findings["kernel csr for auto"].ok
    assert findings["kernel csr for auto"].state.startswith("proven: equals the reference to ")
    assert findings["kernel tiled for auto"].ok is False
    assert findings["kernel tiled for auto"].state.startswith("dropped: differs from the reference by ")
    assert findings["kernel dense for auto"].state.startswith("dropped: failed on gene/physical/gene, 1 x 8 columns")
    assert (findings["kernel dgl for auto"].state, findings["kernel dgl for auto"].ok) == (
        "not tried on this machine",
        None,
    )
    assert json.loads(Proofs(CPU).path.read_text())["machine"] == proof.this_machine("cpu")


def test_calibrations_in_other_types_are_kept_apart() -> None:
    model = HeteroCell(small_cell(), HeteroCellConfig(hidden=8, layers=1, metabolism=False))
    batch = GenotypeBatch.from_lists([[0]])
    assert autotune.describe(model, batch) != autotune.describe(model, batch, torch.bfloat16)
