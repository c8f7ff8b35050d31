"""The profile of a run: its file, its text, and how two of them differ."""

from __future__ import annotations

import dataclasses
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglcell.errors import ConfigError, DataError
from dglcell.files import DAMAGE, write_json
from dglcell.profiling.account import COMPONENTS, whole
from dglcell.profiling.loop import MODES

# A profile: where the time of training steps went, and under which conditions.


PROFILE = "profile.json"
TRACE = "trace.json.gz"


@dataclass(frozen=True)
class Profile:
    """What was measured.

    Attributes:
        experiment: name.
        mode: how much of a step was run, see ``MODES``.
        model: name.
        strategy: of the model, and what `auto` took; None for a model that has none.
        device: its name.
        threads: that torch computes with on a CPU.
        world_size: processes.
        batch_size: strains per step and process, as configured.
        dtype: `trainer.precision`.
        nodes, edges: of the cell graph, by node type and by relation.
        cell_sha256: of the cell graph.
        parameters: of the model.
        clock: ``host`` or ``device stream``, see ``clocks``.
        warm_up: steps before the timed ones.
        steps: seconds of each timed step, of the first process.
        samples: strains in all timed steps, of all processes.
        components: component or `component/part` → seconds in all timed steps; they sum up to the steps.
        bytes_to_device: copied from the host in one step, of the first process.
        synchronisations: of the host with the device in one step; None on a CPU.
        peak_memory_bytes: largest rise of the process's resident set, or of the GPU's allocations, above what there
            was before the first step; None where it cannot be measured.
        autotuned: what `auto` took for strategy and kernels, and why; None where nothing was left to it.
        environment: versions, command, git state.
    """

    experiment: str
    mode: str
    model: str
    strategy: str | None
    device: str
    threads: int
    world_size: int
    batch_size: int
    dtype: str
    nodes: dict[str, int]
    edges: dict[str, int]
    cell_sha256: str
    parameters: int
    clock: str
    warm_up: int
    steps: list[float]
    samples: int
    components: dict[str, float]
    bytes_to_device: int
    synchronisations: int | None
    peak_memory_bytes: int | None
    autotuned: dict[str, Any] | None
    environment: dict[str, Any]

    @property
    def wall(self) -> float:
        """Seconds of all timed steps."""
        return sum(self.steps)

    @property
    def seconds_per_step(self) -> float:
        """Mean."""
        return self.wall / len(self.steps)

    @property
    def steps_per_second(self) -> float:
        """it/s."""
        return len(self.steps) / self.wall

    @property
    def samples_per_second(self) -> float:
        """Strains per second, of all processes."""
        return self.samples / self.wall

    def per_step(self) -> dict[str, float]:
        """Mean seconds per step of every component as a whole."""
        totals: dict[str, float] = {}
        for name, seconds in self.components.items():
            totals[whole(name)] = totals.get(whole(name), 0.0) + seconds / len(self.steps)
        return totals

    def parts(self, component: str) -> dict[str, float]:
        """Mean seconds per step of a component's parts, by `component/part`, the largest first."""
        found = {n: s / len(self.steps) for n, s in self.components.items() if n.startswith(f"{component}/")}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def write(self, path: Path) -> None:
        """Write it as JSON with what follows from it, atomically."""
        derived = {
            "seconds_per_step": self.seconds_per_step,
            "steps_per_second": self.steps_per_second,
            "samples_per_second": self.samples_per_second,
            "shares": {name: seconds / self.seconds_per_step for name, seconds in self.per_step().items()},
        }
        write_json(path, {**dataclasses.asdict(self), "derived": derived})


def read_profile(path: Path) -> Profile:
    """A profile from its file or folder.

    Raises:
        DataError: it is not there, or the file is something else.
    """
    file = path / PROFILE if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"no profile at '{path}'", expected=f"a {PROFILE} or its folder", do="run `dglcell profile`")
    names = [field.name for field in dataclasses.fields(Profile)]
    try:
        content = json.loads(file.read_text())
        profile = Profile(**{name: content[name] for name in names})
        # A file with another kind of content fails here and not in the middle of a table.
        _ = profile.per_step(), profile.samples_per_second
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, *DAMAGE) as error:
        raise DataError(
            f"'{file}' is no profile",
            got=f"{type(error).__name__}: {error}",
            expected=f"a {PROFILE} as `dglcell profile` writes it",
        ) from error
    return profile


# A profile as people read it.


NAME_WIDTH = 28
# From how many times the median on a step is said to be slow.
UNEVEN = 2.0


def format_profile(profile: Profile) -> str:
    """Conditions, speed, and a table of exclusive times."""
    return "\n".join([*_conditions(profile), "", *_speed(profile), "", *_table(profile)])


def _conditions(profile: Profile) -> list[str]:
    strategy = f" ({profile.strategy})" if profile.strategy else ""
    edges = sum(profile.edges.values())
    return [
        f"{profile.experiment}: {MODES[profile.mode]}; {len(profile.steps)} steps after {profile.warm_up} to warm up",
        f"{profile.model}{strategy}, {profile.parameters:,} parameters; {edges:,} edges in {len(profile.edges)} "
        f"relations",
        f"{profile.device}; {format_processes(profile)}; {profile.dtype}; {profile.threads} threads; "
        f"clock: {profile.clock}",
    ]


def format_processes(profile: Profile) -> str:
    """Processes and strains of each."""
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
        f"speed                   {profile.steps_per_second:,.2f} it/s, {profile.samples_per_second:,.1f} samples/s",
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


def _table(profile: Profile) -> list[str]:
    """Components in the order of a step, and their parts."""
    lines = [f"{'exclusive time':<{NAME_WIDTH}} {'ms/step':>12} {'share':>8}"]
    totals = profile.per_step()
    for component in COMPONENTS:
        if component not in totals:
            continue
        lines.append(_row(component, totals[component], profile))
        parts = profile.parts(component)
        lines += [_row(f"  {part_of(name)}", seconds, profile) for name, seconds in parts.items()]
    return [*lines, _row("all", sum(totals.values()), profile)]


def part_of(name: str) -> str:
    """The part of `component/part`."""
    return name.removeprefix(whole(name)).removeprefix("/")


def _row(title: str, seconds: float, profile: Profile) -> str:
    return f"{title:<{NAME_WIDTH}} {seconds * 1e3:>12,.3f} {seconds / profile.seconds_per_step:>8.1%}"


# ``dglcell compare``: two profiles side by side, where that says something.


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
    return "\n".join([*warnings_of(a, b), *_heading(a, b, (str(first), str(second))), "", *_comparison_table(a, b)])


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


def _comparison_table(a: Profile, b: Profile) -> list[str]:
    header = f"{'':<{NAME_WIDTH}} {'A ms/step':>12} {'share':>8} {'B ms/step':>12} {'share':>8} {'B/A':>8}"
    lines, totals = [header], (a.per_step(), b.per_step())
    for component in COMPONENTS:
        if component not in totals[0] and component not in totals[1]:
            continue
        lines.append(_comparison_row(component, totals[0].get(component), totals[1].get(component), a, b))
        parts = a.parts(component), b.parts(component)
        for name in [*parts[0], *(name for name in parts[1] if name not in parts[0])]:
            title = f"  {name.removeprefix(component + '/')}"
            lines.append(_comparison_row(title, parts[0].get(name), parts[1].get(name), a, b))
    return [*lines, _comparison_row("all", a.seconds_per_step, b.seconds_per_step, a, b)]


def _comparison_row(title: str, first: float | None, second: float | None, a: Profile, b: Profile) -> str:
    ratio = f"{second / first:.2f}" if first and second else "-"
    cells = [_cells(seconds, profile) for seconds, profile in ((first, a), (second, b))]
    return f"{title:<{NAME_WIDTH}} {cells[0]} {cells[1]} {ratio:>8}"


def _cells(seconds: float | None, profile: Profile) -> str:
    if seconds is None:
        return f"{'-':>12} {'-':>8}"
    return f"{seconds * 1e3:>12,.3f} {seconds / profile.seconds_per_step:>8.1%}"
