"""What all tests of kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> Iterator[None]:
    """Give the number of threads back that a test changes."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
