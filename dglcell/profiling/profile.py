"""A profile: where the time of training steps went, and under which conditions."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglcell.errors import DataError
from dglcell.files import DAMAGE, write_json
from dglcell.profiling.components import whole

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
        choices: what `auto` took for strategy and kernels, and why; None where nothing was left to it.
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
    choices: dict[str, Any] | None
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
