"""How many examples Hypothesis tries: `make test` tries the least that still say something, `make test-random` more."""

from __future__ import annotations

import os

from hypothesis import settings

WIDER = 6 if os.environ.get("DGLCELL_EXAMPLES") == "random" else 1
"""So many times more examples are tried in `make test-random`."""


def examples(number: int) -> settings:
    """Return the decorator of a test that tries ``number`` examples in `make test`."""
    return settings(max_examples=number * WIDER)
