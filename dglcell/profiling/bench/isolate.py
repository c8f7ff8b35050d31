"""Run something in a fork of this process, so that it leaves nothing behind and takes nothing with it."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from dglcell.errors import DglcellError

T = TypeVar("T")

PR_SET_PDEATHSIG = 1  # of prctl(2)


class DiedError(RuntimeError):
    """A fork ended without a result.

    Attributes:
        killed: by the signal that the kernel's out-of-memory killer sends.
    """

    def __init__(self, status: int) -> None:
        number = os.waitstatus_to_exitcode(status)
        super().__init__(signal.Signals(-number).name if number < 0 else f"exit status {number}")
        self.killed = number == -signal.SIGKILL


class Isolation(Protocol):
    """How methods are run."""

    def __call__(self, function: Callable[[], T]) -> T:
        """The result of ``function``."""


def in_this_process(function: Callable[[], T]) -> T:
    """Just call it: what a GPU needs, whose driver does not survive a fork."""
    return function()


class Forked:
    """In a fork, which has the same cell graph, strains and settings, but a heap that no other method has cut up.

    Before the first fork this process must compute with one thread and without gradients: neither OpenMP's threads nor
    autograd's survive.

    Args:
        threads: that forks compute with.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        torch.set_num_threads(1)

    def __call__(self, function: Callable[[], T]) -> T:
        """The result of ``function``, or its exception.

        Raises:
            DiedError: the fork was killed or crashed.
        """
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            self._child(function, read, write)
        os.close(write)
        try:
            with os.fdopen(read, "rb") as pipe:
                content = pipe.read()
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(child, 0)
        if not content:
            raise DiedError(status)
        error, result = pickle.loads(content)
        if error is not None:
            raise error
        return result

    def _child(self, function: Callable[[], object], read: int, write: int) -> None:
        status = 1
        try:
            os.close(read)
            _die_with_parent()
            torch.set_num_threads(self.threads)
            content = pickle.dumps(_outcome(function))
            with os.fdopen(write, "wb") as pipe:
                pipe.write(content)
            status = 0
        finally:
            # Without the clean-up of the parent's files, threads and buffers.
            os._exit(status)


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends, however that happens."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _outcome(function: Callable[[], object]) -> tuple[BaseException | None, object]:
    try:
        return None, function()
    except DglcellError as error:
        return error, None
    except BaseException as error:
        # The parent cannot see this process's frames.
        error.add_note(traceback.format_exc())
        return error, None
