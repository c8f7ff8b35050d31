"""Tell which process this is, and stop a run on a signal from its first moment to its last."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from dglcell.errors import DataError, StoppedError

log = logging.getLogger("dglcell")

# Set by torchrun, SLURM and Lightning's own launcher; all are 0 in the first process, or absent.
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
POLL_SECONDS = 0.5


def is_rank_zero() -> bool:
    """Return whether this process builds, writes and reports; true if there is only one."""
    return all(os.environ.get(variable, "0") == "0" for variable in RANK_VARIABLES)


def wait_for(path: Path, timeout: float) -> None:
    """Return when rank 0 has made ``path``, which appears whole; wait for ``timeout`` seconds at most."""
    until = time.monotonic() + timeout
    while not path.exists():
        if time.monotonic() > until:
            do = "see what it printed; run `dglcell data build` before, or raise `trainer.timeout`"
            what = f"the first process has not made '{path}' within `trainer.timeout`"
            raise DataError(what, got=f"nothing after {timeout:,.0f} s", do=do)
        time.sleep(POLL_SECONDS)


SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)

PARENT = "DGLCELL_PARENT"  # set in processes that another one of the run has started, through Lightning's launcher


class StopSignals:
    """Receive the signals of a run within a context; afterwards they have their earlier effect again.

    Where rank 0 works alone (reading data, calibrating, drawing), the first signal ends it at once: files appear whole
    or not at all, so nothing is torn. While ranks compute together (``noted``) a signal is only remembered, because
    they have to save and stop together; and always on the other ranks, which follow the first.

    Ctrl-C (``SIGINT``) is such a signal, but no reason to start a job again. A second one ends the process at once. It
    stays ignored where whoever started the process ignores it, as shells do for what runs in the background.

    SLURM is asked to start the job again if a signal has ended the run (``requeue``).
    """

    def __init__(self, requeue: bool = True) -> None:
        self.requeue = requeue
        self.number = 0  #: of the first signal received; 0 before that
        self._ends_at_once = is_rank_zero()
        self._process = os.getpid()
        self._before: dict[int, Any] = {}
        self._unraisable = sys.unraisablehook

    def __enter__(self) -> StopSignals:
        self._unraisable, sys.unraisablehook = sys.unraisablehook, self._send_again
        heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._receive) for number in heeded}
        if PARENT in os.environ:  # they were held back while this process was started
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ends_at_once = False
        if isinstance(error, StoppedError) and error.requeued is None:
            log.info("stopped at a point where nothing had to be saved")
            error.requeued = self.ask(error.signal)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._unraisable

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Remember signals without acting on them inside the context."""
        before, self._ends_at_once = self._ends_at_once, False
        if before and self.number:
            raise StoppedError(self.number)  # raised once more, because something has swallowed it
        yield
        self._ends_at_once = before
        if before and self.number:
            raise StoppedError(self.number)

    def ask(self, number: int) -> bool:
        """Ask SLURM for this job once more if that is wanted after such a signal; return whether it starts again."""
        return self.requeue and number != signal.SIGINT and is_rank_zero() and requeue_job()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            # This is a forked worker, and the process that started it must be able to end it.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        if number == signal.SIGINT:
            # The system ends the process, also where it waits for another one and would not come to a handler.
            signal.signal(number, signal.SIG_DFL)
        if self.number:
            return
        self.number = number
        if self._ends_at_once:
            raise StoppedError(number)
        if number == signal.SIGINT and is_rank_zero():
            # print and loggers are not used, because the signal may have come in the middle of one.
            with suppress(OSError):
                os.write(2, b"\ntold to stop: what is done is being saved; press Ctrl-C again to end at once\n")

    def _send_again(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Send a signal again if it came where Python ignores exceptions, as in a destructor or during an import."""
        if not isinstance(unraisable.exc_value, StoppedError):
            self._unraisable(unraisable)
            return
        number, self.number = self.number, 0
        signal.signal(number, self._receive)
        # The signal is sent from another thread a little later, because it would be ignored again here.
        threading.Timer(0.01, os.kill, (os.getpid(), number)).start()


def requeue_job(environment: Mapping[str, str] = os.environ) -> bool:
    """Ask SLURM to start this job again, and return whether it will.

    It is not asked where somebody cancelled the job, or SLURM has started it again, as after a lost node.
    """
    job = environment.get("SLURM_JOB_ID")
    if job is None or shutil.which("scontrol") is None:
        return False
    if "SLURM_ARRAY_JOB_ID" in environment:
        job = f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    shown = subprocess.run(["scontrol", "show", "job", "--oneliner", job], capture_output=True, text=True).stdout
    starts, why = re.search(r"\bRestarts=(\d+)", shown), ""
    if "JobState=CANCELLED" in shown:
        why = "it was cancelled"
    elif starts and starts[1] != environment.get("SLURM_RESTART_COUNT", "0"):
        why = "it has been started again"
    else:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True)
        why = done.stderr.strip() or "refused" if done.returncode else ""
    log.info("job %s %s", job, f"not queued again: {why}" if why else "is queued again")
    return not why
