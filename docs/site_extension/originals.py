"""The table of the original system's keys."""

from __future__ import annotations

from pathlib import Path

from dglcell.config.read import original_keys
from site_extension.markdown import code, table


def pages(root: Path) -> dict[str, str]:
    """What became of every key."""
    names, reasons = original_keys()
    renamed = table(("key of the original", "key here"), [(code(key), code(name)) for key, name in names.items()])
    dropped = table(("key of the original", "why there is none here"), [(code(k), why) for k, why in reasons.items()])
    return {"parts/renamed.md": renamed, "parts/dropped.md": dropped}
