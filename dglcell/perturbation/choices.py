"""Choose how strains' graphs are computed: a table by device, model and length of a run; nothing is timed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from dglcell.machine.processor import multiplies_bfloat16
from dglcell.perturbation.execution import compiler_works
from dglcell.perturbation.states import DENSE_SHARE, Execution

ROWS_WORTH_COMPILING = 5e9
"""Compiled layers pay on a GPU from so many rows of a run, summed over strains and relations. On an H100 they saved
about 40 ms of a step with 28 strains of yeast's size, 5 million rows, and compiling took about 40 s."""

COMPILED_DENSE_SHARE = 0.25
"""From this share of listed pairs on, compiled layers compute all pairs sooner than plain torch computes the list."""


@dataclass(frozen=True)
class Choices:
    """Describe how the strains' graphs of a cell are computed; no choice changes a result beyond rounding.

    Attributes:
        strategy: the strategy that ``auto`` stands for.
        kernel: the kernel that ``auto`` stands for; where it is ``auto`` itself, the default of each product's device.
        compiled: whether ``torch.compile`` joins the operations of layers.
        half: whether the strains' differences are in bfloat16; they have the type of the base otherwise.
        dense_share: share of all N · B rows; where more rows change, ``difference`` computes all of them.
    """

    strategy: str
    kernel: str = "auto"
    compiled: bool = False
    half: bool = False
    dense_share: float = DENSE_SHARE

    @classmethod
    def default(cls, device_type: str, *, of_edges: str | None = None) -> Choices:
        """Return the choices for a device.

        Args:
            device_type: on a GPU ``node_mask`` never waits for the device; a CPU computes only rows that differ.
            of_edges: the strategy of a model that asks for the strains' single edges, as attention does.
        """
        return cls(of_edges or ("difference" if device_type == "cpu" else "node_mask"))

    def execution(self, *, recompute: bool) -> Execution:
        """Return how rows are computed with these choices.

        Listed rows run uncompiled, so that lists pay less often where layers are compiled.
        """
        share = min(self.dense_share, COMPILED_DENSE_SHARE) if self.compiled else self.dense_share
        return Execution(torch.bfloat16 if self.half else None, recompute, self.compiled, share)

    def for_run(
        self,
        device_type: str,
        rows: float,
        *,
        precision: str = "auto",
        compiled: str = "auto",
        one_kernel: bool = False,
    ) -> Choices:
        """Return the same choices with the form of layers for a run on a device.

        Layers are compiled where a GPU has enough to compute; a CPU gains less from it than compiling costs. Compiled
        layers, and those that one kernel computes, then have differences in bfloat16 where the device multiplies them
        fast.

        Args:
            rows: number of rows that the run computes, summed over strains and relations.
            precision: value of ``trainer.precision``: auto, 32-true, bf16 or 64-true.
            compiled: value of ``model.compile``: auto, true or false.
            one_kernel: whether one kernel computes the rows of a layer, so that nothing is left to compile.
        """
        pays = device_type != "cpu" and rows >= ROWS_WORTH_COMPILING
        compiles = (pays and not one_kernel if compiled == "auto" else compiled == "true") and compiler_works(
            device_type
        )
        half = (compiles or (pays and one_kernel)) and multiplies_bfloat16_fast(device_type)
        half = half if precision == "auto" else precision == "bf16"
        return replace(self, compiled=compiles, half=half)


def multiplies_bfloat16_fast(device_type: str) -> bool:
    """Return whether a device has instructions for products of bfloat16."""
    if device_type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return multiplies_bfloat16()
