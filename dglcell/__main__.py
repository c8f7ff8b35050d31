"""Run ``dglcell`` and ``python -m dglcell``."""

import os
import signal
import sys

# Nothing is imported from the working folder, where anybody's files may be: `python -m` puts it first on the path. The
# variable says the same to processes that are started from here.
if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]
os.environ["PYTHONSAFEPATH"] = "1"

# Ctrl-C while modules are imported ends the process at once, as the shell expects, and not with a traceback.
_interrupt = signal.getsignal(signal.SIGINT)
if _interrupt is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> int:
    """Run one command of ``dglcell``; gives its exit status."""
    if os.name == "nt":
        sys.exit("error: dglcell runs on Linux and macOS\n  do:       on Windows, install it in WSL 2")
    from dglcell.cli import main as run

    signal.signal(signal.SIGINT, _interrupt)
    return run()


if __name__ == "__main__":
    sys.exit(main())
