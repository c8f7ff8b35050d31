"""What the section `split` can say: every wrong value is named by its key."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from dglcell.data.config import SplitConfig, SubsetConfig
from dglcell.data.split import make_split
from dglcell.errors import ConfigError
from tests.data.strain_tables import random_table


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            SplitConfig("startified"),
            r"`split.kind` is unknown\n.*startified\n.*random or stratified or pair_disjoint or gene",
        ),
        (SplitConfig(genes_rule="most"), r"`split.genes_rule` is unknown\n.*most\n.*any or all"),
        (
            SplitConfig(fractions=[0.8, 0.2]),
            r"`split.fractions` do not divide the strains\n.*\[0.8, 0.2\]\n.*three",
        ),
        (SplitConfig(fractions=[0.8, 0.1, 0.2]), r"`split.fractions` do not divide"),
        (SplitConfig(fractions=[0.9, 0.1, 0.0]), r"`split.fractions` do not divide"),
        (SplitConfig(fractions=[1.2, -0.1, -0.1]), r"`split.fractions` do not divide"),
        (SplitConfig(folds=5), r"`split.folds` and `split.fold` go together\n.*folds 5, fold None\n"),
        (SplitConfig(fold=0), r"`split.folds` and `split.fold` go together"),
        (SplitConfig(folds=2, fold=0), r"`split.folds` is out of range\n.*2\n.*3 … 100"),
        (SplitConfig(folds=101, fold=0), r"`split.folds` is out of range"),
        (SplitConfig(folds=5, fold=5), r"`split.fold` is out of range\n.*5\n.*0 … 4"),
        (SplitConfig(folds=5, fold=-1), r"`split.fold` is out of range"),
        (SplitConfig("gene_split_1", folds=5, fold=0), r"a gene_split_1 split has no folds\n.*folds: 5`\n.*null"),
        (SplitConfig("file", path="x.json", folds=5, fold=0), r"a file split has no folds"),
        (
            SplitConfig(test_genes=40),
            r"`split.test_genes` is for gene splits\n.*random\n.*gene_split_1 or gene_split_2",
        ),
        (SplitConfig("gene_split_2", test_genes=0), r"`split.test_genes` is too small\n.*0\n.*1 or more"),
        (SplitConfig("file"), r"`split.kind: file` and `split.path` go together\n.*kind file, path None\n"),
        (SplitConfig(path="x.json"), r"`split.kind: file` and `split.path` go together\n.*kind random, path x.json\n"),
        (SplitConfig(unlisted="drop"), r"`split.unlisted` is unknown\n.*drop\n.*refuse or unused"),
        (
            SplitConfig(subset=SubsetConfig(take="first")),
            r"`split.subset.take` is unknown\n.*first\n.*singles_first or prop",
        ),
        (SplitConfig(subset=SubsetConfig(size=2)), r"`split.subset.size` is too small\n.*2\n.*3 or more"),
    ],
)
def test_a_wrong_configuration(config: SplitConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_split(config, random_table(2000, 300, (1, 4)), "5" * 64)


def test_the_configuration_is_one_that_yaml_can_set() -> None:
    schema = OmegaConf.structured(SplitConfig)
    merged = OmegaConf.merge(schema, {"kind": "pair_disjoint", "subset": {"size": 10, "genes": "list.txt"}})
    config = OmegaConf.to_object(merged)
    assert config == SplitConfig("pair_disjoint", subset=SubsetConfig(10, "list.txt"))
