"""``dglcell sync``: upload what W&B wrote offline, by its own ``wandb sync``."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dglcell.errors import DataError, MissingDependencyError, SyncError, listing
from dglcell.training.offline_files import OfflineFile, find_offline_files

PATIENCE = {"WANDB_X_GRAPHQL_RETRY_MAX": "3", "WANDB_X_GRAPHQL_RETRY_WAIT_MAX_SECONDS": "5"}
"""Without a network W&B would try for half an hour before it says so; the user's own settings come first."""


@dataclass(frozen=True)
class Plan:
    """What is to be uploaded.

    Attributes:
        files: those of a run in their order.
        uploaded: number of files that W&B has already.
        training: runs whose last file has no end: they train, or were killed.
    """

    files: list[OfflineFile]
    uploaded: int
    training: list[Path]


def plan_sync(folders: Sequence[Path], *, force: bool = False) -> Plan:
    """Look for files.

    Args:
        folders: run directories, or folders of them.
        force: also take the files of runs that may still be training.

    Raises:
        DataError: a folder is not there, or has no such file.
    """
    found: dict[Path, OfflineFile] = {}
    for folder in folders:
        files = find_offline_files(folder)
        if not files:
            raise DataError(
                f"'{folder}' holds nothing that W&B wrote offline", do="train with `tracking.wandb=offline` first"
            )
        found |= {file.path.resolve(): file for file in files}
    left = [file for file in found.values() if not file.is_uploaded()]
    training = [] if force else [file.run for file in left if not file.ended]
    return Plan([file for file in left if file.ended or force], len(found) - len(left), training)


def upload(files: Sequence[OfflineFile]) -> None:
    """Let W&B upload files under the run ids they were written with; it says what it does on stderr.

    Raises:
        MissingDependencyError: wandb is not installed.
        SyncError: W&B did not take all of them: no login, no network, or a broken file.
    """
    if not files:
        return
    if importlib.util.find_spec("wandb") is None:
        raise MissingDependencyError("`dglcell sync` needs the package wandb", do="pip install 'dglcell[train]'")
    for file in files:
        file.marker.unlink(missing_ok=True)
    # Its logs go where W&B has the others. Without a terminal it asks for no login, which nobody may be there to give.
    environment = {**PATIENCE, **os.environ, "WANDB_DIR": str(files[0].run)}
    command = [sys.executable, "-m", "wandb", "sync", *(str(file.path) for file in files)]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL)
    # It exits with 0 also where it could not upload.
    missing = [file.path.parent for file in files if not file.marker.exists()]
    if missing:
        raise SyncError(
            f"{len(missing)} of {len(files)} files were not uploaded (`wandb sync` ended with {done.returncode})",
            got=listing(missing, 3),
            do="see what W&B says above: `wandb login` once, work where there is a network, and give the same command",
        )
