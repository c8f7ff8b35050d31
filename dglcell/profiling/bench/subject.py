"""What is measured on: a generated cell graph, a real one, or an experiment's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from dglcell.config import Config
from dglcell.errors import ConfigError
from dglcell.graph.cell_graph import CellGraph
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.profiling.bench.experiment import experiment_workload, hetero_model
from dglcell.profiling.bench.generate import generated_cell
from dglcell.profiling.bench.options import BenchOptions
from dglcell.profiling.bench.real import real_cell
from dglcell.profiling.bench.setting import Setting
from dglcell.profiling.bench.workload import Workload, random_workload
from dglcell.training.prepare import prepare


@dataclass(frozen=True)
class Subject:
    """A cell graph and how strains and models come about.

    Attributes:
        cell: the cell graph.
        title: where it came from.
        workload: setting → what is computed.
        small: convolution → little work on the same cell graph, for comparing methods in float64.
    """

    cell: CellGraph
    title: str
    workload: Callable[[Setting], Workload]
    small: Callable[[str], Workload]


def random_subject(options: BenchOptions) -> Subject:
    """Random strains of the generated or of the real cell graph.

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
    """Three strains that lose three, one and two genes, among them the gene with most edges; H = 8, L = 2."""
    model = Setting(conv, batch=3, hidden=8, layers=2, deletions=None).model(metabolism=True)
    hub = int(sum(cell.graph.out_degrees(etype=r) for r in cell.relations if r[0] == r[2]).argmax())
    others = [gene for gene in range(5) if gene != hub]
    strains = GenotypeBatch.from_lists([[hub, *others[:2]], [others[2]], [hub, others[3]]])
    return dataclasses.replace(random_workload(cell, model, batch=3, deletions=1, seed=0), genotypes=strains)


def experiment_subject(config: Config, command: str) -> Subject:
    """An experiment's own cell graph, model and strains."""
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
