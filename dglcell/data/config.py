"""Define the configuration of an experiment's split."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from dglcell.checks import Count, Seed, at_least, check_values, must, one_of
from dglcell.errors import ConfigError
from dglcell.graph.vocabulary import UNKNOWN_POLICIES

PARTS = ("train", "validation", "test")
TRAIN, VALIDATION, TEST, UNUSED = 0, 1, 2, 255


# What a configuration can say of a split.


KINDS = {
    "random": "the genes of test strains, and in trigenic screens their query pairs, also occur in training. A good "
    "result may come from memory of them, and does not show that the model can predict new genes or query pairs",
    "stratified": "as in a random split, test genes and query pairs also occur in training. Rare numbers of deletions "
    "and rarely measured phenotypes are spread evenly over the parts",
    "pair_disjoint": "the query pairs of test strains do not occur in training, but their genes may. The result shows "
    "how well the model predicts a new query strain, but not new genes. For double mutants it is a random split",
    "gene_disjoint": "every test strain deletes a gene that no training strain deletes. The model can "
    "know such a gene only from the cell graph. It was chosen on strains with other new genes. With "
    "`split.test_values` test strains also have a value of a covariate that no other strain has",
    "gene_split_1": "every test strain deletes a gene that no training strain deletes. The model was chosen on strains "
    "of training genes, which look easier than the test strains",
    "gene_split_2": "test strains delete only genes that no training strain deletes. The model was chosen on strains "
    "of training genes, which look easier than the test strains",
    "deletions": "every test strain has more deletions than any training strain. The result shows whether the effects "
    "of many deletions can be predicted from few. The genes and subsets of the deletions of test strains occur in "
    "training. The model was chosen on strains with few deletions, which look easier than the test strains",
    "covariate": "test strains have values of a covariate, such as media or alleles, that no training strain has. The "
    "model can know such a value only from the cell graph, or from numbers that describe it",
    "file": "the parts come from a file, and what the test part shows depends on it",
    "none": "every strain trains. There is no test part, so that nothing says how good the predictions are",
}
"""The text of each kind says what its test part can show, and what it cannot."""

INTERVAL_COVERAGE = 0.9
"""Intervals with this coverage are chosen on the validation part and measured on the test part."""

NEW_AS_VALIDATION = "Test strains have other {things} than the validation strains, so {share} is not promised."
HARDER_THAN_VALIDATION = "Validation strains look easier than test strains, so {share} is not promised."

CALIBRATES = {
    "pair_disjoint": NEW_AS_VALIDATION.replace("{things}", "query pairs"),
    "gene_disjoint": NEW_AS_VALIDATION.replace("{things}", "new genes"),
    "covariate": NEW_AS_VALIDATION.replace("{things}", "new covariates"),
    "gene_split_1": HARDER_THAN_VALIDATION,
    "gene_split_2": HARDER_THAN_VALIDATION,
    "deletions": HARDER_THAN_VALIDATION,
    "file": "{share} is promised only if the file draws test strains as it draws validation strains.",
}
"""This maps a kind of split to why intervals of its validation part promise less on the test part, where they do."""

ALIKE_EVERYWHERE = ("covariate",)
"""On splits of these kinds all intervals are equally wide: what is difficult in the media of validation strains says
nothing of the media of test strains."""

NONE = "none"
"""In a split of this kind all strains train."""

EVALUATED = ("validation", "test")
"""A model is evaluated on these parts, where the split has them."""

FOLDED = ("random", "stratified", "pair_disjoint", "gene_disjoint", "covariate")
GENE_SPLITS = {"gene_split_1": (True, 40), "gene_split_2": (False, 400)}
"""This maps gene splits of DANGO to whether one test gene makes a strain a test strain, and to the number of genes that
are drawn."""

TRAINED_DELETIONS = 2
"""Most deletions of a training strain in a split by their number, where the configuration does not say."""

MAX_FOLDS = 100

Kind = Annotated[str, one_of(*KINDS)]
TrainShare = Annotated[
    float, must(lambda share: 0 < share <= 1, "is no share of the training strains", "more than 0, and at most 1")
]
SubsetSize = Annotated[int, at_least(len(PARTS), also=", one for each part")]
Fractions = Annotated[
    list[float],
    must(
        lambda shares: len(shares) == len(PARTS) and min(shares) > 0 and math.isclose(sum(shares), 1.0, abs_tol=1e-6),
        "do not divide the strains",
        "three positive numbers (training, validation, test) that sum to 1",
        "for example `split.fractions=[0.8,0.1,0.1]`",
    ),
]
Folds = Annotated[int, must(lambda folds: 3 <= folds <= MAX_FOLDS, "is out of range", f"3 … {MAX_FOLDS}")]


@dataclass
class SubsetConfig:
    """Keep only some strains of a split, in the proportions of its parts: single deletions first."""

    size: SubsetSize = 1000  # number of strains to keep, in all parts together


@dataclass
class SplitConfig:
    """Configure how strains are divided into training, validation and test."""

    kind: Kind = "random"  # random, stratified, pair|gene_disjoint, gene_split_1|2, deletions, covariate, file or none
    fractions: Fractions = field(default_factory=lambda: [0.8, 0.1, 0.1])  # shares of training, validation and test
    seed: Seed = 42  # seed of the shuffle
    by_deletions: bool = True  # not for stratified, gene_disjoint: keep the fractions for each number of deletions
    groups: str | None = None  # gene_disjoint: table of genes and, behind them, of groups that stay in one part
    folds: Folds | None = None  # cross-validation: this many equal folds instead of fractions
    fold: int | None = None  # 0 … folds - 1: the test fold; the next one is validation
    test_genes: Count | None = None  # gene_split_1, gene_split_2: number of held-out genes; null: 40 and 400
    max_deletions: Count | None = None  # deletions: most deletions of a strain that is not in the test part; null: 2
    all_train: int | None = None  # deletions: strains with this number of deletions or fewer all train; null: none
    covariate: str | None = None  # covariate: which covariate has other values in each part, such as medium
    #: covariate: values of the test strains; []: drawn. gene_disjoint: test strains have a new gene and such a value
    test_values: list[str] = field(default_factory=list)
    path: str | None = None  # file: the split.npz of a run, or another file that `Split.save` wrote
    subset: SubsetConfig | None = None  # keep only some strains
    train_share: TrainShare = 1.0  # share of the training strains that train; the others have no part, see seed

    @property
    def trains_on_all(self) -> bool:
        """Return whether every strain trains, so that there is neither a validation nor a test part."""
        return self.kind == NONE

    @property
    def trained_deletions(self) -> int:
        """Return the most deletions of a strain that is not in the test part of a split by their number."""
        return self.max_deletions or TRAINED_DELETIONS

    def validate(self) -> None:
        """Raise ConfigError if a value is unknown or out of range, or if two values contradict each other."""
        check_values(self, "split")
        if (self.folds is None) != (self.fold is None):
            got, do = f"folds {self.folds}, fold {self.fold}", "for example `split.folds=5 split.fold=0`"
            raise ConfigError("`split.folds` and `split.fold` go together", got=got, do=do)
        self._validate_kind()
        if self.folds is None or self.fold is None:
            return
        if self.kind not in FOLDED:
            raise ConfigError(f"a {self.kind} split has no folds", got=f"`split.folds: {self.folds}`", expected="null")
        if not 0 <= self.fold < self.folds:
            raise ConfigError("`split.fold` is out of range", got=self.fold, expected=f"0 … {self.folds - 1}")

    def _validate_kind(self) -> None:
        of_kinds = {"test_genes": tuple(GENE_SPLITS), "groups": ("gene_disjoint",)}
        of_kinds |= dict.fromkeys(("max_deletions", "all_train"), ("deletions",))
        for name, kinds in of_kinds.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                expected = " or ".join(kinds)
                raise ConfigError(f"`split.{name}` is for a split of another kind", got=self.kind, expected=expected)
        if self.all_train is not None and not 1 <= self.all_train < self.trained_deletions:
            what, expected = "`split.all_train` leaves no strain for validation", "1 or more, and less than "
            raise ConfigError(what, got=self.all_train, expected=f"{expected}`split.max_deletions`")
        both_new = self.kind == "gene_disjoint" and self.covariate is not None
        if self.kind == "gene_disjoint" and both_new != bool(self.test_values):
            what = "`split.covariate` and `split.test_values` go together in a gene_disjoint split"
            got = f"covariate {self.covariate}, test_values [{', '.join(self.test_values)}]"
            raise ConfigError(what, got=got, do="give both, or neither")
        for kind, name, example in (("covariate", "covariate", "medium"), ("file", "path", "split.npz")):
            if (self.kind == kind or (both_new and name == "covariate")) != (getattr(self, name) is not None):
                got, other = f"kind {self.kind}, {name} {getattr(self, name)}", f"another kind and `split.{name}=null`"
                do = f"give both, e.g. `split.kind={kind} split.{name}={example}`, or {other}"
                raise ConfigError(f"`split.kind: {kind}` and `split.{name}` go together", got=got, do=do)
        if self.test_values and (self.kind not in ("covariate", "gene_disjoint") or self.folds is not None):
            what = "`split.test_values` is for a covariate or gene_disjoint split without folds"
            got = f"kind {self.kind}, folds {self.folds}"
            raise ConfigError(what, got=got, expected="covariate or gene_disjoint, and no folds")


Unknown = Annotated[str, one_of(*UNKNOWN_POLICIES)]

NORMALISATIONS = ("standard", "none", "logistic")
"""Labels can be normalised in these ways; ``dglcell.data.dataset.Normaliser`` explains them."""
