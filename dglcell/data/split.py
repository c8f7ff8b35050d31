"""Splits: which strains train, which choose the model, which test it; a file with a hash."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
from collections.abc import Sized
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.gene_partition import gene_disjoint_parts, gene_fold_parts, held_out_gene_parts
from dglcell.data.partition import PARTS, UNUSED, Bins, Parts, pair_disjoint_parts, random_parts
from dglcell.data.split_config import GENE_SPLITS, SplitConfig
from dglcell.data.split_file import read_index_file
from dglcell.data.stratify import stratified_parts
from dglcell.data.subset import subset_genes, subset_parts
from dglcell.data.table import StrainTable
from dglcell.errors import DataError
from dglcell.files import atomic_file, canonical_hash, sha256_file
from dglcell.graph.cell_graph import CellGraph


@dataclass(frozen=True, eq=False)
class Split:
    """Which part each strain of a store belongs to.

    Attributes:
        part: [S] 0 training, 1 validation, 2 test, 255 unused.
        kind: how it was made.
        seed: of the shuffle.
        parameters: everything else that shaped it.
        store_sha256: the store it divides.
    """

    part: Parts
    kind: str
    seed: int
    parameters: dict[str, Any]
    store_sha256: str

    @cached_property
    def counts(self) -> dict[str, int]:
        """Strains in each part, and those unused."""
        found = {name: int((self.part == part).sum()) for part, name in enumerate(PARTS)}
        return {**found, "unused": int((self.part == UNUSED).sum())}

    @property
    def meta(self) -> dict[str, Any]:
        """Everything but the parts, for a record."""
        return {
            "kind": self.kind,
            "seed": self.seed,
            "parameters": self.parameters,
            "store_sha256": self.store_sha256,
            "counts": self.counts,
        }

    @cached_property
    def sha256(self) -> str:
        """Hash of the parts and of `meta`."""
        return canonical_hash({**self.meta, "part": hashlib.sha256(self.part.tobytes()).hexdigest()})

    def indices(self, part: str) -> NDArray[np.int64]:
        """The strains of ``train``, ``validation`` or ``test``, ascending.

        Raises:
            DataError: there is no such part.
        """
        if part not in PARTS:
            raise DataError(f"'{part}' is not a part of a split", expected=" or ".join(PARTS))
        return np.flatnonzero(self.part == PARTS.index(part))

    def save(self, path: str | Path) -> None:
        """Write the split as one .npz file, atomically."""
        meta = json.dumps({**self.meta, "sha256": self.sha256})
        with atomic_file(Path(path)) as partial, open(partial, "wb") as file:
            np.savez_compressed(file, part=self.part, meta=np.array(meta))

    @classmethod
    def load(cls, path: str | Path, store_sha256: str | None = None) -> Split:
        """Read a split that was saved.

        Args:
            path: the file.
            store_sha256: hash of the store it has to belong to; not checked where None.

        Raises:
            DataError: the file is missing, not a split, altered, or of another store.
        """
        if not Path(path).is_file():
            raise DataError(f"split '{path}' not found", expected="a file written by a run", do="check the path")
        try:
            with np.load(path, allow_pickle=False) as archive:
                part, meta = archive["part"], json.loads(str(archive["meta"]))
            split = cls(part, meta["kind"], meta["seed"], meta["parameters"], meta["store_sha256"])
            intact = part.dtype == np.uint8 and part.ndim == 1 and split.sha256 == meta["sha256"]
        except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile):
            raise DataError(
                f"'{path}' is not a split, or it is damaged",
                expected="an .npz file written by a run",
                do="make the split anew from its seed",
            ) from None
        if not intact:
            raise DataError(f"split '{path}' was altered: it does not fit its hash", do="make it anew from its seed")
        if store_sha256 is not None and split.store_sha256 != store_sha256:
            raise DataError(
                f"split '{path}' belongs to another store",
                got=f"a split of the store with sha256 {split.store_sha256[:12]}…",
                expected=f"the store with sha256 {store_sha256[:12]}…",
                do="use the store that the split was made from, or make a new split",
            )
        return split


def make_split(
    config: SplitConfig, table: StrainTable, store_sha256: str, raw: str | None = None, cell: CellGraph | None = None
) -> Split:
    """Divide the strains of a store, or read the split that ``config.path`` names.

    Args:
        config: how.
        table: the strains, all of them, in the order of the store.
        store_sha256: hash of the store.
        raw: folder of raw files, where the gene list of a subset may lie.
        cell: whose metabolic genes a subset may be made of.

    Raises:
        ConfigError: the configuration is wrong.
        DataError: a part would be empty, or a file is missing or unfit.
        GraphError: the gene list of a subset is damaged or empty.
    """
    config.validate()
    if config.path is not None:
        split = read_split(Path(config.path), config, table, store_sha256)
    else:
        parts, parameters = divide(config, table)
        split = Split(parts, config.kind, config.seed, parameters, store_sha256)
    if config.subset is not None:
        genes, record = subset_genes(config.subset, table, raw, cell)
        parts = subset_parts(split.part, table, config.subset.size, config.seed, genes, config.subset.take)
        of = {"subset_of": split.sha256} if config.kind == "file" else {}
        parameters = {**split.parameters, "subset": record, **of}
        split = dataclasses.replace(split, part=parts, seed=config.seed, parameters=parameters)
    refuse_empty_parts(split)
    return split


def divide(config: SplitConfig, table: StrainTable) -> tuple[Parts, dict[str, Any]]:
    """The parts, and what else than kind and seed shaped them."""
    fractions, seed = list(config.fractions), config.seed
    bins = Bins.of_fractions(fractions)
    parameters: dict[str, Any] = {"fractions": fractions}
    if config.folds is not None and config.fold is not None:
        bins, parameters = Bins.of_folds(config.folds, config.fold), {"folds": config.folds, "fold": config.fold}
    if config.kind == "stratified":
        return stratified_parts(table, bins, seed), parameters
    if config.kind == "gene_disjoint":
        parameters["genes_rule"] = config.genes_rule
        if config.folds is not None and config.fold is not None:
            return gene_fold_parts(table, config.folds, config.fold, seed, config.genes_rule), parameters
        return gene_disjoint_parts(table, fractions, seed, config.genes_rule), parameters
    parameters["by_deletions"] = config.by_deletions
    if config.kind in GENE_SPLITS:
        rule, usual = GENE_SPLITS[config.kind]
        parameters["test_genes"] = usual if config.test_genes is None else config.test_genes
        bins = Bins.of_training(fractions)
        return held_out_gene_parts(table, bins, seed, parameters["test_genes"], rule, config.by_deletions), parameters
    make = random_parts if config.kind == "random" else pair_disjoint_parts
    return make(table, bins, seed, config.by_deletions), parameters


def read_split(path: Path, config: SplitConfig, strains: Sized, store_sha256: str) -> Split:
    """A split that a run saved, or strain numbers in a JSON file."""
    if path.suffix != ".json":
        split = Split.load(path, store_sha256)
        if len(split.part) != len(strains):
            raise DataError(f"split '{path}' has the wrong length", got=len(split.part), expected=len(strains))
        return split
    if not path.is_file():
        raise DataError(f"split '{path}' not found", expected="a JSON file with strain numbers", do="check the path")
    parts = read_index_file(path, len(strains), config.unlisted)
    parameters = {"file": path.name, "file_sha256": sha256_file(path), "unlisted": config.unlisted}
    return Split(parts, config.kind, config.seed, parameters, store_sha256)


def refuse_empty_parts(split: Split) -> None:
    """Raises DataError where a part has no strain."""
    empty = [name for name in PARTS if not split.counts[name]]
    if empty:
        raise DataError(
            f"{split.kind} split: no strain in {' and '.join(empty)}",
            got=", ".join(f"{count:,} {name}" for name, count in split.counts.items()),
            expected="at least one strain in each part",
            do="give the empty part a larger fraction, try another seed or kind, or use more strains",
        )
