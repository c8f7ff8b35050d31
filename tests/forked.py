"""Commands of ``dglcell`` in forks of a process that has imported everything: importing takes longer than training."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "cobra",
        "dglcell.cli.predict",
        "dglcell.data.sources.csv_table",
        "dglcell.data.sources.insilico",
        "dglcell.kernels.loops_numba",
        "dglcell.report.page",
        "dglcell.training.run",
        "dglcell.training.tuning",
    ]
)


class Forked:
    """A command in a process of its own, with what tests use of ``subprocess.Popen``."""

    def __init__(
        self, arguments: list[str], environment: Mapping[str, str], cwd: Path | None = None, before: str = ""
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        place = str(cwd or Path.cwd())
        self._process = FORKS.Process(
            target=_run, args=(arguments, dict(environment), place, before, self._folder.name)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def said(self) -> tuple[str, str]:
        """Return what the process has written to standard output and error until now."""
        paths = [Path(self._folder.name, name) for name in ("out", "error")]
        out, error = (path.read_text(errors="replace") if path.exists() else "" for path in paths)
        return out, error

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return what the process has written to standard output and error."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("dglcell", timeout or 0.0)
        return self.said()


def _run(arguments: list[str], environment: dict[str, str], cwd: str, before: str, said: str) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in ((1, "out"), (2, "error")):
        os.dup2(os.open(Path(said, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.argv = ["dglcell", *arguments]
    # Other ranks are started as this process would have been.
    sys.modules["__main__"].__spec__ = importlib.util.find_spec("dglcell.__main__")
    exec(before, {})
    from dglcell.cli import main

    sys.exit(main())
