"""Disks that are full or cannot be written to: one clear error, and nothing half-written."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dglcell.cli import main
from dglcell.data.store import Store
from dglcell.data.store_build import build_store
from dglcell.errors import DataError
from tests.data.strain_tables import random_table, triples
from tests.small_disk import make_read_only, small_disk
from tests.tiny import TINY, process_environment


def test_a_full_disk_ends_the_build_and_leaves_the_old_store(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 600) as disk:
        old = build_store(random_table(200, 20), disk / "store", command="old")
        with pytest.raises(DataError) as error:
            build_store(triples(200_000), disk / "store", command="new", overwrite=True)
        assert str(error.value).startswith(
            f"store '{disk / 'store'}' cannot be written; nothing of it is left behind\n  got:      "
        )
        found = re.search(r"; ([\d,]+) bytes are free there", str(error.value))
        assert found is not None
        assert int(found[1].replace(",", "")) < 600_000
        assert str(error.value).endswith("do:       make room, or choose another path")
        assert os.listdir(disk) == ["store"]
        Store(disk / "store").verify()
        assert Store(disk / "store").sha256 == old.sha256


CHILD = """
import sys
from dglcell.data.store_build import build_store
from dglcell.errors import DataError
from tests.data.strain_tables import triples

try:
    build_store(triples(200_000), sys.argv[1], command="child")
except DataError as error:
    print(error)
    sys.exit(2)
"""


def test_a_limit_of_file_sizes_does_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "store")],
        env=process_environment(),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000)),
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written; nothing of it is left behind\n  got:      " in done.stdout
    assert done.stdout.endswith("do:       make room, or choose another path\n")
    assert os.listdir(tmp_path) == []


def test_a_read_only_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "conf.yaml"
    conf.write_text(TINY)
    options = ["data.source.insilico.pairs=none", "split.subset=null"]
    with small_disk(tmp_path / "disk", 600) as disk:
        make_read_only(disk)
        assert main(["data", "build", str(conf), *options, f"data.store={disk / 'store'}"]) == 2
        assert os.listdir(disk) == []
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert f"{disk}" in message
    assert "Read-only file system" in message
