"""A trained model and its data, which tests of a file share."""

from __future__ import annotations

import pytest

from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import Trained, load_trained
from dglcell.training.prepare import Prepared, prepare_run


@pytest.fixture(scope="module")
def trained(tiny_run: RunDirectory) -> Trained:
    return load_trained(tiny_run)


@pytest.fixture(scope="module")
def prepared(tiny_run: RunDirectory, trained: Trained) -> Prepared:
    return prepare_run(trained.config, tiny_run, "tests")
