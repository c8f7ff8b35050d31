"""Predictions of every strain of a design: written in parts, continued where they stopped, ranked where asked for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dglcell.baselines.fit import NULL_MODELS, best_of
from dglcell.baselines.simple import AdditiveRidge
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, did_you_mean
from dglcell.files.atomic import atomic_file, sha256_file
from dglcell.files.parquet import import_pyarrow, make_table, named
from dglcell.graph.vocabulary import Vocabulary
from dglcell.machine.ranks import Ranks
from dglcell.models.encoder import PerturbedModel
from dglcell.perturbation.choose.autotuned import Autotuned, wait_for
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.prediction.designs import Design, Parts, footer, row_groups, write_tables
from dglcell.prediction.shares import Shares
from dglcell.prediction.table import chosen_columns, predicted_column, prediction_columns, spread_column
from dglcell.runs.directory import RunDirectory
from dglcell.training.autotune import autotuned_for
from dglcell.training.checkpoint import Trained
from dglcell.training.evaluate import batch_that_fits, predict_batches
from dglcell.training.null_problems import null_problems
from dglcell.training.prepare import prepare_run

# How models compute.


def design_batch(members: Sequence[Trained], design: Design) -> int:
    """Strains per forward pass of every model that are expected to fit into memory (`batch_that_fits`).

    Strains that share deletions take less. A design also has some that share none, and those are tried.
    """
    device = next(members[0].model.parameters()).device

    def first(number: int) -> GenotypeBatch:
        return _batch(next(design.blocks(number)), ()).to(device)

    return min(batch_that_fits(member.model, first, len(design)) for member in members)


def resolve_autotuned(members: Sequence[Trained], design: Design, batch_size: int, precision: str) -> None:
    """What ``auto`` of strategies and kernels takes for a design, which on a GPU is measured or looked up.

    Args:
        members: one or several models, on the device where they are to predict.
        design: which strains.
        batch_size: strains per forward pass.
        precision: one of ``PRECISIONS``.

    Raises:
        ConfigError: half precision is asked for, and a model has no differences of strains.
    """
    half = precision == "bf16"
    for model in (member.model for member in members):
        if isinstance(model, PerturbedModel):
            device = next(model.parameters()).device
            found = Autotuned.default(device.type)
            if device.type not in UNTUNED_DEVICES:
                batch = _batch(next(design.blocks(batch_size, 0)), ()).to(device)
                found = autotuned_for(model, batch, torch.bfloat16 if half else None).autotuned
            found = found.for_layers(compiled=model.config.compile != "false", half=half)
            model.choose(replace(found, shares=True))
            if device.type not in UNTUNED_DEVICES and not sharing_pays(model, design, batch_size):
                model.choose(found)
        elif half:
            raise ConfigError(
                "bfloat16 is for differences between the states of strains, and this model has none",
                got=f"--precision {precision} and a model `{model.config.name}`",
                do="leave --precision out",
            )


@torch.inference_mode()
def sharing_pays(model: PerturbedModel, design: Design, batch_size: int) -> bool:
    """Whether the first strains take less time where the deletions that they have in common are computed once.

    That is fewer rows and more launches, so that it depends on the cell graph and the device: it is measured.
    """
    genes_BK, shared = next(design.shared_blocks(batch_size, WORTH_SHARING))
    if not shared or not model.shares_deletions:
        return False
    device = next(model.parameters()).device
    seconds = []
    for in_common in (shared, ()):
        batch = _batch(genes_BK, in_common).to(device)
        for _ in range(3):
            wait_for(device)
            began = time.perf_counter()
            model(batch)
            wait_for(device)
        seconds.append(time.perf_counter() - began)
    return seconds[0] < seconds[1]


PRECISIONS = ("32-true", "bf16")
"""Of predictions: the weights', or differences of strains in bfloat16; see ``trainer.precision``."""

UNTUNED_DEVICES = ("cpu",)
"""Where the defaults of ``auto`` are as fast for predictions as what a measurement finds."""


# Which strains come first.

Values = NDArray[np.float64]

SEEDS, ADDITIVE = "several seeds", "an additive null model"


class Order(NamedTuple):
    """A way to rank strains.

    Attributes:
        key: predictions, standard deviations over seeds, predictions of the additive null model → what is largest for
            the strain that comes first.
        requires: what there must be beside predictions: ``SEEDS``, ``ADDITIVE`` or nothing.
    """

    key: Callable[[Values, Values, Values], Values]
    requires: str = ""


RANKINGS = {
    "lowest": Order(lambda value, sd, expected: -value),
    "highest": Order(lambda value, sd, expected: value),
    "largest": Order(lambda value, sd, expected: np.abs(value)),
    "certain": Order(lambda value, sd, expected: np.abs(value) / np.maximum(sd, np.finfo(np.float32).tiny), SEEDS),
    "uncertain": Order(lambda value, sd, expected: sd, SEEDS),
    "unexpected": Order(lambda value, sd, expected: np.abs(value - expected), ADDITIVE),
}


@dataclass(frozen=True)
class Ranking:
    """Which strains of a design are written, and in which order.

    Attributes:
        by: key of ``RANKINGS``.
        top: number of strains.
        phenotype: whose predictions are compared.
        additive: the additive null model, where ``by`` requires it.
    """

    by: str
    top: int
    phenotype: str
    additive: AdditiveRidge | None = None

    @classmethod
    def of(cls, by: str, top: int, phenotype: str | None, members: Sequence[Trained], run: Path) -> Ranking:
        """A ranking of what models predict.

        Args:
            by: key of ``RANKINGS``.
            top: number of strains.
            phenotype: None where the models predict only one.
            members: the models.
            run: directory of the first, to whose training part the additive null model is fitted.

        Raises:
            CheckpointError: the null model is required, and the store of the run is gone.
            ConfigError: the models do not predict the phenotype, or the ranking requires several seeds, or a training
                part that is in memory.
        """
        known = members[0].phenotypes
        if (phenotype not in known) if phenotype else len(known) > 1:
            raise ConfigError(
                "strains are ranked by one phenotype",
                got=phenotype or f"a model of {len(known)}",
                expected=" or ".join(known),
                do=did_you_mean(phenotype or "", known, "name one with `--phenotype`"),
            )
        requires = RANKINGS[by].requires
        if requires == SEEDS and len(members) == 1:
            raise ConfigError(
                f"`--rank {by}` requires {SEEDS}", got="one run", do="give the folder of an experiment with several"
            )
        chosen = phenotype or known[0]
        return cls(by, top, chosen, fit_additive(members[0], run, chosen) if requires == ADDITIVE else None)

    def describe(self) -> dict[str, Any]:
        """As plain containers; part of every file that is written."""
        return {"rank": self.by, "top": self.top, "phenotype": self.phenotype}

    def select(self, tables: Iterator[Any], genes: Vocabulary) -> Iterator[Any]:
        """One pyarrow table of the first ``top`` rows of all, in order; of equal rows the earlier comes first.

        Args:
            tables: as `design_table` makes them.
            genes: of the cell graph.
        """
        pa, _ = import_pyarrow()
        best, keys = None, np.empty(0)
        for table in tables:
            value, sd = (_column(table, name(self.phenotype)) for name in (predicted_column, spread_column))
            expected = np.full(len(table), np.nan)
            if self.additive is not None:
                expected = self.additive.predict(_strains(table, genes))
                table = table.append_column(f"additive_{self.phenotype}", pa.array(expected, pa.float32()))
            keys = np.concatenate([keys, RANKINGS[self.by].key(value, sd, expected)])
            joined = table if best is None else pa.concat_tables([best, table]).unify_dictionaries()
            first = np.argsort(-keys, kind="stable")[: self.top]
            best, keys = joined.take(first), keys[first]
        assert best is not None
        yield _with_names(best.combine_chunks(), genes)


def _with_names(table: Any, genes: Vocabulary) -> Any:
    """The table with the standard names of its genes beside them, where the cell graph knows any."""
    if not genes.others.standard:
        return table
    pa, _ = import_pyarrow()
    columns = [name for name in table.column_names if name.startswith("gene_")]
    for k, column in enumerate(columns):
        names = [genes.standard(gene) for gene in table[column].to_pylist()]
        table = table.add_column(len(columns) + k, column.replace("gene_", "name_"), pa.array(names, pa.string()))
    return table


def _column(table: Any, name: str) -> Values:
    """Values of a column; NaN where it is not there."""
    if name not in table.column_names:
        return np.full(len(table), np.nan)
    return np.asarray(table[name].to_numpy(), np.float64)


def _strains(table: Any, genes: Vocabulary) -> Strains:
    """The strains of the rows, by numbers of the cell graph's genes."""
    columns = []
    for name in table.column_names:
        if name.startswith("gene_"):
            column = table[name].unify_dictionaries().combine_chunks()
            numbers = genes.indices(column.dictionary.to_pylist())
            columns.append(numbers[column.indices.to_numpy()])
    genes_SK = np.stack(columns, axis=1)
    return Strains(genes.names, genes_SK.reshape(-1), np.arange(len(table) + 1) * genes_SK.shape[1])


def fit_additive(trained: Trained, run: Path, phenotype: str) -> AdditiveRidge:
    """The additive null model of a run, fitted to its training part and chosen on its validation part.

    Raises:
        CheckpointError: the store of the run is gone, or another one has its place.
    """
    prepared = prepare_run(replace(trained.config, plot=False), RunDirectory(run), "dglcell predict", continued=True)
    problem = null_problems(prepared)[trained.phenotypes.index(phenotype)]
    model = best_of(NULL_MODELS["additive ridge"], problem)[1]
    assert isinstance(model, AdditiveRidge)
    return model


# From the design to the file.

PART_STRAINS = 2**18
# A slow model loses no more than this when it is stopped.
PART_SECONDS = 300.0

WORTH_SHARING = 200
"""Strains that must have deletions in common for these to be computed first, and once."""

Block = tuple[NDArray[np.int64], tuple[int, ...]]


def predict_design(
    members: Sequence[Trained],
    design: Design,
    output: Path,
    *,
    batch_size: int,
    ranking: Ranking | None = None,
    part_strains: int = PART_STRAINS,
    worth_sharing: int = WORTH_SHARING,
    report: Callable[[str], None] = print,
) -> float:
    """Predict the strains of ``design`` in order and write them to ``output``.

    Columns are ``gene_1`` to ``gene_K`` (names, dictionary-encoded), ``predicted_<phenotype>`` in original units, in
    Parquet float32, and of several models ``sd_<phenotype>`` (`prediction_columns`). What is finished lies in
    ``OUTPUT.parts`` until all is: the same call continues there, and does nothing where the output is complete.

    Args:
        members: one or several models, on the device where this runs.
        design: which strains.
        output: a ``.parquet`` or ``.csv`` file that is not there yet, or is the one that this call would write.
        batch_size: strains per forward pass.
        ranking: which strains are written, and in which order; all in the order of the design where None.
        part_strains: strains of a part; a part that takes longer than five minutes is closed before.
        worth_sharing: so many strains must have deletions in common for these to be computed once, for models that can.
        report: is told of every part.

    Returns:
        strains per second of this call, 0 where nothing was left to predict.

    Raises:
        DataError: another output exists, or parts are there of another model or design, or damaged.
    """
    parts = Parts(output, describe_design(members, design, ranking), len(design))
    if parts.joined:
        report(f"{output} is complete already")
        return 0.0
    if parts.rows:
        report(f"continuing after {parts.rows:,} of {len(design):,} strains in {parts.folder}")
    began, before, rate = time.perf_counter(), parts.rows, 0.0
    batches = _in_batches(members, design, parts.rows, batch_size, worth_sharing)
    for genes_SK, predicted_RST in _in_parts(batches, part_strains):
        parts.append(design_table(members, genes_SK, predicted_RST))
        rate = (parts.rows - before) / (time.perf_counter() - began)
        left = timedelta(seconds=round((len(design) - parts.rows) / rate))
        report(f"{parts.rows:,} of {len(design):,} strains, {rate:,.0f} strains/s, {left} left")
    parts.join(_chosen(ranking, members))
    return rate


def predict_design_together(
    members: Sequence[Trained],
    design: Design,
    output: Path,
    ranks: Ranks,
    *,
    batch_size: int,
    ranking: Ranking | None = None,
    report: Callable[[str], None] = print,
) -> bool:
    """``predict_design`` by several processes, each of which is called with its number.

    Each predicts its share of the strains into a file of its own, which it goes on with where it was stopped. The one
    that finishes last puts the shares together.

    Returns:
        whether the output is complete; else other processes are still at work.

    Raises:
        DataError: as of ``predict_design``; also, where another number of processes has begun it.
    """
    about = describe_design(members, design, ranking)
    shares = Shares(output, ranks, len(design), lambda *bounds: describe_design(members, design.part(*bounds)))
    if output.exists():
        if footer(output) != about and not shares.is_made(0):
            raise DataError(f"'{output}' exists already", do="remove it, or choose another output")
        report(f"{output} is complete already")
        shares.remove()
        return True
    if shares.has_one:
        path, bounds, _ = shares.mine
        predict_design(members, design.part(*bounds), path, batch_size=batch_size, report=report)

    def write(paths: Sequence[Path]) -> None:
        with atomic_file(output) as partial:
            write_tables(partial, output.suffix, _chosen(ranking, members)(row_groups(paths)), about)

    return shares.join(write)


def _chosen(ranking: Ranking | None, members: Sequence[Trained]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What is written of all tables of a design."""
    return iter if ranking is None else lambda tables: ranking.select(tables, members[0].cell.genes)


def describe_design(members: Sequence[Trained], design: Design, ranking: Ranking | None = None) -> dict[str, Any]:
    """What predictions of a design depend on, as plain containers; part of every file that is written."""
    first = members[0]
    about = {} if ranking is None else dict(ranking.describe())
    autotuned = getattr(first.model, "autotuned", None)
    if autotuned is not None and autotuned.differences is not None:
        about["differences"] = autotuned.differences
    if chosen_columns(members):
        about["models"] = [{name: chosen.name for name, chosen in member.chosen.items()} for member in members]
    return {
        "checkpoint_sha256": [sha256_file(member.path) for member in members],
        "cell_sha256": first.cell.sha256,
        "design_sha256": design.sha256,
        "genes": len(design.genes),
        "deletions": design.size,
        "start": design.start,
        "stop": design.stop,
        "units": dict(zip(first.phenotypes, first.units, strict=True)),
        **about,
    }


def design_table(members: Sequence[Trained], genes_SK: NDArray[np.int64], predicted_RST: NDArray[np.float32]) -> Any:
    """Strains and what R models predict of them as a pyarrow table."""
    names, same = members[0].cell.genes.names, np.zeros(len(genes_SK), np.int64)
    texts = {f"gene_{k + 1}": named(column, names) for k, column in enumerate(genes_SK.T)}
    texts |= {column: named(same, (name,)) for column, name in chosen_columns(members).items()}
    return make_table(texts, prediction_columns(members[0].phenotypes, predicted_RST))


def _in_parts(
    batches: Iterator[tuple[NDArray[np.int64], Tensor]], part_strains: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """Strains and their predictions, a part at a time; one transfer from the device each."""
    genes: list[NDArray[np.int64]] = []
    predicted: list[Tensor] = []
    strains, began = 0, time.perf_counter()
    for genes_BK, predicted_RBT in batches:
        genes.append(genes_BK)
        predicted.append(predicted_RBT)
        strains += len(genes_BK)
        if strains >= part_strains or time.perf_counter() - began > PART_SECONDS:
            yield np.concatenate(genes), torch.cat(predicted, dim=1).cpu().numpy()
            genes, predicted, strains, began = [], [], 0, time.perf_counter()
    if genes:
        yield np.concatenate(genes), torch.cat(predicted, dim=1).cpu().numpy()


def _in_batches(
    members: Sequence[Trained], design: Design, skip: int, batch_size: int, worth_sharing: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Strains after the first ``skip`` and what each model predicts of them, [R, B, T] in original units."""
    device = next(members[0].model.parameters()).device
    blocks: Iterator[Block] = ((genes_BK, ()) for genes_BK in design.blocks(batch_size, skip))
    if all(member.model.shares_deletions for member in members):
        blocks = design.shared_blocks(batch_size, worth_sharing, skip)
    told, *asked = itertools.tee(blocks, 1 + len(members))
    streams = [
        predict_batches(member.model, (_batch(*block).to(device, non_blocking=True) for block in own))
        for member, own in zip(members, asked, strict=True)
    ]
    normalisers = [member.normaliser.to(device) for member in members]
    for (genes_BK, _), *predictions in zip(told, *streams, strict=True):
        restored = [n.restore(found.phenotypes.float()) for n, found in zip(normalisers, predictions, strict=True)]
        for member, predicted_BT in zip(members, restored, strict=True):
            _put_null_models(member, genes_BK, predicted_BT)
        yield genes_BK, torch.stack(restored)


def _put_null_models(member: Trained, genes_BK: NDArray[np.int64], predicted_BT: Tensor) -> None:
    """Write what null models predict over what the model does, where they are to take its place."""
    offsets = np.arange(len(genes_BK) + 1) * genes_BK.shape[1]
    strains = Strains(member.cell.genes.names, genes_BK.reshape(-1), offsets)
    for phenotype, null_model in member.null_models.items():
        values = torch.as_tensor(null_model.predict(strains), dtype=predicted_BT.dtype)
        predicted_BT[:, member.phenotypes.index(phenotype)] = values.to(predicted_BT.device)


def _batch(genes_BK: NDArray[np.int64], shared: tuple[int, ...]) -> GenotypeBatch:
    strains, deletions = genes_BK.shape
    offsets = torch.arange(strains + 1) * deletions
    return GenotypeBatch(torch.from_numpy(genes_BK).reshape(-1), offsets, deletions, shared)
