"""Divide strains into parts: at random, by query pair, by genes, by number of deletions, or by a covariate."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dglcell.data.columns import COVARIATE, Keys, gene_keys, shuffled
from dglcell.data.config import GENE_SPLITS, NONE, PARTS, TEST, TRAIN, UNUSED, VALIDATION, SplitConfig
from dglcell.data.sources.text_table import read_rows
from dglcell.data.strains import Strains
from dglcell.errors import DataError, did_you_mean, listing
from dglcell.files.atomic import atomic_file, canonical_hash, find_raw, sha256_file
from dglcell.files.untrusted import UnreadableError, read_npz

Parts = NDArray[np.uint8]


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
        numbers = {**{name: part for part, name in enumerate(PARTS)}, "unused": UNUSED}
        return {name: int((self.part == part).sum()) for name, part in numbers.items()}

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
        """Return the strains of ``train``, ``validation`` or ``test``, ascending."""
        return np.flatnonzero(self.part == PARTS.index(part))

    def save(self, path: str | Path) -> None:
        """Write the split as one .npz file, atomically."""
        meta = json.dumps({**self.meta, "sha256": self.sha256})
        with atomic_file(Path(path)) as partial, open(partial, "wb") as file:
            np.savez_compressed(file, part=self.part, meta=np.array(meta))

    @classmethod
    def load(cls, path: str | Path, store_sha256: str | None = None) -> Split:
        """Read a split that was saved, of the store with this hash if one is given."""
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
            got, expected = (f"the store with sha256 {of[:12]}…" for of in (split.store_sha256, store_sha256))
            what, do = f"split '{path}' belongs to another store", "use the store that the split was made from"
            raise DataError(what, got=f"a split of {got}", expected=expected, do=f"{do}, or make a new split")
        return split


def make_split(config: SplitConfig, table: Strains, store_sha256: str, raw: str | None = None) -> Split:
    """Divide the strains of a store, in its order, or read the split that ``config.path`` names."""
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
        split = replace(split, part=parts, seed=config.seed, parameters=parameters)
    if config.train_share < 1:
        parts = fewer_training_strains(split.part, table, config.train_share, config.seed)
        record = {"train_share": config.train_share, "train_share_of": split.sha256}
        split = replace(split, part=parts, seed=config.seed, parameters={**split.parameters, **record})
    empty = [name for name in split.filled if not split.counts[name]]
    if empty:
        keys = {"deletions": "`split.max_deletions`", **dict.fromkeys(GENE_SPLITS, "`split.test_genes`")}
        change = keys.get(split.kind, "the fraction of the empty part")
        raise DataError(
            f"{split.kind} split: no strain in {' and '.join(empty)}",
            got=", ".join(f"{count:,} {name}" for name, count in split.counts.items()),
            expected="at least one strain in each part",
            do=f"change {change}, try another seed or kind, or use more strains",
        )
    return split


def in_groups(table: Strains, path: Path) -> Strains:
    """Return strains whose targets are groups of genes; a gene without one in the table is a group by itself."""
    frame = read_rows(path).frame
    if frame.shape[1] < 2:
        expected = "a header, and a gene and its group in each row"
        raise DataError(f"`split.groups`: '{path.name}' has one column", expected=expected)
    pairs = {(gene.strip(), group.strip()) for gene, group in frame.iloc[:, :2].to_numpy() if group.strip()}
    group_of = dict(sorted(pairs))
    if several := sorted(gene for gene, group in pairs if group_of[gene] != group):
        what = f"`split.groups`: '{path.name}' has gene '{several[0]}' in several groups"
        raise DataError(what, do="make one group of those that share a gene")
    if group_of.keys().isdisjoint(table.names):
        got, expected = listing(group_of, 3), f"names such as {listing(table.names, 3)}"
        raise DataError(f"`split.groups`: '{path.name}' has no gene of the strains", got=got, expected=expected)
    groups, group_N = np.unique([group_of.get(name, name) for name in table.names], return_inverse=True)
    return table.with_(names=tuple(groups.tolist()), targets=group_N[table.targets])


def divide(config: SplitConfig, table: Strains) -> tuple[Parts, dict[str, Any]]:
    """Divide the strains, and return the parts with everything but kind and seed that shaped them."""
    if config.kind == NONE:
        return np.full(len(table), TRAIN, np.uint8), {}
    shaped: dict[str, Any] = {"folds": config.folds, "fold": config.fold}
    if config.folds is None:
        shaped = {"fractions": list(config.fractions)}
    if config.kind == "gene_disjoint":
        shaped["genes_rule"] = "any"  # as hashes of published splits have it
    elif config.kind not in ("stratified", "covariate"):
        shaped["by_deletions"] = config.by_deletions
    if config.covariate is not None:
        shaped |= {"covariate": config.covariate, "test_values": list(config.test_values)}
    if config.kind in GENE_SPLITS:
        shaped["test_genes"] = config.test_genes or GENE_SPLITS[config.kind][1]
    if config.kind == "deletions":
        shaped["max_deletions"] = config.trained_deletions
        shaped |= {} if config.all_train is None else {"all_train": config.all_train}
    return DIVIDED[config.kind](table, config), shaped


# Ways to divide strains.


class Bins(NamedTuple):
    """Describe the groups that strains are divided into: three parts, or equal folds, each the test part once."""

    shares: tuple[float, ...]  #: shares of the strains, one for each bin; they sum to 1
    parts: Parts  #: the part that each bin is

    @classmethod
    def of(cls, config: SplitConfig, *, training: bool = False) -> Bins:
        """Make bins for the parts, for training and validation alone, or for folds; after ``fold`` one validates."""
        if training:
            two = config.fractions[:TEST]
            return cls(tuple(share / sum(two) for share in two), np.array([TRAIN, VALIDATION], np.uint8))
        if config.folds is None or config.fold is None:
            return cls(tuple(config.fractions), np.array([TRAIN, VALIDATION, TEST], np.uint8))
        parts = np.full(config.folds, TRAIN, np.uint8)
        parts[config.fold], parts[(config.fold + 1) % config.folds] = TEST, VALIDATION
        return cls((1 / config.folds,) * config.folds, parts)

    def filled(self, order: Keys, level: NDArray[np.int64] | int = 0) -> Parts:
        """Return the part of each strain, [S], after `fill`; strains of each level are divided separately."""
        bins, levels = np.empty(len(order), np.int64), np.broadcast_to(level, len(order))
        for value in np.unique(levels):
            bins[levels == value] = fill(order[levels == value], self.shares)
        return self.parts[bins]


def random_parts(table: Strains, config: SplitConfig, *, training: bool = False) -> Parts:
    """Divide at random, if asked without a test part; strains of one `Strains.strain_keys` share a part."""
    level = table.num_deletions * config.by_deletions
    return Bins.of(config, training=training).filled(shuffled(table.strain_keys, config.seed), level)


def _others_random(table: Strains, config: SplitConfig, parts: Parts, others: NDArray[np.bool_]) -> Parts:
    """Return parts in which ``others``, [S], are divided at random into training and validation."""
    parts[others] = random_parts(table.take(np.flatnonzero(others)), config, training=True)
    return parts


def _covariate_values(table: Strains, config: SplitConfig) -> tuple[list[str], NDArray[np.int64]]:
    """Return the values of the split's covariate as texts, and which of them each strain has, [S]."""
    covariate = config.covariate or ""
    if covariate not in table.covariates:
        do = "name a column in `data.source.csv.covariates`, or another covariate in `split.covariate`"
        got = listing(table.covariates) or "strains without covariates"
        raise DataError(f"the split needs a covariate '{covariate}'", got=got, do=do)
    numbers, which = np.unique(table.of_kind(COVARIATE)[covariate], return_inverse=True)
    categories = table.covariates[covariate]
    values = [categories[int(number)] if categories else f"{number:g}" for number in numbers]
    if unknown := [value for value in config.test_values if value not in values]:
        what = f"`split.test_values`: no strain has the {covariate} '{unknown[0]}'"
        raise DataError(what, expected=f"among {listing(values)}", do=did_you_mean(unknown[0], values))
    return values, which


def covariate_parts(table: Strains, config: SplitConfig) -> Parts:
    """Divide by the values of a covariate: these are dealt into the parts with all their strains.

    With ``test_values`` the strains of other values are divided at random into training and validation.
    """
    values, which = _covariate_values(table, config)
    if not config.test_values:
        return Bins.of(config).filled(shuffled(gene_keys(values), config.seed)[which])
    is_test = np.isin(values, config.test_values)[which]
    return _others_random(table, config, np.full(len(table), TEST, np.uint8), ~is_test)


def deletions_parts(table: Strains, config: SplitConfig) -> Parts:
    """Put strains with more than ``max_deletions`` into test; those with ``all_train`` or fewer all train."""
    few = table.num_deletions <= config.trained_deletions
    divided = table.num_deletions > (config.all_train or -1)
    return _others_random(table, config, np.where(few, TRAIN, TEST).astype(np.uint8), few & divided)


def pair_disjoint_parts(table: Strains, config: SplitConfig) -> Parts:
    """Divide so that no query pair is in two parts: the first two genes of a strain, in either order.

    Tables list the genes of the query strain first and the array gene last. So of the three pairs of a trigenic strain
    only the one counts that was built into the query strain. Strains of fewer than two genes have no pair, and train.
    Query pairs that share a gene set (the same triple found from two sides) stay together, so that no gene set is in
    two parts either. ``by_deletions`` applies to pairs of double mutants alone, those of triples, and so on: a few
    large query pairs of a trigenic screen would else all go to training.
    """
    parts, paired = np.full(len(table), TRAIN, np.uint8), np.flatnonzero(table.num_deletions >= 2)
    keys = gene_keys(table.names)[table.targets[table.offsets[paired][:, None] + [0, 1]]].sum(axis=1)
    order = shuffled(_join_pairs(keys, table.gene_set_keys[paired]), config.seed)
    ranks, group = np.unique(order, return_inverse=True)
    most = np.zeros(len(ranks), np.int64)
    if config.by_deletions:
        np.maximum.at(most, group, table.num_deletions[paired])
    parts[paired] = Bins.of(config).filled(order, most[group])
    return parts


def fill(order: Keys, shares: Sequence[float]) -> NDArray[np.int64]:
    """Return the bin of each strain, [S]; bins are filled one after the other with whole groups of equal keys, in the
    order of these. Each bin gets a group if there are as many groups as bins.
    """
    _, group, sizes = np.unique(order, return_inverse=True, return_counts=True)
    # A group larger than the smallest bin would overfill it, so these go first, into training.
    turn = np.argsort(sizes <= min(shares) * len(order), kind="stable")
    middle = np.cumsum(sizes[turn]) - sizes[turn] / 2
    filled = np.searchsorted(np.cumsum(shares)[:-1] * len(order), middle, side="right")
    if len(filled) >= len(shares):
        filled = _no_bin_empty(filled, len(shares))
    bins = np.empty(len(sizes), np.int64)
    bins[turn] = filled
    return bins[group]


def _no_bin_empty(filled: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """Change as few of the ascending bin numbers as possible so that they take every value from 0 on."""
    position = np.arange(len(filled))
    filled = np.append(filled[:-1], bins - 1)
    # Neighbours may differ by one at most: bins are raised from the end, then lowered from the beginning.
    filled = position + np.maximum.accumulate((filled - position)[::-1])[::-1]
    filled[0] = 0
    return position + np.minimum.accumulate(filled - position)


def _join_pairs(pairs: Keys, sets: Keys) -> Keys:
    """Return the key of each strain's query pair, [S], made equal for pairs that occur with the same gene set."""
    keys, pair = np.unique(pairs, return_inverse=True)
    by_set = np.argsort(sets, kind="stable")
    left, right = pair[by_set[:-1]], pair[by_set[1:]]
    joined = (sets[by_set[:-1]] == sets[by_set[1:]]) & (left != right)
    if not joined.any():
        return pairs
    links = coo_array((np.ones(int(joined.sum())), (left[joined], right[joined])), shape=(len(keys), len(keys)))
    count, component = connected_components(links, directed=False)
    smallest = np.full(count, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(smallest, component, keys)
    return smallest[component][pair]


# A random split that meets its shares in every number of deletions and for every phenotype.


def stratified_parts(table: Strains, config: SplitConfig) -> Parts:
    """Divide at random so that the shares of the parts hold for each number of deletions and for each phenotype.

    Strains with the same number of deletions and the same measured phenotypes form a stratum, which is divided as
    its shares say but for fewer than one strain a part. Strains that this rounding leaves over go one by one to the
    part that is relatively furthest below its target. This is what torchcell's ``CellDataModule`` (seed 42) aims at
    with an independent cut of each key. Equal strains count as one that has all their phenotypes.
    """
    bins, order = Bins.of(config), shuffled(table.strain_keys, config.seed)
    _, first, group = np.unique(order, return_index=True, return_inverse=True)
    keys, stratum_of = _strata(table, first, group)
    quotas = _quotas(np.bincount(stratum_of, minlength=keys.shape[1]), keys, bins.shares)
    # Groups are numbered in the order of the shuffle, which a stable sort keeps within each stratum.
    turn = np.argsort(stratum_of, kind="stable")
    dealt = np.empty(len(first), np.int64)
    dealt[turn] = np.repeat(np.tile(np.arange(len(bins.shares)), len(quotas)), quotas.ravel())
    return bins.parts[dealt[group]]


def _strata(
    table: Strains, first: NDArray[np.int64], group: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which keys (numbers of deletions, phenotypes) each stratum has, [K, M], and the stratum of each group."""
    stratum = table.num_deletions[first]
    columns = [stratum == number for number in np.unique(stratum)]
    for labels in table.phenotypes.values():
        measured = np.zeros(len(first), bool)
        measured[group[~np.isnan(labels)]] = True
        columns.append(measured)
        stratum = np.unique(2 * stratum + measured, return_inverse=True)[1]
    _, example, stratum = np.unique(stratum, return_index=True, return_inverse=True)
    # Strata keep the order of the shuffle. Sorted, those without a phenotype would be divided before all others.
    order = np.argsort(example)
    example, stratum = example[order], np.argsort(order)[stratum]
    return np.array([column[example] for column in columns if column.any()]), stratum


def _quotas(sizes: NDArray[np.int64], keys: NDArray[np.bool_], shares: Sequence[float]) -> NDArray[np.int64]:
    """Return how many of the ``sizes``, [M], groups of strata with some ``keys``, [K, M], go into each bin, [M, n]."""
    exact = sizes[:, None] * np.array(shares)
    quotas = np.floor(exact + 1e-9).astype(np.int64)
    targets = (keys @ sizes)[:, None] * np.array(shares)
    for stratum in np.flatnonzero(quotas.sum(1) < sizes):
        relative = ((keys @ quotas - targets) / targets)[keys[:, stratum]].sum(0)
        # A bin gets one more group at most, and none if its share is a whole number: it stays within one of its share.
        relative[exact[stratum] - quotas[stratum] < 1e-9] = np.inf
        left = sizes[stratum] - quotas[stratum].sum()
        quotas[stratum, np.argsort(relative, kind="stable")[:left]] += 1
    return quotas


# How strains are divided by genes, so that genes of the test part are new to the model.


def gene_disjoint_parts(table: Strains, config: SplitConfig) -> Parts:
    """Divide by genes; with ``test_values`` every test strain also has one of these values, which no other strain has.

    Strains with a test gene or a test value, but not both, are ``UNUSED``.
    """
    parts = _divided_by_genes(table, config)
    if config.test_values:
        values, which = _covariate_values(table, config)
        parts[(parts == TEST) != np.isin(values, config.test_values)[which]] = UNUSED
    return parts


def _divided_by_genes(table: Strains, config: SplitConfig) -> Parts:
    """Divide the genes, and the strains by their genes.

    A strain with a test gene is test, else one with a validation gene is validation. No test gene occurs outside the
    test part, no validation gene in training. The fractions are of strains; genes that alone would overfill a part are
    training genes. Strains without deletions are training.

    Folds are of equally many genes. Every strain is tested in the fold of one of its genes, chosen by a hash, so that
    each is in exactly one test part. It is ``UNUSED`` where another of its genes is a test gene, or, outside the
    validation part, a validation gene: of pairs in five folds about 36 % train.
    """
    parts, frequency = np.full(len(table), TRAIN, np.uint8), np.bincount(table.targets, minlength=len(table.names))
    deletes = table.num_deletions > 0
    starts = table.offsets[:-1][deletes]
    if not len(starts):
        return parts
    if config.folds is not None:
        rank = _ranks(table, config.seed)
        fold = np.minimum(rank * config.folds // int((frequency > 0).sum()), config.folds - 1)
        part = Bins.of(config).parts[fold][table.targets]
        order = shuffled(gene_keys(table.names)[table.targets] ^ table.gene_set_keys[table.owners], config.seed)
        # The genes stay grouped by strain, so that each strain still begins at the same place.
        own = part[np.lexsort((order, table.owners))[starts]]
        # A strain is used in the highest part of its genes or nowhere: in a lower one it would tell of genes of the
        # other.
        parts[deletes] = np.where(own == np.maximum.reduceat(part, starts), own, np.uint8(UNUSED))
        return parts
    rank = _ranks(table, config.seed, frequency > min(config.fractions) * len(table))
    lowest = np.minimum.reduceat(rank[table.targets], starts)
    reached = np.append(0, np.cumsum(np.bincount(lowest, minlength=len(rank))))  # strains by the number of genes taken
    shares = config.fractions[TEST], config.fractions[TEST] + config.fractions[VALIDATION]
    ends = [int(np.argmin(np.abs(reached - share * len(table)))) for share in shares]
    parts[deletes] = np.array([TEST, VALIDATION, TRAIN])[np.searchsorted(ends, lowest, side="right")]
    return parts


def held_out_gene_parts(table: Strains, config: SplitConfig) -> Parts:
    """Make the gene splits of DANGO (Zhang et al. 2020, bioRxiv 2020.11.26.400739; ``main.py`` of its repository).

    ``test_genes`` of the deleted genes are drawn. In gene split 1 a strain with at least one of them is test. In gene
    split 2 a strain of these genes alone is test, and one with both kinds of genes is ``UNUSED``. All other strains are
    divided at random into training and validation, so that a validation gene is not new to the model, unlike in
    `gene_disjoint_parts`. DANGO's own draw depends on a generator's state and is not repeated here.
    """
    one_is_enough, usual = GENE_SPLITS[config.kind]
    hits = table.total((_ranks(table, config.seed) < (config.test_genes or usual))[table.targets])
    parts = np.full(len(table), UNUSED, np.uint8)
    parts[(hits > 0) & ((hits == table.num_deletions) | one_is_enough)] = TEST
    return _others_random(table, config, parts, hits == 0)


def _ranks(table: Strains, seed: int, late: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the place of each gene in the shuffle, [N]; genes of ``late`` come after others, absent ones last."""
    absent = np.bincount(table.targets, minlength=len(table.names)) == 0
    turn = np.lexsort((shuffled(gene_keys(table.names), seed), absent if late is None else late, absent))
    return np.argsort(turn)


DIVIDED: dict[str, Callable[[Strains, SplitConfig], Parts]] = {
    "random": random_parts,
    "stratified": stratified_parts,
    "pair_disjoint": pair_disjoint_parts,
    "gene_disjoint": gene_disjoint_parts,
    **dict.fromkeys(GENE_SPLITS, held_out_gene_parts),
    "deletions": deletions_parts,
    "covariate": covariate_parts,
}


# A smaller split: fewer strains, the same proportions of the parts.


def subset_parts(parts: Parts, table: Strains, size: int, seed: int) -> Parts:
    """Keep ``size`` strains of a split; the others become unused.

    Each part keeps its share. Within a part, strains with at most one deletion are taken first, then the others evenly
    over their numbers of deletions, as by torchcell's ``PerturbationSubsetDataModule``. The seed chooses among equals.
    """
    if (used := int((parts != UNUSED).sum())) < size:
        got, expected = f"size {size:,}", f"at most {used:,} strains"
        what = "the subset is larger than the set of strains"
        raise DataError(what, got=got, expected=expected, do="lower the size of the subset")
    order = shuffled(table.strain_keys, seed)
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
    """Keep a share of the training strains, one at least; those of a smaller share are among those of a larger one."""
    train = np.flatnonzero(parts == TRAIN)
    order = np.argsort(shuffled(table.strain_keys, seed)[train], kind="stable")
    fewer = parts.copy()
    fewer[train[order[max(1, round(share * len(train))) :]]] = UNUSED
    return fewer


def _takes(deletions: NDArray[np.int64], quota: int) -> list[tuple[int, int]]:
    """Return pairs (number of deletions, strains to take): at most one deletion first, then evenly over the rest."""
    numbers, available = np.unique(deletions, return_counts=True)
    takes = list[tuple[int, int]]()
    # From the scarcest on, each takes an even share of what is left, so that its shortfall goes to the others.
    for turn in np.lexsort((numbers, np.where(numbers <= 1, 0, available))).tolist():
        evenly = 1 if numbers[turn] <= 1 else len(numbers) - len(takes)
        takes.append((int(numbers[turn]), min(int(available[turn]), quota // evenly)))
        quota -= takes[-1][1]
    return takes
