"""``dglcell compare``: two profiles side by side, where that says something."""

from __future__ import annotations

from pathlib import Path

from dglcell.errors import ConfigError
from dglcell.profiling.components import COMPONENTS
from dglcell.profiling.profile import Profile, read_profile
from dglcell.profiling.report import NAME_WIDTH, format_processes

ALIKE = {
    "mode": "modes",
    "device": "devices",
    "world_size": "numbers of processes",
    "batch_size": "batch sizes",
}
"""What must be the same for times to be compared."""

NOTED = {
    "cell_sha256": "cell graphs",
    "dtype": "precisions",
    "threads": "numbers of threads",
}
"""What may differ, and is said."""


def compare(first: Path, second: Path) -> str:
    """A table of two profiles.

    Args:
        first, second: ``profile.json`` or its folder; ratios are of the second to the first.

    Raises:
        DataError: there is no profile.
        ConfigError: they were measured under conditions too different.
    """
    a, b = read_profile(first), read_profile(second)
    check_alike(a, b, (str(first), str(second)))
    return "\n".join([*warnings_of(a, b), *_heading(a, b, (str(first), str(second))), "", *_table(a, b)])


def check_alike(a: Profile, b: Profile, titles: tuple[str, str]) -> None:
    """Refuse profiles whose times say nothing about each other.

    Raises:
        ConfigError: naming what differs, and both values.
    """
    differing = [key for key in ALIKE if getattr(a, key) != getattr(b, key)]
    if differing:
        what = [f"{key} {getattr(a, key)} and {getattr(b, key)}" for key in differing]
        raise ConfigError(
            f"'{titles[0]}' and '{titles[1]}' are of different {' and '.join(ALIKE[key] for key in differing)}",
            got="; ".join(what),
            expected="profiles that differ in what is to be compared alone",
            do="profile both alike: `data.batch_size`, `trainer.devices`, `trainer.accelerator`, `--mode`",
        )


def warnings_of(a: Profile, b: Profile) -> list[str]:
    """A line for everything that should be known before ratios are believed."""
    found = []
    for key, what in NOTED.items():
        if getattr(a, key) != getattr(b, key):
            found.append(f"warning: different {what}: {_noted(a, key)} and {_noted(b, key)}")
    return found


def _noted(profile: Profile, key: str) -> str:
    if key == "cell_sha256":
        return f"{sum(profile.edges.values()):,} edges ({profile.cell_sha256[:12]})"
    return str(getattr(profile, key))


def _heading(a: Profile, b: Profile, titles: tuple[str, str]) -> list[str]:
    lines = [f"{a.device}; {format_processes(a)}; mode {a.mode}"]
    for letter, title, p in zip("AB", titles, (a, b), strict=True):
        memory = "" if p.peak_memory_bytes is None else f", peak {p.peak_memory_bytes / 1e6:,.1f} MB"
        strategy = f" ({p.strategy})" if p.strategy else ""
        lines.append(
            f"{letter}  {title}: {p.model}{strategy}, {p.steps_per_second:,.2f} it/s, "
            f"{p.samples_per_second:,.1f} samples/s{memory}"
        )
    return lines


def _table(a: Profile, b: Profile) -> list[str]:
    header = f"{'':<{NAME_WIDTH}} {'A ms/step':>12} {'share':>8} {'B ms/step':>12} {'share':>8} {'B/A':>8}"
    lines, totals = [header], (a.per_step(), b.per_step())
    for component in COMPONENTS:
        if component not in totals[0] and component not in totals[1]:
            continue
        lines.append(_row(component, totals[0].get(component), totals[1].get(component), a, b))
        parts = a.parts(component), b.parts(component)
        for name in [*parts[0], *(name for name in parts[1] if name not in parts[0])]:
            title = f"  {name.removeprefix(component + '/')}"
            lines.append(_row(title, parts[0].get(name), parts[1].get(name), a, b))
    return [*lines, _row("all", a.seconds_per_step, b.seconds_per_step, a, b)]


def _row(title: str, first: float | None, second: float | None, a: Profile, b: Profile) -> str:
    ratio = f"{second / first:.2f}" if first and second else "-"
    cells = [_cells(seconds, profile) for seconds, profile in ((first, a), (second, b))]
    return f"{title:<{NAME_WIDTH}} {cells[0]} {cells[1]} {ratio:>8}"


def _cells(seconds: float | None, profile: Profile) -> str:
    if seconds is None:
        return f"{'-':>12} {'-':>8}"
    return f"{seconds * 1e3:>12,.3f} {seconds / profile.seconds_per_step:>8.1%}"
