"""An interpreter that has imported everything, and runs commands of ``dglcell`` in forks that can be killed.

Started by `tests.faults.test_kills` with the library of ``kill_at.c`` loaded before all others. It reads one JSON
object a line from its input and answers each with another one.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import dglcell.cli.predict
import dglcell.data.sources
import dglcell.prediction.predict
import dglcell.report.page
import dglcell.training.run

# Designs have several parts.
dglcell.prediction.predict.PART_STRAINS = 12


def run(asked: dict[str, Any]) -> None:
    status, before = 70, set(sys.modules)  # a bug, whose traceback is in the output
    try:
        output = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        root = asked["root"].encode()
        ctypes.CDLL(None).kill_at_arm(root, ctypes.c_long(asked["at"]), asked["half"], log)
        status = dglcell.cli.main(asked["arguments"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        Path(asked["imports"]).write_text("\n".join(set(sys.modules) - before))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def learn(imports: Path) -> None:
    """Import what a fork has imported, so that the next one finds it there."""
    if imports.exists():
        for name in imports.read_text().split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        imports.unlink()


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        # A fork has the thread that forks and no other.
        assert len(list(Path("/proc/self/task").iterdir())) == 1
        child = os.fork()
        if child == 0:
            run(asked)
        _, status = os.waitpid(child, 0)
        learn(Path(asked["imports"]))
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    serve()
