"""Builds killed with SIGKILL: the old store or none, and the next build clears up."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from tests.data.strain_tables import random_table

# The child commits often, so that it is also killed between and inside transactions of the file. ``renames``
# counts os.replace: the first puts the old store aside, the last puts the new one in its place.
SCRIPT = """
import os, signal, sys
from pathlib import Path
from dglcell.data import blocks
from dglcell.data.store_build import StoreWriter
from tests.data.strain_tables import PROVENANCE, names, random_table

path, moment, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
blocks.TRANSACTION_BYTES = 150_000
replace, renames = os.replace, 0

def die(now, count):
    if now == moment and count == number:
        os.kill(os.getpid(), signal.SIGKILL)

def rename(old, new):
    global renames
    renames += 1
    die("before rename", renames)
    replace(old, new)
    die("after rename", renames)

os.replace = rename
print("started", flush=True)
with StoreWriter(path, names=names(50), phenotypes=["fitness"], provenance=PROVENANCE, command="child",
                 overwrite=True) as writer:
    for chunk in range(30):
        die("chunk", chunk)
        writer.append(random_table(5000, 50, seed=chunk))
    die("end", 0)
"""

MOMENTS = [
    ("chunk", 0),
    ("chunk", 1),
    ("chunk", 7),
    ("chunk", 29),
    ("end", 0),
    ("before rename", 1),
    ("after rename", 1),
]
# Only where an old store has to be put aside first.
LATE_MOMENTS = [("before rename", 2), ("after rename", 2)]


def start_build(path: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )


def strains_at(path: Path) -> int | None:
    """Number of strains of the store at ``path``, which must be whole if it is there."""
    if not path.exists():
        return None
    store = Store(path)
    store.verify()
    return len(store)


def assert_next_build_clears_up(path: Path) -> None:
    build_store(random_table(200, 20), path, command="next", overwrite=True)
    assert strains_at(path) == 200
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("moment", "number", "old"),
    [
        *((*moment, old) for moment in MOMENTS for old in (True, False)),
        *((*moment, True) for moment in LATE_MOMENTS),
    ],
)
def test_a_build_killed_at_a_given_moment(tmp_path: Path, moment: str, number: int, old: bool) -> None:
    path = tmp_path / "store"
    if old:
        build_store(random_table(100, 20), path, command="old")
    child = start_build(path, moment, number)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGKILL
    between_renames = {("after rename", 1), ("before rename", 2)}
    if moment == "after rename" and number == (2 if old else 1):
        assert strains_at(path) == 150_000
    elif old and (moment, number) not in between_renames:
        assert strains_at(path) == 100
    else:
        assert strains_at(path) is None
    assert_next_build_clears_up(path)


@pytest.mark.parametrize("seed", range(4))
def test_a_build_killed_at_any_time(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "store"
    build_store(random_table(100, 20), path, command="old")
    child = start_build(path, "never", 0)
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    time.sleep(random.Random(seed).uniform(0, 0.2))
    child.kill()
    child.communicate(timeout=60)
    assert strains_at(path) in {100, 150_000, None}
    assert_next_build_clears_up(path)


def test_the_child_succeeds_when_left_alone(tmp_path: Path) -> None:
    child = start_build(tmp_path / "store", "never", 0)
    child.communicate(timeout=60)
    assert child.returncode == 0
    assert strains_at(tmp_path / "store") == 150_000


@pytest.mark.slow
def test_builds_killed_again_and_again_end_as_if_they_had_not_been(tmp_path: Path) -> None:
    began = time.monotonic()
    start_build(tmp_path / "whole", "never", 0).communicate(timeout=300)
    longest = time.monotonic() - began
    path, moments, killed = tmp_path / "store", random.Random(7), 0
    for _ in range(15):
        child = start_build(path, "never", 0)
        try:
            child.wait(moments.uniform(0, 1.2 * longest))
        except subprocess.TimeoutExpired:
            child.kill()
            killed += 1
        child.communicate(timeout=300)
        assert strains_at(path) in {150_000, None}
    assert killed
    start_build(path, "never", 0).communicate(timeout=300)
    assert Store(path).sha256 == Store(tmp_path / "whole").sha256
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["store", "whole"]
