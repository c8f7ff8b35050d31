"""Run ``dglcell`` and ``python -m dglcell``."""

import signal
import sys

# Ctrl-C while modules are imported ends the process at once, as the shell expects, and not with a traceback.
_interrupt = signal.getsignal(signal.SIGINT)
if _interrupt is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> int:
    """Run one command of ``dglcell``; gives its exit status."""
    from dglcell.cli import main as run

    signal.signal(signal.SIGINT, _interrupt)
    return run()


if __name__ == "__main__":
    sys.exit(main())
