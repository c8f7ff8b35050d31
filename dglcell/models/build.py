"""Models by name."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.models.base_config import ModelConfig
from dglcell.models.config import HeteroCellConfig
from dglcell.models.dango import Dango
from dglcell.models.dango_config import DangoConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.models.prediction import StrainModel
from dglcell.models.set_operator import SetOperator
from dglcell.models.set_operator_config import SetOperatorConfig


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
