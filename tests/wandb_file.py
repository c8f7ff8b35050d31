"""Reader of the transaction log that W&B writes offline: LevelDB log blocks of protobuf records.

Blocks are 32 KiB; a record is crc32, length, type (1 whole, 2 first, 3 middle, 4 last) and bytes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK = 32768
HEADER = 7


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
    """All records of a file, as far as it was written."""
    from wandb.proto import wandb_internal_pb2

    def items(entries: Any) -> dict[str, Any]:
        return {entry.key or "/".join(entry.nested_key): json.loads(entry.value_json) for entry in entries}

    found = OfflineRun()
    for raw in _records(path.read_bytes()):
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


def _records(content: bytes) -> Iterator[bytes]:
    assert content[:4] == b":W&B"
    position, pieces = HEADER, b""
    while position + HEADER <= len(content):
        left = BLOCK - position % BLOCK
        if left < HEADER:
            position += left
            continue
        crc, length, kind = struct.unpack("<IHB", content[position : position + HEADER])
        if length == 0 and kind == 0:
            position += left
            continue
        data = content[position + HEADER : position + HEADER + length]
        if len(data) < length:
            return
        assert crc == zlib.crc32(data, zlib.crc32(bytes([kind])))
        position += HEADER + length
        pieces = data if kind in (1, 2) else pieces + data
        if kind in (1, 4):
            yield pieces
