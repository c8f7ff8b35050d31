"""The whole report on a tiny cell graph and a CPU; and an error where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.gpu_report import METHODS, as_markdown, main
from dglcell.kernels.spmm import KERNELS, runs_on


@pytest.fixture
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.slow
def test_every_part_is_measured_on_a_cpu_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    assert main([str(tmp_path), "--device", "cpu", "--small"]) == 0
    assert f"written to {tmp_path / 'report.json'}" in capsys.readouterr().out
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["tests"]["passed"] > 0
    assert content["tests"]["status"] == 0
    assert content["ceilings"]["bfloat16"]["gemm_flops_per_second"] > 0
    assert content["ceilings"]["gathered_bytes_per_second"] > 0
    assert set(content["padded_products"]) == {"66", "128"}
    kernels = [kernel for kernel in KERNELS if runs_on(kernel, "cpu")]
    assert len(content["products"]) == 2 * 9 * len(kernels)
    for row in content["products"]:
        assert row["relative_error"] < (1e-5 if row["dtype"] == "float32" else 0.02), row
    assert len(content["steps"]) == 2 * len(METHODS)
    assert {row["status"] for row in content["steps"] if row["method"].startswith("node_mask")} == {"ok"}
    text = (tmp_path / "report.md").read_text()
    assert text == as_markdown(content)
    assert text.count("\n| ") == len(content["products"]) + len(content["steps"]) + 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_machine_without_a_gpu_says_so_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "report")]) == 2
    assert "device 'cuda' asked for, but torch sees no GPU" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
