"""Divide strains into those that train, those that choose the model and those that test it, and save the split with a
hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.config import NONE, PARTS, TRAIN, UNUSED, SplitConfig
from dglcell.data.partition import Parts, divide, shuffled, strain_keys
from dglcell.data.sources.text_table import read_rows
from dglcell.data.strains import Strains
from dglcell.errors import DataError
from dglcell.files.atomic import atomic_file, canonical_hash, find_raw, sha256_file
from dglcell.files.untrusted import UnreadableError, read_npz

# A smaller split: fewer strains, the same proportions of the parts.


def subset_parts(parts: Parts, table: Strains, size: int, seed: int) -> Parts:
    """Keep ``size`` strains of a split; the others become unused.

    Each part keeps its share of the strains. Within a part, strains with at most one deletion are taken first, then the
    others evenly over their numbers of deletions, as by torchcell's ``PerturbationSubsetDataModule``. The seed chooses
    among equals.

    Raises:
        DataError: there are fewer than ``size`` strains to choose from.
    """
    if (used := int((parts != UNUSED).sum())) < size:
        got, expected = f"size {size:,}", f"at most {used:,} strains"
        what = "the subset is larger than the set of strains"
        raise DataError(what, got=got, expected=expected, do="lower the size of the subset")
    order = shuffled(strain_keys(table), seed)
    members = [np.flatnonzero(parts == part) for part in range(len(PARTS))]
    kept = np.full_like(parts, UNUSED)
    # Each part keeps its share of the whole (largest remainders).
    exact = np.array([len(strains) for strains in members]) * size / sum(map(len, members))
    shares = np.floor(exact).astype(np.int64)
    shares[np.argsort(shares - exact, kind="stable")[: size - shares.sum()]] += 1
    for strains, quota in zip(members, shares.tolist(), strict=True):
        for number, count in _takes(table.num_deletions[strains], quota):
            same = strains[table.num_deletions[strains] == number]
            chosen = same[np.argsort(order[same], kind="stable")[:count]]
            kept[chosen] = parts[chosen]
    return kept


def fewer_training_strains(parts: Parts, table: Strains, share: float, seed: int) -> Parts:
    """Keep a share of the training strains, one at least; the others become unused, and all other parts stay.

    Shares are nested: with one seed, the strains of a smaller share are among those of a larger one.
    """
    train = np.flatnonzero(parts == TRAIN)
    order = np.argsort(shuffled(strain_keys(table), seed)[train], kind="stable")
    fewer = parts.copy()
    fewer[train[order[max(1, round(share * len(train))) :]]] = UNUSED
    return fewer


def _takes(deletions: NDArray[np.int64], quota: int) -> list[tuple[int, int]]:
    """Return pairs (number of deletions, strains to take): at most one deletion first, then evenly over the rest."""
    numbers, available = np.unique(deletions, return_counts=True)
    takes = []
    few = numbers <= 1
    for number, count in zip(numbers[few].tolist(), available[few].tolist(), strict=True):
        takes.append((number, min(count, quota)))
        quota -= takes[-1][1]
    # From the scarcest on, each takes an even share of what is left, so that its shortfall goes to the others.
    many = sorted(zip(available[~few].tolist(), numbers[~few].tolist(), strict=True))
    for turn, (count, number) in enumerate(many):
        takes.append((number, min(count, quota // (len(many) - turn))))
        quota -= takes[-1][1]
    return takes


@dataclass(frozen=True, eq=False)
class Split:
    """A split says which part each strain of a store belongs to."""

    part: Parts  #: [S] 0 training, 1 validation, 2 test, 255 unused
    kind: str  #: kind of split
    seed: int  #: seed of the shuffle
    parameters: dict[str, Any]  #: everything else that shaped it
    store_sha256: str  #: the store it divides

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return the number of strains in each part, and of those unused."""
        found = {name: int((self.part == part).sum()) for part, name in enumerate(PARTS)}
        return {**found, "unused": int((self.part == UNUSED).sum())}

    @property
    def filled(self) -> tuple[str, ...]:
        """Return the parts that have to hold strains: the training part alone where every strain trains."""
        return PARTS[:1] if self.kind == NONE else PARTS

    @property
    def meta(self) -> dict[str, Any]:
        """Return everything but the parts, for a record."""
        return {name: getattr(self, name) for name in ("kind", "seed", "parameters", "store_sha256", "counts")}

    @cached_property
    def sha256(self) -> str:
        """Return a hash of the parts and of `meta`."""
        return canonical_hash({**self.meta, "part": hashlib.sha256(self.part.tobytes()).hexdigest()})

    def indices(self, part: str) -> NDArray[np.int64]:
        """Return the strains of ``train``, ``validation`` or ``test``, ascending.

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
            arrays = read_npz(Path(path))
            part, meta = arrays["part"], json.loads(str(arrays["meta"]))
            split = cls(part, meta["kind"], meta["seed"], meta["parameters"], meta["store_sha256"])
            intact = part.dtype == np.uint8 and part.ndim == 1 and split.sha256 == meta["sha256"]
        except (UnreadableError, ValueError, KeyError, TypeError, RecursionError):
            expected, do = "an .npz file written by a run", "make the split anew from its seed"
            raise DataError(f"'{path}' is not a split, or it is damaged", expected=expected, do=do) from None
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


def make_split(config: SplitConfig, table: Strains, store_sha256: str, raw: str | None = None) -> Split:
    """Divide the strains of a store, or read the split that ``config.path`` names.

    Args:
        config: the configuration of the split.
        table: the strains, all of them, in the order of the store.
        store_sha256: hash of the store.
        raw: folder for a relative path of ``config.groups``.

    Raises:
        ConfigError: the configuration is wrong.
        DataError: a part would be empty, or a file is missing or unfit.
    """
    config.validate()
    if config.path is not None:
        split = Split.load(config.path, store_sha256)
        if split.kind == NONE:
            what = f"split '{config.path}' has no validation and no test part"
            do = f"set `split.kind: {NONE}` and `split.path: null` to train on every strain again"
            raise DataError(what, got=f"that of a run with `split.kind: {NONE}`", do=do)
    else:
        path = None if config.groups is None else find_raw(config.groups, raw)
        parts, parameters = divide(config, table if path is None else in_groups(table, path))
        if path is not None:
            parameters["groups"] = {"file": path.name, "file_sha256": sha256_file(path)}
        split = Split(parts, config.kind, config.seed, parameters, store_sha256)
    if config.subset is not None:
        parts = subset_parts(split.part, table, config.subset.size, config.seed)
        # Hashes of published splits are over this record, which has more keys than a subset has today.
        record: dict[str, Any] = {"size": config.subset.size, "genes": None, "take": "singles_first"}
        of = {"subset_of": split.sha256} if config.kind == "file" else {}
        parameters = {**split.parameters, "subset": record, **of}
        split = dataclasses.replace(split, part=parts, seed=config.seed, parameters=parameters)
    if config.train_share < 1:
        parts = fewer_training_strains(split.part, table, config.train_share, config.seed)
        record = {"train_share": config.train_share, "train_share_of": split.sha256}
        split = dataclasses.replace(split, part=parts, seed=config.seed, parameters={**split.parameters, **record})
    empty = [name for name in split.filled if not split.counts[name]]
    if empty:
        raise DataError(
            f"{split.kind} split: no strain in {' and '.join(empty)}",
            got=", ".join(f"{count:,} {name}" for name, count in split.counts.items()),
            expected="at least one strain in each part",
            do="give the empty part a larger fraction, try another seed or kind, or use more strains",
        )
    return split


def in_groups(table: Strains, path: Path) -> Strains:
    """Return strains whose targets are groups of genes; a gene that the table at ``path`` lacks is a group by itself.

    Raises:
        DataError: the file has one column only, or is no table.
    """
    genes_and_groups = read_rows(path).frame
    if genes_and_groups.shape[1] < 2:
        expected = "a header, and a gene and its group in each row"
        raise DataError(f"`split.groups`: '{path.name}' has one column", expected=expected)
    group_of = dict(genes_and_groups.iloc[:, :2].itertuples(index=False, name=None))
    groups, group_N = np.unique([group_of.get(name, name) for name in table.names], return_inverse=True)
    return table.with_(names=tuple(groups.tolist()), targets=group_N[table.targets])
