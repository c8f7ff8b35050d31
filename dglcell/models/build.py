"""Models by name."""

from __future__ import annotations

from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.models.config import ModelConfig
from dglcell.models.dango import Dango
from dglcell.models.hetero_cell import HeteroCell
from dglcell.models.model import StrainModel
from dglcell.models.set_operator import SetOperator
from dglcell.plugins import find_class

MODELS: dict[str, type[StrainModel]] = {"hetero_cell": HeteroCell, "set_operator": SetOperator, "dango": Dango}
"""`model.name` → the model; ``dglcell.models.config.MODEL_CONFIGS`` says what its section may say."""


def make_model(
    config: ModelConfig, cell: ResidentCell, outputs: int, features: dict[str, Tensor] | None = None
) -> StrainModel:
    """The model of a configuration, with fresh weights from torch's generator.

    Args:
        config: validated; a name that is none of ``MODELS`` is a class of one's own.
        cell: the cell graph.
        outputs: T, number of phenotypes.
        features: node type → [N, F] fixed input features.
    """
    kind: type[StrainModel] = MODELS.get(config.name) or find_class("model", config.name)
    return kind(cell, config, outputs, features)
