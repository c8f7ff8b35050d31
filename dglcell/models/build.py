"""Models by name."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.models.config import DangoConfig, HeteroCellConfig, ModelConfig, SetOperatorConfig
from dglcell.models.dango import Dango
from dglcell.models.hetero_cell import HeteroCell
from dglcell.models.model import StrainModel
from dglcell.models.set_operator import SetOperator


class ModelKind(NamedTuple):
    """A model and what its section of a configuration may say."""

    config: type[ModelConfig]
    module: type[StrainModel]


MODELS: dict[str, ModelKind] = {
    "hetero_cell": ModelKind(HeteroCellConfig, HeteroCell),
    "set_operator": ModelKind(SetOperatorConfig, SetOperator),
    "dango": ModelKind(DangoConfig, Dango),
}


def make_model(
    config: ModelConfig, cell: ResidentCell, outputs: int, features: dict[str, Tensor] | None = None
) -> StrainModel:
    """The model of a configuration, with fresh weights from torch's generator.

    Args:
        config: validated.
        cell: the cell graph.
        outputs: T, number of phenotypes.
        features: node type → [N, F] fixed input features.
    """
    return MODELS[config.name].module(cell, config, outputs, features)
