"""Splits: which strains train, which choose the model, which test it; a file with a hash."""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.partition import (
    PARTS,
    UNUSED,
    Parts,
    gene_disjoint_parts,
    pair_disjoint_parts,
    random_parts,
)
from dglcell.data.subset import subset_parts
from dglcell.data.table import StrainTable
from dglcell.errors import ConfigError, DataError
from dglcell.files import atomic_file, canonical_hash, find_raw, sha256_file
from dglcell.graph.names import read_gene_list

KINDS = ("random", "pair_disjoint", "gene_disjoint")
GENES_RULES = ("any", "all")


@dataclass
class SubsetConfig:
    """Keep only some strains of a split, in the proportions of its parts."""

    size: int = 1000  # strains to keep, in all parts together
    genes: str | None = None  # file with one gene name a line: keep only strains that delete one of them

    def validate(self, key: str = "split.subset") -> None:
        """Raises ConfigError if a value is out of range."""
        if self.size < len(PARTS):
            raise ConfigError(
                f"`{key}.size` is too small",
                got=self.size,
                expected=f"{len(PARTS)} or more, one for each part",
            )


@dataclass
class SplitConfig:
    """How strains are divided into training, validation and test."""

    kind: str = "random"  # random, pair_disjoint or gene_disjoint
    fractions: list[float] = field(default_factory=lambda: [0.8, 0.1, 0.1])  # training, validation, test
    seed: int = 42  # of the shuffle
    by_deletions: bool = True  # random, pair_disjoint: meet the fractions for each number of deletions
    genes_rule: str = "any"  # gene_disjoint: a strain is test if any, or all, of its genes are test genes
    subset: SubsetConfig | None = None  # keep only some strains
    file: str | None = None  # load this saved split; the keys above then have no effect

    def validate(self, key: str = "split") -> None:
        """Raises ConfigError if a value is unknown or out of range."""
        for name, value, known in (("kind", self.kind, KINDS), ("genes_rule", self.genes_rule, GENES_RULES)):
            if value not in known:
                raise ConfigError(f"`{key}.{name}` is unknown", got=value, expected=" or ".join(known))
        if (
            len(self.fractions) != len(PARTS)
            or min(self.fractions) <= 0
            or not math.isclose(sum(self.fractions), 1.0, abs_tol=1e-6)
        ):
            raise ConfigError(
                f"`{key}.fractions` do not divide the strains",
                got=list(self.fractions),
                expected="three positive numbers (training, validation, test) that sum to 1",
                do=f"for example `{key}.fractions=[0.8,0.1,0.1]`",
            )
        if self.subset is not None:
            self.subset.validate(f"{key}.subset")


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


def make_split(config: SplitConfig, table: StrainTable, store_sha256: str, raw: str | None = None) -> Split:
    """Divide the strains of a store, or load the split that ``config.file`` names.

    Args:
        config: how.
        table: the strains, all of them, in the order of the store.
        store_sha256: hash of the store.
        raw: folder of raw files, where the gene list of a subset may lie.

    Raises:
        ConfigError: the configuration is wrong.
        DataError: a part would be empty, or a file is missing or unfit.
        GraphError: the gene list of a subset is damaged or empty.
    """
    config.validate()
    if config.file is not None:
        split = Split.load(config.file, store_sha256)
        if len(split.part) != len(table):
            raise DataError(f"split '{config.file}' has the wrong length", got=len(split.part), expected=len(table))
        return split
    fractions = list(config.fractions)
    if config.kind == "random":
        parts = random_parts(table, fractions, config.seed, config.by_deletions)
    elif config.kind == "pair_disjoint":
        parts = pair_disjoint_parts(table, fractions, config.seed, config.by_deletions)
    else:
        parts = gene_disjoint_parts(table, fractions, config.seed, config.genes_rule)
    parameters: dict[str, Any] = {"fractions": fractions}
    if config.kind == "gene_disjoint":
        parameters["genes_rule"] = config.genes_rule
    else:
        parameters["by_deletions"] = config.by_deletions
    if config.subset is not None:
        genes, parameters["subset"] = _subset_genes(config.subset, table, raw)
        parts = subset_parts(parts, table, config.subset.size, config.seed, genes)
    split = Split(parts, config.kind, config.seed, parameters, store_sha256)
    _refuse_empty_parts(split)
    return split


def _subset_genes(
    subset: SubsetConfig, table: StrainTable, raw: str | None
) -> tuple[NDArray[np.bool_] | None, dict[str, Any]]:
    """[N] which genes are listed (None without a list), and the record of it."""
    if subset.genes is None:
        return None, asdict(subset)
    path = find_raw(subset.genes, raw)
    listed = read_gene_list(path)
    genes = np.array([name in listed for name in table.names])
    if not genes.any():
        raise DataError(
            f"gene list '{path}' has no gene of the store",
            got=f"{len(listed):,} names",
            expected=f"names such as {', '.join(table.names[:3])}",
            do="list systematic names, one a line",
        )
    record = {
        "size": subset.size,
        "genes": path.name,
        "genes_sha256": sha256_file(path),
        "genes_listed": len(listed),
        "genes_known": int(genes.sum()),
    }
    return genes, record


def _refuse_empty_parts(split: Split) -> None:
    empty = [name for name in PARTS if not split.counts[name]]
    if empty:
        raise DataError(
            f"{split.kind} split: no strain in {' and '.join(empty)}",
            got=", ".join(f"{count:,} {name}" for name, count in split.counts.items()),
            expected="at least one strain in each part",
            do="give the empty part a larger fraction, try another seed or kind, or use more strains",
        )
