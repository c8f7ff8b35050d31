"""What ``strategy: auto`` and ``kernel: auto`` take: found once for a machine and a cell graph, the same ever after."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from dglcell.errors import CheckpointError
from dglcell.graph.resident import ResidentCell
from dglcell.perturbation.states import DENSE_SHARE, Execution

COMPILED_DENSE_SHARE = 0.25
"""Listed pairs, as a share of all, from which compiled layers compute all sooner than plain torch computes the list."""


@dataclass(frozen=True)
class Choices:
    """How the strains' graphs of a cell are computed.

    Attributes:
        strategy: what ``auto`` stands for.
        dense_share: changed rows, as a share of N · B, from which ``difference`` makes states dense.
        kernels: relation name → number of columns → kernel; the nearest number of columns counts.
        differences: name of the type that strains' differences are in; the base's where None.
        compile: whether ``torch.compile`` joins the operations of layers.
    """

    strategy: str
    dense_share: float = DENSE_SHARE
    kernels: dict[str, dict[int, str]] = field(default_factory=dict)
    differences: str | None = None
    compile: bool = False

    @classmethod
    def default(cls, device_type: str) -> Choices:
        """Without calibration: on a GPU ``node_mask``, which never waits for the device."""
        return cls("difference" if device_type == "cpu" else "node_mask")

    def execution(self, *, recompute: bool) -> Execution:
        """How rows are computed."""
        dtype = None if self.differences is None else getattr(torch, self.differences)
        return Execution(dtype, recompute, self.compile, self.dense_share)

    def for_layers(self, *, compiled: bool, half: bool) -> Choices:
        """The same where layers are compiled or not, and differences are in half precision or not.

        Rows of a list run uncompiled, so that lists stop earlier to be worth it where layers are compiled.
        """
        share = min(self.dense_share, COMPILED_DENSE_SHARE) if compiled else self.dense_share
        return replace(self, compile=compiled, differences="bfloat16" if half else None, dense_share=share)

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
            differences = content.get("differences")
            if differences not in (None, "bfloat16", "float32"):
                raise ValueError(f"differences of type {differences!r}")
            share, compiled = float(content["dense_share"]), bool(content.get("compile", False))
            return cls(str(content["strategy"]), share, kernels, differences, compiled)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"'{source}' does not hold choices of strategy and kernels",
                got=f"{type(error).__name__}: {error}",
                expected="`strategy`, `dense_share` and `kernels`, as a run writes them to choices.json",
                do="give the choices.json of a run, or set `model.choices: null` to have them found anew",
            ) from error
