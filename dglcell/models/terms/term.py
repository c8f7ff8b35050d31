"""Define what every term of a model has, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dglcell.data.dataset import Normaliser
from dglcell.data.strains import Strains
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import TermConfig
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import States


@dataclass(frozen=True)
class Training:
    """Hold what a term may learn from before the first step."""

    strains: Strains  #: the training strains; labels are in original units, and NaN where missing
    normaliser: Normaliser  #: the units in which models predict
    fitness_like: tuple[bool, ...]  #: [T] whether the training labels of a phenotype look like a fitness


@dataclass(frozen=True)
class Surroundings:
    """Say what a term is made for."""

    name: str  #: name of the term in the model
    cell: ResidentCell  #: the cell graph
    outputs: int  #: T, number of phenotypes
    hidden: int  #: H, width of node states
    activation: str  #: those of the model
    dropout: float
    metabolism: bool  #: whether the model reads reactions and metabolites
    own_graphs: bool  #: whether the model computes every strain's own graph
    before: Mapping[str, Term]  #: name → term, of those that come before in the list


@dataclass(frozen=True)
class Seen:
    """Hold what terms see of B strains."""

    cell: ResidentCell  #: the cell graph
    strains: GenotypeBatch  #: the strains, with their activities, media and covariates
    wild_type: Mapping[str, Tensor]  #: node type → [N, H] states of the wild type
    vectors: Mapping[str, Tensor]  #: name of a term → [B, D] vectors of the strains that its score is computed from
    #: vectors of the changed genes: their states in the wild type, as terms such as covariates have moved them; K is 0
    #: where no term of the model ``sees_genes``
    x_BKH: Tensor
    #: gives the score of the strain without changes, [1, T], for phenotypes of a shape [B, T]
    wild_type_score: Callable[[Tensor], Tensor]


class Term(nn.Module):
    """Contribute to a model's prediction. A term says in its methods what it does; by default it does nothing.

    A model calls the methods in this order, each for all of its terms: ``strains``, ``pool``, ``see``, ``forward``,
    ``finish``.

    Args:
        config: validated keys of the term.
        surroundings: what it is made for.

    Attributes:
        Config: class of the keys; a dataclass derived from ``TermConfig``.
        sees_genes: whether it reads the vectors of changed genes, ``Seen.x_BKH``.
        learns_activities: whether ``strains`` says how much is left of genes.
        fitted: names of buffers whose size follows from the training strains; a checkpoint gives them their size.
        name: its name in the model.
        width: D of its vector of the whole strain; 0 where it has none.
    """

    Config: ClassVar[type[TermConfig]] = TermConfig
    sees_genes: ClassVar[bool] = False
    learns_activities: ClassVar[bool] = False
    fitted: tuple[str, ...] = ()
    width = 0
    config: Any

    def __init__(self, config: Any, surroundings: Surroundings) -> None:
        super().__init__()
        self.config, self.name = config, surroundings.name

    @classmethod
    def reads(cls, config: Any) -> list[str]:
        """Return the node types of the strains' own graphs that ``pool`` reads; there are none by default."""
        return []

    def start(self) -> None:
        """Set initial weights, after Linear layers and embeddings have got theirs (``dglcell.nn.blocks``)."""

    def fit(self, train: Training, cell: ResidentCell) -> None:
        """Learn from the training strains what does not change while the model trains, and keep it in buffers.

        It is called once, before the first step of a new run. Checkpoints hold the buffers.
        """

    def strains(self, genotypes: GenotypeBatch) -> GenotypeBatch:
        """Return the strains as later terms and their graphs see them, e.g. with activities that are learned."""
        return genotypes

    def pool(self, states: Mapping[str, States], kept: Mapping[str, Kept]) -> Tensor:
        """Return by how much strains differ from the base in what the term reads of their graphs, [B, D].

        Where strains have deletions in common, it is added up over two bases; so it has to be a sum over rows.

        Args:
            states: node type → states in every strain's own graph.
            kept: node type → which nodes are kept, and how much of them.
        """
        raise NotImplementedError

    def see(self, seen: Seen) -> Seen:
        """Return what later terms, and all scores, see; ``dataclasses.replace`` changes a part of it."""
        return seen

    def forward(self, seen: Seen) -> Tensor | None:
        """Return scores, [B, T] in normalised units, which are added to those of other terms; None for no score."""
        return None

    def of_wild_type(self, like_BT: Tensor) -> Tensor:
        """Return the score of the strain without changes, [1, T], on the device and in the type of ``like_BT``."""
        return torch.zeros_like(like_BT[:1])

    def finish(self, score_BT: Tensor, seen: Seen) -> Tensor:
        """Return phenotypes in normalised units, [B, T], from what all terms score, or from an earlier ``finish``."""
        return score_BT

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        for name in self.fitted:
            owner, _, last = name.rpartition(".")
            module, found = self.get_submodule(owner), state_dict.get(prefix + name)
            own = getattr(module, last)
            if isinstance(found, Tensor) and found.ndim == own.ndim:
                setattr(module, last, own.new_empty(found.shape))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
