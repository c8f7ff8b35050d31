"""Lists of terms: the package's and one's own, what each fits, keeps and says, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dglcell.data.dataset import Normaliser
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError
from dglcell.graph.resident import ResidentCell
from dglcell.models.cell_model import CellModel, HeteroCell, SetOperator
from dglcell.models.config import CellModelConfig, DangoConfig, HeteroCellConfig, SetOperatorConfig, TermConfig
from dglcell.models.dango import Dango
from dglcell.models.terms.term import Seen, Surroundings, Term, Training
from dglcell.perturbation.genotype import GenotypeBatch
from tests.random_cells import resident_cell

CELL = resident_cell({("gene", "physical", "gene"): ([0, 1, 2, 3], [1, 2, 3, 0])}, {"gene": 4})
SMALL: dict[str, Any] = {"hidden": 8, "layers": 1, "local_heads": 2}
STRAINS = GenotypeBatch.from_lists([[0, 1], [2], []])


class Memory(Term):
    """The label of a training strain with as many deletions, times a weight; a bias for each gene of the strain."""

    @dataclass
    class Config(TermConfig):
        weight: float = 1.0

    fitted = ("labels",)
    labels: Tensor

    def __init__(self, config: Config, surroundings: Surroundings) -> None:
        super().__init__(config, surroundings)
        self.weight = nn.Parameter(torch.tensor(config.weight))
        self.register_buffer("labels", torch.zeros(0))

    def fit(self, train: Training, cell: ResidentCell) -> None:
        self.labels = train.normaliser.normalise(train.strains.labels)[:, 0].clone()

    def forward(self, seen: Seen) -> Tensor:
        return self.weight * self.labels[seen.strains.offsets.diff()].unsqueeze(1)


class Doubled(Term):
    """Doubles what other terms see of the strains and say of them."""

    def see(self, seen: Seen) -> Seen:
        return replace(seen, vectors={name: 2 * z_BD for name, z_BD in seen.vectors.items()})

    def finish(self, score_BT: Tensor, seen: Seen) -> Tensor:
        return 2 * score_BT


def training() -> Training:
    names = [f"g{number}" for number in range(4)]
    strains = Strains.from_names([[], names[:1], names[:2]], phenotypes={"growth": [1.0, 2.0, 4.0]})
    normaliser = Normaliser("none", torch.zeros(1), torch.ones(1))
    return Training(strains.to("cpu"), normaliser, (True,))


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (HeteroCellConfig(), ["graph", "genes"]),
        (HeteroCellConfig(local_head=False, link="log"), ["graph", "link"]),
        (HeteroCellConfig(covariates={"dose": []}, activity_curves=True), ["graph", "genes", "covariates"]),
        (SetOperatorConfig(operator="both"), ["genes", "operator"]),
        (SetOperatorConfig(activity_from=["a"], covariates={"a": []}), ["genes", "covariates", "activities"]),
        (DangoConfig(covariates={"dose": []}), ["genes", "covariates"]),
    ],
    ids=["hetero_cell", "link", "covariates", "operator", "activities", "dango"],
)
def test_keys_of_a_model_give_its_list_of_terms(config: CellModelConfig, names: list[str]) -> None:
    assert [term.name for term in config.planned_terms()] == names


def test_one_s_own_term_is_fitted_scores_and_comes_back_with_its_size() -> None:
    torch.manual_seed(0)
    model = HeteroCell(CELL, HeteroCellConfig(**SMALL), terms=["graph", "genes", {"name": Memory, "weight": 3}])
    model.fit(training())
    found = model(STRAINS)
    assert list(found.parts) == ["graph", "genes", "Memory"]
    assert found.parts["Memory"][:, 0].tolist() == [12, 6, 3]
    torch.testing.assert_close(found.phenotypes, sum(found.parts.values()))
    torch.manual_seed(1)
    again = HeteroCell(CELL, model.config)
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(STRAINS).phenotypes, found.phenotypes)


def test_a_term_changes_what_others_see_and_finishes_what_they_say() -> None:
    config = HeteroCellConfig(**SMALL)
    torch.manual_seed(0)
    plain = HeteroCell(CELL, config, terms=["graph", "genes"])
    doubled = HeteroCell(CELL, config, terms=[Doubled, "graph", "genes"])
    doubled.load_state_dict(plain.state_dict())
    one, two = plain(STRAINS), doubled(STRAINS)
    torch.testing.assert_close(two.embedding, one.embedding, msg="losses read vectors as they were")
    graph = plain.terms["graph"]
    assert one.embedding is not None
    torch.testing.assert_close(two.parts["graph"], graph.head(2 * one.embedding))
    torch.testing.assert_close(two.phenotypes, 2 * (two.parts["graph"] + two.parts["genes"]))


def test_without_the_term_that_reads_them_no_strain_s_graph_is_computed() -> None:
    torch.manual_seed(0)
    model = HeteroCell(CELL, HeteroCellConfig(**SMALL), terms=["genes"]).eval()
    same = SetOperator(CELL, SetOperatorConfig(**SMALL)).eval()
    same.load_state_dict(model.state_dict())
    assert not model.own_graphs
    assert not model.shares_deletions
    torch.testing.assert_close(model(STRAINS).phenotypes, same(STRAINS).phenotypes)


def test_keys_beside_a_name_come_before_those_of_the_model() -> None:
    terms = ["graph", {"name": "genes", "local_kind": "factorisation"}]
    head: Any = CellModel(CELL, HeteroCellConfig(**SMALL, local_factors=3), terms=terms).terms["genes"]
    assert list(head.head) == ["factorisation"]
    assert head.head.factorisation.vector.out_features == 3


def test_dango_takes_a_link() -> None:
    model = Dango(CELL, DangoConfig(hidden=8, reconstruction=False), terms=["genes", {"name": "link", "link": "log"}])
    model.fit(training())
    assert model(STRAINS).phenotypes[2].item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (HeteroCellConfig(terms=["graphs"]), r"`model.terms\[0\]` is unknown\n.*graphs\n.*\n.*did you mean graph"),
        (HeteroCellConfig(terms=["graph", {"local_kind": "both"}]), r"`model.terms\[1\]` is unknown\n.*no name"),
        (HeteroCellConfig(terms=["graph", {"name": "genes", "kind": 1}]), r"unknown key `model.terms\[1\].kind`"),
        (HeteroCellConfig(terms=["graph", {"name": "genes", "local_kind": "x"}]), r"terms\[1\].local_kind` is unknown"),
        (HeteroCellConfig(terms=["graph", "genes"], link="log"), "`model.terms` lacks `link`, whose keys are set"),
        (HeteroCellConfig(terms=[]), "`model.terms` is an empty list"),
    ],
    ids=["name", "no name", "key", "value", "link", "empty"],
)
def test_lists_that_cannot_be_used_are_refused(config: CellModelConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.validate()


def test_strains_graphs_are_refused_where_none_are_computed() -> None:
    with pytest.raises(ConfigError, match=r"reads the strains' own graphs, which `model.name: set_operator` does not"):
        SetOperator(CELL, SetOperatorConfig(**SMALL), terms=["graph", "genes"])
