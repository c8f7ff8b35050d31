"""Reader of what W&B writes offline."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dglcell.training.tracking import read_records


@dataclass
class OfflineRun:
    """What one file holds; no exit code where it has no end."""

    run_id: str = ""
    group: str = ""
    preempted: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None


def read_offline_run(path: Path) -> OfflineRun:
    """Return all records of a file, as far as it was written."""
    from wandb.proto import wandb_internal_pb2

    def items(entries: Any) -> dict[str, Any]:
        return {entry.key or "/".join(entry.nested_key): json.loads(entry.value_json) for entry in entries}

    found = OfflineRun()
    for raw in read_records(path):
        record = wandb_internal_pb2.Record.FromString(raw)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.run_id, found.group = record.run.run_id, record.run.run_group
            found.config |= items(record.run.config.update)
        elif kind == "config":
            found.config |= items(record.config.update)
        elif kind == "history":
            found.history.append(items(record.history.item))
        elif kind == "preempting":
            found.preempted = True
        elif kind == "exit":
            found.exit_code = record.exit.exit_code
    return found
