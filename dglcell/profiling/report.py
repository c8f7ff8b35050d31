"""A profile as people read it."""

from __future__ import annotations

import statistics

from dglcell.profiling.components import COMPONENTS, whole
from dglcell.profiling.modes import MODES
from dglcell.profiling.profile import Profile

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
