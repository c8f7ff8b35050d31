"""In which precision a run computes, and whether its layers are compiled."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from dglcell.errors import ConfigError
from dglcell.perturbation.choices import Choices
from dglcell.perturbation.compiled import compiler_works

log = logging.getLogger("dglcell")

PRECISIONS = ("auto", "32-true", "bf16", "64-true")
"""Values of ``trainer.precision``. With ``bf16`` differences are stored and multiplied in bfloat16; the base, sums,
losses and weights stay in float32."""

OLD_PRECISIONS = {"bf16-mixed": "bf16", "32": "32-true", "64": "64-true"}
"""Names that files of other programs use, and what stands for them here."""

ROWS_WORTH_COMPILING = 3e8
"""Rows of a run, strain by strain and relation by relation, from which compiling is paid back: on two cores it takes a
minute, and then saves 0.35 s for each million rows 32 wide."""


def check_precision(name: str) -> None:
    """Refuse a precision that there is not.

    Raises:
        ConfigError: naming those there are.
    """
    if name not in PRECISIONS and name not in OLD_PRECISIONS:
        raise ConfigError(
            "`trainer.precision` is unknown",
            got=name,
            expected=", ".join(PRECISIONS),
            do="set `trainer.precision: auto`",
        )


def lightning_precision(name: str) -> str:
    """Lightning's name for the precision of weights, bases and losses."""
    return "64-true" if OLD_PRECISIONS.get(name, name) == "64-true" else "32-true"


def settle_execution(
    choices: Choices, precision: str, compiled: str, device: torch.device, rows: float, *, pinned: bool = False
) -> Choices:
    """Choices with the precision of differences, and whether layers are compiled.

    Args:
        choices: of strategy and kernels.
        precision: ``trainer.precision``.
        compiled: ``model.compile``: auto, true or false.
        device: where the run computes.
        rows: how many rows, strain by strain and relation by relation, the run computes.
        pinned: let ``auto`` stand for what ``choices`` say, which are another run's.
    """
    name = OLD_PRECISIONS.get(precision, precision)
    if name != precision:
        log.info(
            "`trainer.precision: %s` stands for `%s` here: only differences are in half precision", precision, name
        )
    wanted = choices.compile if pinned else rows >= ROWS_WORTH_COMPILING
    compile_layers = (wanted if compiled == "auto" else compiled == "true") and compiler_works()
    fast = choices.differences == "bfloat16" if pinned else compile_layers and multiplies_bfloat16_fast(device)
    half = fast if name == "auto" else name == "bf16"
    log.info(
        "differences in %s (`trainer.precision: %s`), layers %s (`model.compile: %s`)",
        "bfloat16" if half else "the base's precision",
        precision,
        "compiled" if compile_layers else "not compiled",
        compiled,
    )
    return choices.for_layers(compiled=compile_layers, half=half)


def multiplies_bfloat16_fast(device: torch.device) -> bool:
    """Whether a device has instructions for products of bfloat16."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
