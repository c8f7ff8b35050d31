"""Progress of long computations: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

log = logging.getLogger(__name__)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int], Callable[[], None]]]:
    """Yield ``begin(what, total)``, which returns the function to call after each of ``total`` steps."""
    console = Console(stderr=True)
    if not console.is_terminal:
        started = time.perf_counter()
        yield _log_only
        log.info("done after %.1f s", time.perf_counter() - started)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:

        def begin(what: str, total: int) -> Callable[[], None]:
            task = bars.add_task(what, total=total)
            return lambda: bars.advance(task)

        yield begin


def _log_only(what: str, total: int) -> Callable[[], None]:
    log.info("%s: %s", what, f"{total:,}")
    return lambda: None
