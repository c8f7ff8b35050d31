"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from dglcell.runs import RunDirectory
    from tests.tiny import Tiny

# Tests are small: more threads would only wait for each other. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell that starts the tests in its background makes them ignore SIGINT, and what is ignored here is ignored by every
# process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long drawing an example takes says how busy the machine is. `make test` tries the same few examples each time, so
# that a change is judged by itself; `make test-random` tries others, and more.
NO_CLOCK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", NO_CLOCK, max_examples=40, derandomize=True)
settings.register_profile("random", NO_CLOCK, max_examples=200, print_blob=True)
settings.load_profile(os.environ.get("DGLCELL_EXAMPLES", "same"))

SIBLING = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` writes the golden numbers anew instead of comparing with them."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")


def pytest_collection_finish() -> None:
    """Leave what is imported out of the search for garbage, which took a tenth of the time of tests that train."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Tests that compute with DGL are skipped where its wheel does not fit this Python."""
    from dglcell.errors import MissingDependencyError

    try:
        return (yield)
    except MissingDependencyError as error:
        if importlib.util.find_spec("dgl") is None and "DGL cannot be imported" in str(error):
            pytest.skip("needs DGL, which has no wheel for this Python")
        raise


@pytest.fixture(scope="session")
def raw() -> Path:
    """Return the folder with the raw yeast files: ``DGLCELL_RAW``, else ``../shared/data`` beside the checkout."""
    folder = Path(os.environ.get("DGLCELL_RAW") or SIBLING)
    if not folder.is_dir():
        pytest.skip(f"raw yeast files not found at {folder}: set DGLCELL_RAW")
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Return a tiny experiment and its store."""
    # Imported here, so that tests that train nothing start without Lightning.
    from dglcell.training.prepare import build
    from tests.tiny import TINY, Tiny

    folder = tmp_path_factory.mktemp("tiny")
    experiment = Tiny(folder / "tiny.yaml", folder / "store")
    experiment.file.write_text(TINY)
    build(experiment.config(folder), "tests")
    return experiment


@pytest.fixture(scope="session")
def tiny_run(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return the tiny experiment trained, with its table; for reading only."""
    from dglcell.training.run import train

    return train(tiny.config(tmp_path_factory.mktemp("runs"), "plot=false")).directory


@pytest.fixture(scope="session")
def drawn_run(tiny: Tiny, tiny_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return the same with its report and pictures; for reading only."""
    from dglcell.training.run import train

    folder = tmp_path_factory.mktemp("drawn")
    shutil.copytree(tiny_run.path, folder / "tiny" / "seed-0")
    return train(tiny.config(folder)).directory


@pytest.fixture
def run(tiny_run: RunDirectory, tmp_path: Path) -> RunDirectory:
    """Return a copy of the tiny run, which a test may change."""
    from dglcell.runs import RunDirectory

    return RunDirectory(Path(shutil.copytree(tiny_run.path, tmp_path / "tiny" / "seed-0")))
