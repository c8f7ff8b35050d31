"""Rows as a table that people read."""

from __future__ import annotations

from collections.abc import Sequence

from dglcell.profiling.bench.row import OK, BenchRow

HEADER = (
    f"{'method':<24} {'ms/step':>10} {'strains/s':>10} {'x pyg_replicated':>17} {'of ideal':>9} {'peak MB':>9} "
    f"{'steps':>6}"
)


def format_table(rows: Sequence[BenchRow]) -> str:
    """A block per setting, small settings first; in it the fastest method first, then those without a time."""
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
    """One line."""
    if row.status != OK or row.seconds_per_step is None or row.samples_per_second is None:
        return f"{row.method:<24} {row.status}"
    ratio = "-" if row.ratio_to_pyg_replicated is None else f"{row.ratio_to_pyg_replicated:,.1f}"
    share = "-" if row.share_of_ideal is None else f"{row.share_of_ideal:.0%}"
    memory = "-" if row.peak_memory_bytes is None else f"{row.peak_memory_bytes / 1e6:,.0f}"
    return (
        f"{row.method:<24} {row.seconds_per_step * 1e3:>10,.1f} {row.samples_per_second:>10,.1f} {ratio:>17} "
        f"{share:>9} {memory:>9} {row.steps:>6}"
    )
