"""Keep rows of results, their file and their table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.methods import BASE, MethodSpec
from benchmarks.workload import Setting
from dglcell.errors import ConfigError, DataError
from dglcell.files.atomic import write_json

# Results have one row per method and setting, and are kept in a file from the first row on.


OK, OUT_OF_MEMORY, RUNNING = "ok", "out_of_memory", "running"
CRASHED = "crashed: the process ended while this ran"


@dataclass
class BenchRow:
    """A row is one method's full training step under one setting.

    Attributes:
        seconds_per_step: median over ``steps`` timed ones; None where ``status`` is not ``ok``.
        seconds_best: seconds of the fastest step.
        seconds_first: seconds of the very first step, with all that is built or compiled in it.
        peak_memory_bytes: largest rise of the process's resident set, or of the GPU's allocations, from before the
            method was built to after its last step.
        ratio_to_pyg_replicated: how many times as fast as ``pyg_replicated`` under the same setting.
        share_of_ideal: `ideal_seconds` divided by ``seconds_per_step``; None for another model.
        status: ``ok``, ``out_of_memory``, ``missing: …``, ``unsupported: …``, ``error: …``, ``crashed: …``.
    """

    method: str
    strategy: str | None
    kernel: str | None
    device: str
    dtype: str
    conv: str
    batch: int
    hidden: int
    layers: int
    deletions: int | None
    edges: int
    seconds_per_step: float | None = None
    seconds_best: float | None = None
    seconds_first: float | None = None
    samples_per_second: float | None = None
    peak_memory_bytes: int | None = None
    ratio_to_pyg_replicated: float | None = None
    share_of_ideal: float | None = None
    status: str = RUNNING
    steps: int = 0
    warm_up: int = 0

    @classmethod
    def start(cls, spec: MethodSpec, setting: Setting, edges: int) -> BenchRow:
        """Make a row that has no results yet."""
        return cls(spec.name, spec.strategy, spec.kernel, **dataclasses.asdict(setting), edges=edges)

    @property
    def setting(self) -> Setting:
        """Return the setting under which the row was measured."""
        return Setting(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Setting)})


@dataclass
class Results:
    """These are all rows so far, written to ``path`` whenever one is added.

    Attributes:
        environment: versions, machine, cell graph, ceilings.
        path: path of a JSON file, or None.
        rows: rows in the order in which they ran.
    """

    environment: dict[str, Any]
    path: Path | None = None
    rows: list[BenchRow] = field(default_factory=list)

    def resume(self) -> None:
        """Take over the rows of an earlier, interrupted run; a row it was killed in is not tried again.

        The largest difference between methods is that of all runs.

        Raises:
            DataError: the file holds something else.
            ConfigError: it is about another cell graph, device or number of threads.
        """
        if self.path is None or not self.path.exists():
            return
        try:
            content = json.loads(self.path.read_text())
            rows = [BenchRow(**row) for row in content["rows"]]
            before = {key: content["environment"][key] for key in ("cell_sha256", "threads", "devices")}
            agreed = float(content["environment"].get("largest_difference", 0.0))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"'{self.path}' holds no results of this benchmark", do="choose another `--output`"
            ) from error
        now = {key: self.environment[key] for key in before}
        if before != now:
            raise ConfigError(f"'{self.path}' was measured on something else", got=now, expected=before)
        for row in rows:
            row.status = CRASHED if row.status == RUNNING else row.status
        self.rows = rows
        self.agreed_within(agreed)

    def agreed_within(self, difference: float) -> None:
        """Note by how much methods differed before they were timed; of several runs the largest counts."""
        self.environment["largest_difference"] = max(self.environment.get("largest_difference", 0.0), difference)

    def has(self, spec: MethodSpec, setting: Setting) -> bool:
        """Return whether there is a row for this already."""
        return any(row.method == spec.name and row.setting == setting for row in self.rows)

    def begin(self, row: BenchRow) -> None:
        """Write to the file what is running, so that a run that this kills can be resumed after it."""
        self.rows.append(row)
        self.write()

    def end(self, row: BenchRow, found: BenchRow | None) -> None:
        """Put ``found`` in the place of a row that has begun, or remove that row."""
        place = self.rows.index(row)
        self.rows[place : place + 1] = [] if found is None else [found]
        self.write()

    def write(self) -> None:
        """Fill in ratios and write the file, atomically."""
        base = {row.setting: row.seconds_per_step for row in self.rows if row.method == BASE}
        for row in self.rows:
            seconds = base.get(row.setting)
            row.ratio_to_pyg_replicated = seconds / row.seconds_per_step if seconds and row.seconds_per_step else None
        if self.path is not None:
            rows = [dataclasses.asdict(row) for row in self.rows]
            write_json(self.path, {"environment": self.environment, "rows": rows})


# These functions format rows as a table for people.


HEADER = (
    f"{'method':<24} {'ms/step':>10} {'strains/s':>10} {'x pyg_replicated':>17} {'of ideal':>9} {'peak MB':>9} "
    f"{'steps':>6}"
)


def format_table(rows: Sequence[BenchRow]) -> str:
    """Format a block per setting, small settings first; in it the fastest method first, then those without a time."""
    settings = sorted(
        {row.setting for row in rows}, key=lambda s: (s.conv, s.layers, s.hidden, s.batch, s.deletions or 0)
    )
    blocks = []
    for setting in settings:
        block = [row for row in rows if row.setting == setting]
        block.sort(key=lambda row: (row.status != OK, row.seconds_per_step or 0.0))
        title = f"{setting.title()}  {block[0].edges:,} edges"
        blocks.append("\n".join([title, HEADER, *map(format_row, block)]))
    return "\n\n".join(blocks)


def format_row(row: BenchRow) -> str:
    """Format a row as one line."""
    if row.status != OK or row.seconds_per_step is None or row.samples_per_second is None:
        return f"{row.method:<24} {row.status}"
    ratio = "-" if row.ratio_to_pyg_replicated is None else f"{row.ratio_to_pyg_replicated:,.1f}"
    share = "-" if row.share_of_ideal is None else f"{row.share_of_ideal:.0%}"
    memory = "-" if row.peak_memory_bytes is None else f"{row.peak_memory_bytes / 1e6:,.0f}"
    return (
        f"{row.method:<24} {row.seconds_per_step * 1e3:>10,.1f} {row.samples_per_second:>10,.1f} {ratio:>17} "
        f"{share:>9} {memory:>9} {row.steps:>6}"
    )
