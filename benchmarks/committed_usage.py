"""Write `dglcell/cluster/usage.yaml`: the time and memory that the runs of `docs/results` took.

Jobs of SLURM ask for time and memory according to it.

Run it after results have been committed: ``python -m benchmarks.committed_usage``.
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# What the longest run of an experiment took, of those in `docs/results`: jobs of SLURM ask for more than that.
# Written by `python -m benchmarks.committed_usage`.
"""
KEYS = ("device", "processes", "epochs", "seconds", "wall_seconds", "peak_resident_bytes")


def committed_usage() -> str:
    """Return the content of the file: an experiment per line, its longest run, with the largest peak of all."""
    lines = []
    folders = {path.parents[1] for path in (ROOT / "docs/results").rglob("usage.json")}
    for folder in sorted(folders):
        runs = [json.loads(path.read_text()) for path in sorted(folder.glob("seed-*/usage.json"))]
        longest = max(runs, key=lambda run: float(run["wall_seconds"]))
        found = {key: longest[key] for key in KEYS}
        found |= {key: round(found[key]) for key in ("seconds", "wall_seconds")}
        peaks = [run["peak_resident_bytes"] for run in runs if run["peak_resident_bytes"]]  # not of continued runs
        found["peak_resident_bytes"] = max(peaks)
        about = ", ".join(f"{key}: {value}" for key, value in found.items())
        lines.append(f"{folder.relative_to(ROOT / 'docs/results').as_posix()}: {{{about}}}\n")
    return HEAD + "".join(lines)


if __name__ == "__main__":
    (ROOT / "dglcell/cluster/usage.yaml").write_text(committed_usage(), encoding="utf-8")
