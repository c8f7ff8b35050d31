"""The benchmark on a tiny experiment: it checks before it times, and says what it timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dglcell.cli import main
from dglcell.errors import ConfigError
from dglcell.perturbation.perturb import STRATEGIES
from dglcell.profiling import bench as module
from dglcell.profiling.bench import BenchRow, bench, format_bench, make_model
from dglcell.training.prepare import Prepared, prepare
from tests.tiny import Tiny


@pytest.fixture(scope="module")
def prepared(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The tiny experiment's cell graph and strains."""
    return prepare(tiny.config(tmp_path_factory.mktemp("bench")), command="tests")


def test_every_strategy_is_timed_against_the_oracle(tiny: Tiny, tmp_path: Path, capsys) -> None:
    target = tmp_path / "bench.json"
    options = ["--batch", "3", "--steps", "1", "--output", str(target)]
    assert main(["bench", str(tiny.file), f"data.store={tiny.store}", *options]) == 0
    assert capsys.readouterr().out.count("x ") == len(STRATEGIES)
    content = json.loads(target.read_text())
    rows = {row["strategy"]: row for row in content["rows"]}
    assert set(rows) == set(STRATEGIES)
    assert rows["edge_subgraph"]["ratio"] == 1.0
    for row in rows.values():
        assert row["ratio"] == pytest.approx(rows["edge_subgraph"]["seconds_per_step"] / row["seconds_per_step"])
        assert (row["batch"], row["hidden"], row["dtype"]) == (3, 8, "float32")
    assert content["environment"]["packages"]["torch"] == torch.__version__


def test_strategies_that_disagree_are_a_bug(tiny: Tiny, prepared: Prepared, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="strategies disagree"):
        bench(tiny.config(tmp_path), prepared, batch=2, steps=1)


def test_a_batch_larger_than_the_training_part_is_refused(tiny: Tiny, prepared: Prepared, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"smaller than the batch\n  got:      240\n  expected: 241 or more"):
        bench(tiny.config(tmp_path), prepared, batch=241, steps=1)


def test_models_differ_in_their_strategy_alone(tiny: Tiny, prepared: Prepared, tmp_path: Path) -> None:
    config = tiny.config(tmp_path, "model.dropout=0.3")
    one, other = (make_model(config, prepared, strategy) for strategy in ("difference", "node_mask"))
    assert (one.config.strategy, other.config.strategy) == ("difference", "node_mask")
    assert one.config.dropout == 0.0
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_table_is_ordered_by_speed() -> None:
    common = {"kernel": "auto", "device": "cpu", "dtype": "float32", "conv": "gin", "hidden": 8, "layers": 1}
    common |= {"batch": 4, "edges": 9, "peak_memory_bytes": 10**9}
    rows = [
        BenchRow(name, seconds_per_step=s, samples_per_second=4 / s, **common)
        for name, s in (("slow", 2.0), ("fast", 0.5))
    ]
    lines = format_bench(rows).splitlines()
    assert [line.split()[0] for line in lines] == ["strategy", "fast", "slow"]
    assert lines[1].split() == ["fast", "500.0", "8", "1.0x", "1,000"]
