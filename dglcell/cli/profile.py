"""``dglcell profile`` and ``dglcell compare``: where the time of training steps goes."""

from __future__ import annotations

import argparse
from pathlib import Path

from dglcell.cli.arguments import load, natural, positive

PROFILE_HELP = "say where the time of an experiment's training steps goes"

PROFILE_EPILOG = """\
Steps are run as `train` runs them, from fresh weights; nothing of the experiment's runs is read or changed. Times are
exclusive: a part's own time is without what is told apart in it, so that all parts sum up to the step. On a GPU they
are those of its queue. Written are profile.json, and trace.json.gz for https://ui.perfetto.dev or chrome://tracing.

  dglcell profile conf/quickstart.yaml
  dglcell profile conf/quickstart.yaml model.strategy=node_mask --output masks
  dglcell compare runs/quickstart/profile masks
"""

COMPARE_HELP = "show two profiles side by side"

COMPARE_EPILOG = "Profiles of different modes, devices, numbers of processes or batch sizes are refused."


def add_profile(parser: argparse.ArgumentParser) -> None:
    """What is run, and how much of it."""
    how = parser.add_argument_group("how")
    how.add_argument(
        "--mode",
        choices=("full", "backward", "forward", "data"),
        default="full",
        help="data: batches alone; forward: and loss; backward: and gradients; full: whole steps (default: full)",
    )
    how.add_argument("--steps", type=positive, default=20, metavar="N", help="timed steps (default: 20)")
    how.add_argument("--warm-up", type=natural, default=5, metavar="N", help="steps before them (default: 5)")
    how.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="DIR",
        help="folder to write to; a profile there is replaced (default: RUNS/EXPERIMENT/profile)",
    )


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Two profiles."""
    parser.add_argument("first", type=Path, metavar="A", help="profile.json or its folder")
    parser.add_argument("second", type=Path, metavar="B", help="another; ratios are B/A")


def profile(options: argparse.Namespace) -> None:
    """``dglcell profile``."""
    config = load(options)
    from dglcell.profiling.loop import Schedule
    from dglcell.profiling.measure import profile as run
    from dglcell.profiling.profile import PROFILE, TRACE
    from dglcell.profiling.report import format_profile

    folder = options.output or config.run_directory.parent / "profile"
    found = run(config, Schedule(options.warm_up, options.steps), options.mode, folder, options.command)
    if found is not None:
        print(f"{format_profile(found)}\n\nprofile  {folder / PROFILE}\ntrace    {folder / TRACE}")


def compare(options: argparse.Namespace) -> None:
    """``dglcell compare``."""
    from dglcell.profiling.compare import compare as run

    print(run(options.first, options.second))
