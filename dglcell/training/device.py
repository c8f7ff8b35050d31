"""The device that models run on."""

from __future__ import annotations

import logging

import torch

from dglcell.errors import ConfigError, MissingDependencyError

DEVICES = ("cpu", "cuda")

log = logging.getLogger("dglcell")


def device_of(accelerator: str) -> str:
    """``cpu`` or ``cuda``: what an accelerator, as Lightning names them, is to torch."""
    if accelerator == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if accelerator in ("gpu", "cuda") else "cpu"


def device_here(accelerator: str) -> str:
    """Where a trained model is evaluated: ``device_of``, or the CPU where the accelerator it was trained on is not."""
    device = device_of(accelerator)
    if device == "cuda" and not torch.cuda.is_available():
        log.info("torch sees no GPU: evaluating on the CPU")
        return "cpu"
    return device


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here.

    Raises:
        ConfigError: neither ``cpu`` nor ``cuda``.
        MissingDependencyError: ``cuda``, and torch sees no GPU.
    """
    if device.split(":")[0] not in DEVICES:
        raise ConfigError("unknown device", got=device, expected=" or ".join(DEVICES))
    if device != "cpu" and not torch.cuda.is_available():
        raise MissingDependencyError(
            f"device '{device}' asked for, but torch sees no GPU", do="use `cpu`; `dglcell doctor` says what there is"
        )
