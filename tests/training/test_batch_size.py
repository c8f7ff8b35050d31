"""`data.batch_size: auto`: what is chosen, and that nothing of the search is left in the run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import yaml

from dglcell.cli import main
from dglcell.errors import ConfigError
from dglcell.runs.directory import RunDirectory
from dglcell.training import batch_size
from dglcell.training.batch_size import at_least, candidates, choose, search
from dglcell.training.batch_trials import Trial
from dglcell.training.checkpoint import read_checkpoint
from tests.tiny import BARE, Tiny, history

SIZES = [16, 32, 64, 128, 256, 512, 1024]
GIB = 2**30


class Machine:
    """A pretended machine: steps of ``fixed + slope · B`` seconds that take ``share · B`` bytes.

    Args:
        memory: bytes, beyond which measuring fails.
    """

    def __init__(self, fixed: float, slope: float, share: int = 1, memory: float = 1e18) -> None:
        self.fixed, self.slope, self.share, self.memory = fixed, slope, share, memory
        self.now, self.tried = 100.0, list[int]()

    def measure(self, size: int) -> Trial | None:
        self.tried.append(size)
        seconds = self.fixed + self.slope * size
        self.now += 3 * seconds
        return None if size * self.share > self.memory else Trial(size, seconds, size * self.share)

    def find(self, room: int | None = 1 << 60, sizes: list[int] = SIZES) -> int:
        chosen = choose(search(sizes, self.measure, room, lambda: self.now), room)
        return at_least(sizes[0], chosen, room)


def test_growing_ends_where_it_is_no_longer_worthwhile() -> None:
    machine = Machine(fixed=0.1, slope=0.01)  # 61, 76, 86, 93, 96 strains/s at 16, 32, 64, 128, 256
    assert machine.find() == 128
    assert machine.tried == [2, 4, 8, 16, 32, 64, 128, 256]


def test_where_the_batch_does_not_matter_the_smallest_is_taken() -> None:
    machine = Machine(fixed=0.0, slope=0.001)
    assert machine.find() == 16
    assert machine.tried == [2, 4, 8, 16, 32]


def test_where_it_always_pays_the_largest_is_taken() -> None:
    assert Machine(fixed=0.1, slope=0.0).find() == 1024


def test_a_slower_size_is_not_taken() -> None:
    trials = [Trial(16, 0.16, 1), Trial(32, 0.16, 1), Trial(64, 1.0, 1)]
    assert choose(trials, None).batch_size == 32


def test_the_next_size_is_not_tried_where_it_would_take_too_much_memory() -> None:
    machine = Machine(fixed=0.1, slope=0.0, share=GIB)
    assert machine.find(room=200 * GIB) == 64  # 128 would take more than 60 % of 200
    assert machine.tried == [2, 4, 8, 16, 32, 64]


def test_memory_that_runs_out_all_the_same_ends_the_search() -> None:
    machine = Machine(fixed=0.1, slope=0.0, memory=100)
    assert machine.find() == 64
    assert machine.tried == [2, 4, 8, 16, 32, 64, 128]


def test_a_size_that_took_more_than_its_share_is_not_taken() -> None:
    trials = [Trial(16, 0.1, 10), Trial(32, 0.1, 70)]
    assert choose(trials, 100).batch_size == 16
    assert choose([Trial(16, 0.1, 70)], 100).batch_size == 16  # the only one there is


def test_memory_that_cannot_be_measured_limits_nothing() -> None:
    assert search(SIZES, lambda size: Trial(size, 1.0, None), 1, lambda: 0.0)[-1].batch_size == 1024
    assert Machine(fixed=0.1, slope=0.0, share=GIB).find(room=None) == 1024


def test_where_not_even_the_smallest_would_fit_a_smaller_one_is_taken() -> None:
    """A step that takes more memory than there is may end the process before anybody can say so."""
    machine = Machine(fixed=0.1, slope=0.0, share=GIB)
    assert machine.find(room=15 * GIB) == 8  # 16 would take more than 60 % of 15
    assert machine.tried == [2, 4, 8]


def test_the_search_ends_before_it_would_last_too_long() -> None:
    machine = Machine(fixed=10.0, slope=0.0)  # half a minute for each
    assert machine.find() == 16
    assert machine.tried == [2]


def test_memory_that_runs_out_at_once_is_said() -> None:
    with pytest.raises(ConfigError, match=r"auto`: memory ran out with the smallest batch\n  do:       give a smaller"):
        Machine(fixed=0.1, slope=0.0, memory=1).find()


@pytest.mark.parametrize(
    ("strains", "expected"),
    [(1, [1]), (20, [4]), (63, [8]), (64, [16]), (300, [16, 32, 64]), (10**6, SIZES)],
)
def test_an_epoch_keeps_at_least_four_steps(strains: int, expected: list[int]) -> None:
    assert candidates(strains) == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.batch_size=many"], "`data.batch_size` is no number\n  got:      many\n  expected: 1 or more, or auto"),
        (["data.batch_size=true"], "`data.batch_size` has a wrong value"),
        (["data.batch_size=1.5"], "`data.batch_size` has a wrong value"),
        (
            ["data.batch_size=auto", "trainer.devices=2"],
            "`data.batch_size: auto` works with a single device only\n  got:      `trainer.devices: 2`",
        ),
        (["data.batch_size=auto", "trainer.num_nodes=2"], "works with a single device only"),
    ],
)
def test_what_else_is_refused(tiny: Tiny, tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tiny.config(tmp_path, *overrides)
    assert message in str(caught.value)


def written_size(directory: RunDirectory) -> object:
    return yaml.safe_load(directory.config.read_text())["data"]["batch_size"]


@pytest.mark.parametrize(
    "precision", ["32-true", *(pytest.param(name, marks=pytest.mark.slow) for name in ("64-true", "bf16-mixed"))]
)
def test_a_run_with_the_found_number_given_is_the_same_run(tiny: Tiny, tmp_path: Path, precision: str) -> None:
    options = ["model.dropout=0.2", f"trainer.precision={precision}", "trainer.epochs=1"]
    found = tiny.train(tmp_path / "found", *options, "data.batch_size=auto").directory
    size = written_size(found)
    assert size in (16, 32)
    given = tiny.train(tmp_path / "given", *options, f"data.batch_size={size}").directory
    assert history(found) == history(given)
    one, other = (read_checkpoint(d.last)["state_dict"] for d in (found, given))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_continued_run_keeps_its_number(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tiny.train(tmp_path, "data.batch_size=auto", "trainer.epochs=1").directory
    size = written_size(first)
    monkeypatch.delattr(batch_size, "search")
    again = tiny.train(tmp_path, "data.batch_size=auto", "trainer.epochs=2").directory
    assert (again.path, written_size(again)) == (first.path, size)
    assert len(history(again)) == 2
    tiny.train(tmp_path, f"data.batch_size={size}", "trainer.epochs=3")
    other = ["experiment.name=other", f"resume={first.last}", "data.batch_size=auto", "trainer.epochs=4"]
    assert written_size(tiny.train(tmp_path, *other).directory) == size
    with pytest.raises(ConfigError, match=rf"data.batch_size: {size} → 99"):
        tiny.train(tmp_path, "data.batch_size=99")


def test_the_command_line_says_what_was_found(tiny: Tiny, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="dglcell")
    overrides = tiny.overrides(tmp_path, *BARE, "data.batch_size=auto", "trainer.epochs=1")
    assert main(["train", str(tiny.file), *overrides]) == 0
    pattern = r"data.batch_size: auto: (\d+) \(strains/s: 16 → [\d,]+(, 32 → [\d,]+)?; \d+ MiB\)"
    found = re.search(pattern, caplog.text)
    assert found, caplog.text
    directory = RunDirectory(tmp_path / "tiny" / "seed-0")
    assert written_size(directory) == int(found.group(1))
    assert main(["evaluate", str(directory.path)]) == 0
