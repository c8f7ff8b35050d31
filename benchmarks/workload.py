"""Define what is measured: options, settings, strains and models."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.cells import generated_cell, real_cell
from dglcell.config.experiment import Config
from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell
from dglcell.models.config import HeteroCellConfig
from dglcell.models.hetero_cell import HeteroCell
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.training.prepare import Prepared, prepare

# These are the options of the benchmark.


@dataclass(frozen=True)
class BenchOptions:
    """These options were asked for; empty tuples stand for the headline's, or with ``grid`` the grid's values.

    Attributes:
        command: as typed.
        graph: ``generated`` or ``real``.
        raw: folder of raw files.
        metabolism: add the metabolic model to a real cell graph.
        symmetrise: store undirected pairs in both directions.
        scale: scale of a generated cell graph.
        seed: seed of graph, strains and weights.
        memory_limit: bytes; None for what is available.
        resume: keep the rows that ``output`` has.
        in_process: run everything in this process instead of in forks of it.
    """

    command: str
    graph: str = "generated"
    raw: str | None = None
    metabolism: bool = False
    symmetrise: bool = False
    scale: float = 1.0
    seed: int = 0
    methods: tuple[str, ...] = ()
    conv: tuple[str, ...] = ()
    batch: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    deletions: tuple[int, ...] = (3,)
    grid: bool = False
    products: bool = False
    device: str = "cpu"
    dtype: str = "float32"
    threads: int | None = None
    seconds_per_row: float = 10.0
    memory_limit: int | None = None
    output: Path | None = None
    resume: bool = False
    in_process: bool = False

    def validate(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ConfigError: options contradict each other; the message names them.
        """
        if self.resume and self.output is None:
            raise ConfigError("`--resume` needs a file to go on with", do="pass `--output FILE`")
        if self.resume and self.products:
            raise ConfigError("`--resume` continues steps, not `--products`", do="leave one of them out")
        if self.metabolism and self.graph != "real":
            raise ConfigError("`--metabolism` needs real genes", got=f"--graph {self.graph}", do="pass `--graph real`")


# Settings are varied; one setting is one block of the results' table.


CONVS = ("gin", "sage")

GRID_BATCHES, GRID_HIDDEN, GRID_LAYERS = (8, 16, 28, 64, 256), (64, 128), (2, 3)


@dataclass(frozen=True)
class Setting:
    """A setting is one configuration, under which all methods are compared.

    Attributes:
        conv: ``gin`` or ``sage``.
        batch: B, strains per step; the wild type comes on top.
        hidden: H.
        layers: L.
        deletions: genes deleted in every strain; None for an experiment's own strains.
        device: ``cpu`` or ``cuda``.
        dtype: ``float32``, or ``bfloat16`` under autocast.
    """

    conv: str
    batch: int
    hidden: int
    layers: int
    deletions: int | None
    device: str = "cpu"
    dtype: str = "float32"

    def model(self, metabolism: bool) -> HeteroCellConfig:
        """Return the model's configuration: defaults, without dropout."""
        return HeteroCellConfig(
            hidden=self.hidden, layers=self.layers, conv=self.conv, metabolism=metabolism, dropout=0.0
        )

    def title(self) -> str:
        """Return one line for the table."""
        deletions = "the experiment's" if self.deletions is None else str(self.deletions)
        return (
            f"{self.conv}  B = {self.batch}  H = {self.hidden}  L = {self.layers}  "
            f"deletions = {deletions}  {self.dtype} on {self.device}"
        )


def settings(
    *,
    convs: Sequence[str],
    batches: Sequence[int],
    hidden: Sequence[int],
    layers: Sequence[int],
    deletions: Sequence[int | None],
    device: str,
    dtype: str,
) -> list[Setting]:
    """Return all combinations, the largest first.

    Memory that a method has freed is used again by the next one, but only in pieces that are no larger: from large
    to small nothing runs out of memory because of what ran before it.
    """
    combinations = itertools.product(convs, batches, hidden, layers, deletions)
    every = [Setting(c, b, h, n, k, device, dtype) for c, b, h, n, k in dict.fromkeys(combinations)]
    return sorted(every, key=lambda s: (s.batch * s.hidden, s.layers), reverse=True)


# A workload is what all methods of one setting compute: a cell graph, weights, strains and targets.


@dataclass(frozen=True)
class Workload:
    """A workload is one training step's work.

    Attributes:
        cell: the wild type.
        config: configuration of the model, without dropout; strategy and kernel are every method's own.
        genotypes: B strains.
        targets: [B, T].
        features: node type → [N, F] fixed input features, of an experiment.
        seed: seed of the weights.
    """

    cell: CellGraph
    config: HeteroCellConfig
    genotypes: GenotypeBatch
    targets: Tensor
    features: dict[str, Tensor] = field(default_factory=dict)
    seed: int = 0

    def weights(self, strategy: str = "node_mask", kernel: str = "auto") -> HeteroCell:
        """Make the model, with the same weights whatever the strategy; it has a resident cell of its own."""
        torch.manual_seed(self.seed)
        config = dataclasses.replace(self.config, strategy=strategy, kernel=kernel)
        config.validate()
        return HeteroCell(ResidentCell.of(self.cell), config, self.targets.shape[1], self.features)

    def to(self, device: str) -> Workload:
        """Return the workload with strains and targets on ``device``."""
        return dataclasses.replace(self, genotypes=self.genotypes.to(device), targets=self.targets.to(device))

    def double(self) -> Workload:
        """Return the workload in double precision."""
        features = {node_type: x.double() for node_type, x in self.features.items()}
        return dataclasses.replace(self, targets=self.targets.double(), features=features)


def random_genotypes(num_genes: int, batch: int, deletions: int, seed: int) -> GenotypeBatch:
    """Draw strains of different deleted genes each; a smaller batch is the beginning of a larger one."""
    generator = torch.Generator().manual_seed(seed)
    strains = [torch.randperm(num_genes, generator=generator)[:deletions].tolist() for _ in range(batch)]
    return GenotypeBatch.from_lists(strains, num_genes)


def random_workload(cell: CellGraph, config: HeteroCellConfig, batch: int, deletions: int, seed: int) -> Workload:
    """Make random strains with targets of mean 0 and variance 1."""
    genotypes = random_genotypes(len(cell.genes), batch, deletions, seed)
    targets = torch.randn(batch, 1, generator=torch.Generator().manual_seed(seed))
    return Workload(cell, config, genotypes, targets, seed=seed)


# These functions run the benchmark on an experiment's own cell graph, model and strains.


def experiment_workload(config: Config, prepared: Prepared, setting: Setting) -> Workload:
    """Take B strains of the training part with standardised labels; unmeasured labels count as the mean.

    Args:
        config: experiment whose model is used; ``setting`` replaces its convolution, width and layers, and takes
            dropout away.
        prepared: data prepared from ``config``.
        setting: setting with B.

    Raises:
        ConfigError: the training part has fewer strains than the batch.
    """
    train, batch = prepared.parts["train"], setting.batch
    if len(train) < batch:
        raise ConfigError("the training part is smaller than the batch", got=len(train), expected=f"{batch} or more")
    strains = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(config.seed))[:batch]]
    data = prepared.dataset.take(strains)
    labels = data.labels.float()
    targets = (labels - labels.nanmean(0)) / labels.nan_to_num(0.0).std(0, correction=0).clamp(min=1e-6)
    model = dataclasses.replace(
        hetero_model(config), conv=setting.conv, hidden=setting.hidden, layers=setting.layers, dropout=0.0
    )
    return Workload(prepared.cell, model, data.perturbations, targets.nan_to_num(0.0), prepared.features, config.seed)


def hetero_model(config: Config) -> HeteroCellConfig:
    """Return the model of an experiment, for methods that all compute the heterograph model.

    Raises:
        ConfigError: the experiment has another model.
    """
    if not isinstance(config.model, HeteroCellConfig):
        raise ConfigError(
            "`python -m benchmarks.bench` compares ways to compute the heterograph model",
            got=f"`model.name: {config.model.name}`",
            expected="`model.name: hetero_cell`",
        )
    return config.model


# Subjects are measured on: a generated cell graph, a real one, or an experiment's.


@dataclass(frozen=True)
class Subject:
    """A subject is a cell graph, and how strains and models are made for it.

    Attributes:
        cell: the cell graph.
        title: where it came from.
        workload: function from a setting to its workload.
        small: function from a convolution to little work on the same cell graph, for comparing methods in float64.
    """

    cell: CellGraph
    title: str
    workload: Callable[[Setting], Workload]
    small: Callable[[str], Workload]


def random_subject(options: BenchOptions) -> Subject:
    """Make random strains of the generated or of the real cell graph.

    Raises:
        ConfigError: strains would lose more genes than there are.
    """
    if options.graph == "real":
        cell = real_cell(options.raw, symmetrise=options.symmetrise, metabolism=options.metabolism)
        title = "public yeast networks" + (" and metabolism" if options.metabolism else "")
    else:
        cell = generated_cell(seed=options.seed, scale=options.scale, symmetrise=options.symmetrise)
        title = f"generated networks (seed {options.seed}, scale {options.scale:g})"
    title += ", undirected pairs in both directions" if options.symmetrise else ", undirected pairs stored once"
    if max(options.deletions) > len(cell.genes):
        expected = f"{len(cell.genes)} or fewer"
        raise ConfigError("`--deletions` is more than there are genes", got=max(options.deletions), expected=expected)

    def workload(setting: Setting) -> Workload:
        assert setting.deletions is not None
        model = setting.model(options.metabolism)
        return random_workload(cell, model, setting.batch, setting.deletions, options.seed)

    return Subject(cell, title, workload, lambda conv: hub_workload(cell, conv))


def hub_workload(cell: CellGraph, conv: str) -> Workload:
    """Make three strains that lose three, one and two genes, among them the gene with most edges; H = 8, L = 2."""
    model = Setting(conv, batch=3, hidden=8, layers=2, deletions=None).model(metabolism=True)
    hub = int(np.sum([cell.degrees(r)[0] for r in cell.relations if r[0] == r[2]], axis=0).argmax())
    others = [gene for gene in range(5) if gene != hub]
    strains = GenotypeBatch.from_lists([[hub, *others[:2]], [others[2]], [hub, others[3]]])
    return dataclasses.replace(random_workload(cell, model, batch=3, deletions=1, seed=0), genotypes=strains)


def experiment_subject(config: Config, command: str) -> Subject:
    """Return an experiment's own cell graph, model and strains."""
    model = hetero_model(config)
    prepared = prepare(config, command=command)

    def workload(setting: Setting) -> Workload:
        return experiment_workload(config, prepared, setting)

    def small(conv: str) -> Workload:
        heads = model.local_heads
        hidden = heads * max(1, 8 // heads)
        layers = min(2, model.layers)
        return workload(Setting(conv, batch=3, hidden=hidden, layers=layers, deletions=None))

    return Subject(prepared.cell, f"experiment '{config.experiment.name}'", workload, small)
