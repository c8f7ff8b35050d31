"""Write and read the profile of a run, format it as text, and compare two profiles."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglcell.errors import ConfigError, DataError, count
from dglcell.files.atomic import DAMAGE, parse_json, write_json
from dglcell.machine.parts import PARTS

PROFILE = "profile.json"
TRACE = "trace.json.gz"


@dataclass(frozen=True)
class Profile:
    """A profile holds the times of training steps in seconds, and the conditions under which they were measured."""

    experiment: str  # its name
    model: str  # its name
    strategy: str | None  # of the model, and what `auto` took; None for a model that has none
    device: str  # its name
    threads: int  # that torch computes with on a CPU
    world_size: int  # processes
    batch_size: int  # strains per step and process, as configured
    dtype: str  # `trainer.precision`
    nodes: dict[str, int]  # of the cell graph, by node type
    edges: dict[str, int]  # of the cell graph, by relation
    cell_sha256: str  # of the cell graph
    parameters: int  # of the model
    clock: str  # ``host``; ``device stream`` where steps end as a GPU's queue comes to their ends
    warm_up: int  # steps before the timed ones
    steps: list[float]  # each timed step of the first process
    samples: int  # strains in all timed steps, of all processes
    components: dict[str, float]  # part or `part/name` → in all timed steps; they sum up to the steps
    bytes_to_device: int  # copied from the host in one step, of the first process
    synchronisations: int | None  # of the host with the device in one step; None on a CPU
    peak_memory_bytes: int | None  # rise of the resident set or the GPU's allocations; None where not measured
    autotuned: dict[str, Any] | None  # what `auto` took for strategy and kernels, and why; None where nothing was left
    environment: dict[str, Any]  # versions, command, git state

    @property
    def seconds_per_step(self) -> float:
        """Return the mean over all timed steps."""
        return sum(self.steps) / len(self.steps)

    @property
    def samples_per_second(self) -> float:
        """Return the strains per second of all processes."""
        return self.samples / sum(self.steps)

    def speed(self) -> str:
        """Return the steps and strains per second as text for readers."""
        return f"{1 / self.seconds_per_step:,.2f} it/s, {self.samples_per_second:,.1f} samples/s"

    def per_step(self) -> dict[str, float]:
        """Return the mean seconds per step of every component as a whole."""
        totals: dict[str, float] = defaultdict(float)
        for name, seconds in self.components.items():
            totals[name.partition("/")[0]] += seconds / len(self.steps)
        return dict(totals)

    def parts(self, component: str) -> dict[str, float]:
        """Return the mean seconds per step of a component's parts, by `component/part`, the largest first."""
        found = {n: s / len(self.steps) for n, s in self.components.items() if n.startswith(f"{component}/")}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def write(self, path: Path) -> None:
        """Write the profile and the figures derived from it as JSON, atomically."""
        derived = {
            "seconds_per_step": self.seconds_per_step,
            "steps_per_second": 1 / self.seconds_per_step,
            "samples_per_second": self.samples_per_second,
            "shares": {name: seconds / self.seconds_per_step for name, seconds in self.per_step().items()},
        }
        write_json(path, {**dataclasses.asdict(self), "derived": derived})


def read_profile(path: Path) -> Profile:
    """Read a profile from its file or folder.

    Raises:
        DataError: the file does not exist or is not a profile.
    """
    file = path / PROFILE if path.is_dir() else path
    if not file.is_file():
        raise DataError(
            f"no profile at '{path}'",
            expected=f"a {PROFILE} or its folder",
            do="run `dglcell profile`; `dglcell report RUN RUN` compares runs",
        )
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
        profile = Profile(**{field.name: content[field.name] for field in dataclasses.fields(Profile)})
        # A file with another kind of content fails here and not in the middle of a table.
        _ = profile.per_step(), profile.samples_per_second
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, *DAMAGE) as error:
        raise DataError(
            f"'{file}' is no profile",
            got=f"{type(error).__name__}: {error}",
            expected=f"a {PROFILE} as `dglcell profile` writes it",
        ) from error
    return profile


# A step is called slow if it takes at least this many times the median.
UNEVEN = 2.0


def format_profile(profile: Profile) -> str:
    """Format the conditions, the speed, and a table of exclusive times."""
    strategy = f" ({profile.strategy})" if profile.strategy else ""
    steps, threads = count(len(profile.steps), "step"), count(profile.threads, "thread")
    conditions = [
        f"{profile.experiment}: {steps} after {profile.warm_up} to warm up",
        f"{profile.model}{strategy}, {profile.parameters:,} parameters; {sum(profile.edges.values()):,} edges in "
        f"{len(profile.edges)} relations",
        f"{profile.device}; {_processes(profile)}; {profile.dtype}; {threads}; clock: {profile.clock}",
    ]
    header = f"{'exclusive time':<28} {'ms/step':>12} {'share':>8}"
    return "\n".join([*conditions, "", *_speed(profile), "", header, *_table([profile])])


def _processes(profile: Profile) -> str:
    processes = "1 process" if profile.world_size == 1 else f"{profile.world_size} processes"
    return f"{processes} x {profile.batch_size} strains"


def _speed(profile: Profile) -> list[str]:
    host = profile.synchronisations is None
    copied = "not applicable on a CPU" if host else f"{profile.bytes_to_device:,} bytes/step"
    waits = "not applicable on a CPU" if host else f"{profile.synchronisations}/step"
    memory = "not measured" if profile.peak_memory_bytes is None else f"{profile.peak_memory_bytes / 1e6:,.1f} MB"
    milliseconds = [seconds * 1e3 for seconds in profile.steps]
    median = statistics.median(milliseconds)
    lines = [
        f"step                    {profile.seconds_per_step * 1e3:,.2f} ms on average; median "
        f"{median:,.2f}, {min(milliseconds):,.2f} to {max(milliseconds):,.2f}",
        f"speed                   {profile.speed()}",
        f"copied to the device    {copied}",
        f"host-device syncs       {waits}",
        f"peak memory             {memory} above what there was before the first step",
    ]
    if max(milliseconds) > UNEVEN * median:
        lines.append(
            f"uneven                  the slowest step took {max(milliseconds) / median:.1f} times the median: if "
            "something else runs on this\n                        machine, averages and shares are its as well; "
            "longer --warm-up and more --steps help otherwise"
        )
    return lines


def _table(profiles: Sequence[Profile]) -> list[str]:
    """Format times and shares of components in the order of a step, and of their parts; two profiles get a ratio."""
    totals = [profile.per_step() for profile in profiles]
    lines = []
    for component in PARTS:
        if any(component in total for total in totals):
            lines.append(_row(component, [total.get(component) for total in totals], profiles))
        parts = [profile.parts(component) for profile in profiles]
        for name in dict.fromkeys(name for part in parts for name in part):
            lines.append(_row(f"  {name.partition('/')[2]}", [part.get(name) for part in parts], profiles))
    return [*lines, _row("all", [profile.seconds_per_step for profile in profiles], profiles)]


def _row(title: str, seconds: Sequence[float | None], profiles: Sequence[Profile]) -> str:
    cells = [f"{title:<28}"]
    for value, profile in zip(seconds, profiles, strict=True):
        if value is None:
            cells.append(f"{'-':>12} {'-':>8}")
        else:
            cells.append(f"{value * 1e3:>12,.3f} {value / profile.seconds_per_step:>8.1%}")
    if len(seconds) == 2:
        first, second = seconds
        cells.append(f"{f'{second / first:.2f}' if first and second else '-':>8}")
    return " ".join(cells)


ALIKE = {
    "device": "devices",
    "world_size": "numbers of processes",
    "batch_size": "batch sizes",
}
"""These conditions must be the same for times to be compared."""

NOTED = {"cell_sha256": "cell graphs", "dtype": "precisions", "threads": "numbers of threads"}
"""These conditions may differ, and the comparison reports it."""


def compare(first: Path, second: Path) -> str:
    """Format a table of two profiles, after a warning for every difference that makes ratios doubtful.

    Args:
        first, second: ``profile.json`` or its folder; ratios are of the second to the first.

    Raises:
        DataError: a path holds no profile.
        ConfigError: the profiles were measured under conditions too different.
    """
    a, b = read_profile(first), read_profile(second)
    check_alike(a, b, (str(first), str(second)))
    lines = [
        f"warning: different {what}: {_noted(a, key)} and {_noted(b, key)}"
        for key, what in NOTED.items()
        if getattr(a, key) != getattr(b, key)
    ]
    lines.append(f"{a.device}; {_processes(a)}")
    for letter, path, p in zip("AB", (first, second), (a, b), strict=True):
        memory = "" if p.peak_memory_bytes is None else f", peak {p.peak_memory_bytes / 1e6:,.1f} MB"
        strategy = f" ({p.strategy})" if p.strategy else ""
        lines.append(f"{letter}  {path}: {p.model}{strategy}, {p.speed()}{memory}")
    header = f"{'':<28} {'A ms/step':>12} {'share':>8} {'B ms/step':>12} {'share':>8} {'B/A':>8}"
    return "\n".join([*lines, "", header, *_table([a, b])])


def check_alike(a: Profile, b: Profile, titles: tuple[str, str]) -> None:
    """Refuse profiles whose times cannot be compared with each other.

    Raises:
        ConfigError: a condition differs; the error names it and both values.
    """
    differing = [key for key in ALIKE if getattr(a, key) != getattr(b, key)]
    if differing:
        what = [f"{key} {getattr(a, key)} and {getattr(b, key)}" for key in differing]
        raise ConfigError(
            f"'{titles[0]}' and '{titles[1]}' are of different {' and '.join(ALIKE[key] for key in differing)}",
            got="; ".join(what),
            expected="profiles that differ in what is to be compared alone",
            do="profile both alike: `data.batch_size`, `trainer.devices`, `trainer.accelerator`",
        )


def _noted(profile: Profile, key: str) -> str:
    if key == "cell_sha256":
        return f"{sum(profile.edges.values()):,} edges ({profile.cell_sha256[:12]})"
    return str(getattr(profile, key))
