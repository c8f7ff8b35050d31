"""Divide strains into parts: at random, by query pair, by genes, by number of deletions, or by a covariate."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dglcell.data.columns import COVARIATE
from dglcell.data.config import GENE_SPLITS, NONE, TEST, TRAIN, TRAINED_DELETIONS, UNUSED, VALIDATION, SplitConfig
from dglcell.data.strains import Strains
from dglcell.errors import DataError, did_you_mean, listing

# Nothing here draws random numbers. Whatever is shuffled is sorted by a hash of the seed and of gene names, so that
# a split does not depend on the order of strains or names, nor on the version of numpy.

Parts = NDArray[np.uint8]
Keys = NDArray[np.uint64]


class Bins(NamedTuple):
    """Describe the groups that strains are divided into: three parts, or equal folds, each the test part once."""

    shares: tuple[float, ...]  #: shares of the strains, one for each bin; they sum to 1
    parts: tuple[int, ...]  #: the part that each bin is

    @classmethod
    def of(cls, config: SplitConfig, *, training: bool = False) -> Bins:
        """Make bins for the three parts, or for folds of which ``fold`` is test and the next one validation.

        Args:
            config: has the fractions, or the folds.
            training: make bins for training and validation alone, in the proportion of their fractions.
        """
        if training:
            two = config.fractions[:TEST]
            return cls(tuple(share / sum(two) for share in two), (TRAIN, VALIDATION))
        if config.folds is None or config.fold is None:
            return cls(tuple(config.fractions), (TRAIN, VALIDATION, TEST))
        parts = [TRAIN] * config.folds
        parts[config.fold], parts[(config.fold + 1) % config.folds] = TEST, VALIDATION
        return cls((1 / config.folds,) * config.folds, tuple(parts))

    def parts_of(self, bins: NDArray[np.int64]) -> Parts:
        """Return the part of each strain's bin, [S]."""
        return np.array(self.parts, np.uint8)[bins]

    def filled(self, order: Keys, level: NDArray[np.int64] | None = None) -> Parts:
        """Return the part of each strain, [S], after `fill`; strains of each level are divided separately."""
        bins = np.empty(len(order), np.int64)
        for value in [0] if level is None else np.unique(level):
            here = np.full(len(order), True) if level is None else level == value
            bins[here] = fill(order[here], self.shares)
        return self.parts_of(bins)


def divide(config: SplitConfig, table: Strains) -> tuple[Parts, dict[str, Any]]:
    """Divide the strains, and return the parts with everything but kind and seed that shaped them.

    Raises:
        DataError: strains do not have what the kind of split divides them by.
    """
    if config.kind == NONE:
        return np.full(len(table), TRAIN, np.uint8), {}
    shaped: dict[str, Any] = {"fractions": list(config.fractions)}
    if config.folds is not None:
        shaped = {"folds": config.folds, "fold": config.fold}
    if config.kind == "gene_disjoint":
        shaped["genes_rule"] = "any"  # as hashes of published splits have it
    elif config.kind != "stratified" and config.kind != "covariate":
        shaped["by_deletions"] = config.by_deletions
    if config.covariate is not None:
        shaped |= {"covariate": config.covariate, "test_values": list(config.test_values)}
    if config.kind in GENE_SPLITS:
        shaped["test_genes"] = GENE_SPLITS[config.kind][1] if config.test_genes is None else config.test_genes
    if config.kind == "deletions":
        shaped["max_deletions"] = TRAINED_DELETIONS if config.max_deletions is None else config.max_deletions
        shaped |= {} if config.all_train is None else {"all_train": config.all_train}
    return DIVIDED[config.kind](table, config), shaped


def gene_keys(names: Sequence[str]) -> Keys:
    """Return a key for each name: 64 bits of its sha256, [N]."""
    digests = b"".join(hashlib.sha256(name.encode()).digest()[:8] for name in names)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def shuffled(keys: Keys, seed: int) -> Keys:
    """Map keys to others whose order is random, the same for the same ``seed``.

    Different keys stay different (splitmix64, Steele et al. 2014).
    """
    mixed = keys ^ np.frombuffer(hashlib.sha256(str(seed).encode()).digest()[:8], dtype="<u8")[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def number_keys(values: NDArray[np.floating]) -> Keys:
    """Return the bits of each number in float32; −0 has those of 0."""
    return (values + np.float32(0)).astype("<f4").view("<u4").astype(np.uint64)


def gene_set_keys(table: Strains) -> Keys:
    """Return a key of each strain's gene set, [S], that does not depend on the order of its genes.

    A sum of hashes modulo 2^64: equal sets have equal keys; different ones collide with a chance of about
    1e-5 in 20 million strains, and would then share a part.
    """
    return table.total(gene_keys(table.names)[table.targets])


def strain_keys(table: Strains) -> Keys:
    """Return a key of each strain, [S], equal where genes, their activities and all covariates are.

    They are keys of gene sets where strains have neither activities nor covariates.
    """
    keys = gene_set_keys(table)
    if table.activities is not None:
        keys = keys + table.total(shuffled(gene_keys(table.names)[table.targets] ^ number_keys(table.activities), 0))
    for name, values in table.of_kind(COVARIATE).items():
        keys = shuffled(keys ^ gene_keys([name])[0], 0) + number_keys(values)
    return keys


def query_pairs(table: Strains) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the strains with a query pair, [n] ascending, and the two genes of each, [n, 2].

    The query pair is the first two genes of a strain, in either order. Tables list the genes of the query strain
    first and the array gene last. So of the three pairs of a trigenic strain only the one counts that was built into
    the query strain. A double mutant is its own query pair; strains with fewer deletions have none.
    """
    rows = np.flatnonzero(table.num_deletions >= 2)
    return rows, table.targets[table.offsets[rows][:, None] + [0, 1]].astype(np.int64)


def random_parts(table: Strains, config: SplitConfig, *, training: bool = False) -> Parts:
    """Divide at random; strains with the same genes, activities and covariates share a part.

    Args:
        table: the strains.
        config: has the fractions, the seed and so on.
        training: divide into training and validation alone.
    """
    level = table.num_deletions if config.by_deletions else None
    return Bins.of(config, training=training).filled(shuffled(strain_keys(table), config.seed), level)


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
    """Divide by the values of a covariate, so that no test value occurs in training.

    Values are dealt into the parts with all their strains. With ``test_values`` the strains of other values are divided
    at random into training and validation.

    Raises:
        DataError: strains do not have the covariate, or no strain has a test value.
    """
    values, which = _covariate_values(table, config)
    if not config.test_values:
        return Bins.of(config).filled(shuffled(gene_keys(values), config.seed)[which])
    is_test = np.isin(values, config.test_values)[which]
    return _others_random(table, config, np.full(len(table), TEST, np.uint8), ~is_test)


def deletions_parts(table: Strains, config: SplitConfig) -> Parts:
    """Put strains with more than ``max_deletions`` deletions into test; divide the others into training and validation.

    Those with ``all_train`` deletions or fewer are not divided, but all training.

    Raises:
        DataError: all strains have more deletions, or none has more.
    """
    most = TRAINED_DELETIONS if config.max_deletions is None else config.max_deletions
    few, all_train = table.num_deletions <= most, config.all_train or 0
    if few.all() or not few.any():
        part, remedy = ("test", "lower") if few.all() else ("training", "raise")
        numbers, counts = np.unique(table.num_deletions, return_counts=True)
        there = ", ".join(f"{count:,} with {number}" for number, count in zip(numbers, counts, strict=True))
        raise DataError(
            f"the deletions split leaves no strain for the {part} part",
            got=f"{there} deleted genes",
            expected=f"strains with at most {most} deletions for training, and with more for the test",
            do=f"{remedy} `split.max_deletions`, or use a store that has such strains",
        )
    parts = np.where(few, TRAIN, TEST).astype(np.uint8)
    return _others_random(table, config, parts, few & ((table.num_deletions > all_train) | (all_train == 0)))


def pair_disjoint_parts(table: Strains, config: SplitConfig) -> Parts:
    """Divide so that no query pair (`query_pairs`) is in two parts.

    Query pairs that share a gene set (the same triple found from two sides) stay together, so that no gene
    set is in two parts either. Strains with fewer than two deletions have no pair and are always training.
    The other pairs of a triple, of a query gene and the array gene, may recur in any part.

    ``by_deletions`` applies to pairs of double mutants alone, those of triples, and so on: a few large query pairs of a
    trigenic screen would else all go to training.
    """
    parts = np.full(len(table), TRAIN, np.uint8)
    paired, pairs = query_pairs(table)
    keys = gene_keys(table.names)[pairs].sum(axis=1)
    order = shuffled(_join_pairs(keys, gene_set_keys(table)[paired]), config.seed)
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
    part that is relatively furthest below its target. Targets are for their number of deletions and their phenotypes.
    This is what torchcell's ``CellDataModule`` (seed 42) aims at with an independent cut of each key.

    Strains with the same genes, activities and covariates share a part, and count as one that has all their phenotypes.
    """
    bins, order = Bins.of(config), shuffled(strain_keys(table), config.seed)
    _, first, group = np.unique(order, return_index=True, return_inverse=True)
    keys, stratum_of = _strata(table, first, group)
    quotas = _quotas(np.bincount(stratum_of, minlength=keys.shape[1]), keys, bins.shares)
    # Groups are numbered in the order of the shuffle, which a stable sort keeps within each stratum.
    turn = np.argsort(stratum_of, kind="stable")
    dealt = np.empty(len(first), np.int64)
    dealt[turn] = np.repeat(np.tile(np.arange(len(bins.shares)), len(quotas)), quotas.ravel())
    return bins.parts_of(dealt[group])


def _strata(
    table: Strains, first: NDArray[np.int64], group: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which keys each stratum has, [K, M], and the stratum of each group.

    A key is a number of deletions or a phenotype.
    """
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
    """Return how many groups of each stratum go into each bin, [M, n].

    ``sizes``, [M], are the groups of each stratum, and ``keys``, [K, M], say which keys a stratum has.
    """
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
        part = Bins.of(config).parts_of(fold)[table.targets]
        order = shuffled(gene_keys(table.names)[table.targets] ^ gene_set_keys(table)[table.owners], config.seed)
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


def new_genes_parts(table: Strains, config: SplitConfig) -> Parts:
    """Divide by genes (`gene_disjoint_parts`); with ``test_values`` every test strain also has one of these values.

    No other strain has a test value. Those with a test gene or a test value, but not both, are ``UNUSED``.
    """
    parts = gene_disjoint_parts(table, config)
    if config.test_values:
        values, which = _covariate_values(table, config)
        parts[(parts == TEST) != np.isin(values, config.test_values)[which]] = UNUSED
    return parts


def held_out_gene_parts(table: Strains, config: SplitConfig) -> Parts:
    """Make the gene splits of DANGO (Zhang et al. 2020, bioRxiv 2020.11.26.400739; ``main.py`` of its repository).

    ``test_genes`` of the genes that some strain deletes are drawn, each as likely as any other. In gene split 1 a
    strain with at least one of them is test. In gene split 2 a strain of these genes alone is test, and one with both
    kinds of genes is ``UNUSED``.

    All other strains are divided at random into training and validation, so that a validation gene is not new to the
    model, unlike in `gene_disjoint_parts`. DANGO draws 40 genes for split 1 and 400 for split 2, and gives four
    fifths of the other strains to training. Its draw depends on a generator's state and on the numbers of its genes;
    it is not repeated here.

    Raises:
        DataError: no gene would be left for training.
    """
    one_is_enough, usual = GENE_SPLITS[config.kind]
    test_genes = usual if config.test_genes is None else config.test_genes
    genes = len(np.unique(table.targets))
    if test_genes >= genes:
        got = f"{test_genes:,} test genes of {genes:,} that are deleted in some strain"
        raise DataError("the gene split leaves no gene for training", got=got, do="lower `split.test_genes`")
    hits = table.total((_ranks(table, config.seed) < test_genes)[table.targets])
    parts = np.full(len(table), UNUSED, np.uint8)
    parts[(hits > 0) & ((hits == table.num_deletions) | one_is_enough)] = TEST
    return _others_random(table, config, parts, hits == 0)


def _ranks(table: Strains, seed: int, late: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the place of each gene in the shuffle, [N]; the genes of ``late``, [N], come after the others.

    Genes that occur nowhere come last, where they cannot use up a part.
    """
    absent = np.bincount(table.targets, minlength=len(table.names)) == 0
    turn = np.lexsort((shuffled(gene_keys(table.names), seed), absent if late is None else late, absent))
    return np.argsort(turn)


DIVIDED: dict[str, Callable[[Strains, SplitConfig], Parts]] = {
    "random": random_parts,
    "stratified": stratified_parts,
    "pair_disjoint": pair_disjoint_parts,
    "gene_disjoint": new_genes_parts,
    **dict.fromkeys(GENE_SPLITS, held_out_gene_parts),
    "deletions": deletions_parts,
    "covariate": covariate_parts,
}
"""This maps a kind of split to what divides strains; it takes them with the configuration of the split."""
