"""Define the base class of models of strains, and the predictions that they return."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn

from dglcell.data.columns import MEDIUM
from dglcell.errors import ConfigError, GenotypeError, did_you_mean, listing
from dglcell.graph.edge_targets import EDGES
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import MODELS, ModelConfig
from dglcell.nn.conditions import ConditionedReadout, Conditions, LearnedStrengths
from dglcell.nn.links import Link
from dglcell.perturbation.edge_perturbation import EdgePerturbations
from dglcell.perturbation.execution import BaseCache
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.targets import Targets
from dglcell.plugins import class_of

Module = TypeVar("Module", bound=nn.Module)


class OnDemand(Mapping[str, Tensor]):
    """Compute scalars when they are first read, and keep them, so that unread ones cost nothing.

    Args:
        makers: name → function that computes it.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Tensor]]) -> None:
        self._makers, self._made = makers, dict[str, Tensor]()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass(frozen=True)
class Prediction:
    """Hold what a model predicts for B strains.

    Attributes:
        phenotypes: [B, T] in normalised units.
        embedding: [B, D] embedding of the strains, for losses and plots; None for a model that has none. For
            ``hetero_cell`` it is z_p = z_w − z_i.
        parts: name → [B, T], predictions that the phenotypes are combined from, e.g. ``global`` and ``local``.
        auxiliary: name → scalar that a loss may add, e.g. DANGO's ``reconstruction``; see ``OnDemand``.
    """

    phenotypes: Tensor
    embedding: Tensor | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)

    def as_numbers(self) -> Prediction:
        """Return the same without gradients, in single precision at least."""
        dtype = torch.promote_types(self.phenotypes.dtype, torch.float32)
        return self.with_rows(lambda x: x.detach().to(dtype))

    def with_rows(self, change: Callable[[Tensor], Tensor]) -> Prediction:
        """Return the prediction with ``change`` applied to each tensor [B, …], e.g. to join the rows of all ranks.

        Auxiliary scalars stay.
        """

        def changed(x: Tensor | None) -> Tensor | None:
            return None if x is None else change(x)

        parts = {name: change(x) for name, x in self.parts.items()}
        return Prediction(change(self.phenotypes), changed(self.embedding), parts, self.auxiliary)


def joined(predictions: Sequence[Prediction]) -> Prediction:
    """Join the predictions of several batches; auxiliary scalars are those of the last one."""
    last = predictions[-1]

    def rows(tensors: Sequence[Tensor | None]) -> Tensor | None:
        known = [x for x in tensors if x is not None]
        return torch.cat(known) if known else None

    return Prediction(
        torch.cat([one.phenotypes for one in predictions]),
        rows([one.embedding for one in predictions]),
        {name: torch.cat([one.parts[name] for one in predictions]) for name in last.parts},
        last.auxiliary,
    )


class StrainModel(nn.Module):
    """Predict phenotypes of strains from the integer indices of their deleted genes.

    It is made with four arguments: ``cell``, ``config``, ``outputs`` (T, the number of phenotypes) and ``features``
    (node type → [N, F] fixed input features, or None).

    Attributes:
        Config: class of the model section of a configuration.
        cell: the cell graph; part of the module, so it follows it to any device.
        config: the configuration that the model was made from.
        readout: lets heads see conditions and strengths; None where the model sees neither.
        learned: learns what is left of genes; None where nothing says it but the table.
        media_strengths: [M, K] strengths of reaction nodes in the media that strains grow in; None without media.
        changes_edges: whether strains have graphs of their own, whose edges the condition `edges` may change.
    """

    Config: ClassVar[type[ModelConfig]] = ModelConfig
    cell: ResidentCell
    config: ModelConfig
    readout: ConditionedReadout | None
    learned: LearnedStrengths | None
    media_strengths: Tensor | None
    changes_edges: ClassVar[bool] = False
    _edges_of: EdgePerturbations | None = None

    def __init__(self) -> None:
        super().__init__()
        self._base_cache = BaseCache()

    def train(self, mode: bool = True) -> Self:
        """Set the mode, and forget what evaluation kept of the wild type."""
        self._base_cache.forget()
        return super().train(mode)

    @abstractmethod
    def forward(self, genotypes: GenotypeBatch) -> Prediction:
        """Predict the phenotypes of B strains, on the device of the model."""

    def see_conditions(self, *, width: int, strain_width: int, outputs: int, hidden: int, activation: str) -> None:
        """Make what heads need to see the conditions and strengths of strains; nothing where strains have neither.

        Args:
            width: H of genes' vectors; 0 where no head sees genes.
            strain_width: width of the strain's vector; 0 where no head sees it.
            outputs: T.
            hidden: width inside a score of the conditions alone.
            activation: activation inside it.

        Raises:
            ConfigError: strengths are to be learned from a condition that strains do not have, or edges are to be
                changed where strains have no graphs of their own.
        """
        config, seen = self.config, self.config.conditions or {}
        self.readout = self.learned = None
        learned_from = config.conditions_of_strength()
        shown = [name for name in seen if name not in learned_from and name != EDGES]
        if EDGES in seen and not self.changes_edges:
            raise ConfigError(
                "the condition `edges` needs a model with a graph for each strain",
                got=f"`model.name: {config.name}`",
                expected="hetero_cell",
                do="set `model.name: hetero_cell`, or leave `edges` out of `data.source.csv.conditions`",
            )
        in_media = MEDIUM in seen and bool(self.cell.media)
        strengths = self._media(seen[MEDIUM]) if in_media else None
        self.register_buffer("media_strengths", strengths, persistent=False)
        tables = None if strengths is None else {MEDIUM: strengths}
        curves = bool(config.strength_curves or config.strength_from)
        if shown or curves:
            self.readout = ConditionedReadout(
                Conditions(seen, shown, tables) if shown else None,
                curves=curves,
                width=width,
                strain_width=strain_width,
                outputs=outputs,
                hidden=hidden,
                activation=activation,
            )
        if config.strength_from:
            self.learned = LearnedStrengths(
                Conditions(seen, learned_from),
                hidden=config.strength_hidden,
                prior=config.strength_prior,
                activation=activation,
                tabled=bool(config.strength_curves),
            )

    def _media(self, names: Sequence[str]) -> Tensor:
        """Return the strengths of the nodes that differ between media, [M, K], in the order of ``names``.

        Raises:
            ConfigError: the cell graph lacks a medium.
        """
        known = self.cell.media
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ConfigError(
                f"the cell graph does not know the medium '{unknown[0]}' of the strains",
                expected=f"among {listing(known)}",
                do=did_you_mean(unknown[0], known, "add it to `cell.media`"),
            )
        return self.cell.media_strengths[[known.index(name) for name in names]]

    def in_conditions(self, genotypes: GenotypeBatch) -> GenotypeBatch:
        """Return the strains with what their conditions do to their graphs: reactions of media, and changed edges."""
        seen, of_media, values_BC = list(self.config.conditions or ()), self.media_strengths, genotypes.conditions
        if values_BC is None:
            return genotypes
        if of_media is not None:
            codes_B = values_BC[:, seen.index(MEDIUM)].long()
            strengths_BK = of_media[codes_B]
            B, K = strengths_BK.shape
            offsets = torch.arange(B + 1, device=codes_B.device) * K
            reactions = Targets(self.cell.media_nodes.repeat(B), offsets, K, strengths_BK.reshape(-1))
            genotypes = replace(genotypes, reactions=reactions)
        if EDGES in seen:
            codes_B = values_BC[:, seen.index(EDGES)].long()
            genotypes = replace(genotypes, edges=self._edges(codes_B.device).take(codes_B))
        return genotypes

    @torch.inference_mode(False)
    def _edges(self, device: torch.device) -> EdgePerturbations:
        """Return what each value of the condition `edges` changes; they are looked up once, as long as none is added.

        Raises:
            GenotypeError: the cell graph does not have such an edge.
        """
        assert self.config.conditions is not None
        texts = self.config.conditions[EDGES]
        known = 0 if self._edges_of is None else self._edges_of.num_strains
        if known != len(texts):
            try:
                self._edges_of = EdgePerturbations.build(self.cell, texts)
            except GenotypeError:
                del texts[known:]  # Predictions named them, and the next ones shall not fail for them.
                raise
        assert self._edges_of is not None
        return self._edges_of.to(device)

    def ignore_conditions_at_first(self) -> None:
        """Set the weights of the layers that see conditions to zero, so that conditions change nothing at first."""
        for part in (self.readout, self.learned):
            if part is not None:
                part.start_at_zero()

    def fit_conditions(self, values_SC: Tensor | None) -> None:
        """Standardise conditions by those of the training strains, [S, C]; None where they have none."""
        if values_SC is None:
            return
        for part in self.modules():
            if isinstance(part, Conditions):
                part.fit(values_SC)

    def of_no_strains(self, genotypes: GenotypeBatch) -> Prediction:
        """Return the prediction of a batch without strains, whose tensors have no rows."""
        seen = genotypes.conditions
        one_strain = replace(
            genotypes.of_shared(), conditions=None if seen is None else seen.new_zeros(1, seen.shape[1])
        )
        one: Prediction = self(one_strain)
        return one.with_rows(lambda x: x[:0])

    def find(self, kind: type[Module]) -> Module | None:
        """Return the part of this class, such as ``Link``; None if the model has none."""
        return next((module for module in self.children() if isinstance(module, kind)), None)

    def make_room(self, weights: Mapping[str, Tensor]) -> None:
        """Give weights whose size follows from the training data the size that they have in a checkpoint."""
        link = self.find(Link)
        found = [weights.get(f"link.measured.{name}") for name in ("labels", "genes")]
        if link is not None and link.measured is not None:
            link.measured.make_room(*(0 if tensor is None else len(tensor) for tensor in found))

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
    """Make the model of a configuration, with fresh weights from torch's generator.

    Args:
        config: validated; a name that is not a key of ``MODELS`` is a class of your own.
        cell: the cell graph.
        outputs: T, number of phenotypes.
        features: node type → [N, F] fixed input features.
    """
    kind: Callable[..., StrainModel] = class_of("model", config.name, MODELS)
    return kind(cell, config, outputs, features)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)
