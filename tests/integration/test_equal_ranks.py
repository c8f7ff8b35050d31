"""As many processes as there are learn what one does from the same global batches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dglcell.runs.directory import RunDirectory
from dglcell.training.checkpoint import read_checkpoint
from tests.tiny import BARE, Tiny, dglcell, history, process_environment

# 241 training strains in global batches of 60: the last one of an epoch is a single strain, which one rank gets, and is
# accumulated alone. Two to five ranks do not divide them evenly.
GLOBAL_BATCH = 60
OPTIONS = (
    "split.subset.size=301",
    "trainer.epochs=3",
    "trainer.accumulate_grad_batches={0: 2}",
    "trainer.strategy=ddp",
)
OPTIONS += ("data.eval_batch_size=7", "scheduler={name: cosine_restarts, interval: step, first_cycle: 4}")
SGD = "optimizer={name: SGD, lr: 0.001, options: {momentum: 0.9}}"
ADAM = "optimizer={name: Adam, lr: 0.001}"
# Ranks add up gradients in another order. Adam divides by them, and some are nothing but rounding errors (a bias before
# a softmax): where gradients differ by d, its steps differ by up to lr · d / eps = 1e5 d. In double precision, with d
# about 1e-15 and nine steps, that is 1e-9; in single precision eps (1e-8) is no larger than d, and nothing is left of
# the sign of such gradients.
CASES = [
    pytest.param("64-true", SGD, (1, 2, 3, 4, 5), 1e-12, id="double, SGD"),
    pytest.param("32-true", SGD, (1, 2, 4), 1e-6, id="single, SGD"),
    pytest.param("64-true", ADAM, (1, 3), 1e-8, id="double, Adam"),
]


def trained(tiny: Tiny, runs: Path, ranks: int, *options: str) -> RunDirectory:
    """A run of so many processes."""
    each = [f"trainer.devices={ranks}", f"data.batch_size={GLOBAL_BATCH // ranks}"]
    arguments = tiny.overrides(runs, *BARE, *OPTIONS, *options, *each)
    done = dglcell("train", tiny.file, *arguments, cwd=runs.parent)
    assert done.returncode == 0, done.stderr
    return RunDirectory(runs / "tiny" / "seed-0")


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "optimizer", "sizes", "tolerance"), CASES)
def test_several_processes_are_one(
    tiny: Tiny, tmp_path: Path, precision: str, optimizer: str, sizes: tuple[int, ...], tolerance: float
) -> None:
    options, rounds = (f"trainer.precision={precision}", optimizer), precision == "32-true"
    runs = {ranks: trained(tiny, tmp_path / str(ranks), ranks, *options) for ranks in sizes}
    one, whole = history(runs[1]), read_checkpoint(runs[1].last)
    assert [row["step"] for row in one] == [3, 6, 9]
    for ranks in sizes[1:]:
        state = read_checkpoint(runs[ranks].last)
        for name, weight in whole["state_dict"].items():
            torch.testing.assert_close(state["state_dict"][name], weight, rtol=tolerance, atol=tolerance, msg=name)
        for row, expected in zip(history(runs[ranks]), one, strict=True):
            for name, value in expected.items():
                # Metrics are of predictions in single precision. So is the loss in such runs: weights that differ by
                # 3e-7 after nine steps give one that differs by 3e-6.
                near = 1e-5 if "loss" not in name else 5e-6 if rounds else tolerance
                assert row[name] == pytest.approx(value, rel=near, abs=near), name
                if name.endswith("/n"):
                    assert row[name] == value == {"train": 241, "validation": 30}[name.split("/")[0]]


COUNTING = """\
import json, os, sys
import torch.distributed as dist
from dglcell.cli import main

counts = {}

def counted(name):
    function = getattr(dist, name)
    def inside(*arguments, **options):
        group = options.get("group")
        key = f"{name} {dist.get_backend(group)} {group is None}"
        counts[key] = counts.get(key, 0) + 1
        return function(*arguments, **options)
    setattr(dist, name, inside)

for name in ("broadcast", "all_reduce", "all_gather", "barrier", "broadcast_object_list"):
    counted(name)
code = main(sys.argv[1:])
with open(f"counts-{os.environ.get('LOCAL_RANK', '0')}.json", "w") as file:
    json.dump(counts, file)
sys.exit(code)
"""


@pytest.mark.slow
def test_ranks_exchange_nothing_on_their_devices_in_a_step_but_gradients_and_the_loss(
    tiny: Tiny, tmp_path: Path
) -> None:
    script = tmp_path / "count.py"
    script.write_text(COUNTING)
    counts = {}
    for batch_size in (60, 10):
        options = [*BARE, "trainer={devices: 2, strategy: ddp, accelerator: cpu, epochs: 1, threads: 1}"]
        folder = tmp_path / str(batch_size)
        folder.mkdir()
        arguments = tiny.overrides(folder, *options, f"data.batch_size={batch_size}")
        done = run_script(script, "train", str(tiny.file), *arguments, cwd=folder)
        assert done.returncode == 0, done.stderr
        counts[batch_size] = [json.loads((folder / f"counts-{rank}.json").read_text()) for rank in (0, 1)]
    # 2 and 12 steps: what grows with them is the hosts' word on signals, and the number of labels that a loss is of.
    few, many = (sum_of(counts[batch_size]) for batch_size in (60, 10))
    grown = {name: many[name] - few.get(name, 0) for name in many if many[name] != few.get(name, 0)}
    assert grown.pop("all_reduce gloo False") == 2 * 10
    assert set(grown) <= {"all_reduce gloo True"}


def sum_of(counts: list[dict[str, int]]) -> dict[str, int]:
    """Counts of both processes together."""
    return {name: sum(one.get(name, 0) for one in counts) for name in set().union(*counts)}


def run_script(script: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in place of the command line."""
    return subprocess.run(
        [sys.executable, str(script), *arguments], cwd=cwd, env=process_environment(), capture_output=True, text=True
    )
