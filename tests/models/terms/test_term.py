"""Terms: the package's and one's own, what each fits, keeps and says, what is refused; covariates in models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dglcell.data.dataset import Normaliser
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError
from dglcell.graph.resident import ResidentCell
from dglcell.models.cell_model import CellModel, HeteroCell, SetOperator
from dglcell.models.config import (
    CellModelConfig,
    CovariatesConfig,
    DangoConfig,
    HeteroCellConfig,
    SetOperatorConfig,
    TermConfig,
)
from dglcell.models.dango import Dango
from dglcell.models.model import StrainModel
from dglcell.models.terms.covariates import Activities, CovariateNumbers, Covariates
from dglcell.models.terms.link import Link
from dglcell.models.terms.term import Seen, Surroundings, Term, Training
from dglcell.perturbation.genotype import GenotypeBatch
from tests.random_cells import resident_cell, textbook_cell

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


def test_strains_graphs_are_refused_where_none_are_computed() -> None:
    with pytest.raises(ConfigError, match=r"reads the strains' own graphs, which `model.name: set_operator` does not"):
        SetOperator(CELL, SetOperatorConfig(**SMALL), terms=["graph", "genes"])


SEEN = {"medium": ["LB", "MOPS"], "temperature": [], "allele": ["a-1", "a-2", "b-1"]}


def batch(strains: list[Any], covariates: list[list[float]]) -> GenotypeBatch:
    made = GenotypeBatch.from_lists(strains)
    return replace(made, covariates=torch.tensor(covariates))


def learned(**changes: Any) -> Activities:
    """Return a new term that learns activities from the allele."""
    config = CovariatesConfig(covariates=SEEN, activity_from=["allele"], **changes)
    made = Activities(config, around())
    made.start()
    return made


def around(*before: str) -> Surroundings:
    """Return surroundings in a small cell, behind terms of a small model."""
    terms = HeteroCell(CELL, HeteroCellConfig(hidden=4, local_heads=2)).terms
    made: Any = {name: terms[name] for name in before}
    return Surroundings("it", CELL, 1, 4, "relu", 0.0, False, True, made)


def test_numbers_are_standardised_and_categories_are_one_among_zeros() -> None:
    covariates = CovariateNumbers(SEEN)
    values = torch.tensor([[0.0, 30.0, 2.0], [1.0, 34.0, 0.0]])
    covariates.fit(values)
    assert covariates.width == 6
    assert covariates(values).tolist() == [[1, 0, -1, 0, 0, 1], [0, 1, 1, 1, 0, 0]]
    unknown = covariates(torch.tensor([[-1.0, 32.0, 7.0]]))
    assert unknown.tolist() == [[0, 0, 0, 0, 0, 0]]
    constant = CovariateNumbers({"temperature": []})
    constant.fit(torch.full((5, 1), 37.0))
    assert constant(torch.tensor([[37.0], [38.0]])).tolist() == [[0], [1]]


@given(activity=st.floats(0.01, 0.99), prior=st.floats(0.05, 0.95))
def test_learned_activities_begin_at_those_of_the_table_or_the_prior(activity: float, prior: float) -> None:
    term = learned(activity_hidden=4, activity_prior=prior)
    given_activities = term.strains(batch([{0: 0.0, 1: activity}, {2: 1.5}], [[0, 30, 0], [1, 30, 1]])).activities
    assert given_activities is not None
    torch.testing.assert_close(given_activities.float(), torch.tensor([0.0, activity, 1.5]), rtol=1e-4, atol=1e-6)
    none_given = term.strains(batch([[0, 1], [2]], [[0, 30, 0], [1, 30, 1]])).activities
    assert none_given is not None
    torch.testing.assert_close(none_given, torch.full((3,), prior), rtol=1e-4, atol=1e-6)


def test_strains_with_one_allele_have_one_activity_and_it_is_learned() -> None:
    torch.manual_seed(0)
    term = learned(activity_hidden=0, activity_prior=0.2)
    strains = batch([[0], [1], [0]], [[0, 30, 0], [1, 30, 1], [1, 37, 0]])
    optimiser = torch.optim.Adam(term.parameters(), 0.1)
    for _ in range(300):
        optimiser.zero_grad()
        (term.strains(strains).activities - torch.tensor([0.7, 0.05, 0.7])).square().sum().backward()
        optimiser.step()
    found = term.strains(strains).activities
    assert found is not None
    assert found[0] == found[2]
    torch.testing.assert_close(found, torch.tensor([0.7, 0.05, 0.7]), atol=0.01, rtol=0)


def models() -> list[StrainModel]:
    small: dict[str, Any] = {**SMALL, "covariates": SEEN}
    operators = (SetOperator(CELL, SetOperatorConfig(**small, operator=name), 2) for name in ("both", "local"))
    return [model.eval() for model in (HeteroCell(CELL, HeteroCellConfig(**small, pool=["gene"]), 2), *operators)]


@pytest.mark.parametrize("number", range(3))
def test_a_new_model_ignores_covariates_and_a_trained_one_does_not(number: int) -> None:
    model = models()[number]
    strains: list[list[int]] = [[0, 1], [2], []]
    here = batch(strains, [[0, 30, 0]] * 3)
    there = batch(strains, [[1, 37, 2]] * 3)
    torch.testing.assert_close(model(here).phenotypes, model(there).phenotypes)
    assert isinstance(model, CellModel)
    with torch.no_grad():
        for parameter in model.terms["covariates"].parameters():
            parameter.normal_()
    apart = (model(here).phenotypes - model(there).phenotypes).abs().sum(1)
    assert (apart > 1e-4).all(), "the wild type differs between media, too"
    assert model(replace(batch([], [[0, 30, 0]]), covariates=torch.zeros(0, 3))).phenotypes.shape == (0, 2)


def test_a_linear_part_begins_as_the_ridge_of_labels_on_covariates() -> None:
    seen = {"fba_growth": [], "medium": ["LB", "MOPS"]}
    term = Covariates(CovariatesConfig(covariates=seen, linear_covariates=True), around("genes"))
    term.start()
    growth, medium = torch.randn(200), torch.arange(200) % 2
    labels_ST = (5 + 3 * growth - 2 * medium)[:, None]
    labels_ST[7] = torch.nan
    normaliser = Normaliser.fit(labels_ST, ("y",))
    genotypes = batch([[0]] * 200, torch.stack([growth, medium], 1).tolist())
    strains: Any = SimpleNamespace(perturbations=genotypes, labels=labels_ST)
    term.fit(Training(strains, normaliser, (False,)), term.cell)
    seen_by_term: Any = SimpleNamespace(strains=genotypes)
    y_ST = normaliser.restore(term.finish(torch.zeros(200, 1), seen_by_term))
    known = ~labels_ST.isnan()
    torch.testing.assert_close(y_ST[known], labels_ST[known], atol=0.01, rtol=0)
    with pytest.raises(ConfigError, match=r"`model.linear_covariates` adds to phenotypes"):
        HeteroCellConfig(linear_covariates=True, link="log").validate()


def test_strains_without_covariates_are_refused() -> None:
    model = models()[0]
    with pytest.raises(DataError, match="the model sees covariates, and these strains have none"):
        model(GenotypeBatch.from_lists([[0]]))


def test_activities_are_learned_from_covariates_that_strains_have() -> None:
    with pytest.raises(ConfigError, match=r"`model.activity_from` names a covariate that strains do not have: 'guide'"):
        HeteroCellConfig(activity_from=["guide"], covariates={"allele": ["a", "b"]}).validate()
    several = SetOperatorConfig(
        activity_from=["mismatch"], covariates={"mismatch_2": [], "site": ["a"], "mismatch_1": []}
    )
    assert several.covariates_of_activity() == ["mismatch_2", "mismatch_1"]


def test_a_deletion_is_seen_as_it_was_without_activities() -> None:
    term = Covariates(CovariatesConfig(activity_curves=True), around("genes"))
    x = torch.randn(1, 2, 4)

    def moved(strains: GenotypeBatch) -> torch.Tensor:
        return term.see(Seen(term.cell, strains, {}, {}, x, torch.zeros_like)).x_BKH

    assert torch.equal(moved(GenotypeBatch.from_lists([[0, 1]])), x)
    weakened = moved(GenotypeBatch.from_lists([{0: 0.3, 1: 0.0}]))
    assert torch.equal(weakened[0, 1], x[0, 1])
    assert not torch.equal(weakened[0, 0], x[0, 0])


def test_strains_carry_covariates_into_a_batch() -> None:
    covariates = {"medium": ["MOPS", "LB"], "temperature": [30, 37], "allele": ["b-1", "a-1"]}
    strains = Strains.from_names([["g0"], ["g1"]], covariates=covariates)
    seen = strains.with_covariates(SEEN).to("cpu").take(torch.tensor([1, 0])).perturbations.covariates
    assert seen is not None
    assert seen.tolist() == [[0, 37, 0], [1, 30, 2]]


CORE = textbook_cell()
LISTS = [[], [0], [0, 1], [5, 9, 20]]


HEADS = {
    **{how: HeteroCellConfig(combination=how, local_head=how != "none") for how in ("none", "sum", "mean")},
    **{operator: SetOperatorConfig(operator=operator) for operator in ("local", "both")},
}


@pytest.mark.parametrize("heads", HEADS)
def test_the_wild_type_has_its_value_with_any_heads(heads: str) -> None:
    torch.manual_seed(0)
    config = replace(HEADS[heads], hidden=8, layers=1, link="minimum")
    kind = HeteroCell if isinstance(config, HeteroCellConfig) else SetOperator
    model = kind(CORE, config, outputs=2).double().eval()
    link = model.terms["link"]
    assert isinstance(link, Link)
    assert link.measured is not None
    link.shift, link.scale = torch.tensor([0.5, 0.25]), torch.tensor([2.0, 4.0])
    measured = GenotypeBatch.from_lists([[0], [1]])
    link.measured.remember(CORE, measured, torch.tensor([[0.5, 0.1], [0.25, 0.1]], dtype=torch.float64))
    for parameter in model.parameters():  # heads begin near zero, where every link is the identity
        torch.nn.init.normal_(parameter, std=0.3)
    out_BT = model(GenotypeBatch.from_lists(LISTS)).phenotypes * link.scale + link.shift
    assert torch.allclose(out_BT[0], torch.ones(2, dtype=torch.float64))
    assert not torch.allclose(out_BT[1:, 1], torch.ones(3, dtype=torch.float64))
    assert out_BT[2, 0] <= 0.2502  # of [0, 1], measured parts are [0] and [1]
    alone_BT = model(GenotypeBatch.from_lists(LISTS[3:])).phenotypes * link.scale + link.shift
    assert torch.allclose(alone_BT[0], out_BT[3])
