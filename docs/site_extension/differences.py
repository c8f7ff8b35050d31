"""What experiments 005 and 006 do otherwise than the original system, and why, as ``differences.yaml`` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dglcell.config.experiment import Config
from site_extension.markdown import table

NONE = "The original system has no such experiment.\n"
CONTINUES = "The original system has no such experiment; it continues the series of 081. Against 081:\n"
KNOWN: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def differences(config: Config) -> str:
    """The section's text."""
    name = config.experiment.name
    if not name.startswith(("005-", "006-")):
        return NONE
    if name in KNOWN["new"]:
        return f"{CONTINUES}\n- {KNOWN['new'][name]}\n\nWhat 081 does otherwise than the original:\n\n{_rows(config)}"
    stated = KNOWN["stated"].get(name)
    return _rows(config) + (f"\nThe original's notes state {stated}; this was not repeated here.\n" if stated else "")


def _rows(config: Config) -> str:
    if config.model.name == "dango":
        kinds = ["dango", "all"] if "string9_1" in config.cell.networks else ["dango_zero_weights", "dango", "all"]
    else:
        kinds = ["ic"] * (config.loss.name == "mse_dist_supcr") + ["hetero", "all", "sgd"]
    rows = [*KNOWN["own"].get(config.experiment.name, []), *(row for kind in kinds for row in KNOWN[kind])]
    return table(("the original", "here", "why"), rows)
