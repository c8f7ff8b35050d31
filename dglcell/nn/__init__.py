"""Layers that pass messages over strains' graphs, and what models read of them; each is imported when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dglcell.nn.blocks import AttentionPooling, MeanPooling
    from dglcell.nn.convolutions import Convolution, GATv2Conv, GINConv, SAGEConv, as_convolution
    from dglcell.nn.hetero_layer import HeteroLayer

__all__ = [
    "AttentionPooling",
    "Convolution",
    "GATv2Conv",
    "GINConv",
    "HeteroLayer",
    "MeanPooling",
    "SAGEConv",
    "as_convolution",
]

_MODULES = {"AttentionPooling": "blocks", "HeteroLayer": "hetero_layer", "MeanPooling": "blocks"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'convolutions')}"), name)
