"""What ``strategy: auto`` and ``kernel: auto`` take: found once for a machine and a cell graph, the same ever after."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dglcell.errors import CheckpointError
from dglcell.graph.resident import ResidentCell

DENSE_SHARE = 0.9
"""Without calibration: changed rows, as a share of all, from which dense states are cheaper than a list of rows."""


@dataclass(frozen=True)
class Choices:
    """How the strains' graphs of a cell are computed.

    Attributes:
        strategy: what ``auto`` stands for.
        dense_share: changed rows, as a share of N · B, from which ``difference`` makes states dense.
        kernels: relation name → number of columns → kernel; the nearest number of columns counts.
    """

    strategy: str
    dense_share: float = DENSE_SHARE
    kernels: dict[str, dict[int, str]] = field(default_factory=dict)

    @classmethod
    def default(cls, device_type: str) -> Choices:
        """Without calibration: on a GPU ``node_mask``, which never waits for the device."""
        return cls("difference" if device_type == "cpu" else "node_mask")

    def apply(self, cell: ResidentCell) -> None:
        """Let ``kernel: auto`` of the cell's relations follow these choices."""
        for relation in cell.relations:
            cell[relation].preferred = dict(self.kernels.get("/".join(relation), {}))

    def to_dict(self) -> dict[str, Any]:
        """Plain containers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any], source: str) -> Choices:
        """The reverse of ``to_dict``.

        Raises:
            CheckpointError: ``content`` is something else.
        """
        try:
            kernels = {name: {int(c): str(k) for c, k in by.items()} for name, by in content["kernels"].items()}
            return cls(str(content["strategy"]), float(content["dense_share"]), kernels)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"'{source}' does not hold choices of strategy and kernels",
                got=f"{type(error).__name__}: {error}",
                expected="`strategy`, `dense_share` and `kernels`, as a run writes them to choices.json",
                do="give the choices.json of a run, or set `model.choices: null` to have them found anew",
            ) from error
