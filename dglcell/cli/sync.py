"""``dglcell sync``: from runs on a cluster without network to W&B."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "upload what runs with `tracking.wandb: offline` wrote for W&B"
EPILOG = """\
Every file is uploaded once, under the run id that is kept in the run directory: a run that was continued stays one run,
and only its new part is uploaded. A run whose file has no end, because it still trains or was killed, is left alone
unless --force is given. Needs a network and `wandb login`; exits with 1 where W&B did not take everything."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which runs, and how."""
    parser.add_argument(
        "folders",
        nargs="*",
        type=Path,
        default=[Path("runs")],
        metavar="RUN",
        help="run directory, or a folder of runs (default: runs)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be uploaded")
    parser.add_argument("--force", action="store_true", help="also upload runs that may still be training")


def sync(options: argparse.Namespace) -> None:
    """``dglcell sync``."""
    from dglcell.training.sync import plan_sync, upload

    plan = plan_sync(options.folders, force=options.force)
    for run in plan.training:
        print(f"{run}: still training, or killed: left alone; --force uploads it")
    for file in plan.files:
        print(f"{file.run}: {file.path.parent.name}", flush=True)
    if not options.dry_run:
        upload(plan.files)
    verb = "would be uploaded" if options.dry_run else "uploaded"
    print(f"{len(plan.files)} files {verb}, {plan.uploaded} were before")
