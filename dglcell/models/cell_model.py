"""Build models that are lists of terms, over one encoder of the cell graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import GENE
from dglcell.kernels.spmm import default_kernel
from dglcell.machine import free_memory
from dglcell.models.config import CellModelConfig, HeteroCellConfig, ModelConfig, PlannedTerm, SetOperatorConfig
from dglcell.models.encoder import CellEncoder
from dglcell.models.model import Prediction, StrainModel
from dglcell.models.terms.term import Seen, Surroundings, Term, Training
from dglcell.nn.blocks import EMBEDDING_STD, initialise
from dglcell.perturbation import DGL_STRATEGIES
from dglcell.perturbation.execution import BaseCache, BasePass, Choices
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.perturbation.perturb import lists_on, perturb
from dglcell.perturbation.rules import from_source

log = logging.getLogger("dglcell")

SHARE_OF_MEMORY = 0.7
"""Layers may keep this part of the memory that is free at a first step; optimiser and gradients need some, too."""


@dataclass(frozen=True)
class Encoded:
    """Hold what terms read of B encoded strains."""

    wild_type: Mapping[str, Tensor]  #: node type → [N, H] states of the wild type
    #: name of a term → [B, D], by how much what it pools of the strains differs from the base
    differences: Mapping[str, Tensor] = field(default_factory=dict)
    auxiliary: Mapping[str, Callable[[], Tensor]] = field(default_factory=dict)  #: see ``Prediction``


class CellModel(StrainModel):
    r"""Predict phenotypes by a list of terms, which read what one encoder says of the cell graph.

    1. Terms may change the strains: activities are learned, and media weaken reactions.
    2. The encoder passes messages. Where a term pools strains' own graphs, it does so over the surviving edges of every
       strain: over the wild type once, and over by how much every strain differs from it. Else, or with ``messages:
       wild_type``, it encodes the wild type alone, whatever the batch.
    3. Terms see the wild type's states, those of the changed genes, and the vectors of strains; they may move them.
    4. Each term may give a score. Scores are added up, or their mean is taken (``combination``).
    5. Terms may finish the score, as ``Link`` makes a phenotype of it.

    While gradients are off in evaluation mode, the strategy ``difference`` computes the wild type's rows of every layer
    once, and keeps them until the weights change. Of batches with ``shared`` deletions it also keeps the rows of the
    strain that has these only, until a batch comes with others. A wild type that is encoded alone is kept, too.

    Args:
        cell: the cell graph; becomes part of the module, so it follows it to any device.
        config: validated.
        outputs: T, number of phenotypes.
        features: node type → [N, F] fixed input features, added through a Linear; optional.
        terms: the list of terms, in place of that of ``config``: names, classes, or ``{"name": …, key: …}``.

    Attributes:
        encoder: encodes the cell graph.
        terms: name → term, in order.
        choices: what ``auto`` stands for; the device's defaults where None.
    """

    Config: ClassVar[type[ModelConfig]] = HeteroCellConfig
    config: Any
    encoder: Any
    terms: Any
    choices: Choices | None = None

    def __init__(
        self,
        cell: ResidentCell,
        config: CellModelConfig | None = None,
        outputs: int = 1,
        features: dict[str, Tensor] | None = None,
        *,
        terms: Sequence[Any] | None = None,
    ) -> None:
        super().__init__()
        made: Any = config or self.Config()
        self.cell, self.config = cell, made if terms is None else replace(made, terms=list(terms))
        self._base_cache, self._recomputing = BaseCache(), dict[tuple[int, Choices, float], bool]()
        self._differing = 0.0  # largest share of rows that differed in a batch so far, rounded up; 0 before the first
        planned: list[PlannedTerm] = self.config.planned_terms()
        read = [node_type for term in planned for node_type in term.kind.reads(term.config)]
        if read and not hasattr(self.config, "strategy"):
            what = "`model.terms`: a term reads the strains' own graphs, which"
            what, got = f"{what} `model.name: {self.config.name}` does not compute", ", ".join(read)
            expected, do = "terms that read the wild type", "set `model.name: hetero_cell`"
            raise ConfigError(what, got=got, expected=expected, do=do)
        self.own_graphs = bool(read)
        self.encoder = self.make_encoder(read, features)
        self.terms = nn.ModuleDict()
        settings = made.hidden, made.activation, made.dropout, made.metabolism
        for term in planned:
            around = Surroundings(term.name, cell, outputs, *settings, self.own_graphs, dict(self.terms.items()))
            self.terms[term.name] = term.kind(term.config, around)
        if self.own_graphs and not any(term.sees_genes for term in self.terms.values()):
            self.encoder.freeze_all_but(read)
        self.initialise()

    def make_encoder(self, read: Sequence[str], features: dict[str, Tensor] | None) -> nn.Module:
        """Make the encoder, whose states of genes and of these node types are read."""
        return CellEncoder(self.cell, self.config, [*read, GENE], features)

    def initialise(self) -> None:
        """Set initial weights."""
        self.apply(initialise)
        with torch.no_grad():
            for embedding in self.encoder.embeddings.children():
                embedding.weight.mul_(self.config.embedding_std / EMBEDDING_STD)
        for term in self.terms.values():
            term.start()

    def train(self, mode: bool = True) -> Self:
        """Set the mode, and forget what evaluation kept of the wild type."""
        self._base_cache.forget()
        return super().train(mode)

    def fit(self, train: Training) -> None:
        for term in self.terms.values():
            term.fit(train, self.cell)

    @property
    def learned(self) -> Term | None:
        return next((term for term in self.terms.values() if term.learns_activities), None)

    def forward(self, genotypes: GenotypeBatch) -> Prediction:
        """Predict the phenotypes of B strains, on the device of the model.

        No step synchronises with the host or loops over strains, but for ``edge_subgraph``.
        """
        if not genotypes.num_strains:  # the tensors have no rows
            given = genotypes.covariates
            covariates = None if given is None else given.new_zeros(1, given.shape[1])
            return self.forward(replace(genotypes.of_shared(), covariates=covariates)).with_rows(lambda x: x[:0])
        terms = self.terms
        for term in terms.values():
            genotypes = term.strains(genotypes)
        encoded = self.encode(genotypes)
        if any(term.sees_genes for term in terms.values()):
            x_BKH = F.embedding(genotypes.padded()[0], encoded.wild_type[GENE])
        else:
            x_BKH = encoded.wild_type[GENE].new_empty(genotypes.num_strains, 0, self.config.hidden)
        vectors = {name: -difference_BD for name, difference_BD in encoded.differences.items()}  # z_w − z_i
        parts: dict[str, Tensor] = {}

        def wild_type_score(like_BT: Tensor) -> Tensor:
            return self.combine([terms[name].of_wild_type(like_BT) for name in parts])

        seen = Seen(self.cell, genotypes, encoded.wild_type, vectors, x_BKH, wild_type_score)
        for term in terms.values():
            seen = term.see(seen)
            vectors = {**seen.vectors, **vectors}  # as they were before other terms moved them
        for name, term in terms.items():
            if (score := term(seen)) is not None:
                parts[name] = from_source(name, score, term.of_wild_type)
        phenotypes = self.combine(list(parts.values()))
        for term in terms.values():
            phenotypes = term.finish(phenotypes, seen)
        joined = list(vectors.values())
        embedding = torch.cat(joined, dim=-1) if len(joined) > 1 else next(iter(joined), None)
        return Prediction(phenotypes, embedding, parts, encoded.auxiliary)

    def combine(self, scores: Sequence[Tensor]) -> Tensor:
        """Return the sum of scores, or their mean."""
        total = sum(scores[1:], scores[0])
        return total / len(scores) if self.config.combination == "mean" else total

    def encode(self, genotypes: GenotypeBatch) -> Encoded:
        """Return what terms read of the strains."""
        kept_pass = self._base_cache.replay(self)
        if not self.own_graphs:
            return Encoded(self.wild_type() if kept_pass is None else kept_pass.once(self.wild_type))
        if genotypes.shared and kept_pass is not None and self.shares_deletions:
            return self._from_shared(genotypes, kept_pass)
        return self._encode(replace(genotypes, shared=()), kept_pass)

    def wild_type(self) -> dict[str, Tensor]:
        """Return the states of the wild type, node type → [N, H]."""
        device = next(self.parameters()).device
        none_G, offsets_2 = (torch.zeros(size, dtype=torch.int64, device=device) for size in (0, 2))
        unchanged = GenotypeBatch(none_G, offsets_2, 0)
        # Without a deletion all strategies are one and the same product per relation; this one never synchronises.
        strategy = self.config.strategy_of_edges() or "node_mask"
        states = self.encoder(perturb(self.cell, unchanged, strategy, self.config.kernel))
        return {node_type: of_type.base_NH for node_type, of_type in states.items()}

    @property
    def shares_deletions(self) -> bool:
        if not self.own_graphs or self.learned is not None:  # What is shared need not be deleted then.
            return False
        strategy, device_type = self.config.strategy, next(self.parameters()).device.type
        strategy = self.choices_on().strategy if strategy == "auto" else strategy
        return strategy == "difference" and lists_on(device_type)

    def _encode(self, genotypes: GenotypeBatch, kept_pass: BasePass | None, strategy: str | None = None) -> Encoded:
        config, choices = self.config, self.choices_on()
        choices = replace(choices, recompute=self.recomputes(genotypes.num_strains, choices))
        strategy = strategy or config.strategy
        whole = None  # the states of a cell that lacks nothing, where messages are those of the wild type
        if config.messages == "wild_type":
            whole = self.wild_type() if kept_pass is None else kept_pass.once(self.wild_type)
        perturbed = perturb(self.cell, genotypes, strategy, config.kernel, choices, kept_pass)
        if whole is None:
            states = self.encoder(perturbed, kept_pass)
        else:
            states = {node_type: perturbed.start(x_NH) for node_type, x_NH in whole.items()}
        sixteenths = int(16 * max(of_type.share for of_type in states.values())) + 1
        self._differing = max(self._differing, min(1.0, sixteenths / 16))
        pooling = [(name, term) for name, term in self.terms.items() if term.reads(term.config)]
        return Encoded(
            {node_type: of_type.base_NH for node_type, of_type in states.items()},
            {name: term.pool(states, perturbed.kept) for name, term in pooling},
        )

    def _from_shared(self, genotypes: GenotypeBatch, kept_pass: BasePass) -> Encoded:
        """Return the same for strains with deletions in common, over two bases.

        First it computes by how much the strain with only these deletions differs from the wild type, which consecutive
        batches have in common. Then it computes by how much the others differ from that strain, in few rows.
        """
        of_shared = self._base_cache.replay(self, genotypes.shared)
        assert of_shared is not None
        first = of_shared.once(lambda: self._encode(genotypes.of_shared(), kept_pass))
        rest = self._encode(genotypes, of_shared, "difference")
        differences = {name: first.differences[name] + more for name, more in rest.differences.items()}
        return Encoded(first.wild_type, differences)

    def choose(self, choices: Choices) -> None:
        """Let ``strategy: auto``, ``kernel: auto`` and the form of layers follow ``choices``."""
        self.choices = choices
        self._base_cache.forget()

    def choices_on(self, device_type: str | None = None) -> Choices:
        """Return the choices made, or the defaults of a device; of the model's where None."""
        device_type = device_type or next(self.parameters()).device.type
        return self.choices or Choices.default(device_type, of_edges=self.config.strategy_of_edges())

    def recomputes(self, num_strains: int, choices: Choices) -> bool:
        """Return whether the backward pass computes layers once more, whose results would not fit into free memory."""
        if self.config.recompute != "auto" or not torch.is_grad_enabled():
            return self.config.recompute == "true"
        known = num_strains, choices, self._differing
        if known not in self._recomputing:
            weight, share = next(self.parameters()), self._differing or 1.0  # all rows may differ in a first batch
            dtype = torch.bfloat16 if choices.half else weight.dtype
            needed = self.encoder.kept_of_strain(choices.compiled, dtype) * num_strains * dtype.itemsize * share
            if not self._recomputing:
                self._room = free_memory(weight.device)
            self._recomputing[known] = self._room is not None and needed > SHARE_OF_MEMORY * self._room
            if self._recomputing[known] and self._differing:
                log.info("the backward pass computes layers once more: they would keep %.1f GiB", needed / 2**30)
        return self._recomputing[known]

    def fitting_batch(self, most: int) -> int:
        """Return ``most``, or the power of two that fits, by three tensors of the rows of a layer."""
        if not self.own_graphs:
            return most
        weight = next(self.parameters())
        room = free_memory(weight.device)
        nodes = sum(self.cell.num_nodes[node_type] for node_type in self.encoder.node_types)
        rows = nodes + max((sum(self.cell.num_nodes[r[2]] for r in layer) for layer in self.encoder.plan), default=0)
        of_strain = 3 * rows * self.config.hidden * weight.dtype.itemsize
        if room is None or most * of_strain <= SHARE_OF_MEMORY * room:
            return most
        return 1 << (max(1, int(SHARE_OF_MEMORY * room / of_strain)).bit_length() - 1)

    def choose_for_run(self, device_type: str, strains: float, precision: str = "auto") -> None:
        """Choose for a run of so many strains by the table of defaults, and log each choice with its reason."""
        config, rows = self.config, self.encoder.rows_per_strain * strains
        default = Choices.default(device_type, of_edges=config.strategy_of_edges())
        dtype = {"32-true": torch.float32, "64-true": torch.float64}.get(precision, torch.bfloat16)
        one_kernel = self.encoder.chained(dtype, torch.device(device_type))
        self.choose(
            default.for_run(device_type, rows, precision=precision, compiled=config.compile, one_kernel=one_kernel)
        )
        log.info("%s", self.choices_in_words(device_type))

    def choices_in_words(self, device_type: str) -> str:
        """Say in a line what computes strains' graphs on a device, and why."""
        found, config = self.choices_on(device_type), self.config
        strategy, why = config.strategy, "as configured"
        if strategy == "auto":
            strategy = found.strategy
            why = "for single edges" if config.strategy_of_edges() else f"the default on {device_type}"
        elif strategy == "difference" and not lists_on(device_type):
            strategy, why = "node_mask", "lists are for a CPU"
        kernel = "of DGL"
        if strategy not in DGL_STRATEGIES:
            kernel = default_kernel(device_type) if config.kernel == "auto" else config.kernel
        precision = "differences in bfloat16" if found.half else "differences in the base's precision"
        layers = "layers compiled" if found.compiled else "layers not compiled"
        return f"strategy {strategy} ({why}), kernel {kernel}, {precision}, {layers}"


class HeteroCell(CellModel):
    r"""Predict phenotypes from the cell graph of every strain.

    Messages are passed over the surviving edges of every strain. ``Graph`` scores by how much the pooled states of a
    strain differ from the wild type's, and ``Genes`` the deleted genes by their *wild-type* states. ``Covariates``,
    ``Activities`` and ``Link`` follow where the configuration asks for them.

    The model follows ``GeneInteractionDango`` of the torchcell project; here metabolism is used in both directions and
    norms are per node.
    """

    Config = HeteroCellConfig


class SetOperator(CellModel):
    r"""Predict phenotypes as :math:`f(G, S) = g(F(G), S)`: the encoder F sees the wild type's graph alone.

    **It does not compute on the strains' own graphs**: no edge is removed and no reaction is lost with its enzyme. What
    a deletion does to the network must be learnt by g: ``Genes`` scores the deleted genes' states, and with ``operator:
    both`` ``Operator`` lets all genes attend to the deleted ones. In return a step encodes one graph, whatever the
    batch, and an evaluation pass encodes only once: the states are kept until the model is trained, moved or loaded.
    """

    Config = SetOperatorConfig
