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

    def find(self, room: int | None) -> int:
        chosen = choose(search(SIZES, self.measure, room, lambda: self.now), room)
        return at_least(SIZES[0], chosen, room)


PROBES = [2, 4, 8]
SEARCHES = {
    "growing ends where it is no longer worthwhile": (Machine(0.1, 0.01), 1 << 60, 128, [*PROBES, *SIZES[:5]]),
    "the smallest where the batch does not matter": (Machine(0.0, 0.001), 1 << 60, 16, [*PROBES, 16, 32]),
    "the largest where it always pays": (Machine(0.1, 0.0), 1 << 60, 1024, [*PROBES, *SIZES]),
    "128 would take more than 60 % of 200": (Machine(0.1, 0.0, GIB), 200 * GIB, 64, [*PROBES, *SIZES[:3]]),
    "16 would take more than 60 % of 15": (Machine(0.1, 0.0, GIB), 15 * GIB, 8, PROBES),
    "memory runs out all the same": (Machine(0.1, 0.0, memory=100), 1 << 60, 64, [*PROBES, *SIZES[:4]]),
    "unknown memory limits nothing": (Machine(0.1, 0.0, GIB), None, 1024, [*PROBES, *SIZES]),
    "it ends before it would last too long": (Machine(10.0, 0.0), 1 << 60, 16, [2]),
}


@pytest.mark.parametrize(("machine", "room", "expected", "tried"), SEARCHES.values(), ids=SEARCHES)
def test_sizes_are_tried_while_that_is_worth_it(
    machine: Machine, room: int | None, expected: int, tried: list[int]
) -> None:
    assert (machine.find(room), machine.tried) == (expected, tried)


def test_the_smallest_of_about_the_fastest_that_fit_is_taken() -> None:
    assert choose([Trial(16, 0.16, 1), Trial(32, 0.16, 1), Trial(64, 1.0, 1)], None).batch_size == 32
    assert choose([Trial(16, 0.1, 10), Trial(32, 0.1, 70)], 100).batch_size == 16
    assert choose([Trial(16, 0.1, 70)], 100).batch_size == 16  # the only one there is
    assert search(SIZES, lambda size: Trial(size, 1.0, None), 1, lambda: 0.0)[-1].batch_size == 1024
    with pytest.raises(ConfigError, match=r"auto`: memory ran out with the smallest batch\n  do:       give a smaller"):
        Machine(0.1, 0.0, memory=1).find(1 << 60)


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
