"""Define the base class of models of strains, and the predictions that they return."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from dglcell.graph.resident import ResidentCell
from dglcell.models.config import MODELS, ModelConfig
from dglcell.models.terms.term import Term, Training
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.plugins import class_of


@dataclass(frozen=True)
class Prediction:
    """Hold what a model predicts for B strains."""

    phenotypes: Tensor  #: [B, T] in normalised units
    #: [B, D] embedding of the strains, for losses and plots; None for a model that has none. For ``hetero_cell`` it is
    #: z_p = z_w − z_i.
    embedding: Tensor | None = None
    #: name of a term → [B, T], its score, of which the phenotypes are made
    parts: dict[str, Tensor] = field(default_factory=dict)
    #: name → what computes a scalar that a loss may add, e.g. DANGO's ``reconstruction``, which costs nothing unasked
    auxiliary: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict)

    def as_numbers(self) -> Prediction:
        """Return the same without gradients, in single precision at least."""
        dtype = torch.promote_types(self.phenotypes.dtype, torch.float32)
        return self.with_rows(lambda x: x.detach().to(dtype))

    def with_rows(self, change: Callable[[Tensor], Tensor]) -> Prediction:
        """Return the prediction with ``change`` applied to each tensor [B, …], e.g. to join the rows of all ranks."""
        embedding = None if self.embedding is None else change(self.embedding)
        parts = {name: change(x) for name, x in self.parts.items()}
        return Prediction(change(self.phenotypes), embedding, parts, self.auxiliary)


def joined(predictions: Sequence[Prediction]) -> Prediction:
    """Join the predictions of several batches; what is auxiliary is of the last one."""
    last = predictions[-1]
    phenotypes = torch.cat([one.phenotypes for one in predictions])
    embeddings = [one.embedding for one in predictions if one.embedding is not None]
    parts = {name: torch.cat([one.parts[name] for one in predictions]) for name in last.parts}
    return Prediction(phenotypes, torch.cat(embeddings) if embeddings else None, parts, last.auxiliary)


class StrainModel(nn.Module):
    """Predict phenotypes of strains from the integer indices of their deleted genes.

    It is made with four arguments: ``cell``, ``config``, ``outputs`` (T, the number of phenotypes) and ``features``
    (node type → [N, F] fixed input features, or None).

    Attributes:
        Config: class of the model section of a configuration.
        cell: the cell graph; part of the module, so it follows it to any device.
        config: the configuration that the model was made from.
        own_graphs: whether it computes every strain's own graph.
    """

    Config: ClassVar[type[ModelConfig]] = ModelConfig
    cell: ResidentCell
    config: ModelConfig
    own_graphs: bool = False

    @abstractmethod
    def forward(self, genotypes: GenotypeBatch) -> Prediction:
        """Predict the phenotypes of B strains, on the device of the model."""

    def fit(self, train: Training) -> None:
        """Learn from the training strains what does not change while the model trains, before the first step."""

    @property
    def learned(self) -> Term | None:
        """Return the term that learns what is left of genes; None where nothing says it but the table."""
        return None

    def fitting_batch(self, most: int) -> int:
        """Return for how many strains a forward pass of an evaluation is expected to fit into memory."""
        return most

    @property
    def shares_deletions(self) -> bool:
        """Return whether evaluation costs less for batches that say which deletions their strains have in common."""
        return False


def make_model(
    config: ModelConfig, cell: ResidentCell, outputs: int, features: dict[str, Tensor] | None = None
) -> StrainModel:
    """Make the model of a configuration, with fresh weights from torch's generator; see ``StrainModel``."""
    kind: Callable[..., StrainModel] = class_of("model", config.name, MODELS)
    return kind(cell, config, outputs, features)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
