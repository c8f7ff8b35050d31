"""Make from a configuration the data to train on: cell graph, store, data set, split and blocked reactions."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from dglcell.config.experiment import Config
from dglcell.data.columns import BLOCKED, COVARIATE, MEDIUM, Column
from dglcell.data.config import EVALUATED, PARTS
from dglcell.data.dataset import Normaliser, check_range, strains_of_cell
from dglcell.data.sources import Computed, load_source, source_files
from dglcell.data.sources.config import Work
from dglcell.data.split import Split, make_split
from dglcell.data.store import Store, build_store
from dglcell.data.strains import Strains
from dglcell.errors import CheckpointError, ConfigError, DataError, listing
from dglcell.files.atomic import canonical_hash, clear_abandoned, find_raw, only_writer, sha256_file
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import WILD_TYPE, wild_type_features
from dglcell.graph.model_files import read_model
from dglcell.graph.resident import ResidentCell
from dglcell.graph.tables import read_vectors
from dglcell.metrics import ceilings
from dglcell.models.terms.covariates import in_media, media_table
from dglcell.models.terms.link import blocked_reactions
from dglcell.perturbation.genotype import GenotypeBatch
from dglcell.runs import RunDirectory
from dglcell.trained_models import cell_of_run
from dglcell.training.signals import is_rank_zero, wait_for

log = logging.getLogger("dglcell")


@dataclass(frozen=True)
class Prepared:
    """This is everything that a run reads."""

    cell: CellGraph  #: the cell graph
    store: Store  #: the strains on disk
    dataset: Strains  #: the strains as tensors, on the host
    split: Split  #: over the strains of the store
    parts: dict[str, Tensor]  #: part name → [n] int64 strain numbers of ``dataset``
    features: dict[str, Tensor]  #: node type → [N, F] fixed input features
    #: phenotype → correlation of a model without error on the test part, where strains were measured several times
    ceilings: dict[str, float] = field(default_factory=dict)

    @property
    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of what a run is made of."""
        return {"cell": self.cell.sha256, "store": self.store.sha256, "split": self.split.sha256}

    @property
    def evaluated(self) -> tuple[str, ...]:
        """Return the parts that the model is evaluated on; there are none if every strain trains."""
        return tuple(part for part in EVALUATED if len(self.parts[part]))

    def too_few_to_choose(self) -> str | None:
        """Return why the validation part cannot choose an epoch; None if it can, or if there is no such part.

        A choice among many epochs by a few strains, or by strains of a few genes, is a matter of chance. If every
        validation strain has a gene that training never deletes, these genes are counted instead of strains.
        """
        part = self.parts["validation"]
        if not len(part):
            return None
        labelled = self.dataset.take(part[~self.dataset.labels[part].isnan().all(1)])
        is_new_P = ~torch.isin(labelled.targets, self.dataset.take(self.parts["train"]).targets)
        with_new = torch.repeat_interleave(labelled.offsets.diff())[is_new_P].unique()
        all_new = len(with_new) == len(labelled)
        genes = len(labelled.targets[is_new_P if all_new else slice(None)].unique())
        # With 30 strains, a correlation of 0.5 is known to about 0.14.
        if len(labelled) < 30:
            return f"a choice needs 30 validation strains, and there are {len(labelled)}"
        if genes < 30:
            new = " that training never deletes" if all_new else ""
            return f"a choice needs 30 genes{new}, and the validation part has {genes}"
        return None

    def normaliser(self, kind: str) -> Normaliser:
        """Return the statistics of the training labels; labels of all parts are looked at."""
        labels, phenotypes = self.dataset.labels, tuple(self.dataset.phenotypes)
        check_range(labels[torch.cat([*self.parts.values()])], phenotypes, kind)
        return Normaliser.fit(labels[self.parts["train"]], phenotypes, kind)


def settle_what_models_see(config: Config, prepared: Prepared) -> Config:
    """Return the configuration, whose model sees all covariates and activities of the strains where it does not say."""
    model, strains = config.model, prepared.dataset
    if model.covariates is None and strains.covariates:
        seen = {name: list(categories) for name, categories in strains.covariates.items()}
        model = replace(model, covariates=seen)
    if model.activity_curves is None and strains.activities is not None:
        model = replace(model, activity_curves=True)
    if prepared.cell.media and MEDIUM not in (model.covariates or {}):
        expected = f"a medium for every strain, among {listing(prepared.cell.media)}"
        do = "name a column in `data.source.csv.covariates.medium`, or leave `cell.media` out"
        what = "the cell graph has media, and the model does not see in which its strains grow"
        raise ConfigError(what, expected=expected, do=do)
    return config if model is config.model else replace(config, model=model)


def computed_of(config: Config) -> Computed:
    """Return what computes columns of strains."""
    return Computed.of(config.data.fba, config.data.computed, config.cell)


def store_path(config: Config) -> Path:
    """Return the path of this configuration's store: `data.store`, else a name made from the source and its options."""
    if config.data.store:
        return Path(config.data.store)
    source, computed = config.data.source, computed_of(config).shaping
    shaping = [source.shaping, computed] if computed else source.shaping
    return Path(config.paths.data) / f"{source.name.replace(':', '.')}-{canonical_hash(shaping)[:8]}"


def build(config: Config, command: str, *, overwrite: bool = False) -> Store:
    """Read or compute the source and build its store."""
    path = store_path(config)
    with only_writer(path):
        if path.exists() and not overwrite:
            raise DataError(f"the store '{path}' exists already", do="pass `--overwrite` to build it anew")
        return _build(config, path, command, overwrite=overwrite)


def _build(config: Config, path: Path, command: str, *, overwrite: bool = False) -> Store:
    log.info("building store %s from source '%s'", path, config.data.source.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    strains = load_source(config.data.source, config.paths.raw)
    table = computed_of(config).add(strains, Work(config.paths.raw))
    return build_store(table, path, command=command, overwrite=overwrite)


def open_store(config: Config, command: str) -> Store:
    """Open the store of this configuration, which one process builds, if it does not exist, while others wait."""
    path = store_path(config)
    if not is_rank_zero():
        wait_for(path, config.trainer.timeout)
        return Store(path)
    clear_abandoned(path)
    if path.exists():
        return Store(path)
    with only_writer(path):
        return Store(path) if path.exists() else _build(config, path, command)


def refuse_stale(store: Store, config: Config) -> None:
    """Refuse a store that was built from another version of the source's files, as far as they are here."""
    if store.meta.provenance.source != config.data.source.name:
        return  # of another source, whose files are not known
    files = source_files(config.data.source, config.paths.raw) + computed_of(config).files(config.paths.raw)
    for path in files:
        if sha256_file(path) not in store.meta.provenance.files.values():
            what = f"'{path}' has changed since the store '{store.path}' was built from it"
            do = "build it anew with `dglcell data build FILE --overwrite`, or give the new file another name"
            raise DataError(what, do=do)


def prepare(config: Config, *, command: str, cell: CellGraph | None = None, split: Split | None = None) -> Prepared:
    """Build or open everything that a run reads; an existing run has its cell graph and its split."""
    if split is None:  # these files are looked for before anything is built
        if config.split.path is not None and not Path(config.split.path).is_file():
            raise DataError(f"split '{config.split.path}' not found", do="check `split.path`")
        for path in {*config.model.features.values(), config.split.groups or WILD_TYPE} - {WILD_TYPE}:
            find_raw(path, config.paths.raw)
    # A store may take hours to build, so other faults are found first.
    cell = cell or build_cell(config.cell, config.paths.raw)
    store = open_store(config, command)
    if lacking := [name for name in computed_of(config).simulators if name not in store.meta.covariates]:
        do = "build it anew with `dglcell data build FILE --overwrite`, or leave `data.store` out"
        raise DataError(f"the store '{store.path}' has no column '{lacking[0]}'", do=do)
    try:
        refuse_stale(store, config)
    except DataError as error:
        if split is None:
            raise
        log.warning("%s; this run keeps the strains that it began with", str(error).partition("\n")[0])
    table, new, seen = store.read(), split is None, config.model.covariates
    split = split or make_split(config.split, table, store.sha256, config.paths.raw)
    table = table.with_covariates(table.covariates if seen is None else seen)
    dataset = strains_of_cell(table, cell.genes, config.data.phenotypes, config.data.unknown_genes)
    dataset = with_blocked(dataset, cell, config)
    parts = split_parts(split, dataset)
    if new:
        sizes = ", ".join(f"{len(rows):,} {part}" for part, rows in parts.items())
        log.info("strains  %s (split %s, seed %d)", sizes, split.kind, split.seed)
    # The data set has the labels without their standard deviations, and a large store is read only once.
    reached = ceilings(table, dataset.rows[parts["test"]].numpy())
    return Prepared(cell, store, dataset, split, parts, node_features(config, cell), reached)


def prepare_run(config: Config, directory: RunDirectory, command: str) -> Prepared:
    """Prepare what a run reads that has begun: its cell graph and its split are in its directory."""
    split = Split.load(directory.split)
    store_of_run(config, split)
    return prepare(config, command=command, cell=cell_of_run(directory), split=split)


def store_of_run(config: Config, split: Split) -> Store:
    """Open the store that a run was started on; none is built."""
    path = store_path(config)
    clear_abandoned(path)
    if not path.exists():
        do = "work in the folder the run was started in, or build the store again with `dglcell data build`"
        raise CheckpointError(f"the store '{path}' of this run is not here", do=do)
    store = Store(path)
    if split.store_sha256 != store.sha256:
        what = f"the store '{path}' is not the one this run was started on"
        raise CheckpointError(what, do="put the old store back, or start anew under another `experiment.name`")
    return store


def node_features(config: Config, cell: CellGraph) -> dict[str, Tensor]:
    """Return the features of `model.features`, which are tables or follow from the wild type."""
    found, model, raw = {}, config.cell.model, config.paths.raw
    for node_type, path in config.model.features.items():
        vocabulary = cell.vocabularies.get(node_type)
        if vocabulary is None:
            raise ConfigError("`model.features` names no node type", got=node_type, expected=listing(cell.vocabularies))
        if path != WILD_TYPE:
            vectors = read_vectors(find_raw(path, raw), vocabulary, f"model.features.{node_type}")
            found[node_type] = torch.from_numpy(vectors).float()
        elif model is not None:
            features = wild_type_features(read_model(model, raw), node_type, vocabulary.names)
            found[node_type] = torch.from_numpy(features)
        else:
            raise ConfigError(f"`model.features.{node_type}: wild_type` needs a model", do="set `cell.model`")
    return found


def split_parts(split: Split, dataset: Strains) -> dict[str, Tensor]:
    """Return the strain numbers of the data set by part."""
    part_S = torch.as_tensor(split.part)[dataset.rows]
    parts = {name: (part_S == code).nonzero().squeeze(1) for code, name in enumerate(PARTS)}
    for name in split.filled:
        if len(parts[name]) == 0:
            got = ", ".join(f"{len(kept):,} of {split.counts[part]:,} {part}" for part, kept in parts.items())
            expected = "in each part a strain with a label and with genes of the cell graph"
            raise DataError(f"no strain of the {name} part is left", got=got, expected=expected)
    return parts


MOST_STRAINS = 200_000  # more are not looked at beforehand, which would take minutes, but step by step


def with_blocked(dataset: Strains, cell: CellGraph, config: Config) -> Strains:
    """Return strains that know their blocked reactions, so that no step has to look for them and wait.

    That is a column ``BLOCKED``, [S, K]: the nodes as `SteadyState.blocked` finds them, −1 behind them. Strains stay as
    they are where the cell loses none, where what is left of genes is learned, and where there are too many strains.
    """
    if not cell.lose_blocked or config.model.activity_from or len(dataset) > MOST_STRAINS:
        return dataset
    resident, said, lists = ResidentCell.of(cell), time.monotonic(), list[Tensor]()
    for start in range(0, len(dataset), 256):
        piece = dataset.slice(start, min(start + 256, len(dataset)))
        found_BN = blocked_reactions(resident, strains_in_media(piece, resident)).T
        nodes = found_BN.nonzero()[:, 1].to(torch.int16 if found_BN.shape[1] < 2**15 else torch.int32)
        lists += nodes.split(found_BN.sum(1).tolist())
        if time.monotonic() - said > 10:
            said = time.monotonic()
            log.info("blocked reactions: %s of %s strains", f"{start + len(piece):,}", f"{len(dataset):,}")
    blocked_SK = torch.nn.utils.rnn.pad_sequence(lists, batch_first=True, padding_value=-1)
    return dataset.with_(columns={**dataset.columns, Column(BLOCKED): blocked_SK})


def strains_in_media(strains: Strains, cell: ResidentCell) -> GenotypeBatch:
    """Return strains with the reactions that their media close or weaken, as models see them."""
    genotypes, categories = strains.perturbations, strains.covariates.get(MEDIUM)
    if not cell.media or not categories:
        return genotypes
    codes_B = strains.columns[Column(COVARIATE, MEDIUM, categories)].long()
    return in_media(cell, genotypes, media_table(cell, categories)[codes_B])
