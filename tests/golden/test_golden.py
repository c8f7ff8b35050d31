"""Numbers that may only change on purpose: splits, in-silico labels, cell graphs, training steps and predictions.

`pytest tests/golden --update-golden` writes them anew.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dglcell.data.config import SplitConfig, SubsetConfig
from dglcell.data.sources import SourceConfig, load_source
from dglcell.data.sources.config import InSilicoConfig
from dglcell.data.split import make_split
from dglcell.data.strains import Strains
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.resident import ResidentCell, SteadyState
from dglcell.graph.schema import REACTION
from dglcell.models.config import DangoConfig, HeteroCellConfig, ModelConfig, SetOperatorConfig
from dglcell.models.model import count_parameters, make_model
from dglcell.perturbation.genotype import GenotypeBatch
from tests.config_files import CONF, config_of
from tests.models.test_dango import make_cell as network_cell
from tests.models.test_dango import six_channels
from tests.random_cells import nine_network_cell, randomise

RECORDS = Path(__file__).parent / "records.json"
SHIPPED = ("textbook", "iJO1366")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Any:
    """Return a function that compares a result with the record of the test, or writes the record."""

    def compare(found: dict[str, Any], tolerance: float | None = None) -> None:
        records, name = json.loads(RECORDS.read_text()), request.node.name
        if request.config.getoption("--update-golden"):
            text = json.dumps({**records, name: found}, indent=1, sort_keys=True, ensure_ascii=False)
            RECORDS.write_text(text + "\n")
            return
        expected = records[name]
        assert found.keys() == expected.keys()
        wrong = [
            key
            for key, value in expected.items()
            if found[key] != (value if tolerance is None else pytest.approx(value, rel=tolerance, abs=tolerance))
        ]
        assert not wrong

    return compare


def short_hash(*arrays: Any) -> str:
    """Return the beginning of a hash of arrays or texts."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.encode() if isinstance(array, str) else np.ascontiguousarray(array).tobytes())
        digest.update(b"|")
    return digest.hexdigest()[:16]


def screen(model: str, **options: Any) -> Strains:
    """Return an in-silico screen."""
    return load_source(SourceConfig(name="insilico", insilico=InSilicoConfig(model=model, processes=1, **options)))


@pytest.fixture(scope="module")
def core() -> Strains:
    """Return strains of E. coli core with one to three deletions."""
    return screen("textbook", pairs="400", triples="400")


def made_up_table() -> Strains:
    """Return 600 strains of one to three of 40 genes in three media, of which some have more than one row of genes."""
    rng = np.random.default_rng(0)
    names = [f"gene{number:02d}" for number in range(40)]
    strains = [sorted(rng.choice(names, rng.integers(1, 4), replace=False).tolist()) for _ in range(600)]
    media = rng.choice(["glucose", "acetate", "ethanol", "lactate"], 600).tolist()
    return Strains.from_names(strains, phenotypes={"fitness": rng.normal(size=600)}, covariates={"medium": media})


SPLITS: dict[str, dict[str, Any]] = {
    "random": {},
    "random, other seed, not by deletions": {"seed": 7, "by_deletions": False},
    "random, fold": {"folds": 5, "fold": 2},
    "stratified": {"kind": "stratified"},
    "stratified, fold": {"kind": "stratified", "folds": 4, "fold": 0},
    "pair_disjoint": {"kind": "pair_disjoint"},
    "gene_disjoint": {"kind": "gene_disjoint"},
    "gene_disjoint, fold": {"kind": "gene_disjoint", "folds": 5, "fold": 1},
    "gene_split_1": {"kind": "gene_split_1", "test_genes": 5},
    "gene_split_2": {"kind": "gene_split_2", "test_genes": 18},
    "deletions": {"kind": "deletions"},
    "deletions, half of the pairs": {"kind": "deletions", "fractions": [0.45, 0.45, 0.1], "all_train": 1},
    "none": {"kind": "none"},
    "subset": {"subset": SubsetConfig(size=200)},
    "fewer training strains": {"train_share": 0.5},
}
OF_COVARIATES: dict[str, dict[str, Any]] = {
    "covariate": {"kind": "covariate", "covariate": "medium"},
    "covariate, given": {"kind": "covariate", "covariate": "medium", "test_values": ["ethanol"]},
    "covariate, fold": {"kind": "covariate", "covariate": "medium", "folds": 4, "fold": 3},
}


def hash_of_split(table: Strains, options: dict[str, Any]) -> str:
    return short_hash(make_split(SplitConfig(**options), table, "store").part)


def test_splits_of_the_core_screen(core: Strains, golden: Any) -> None:
    golden({name: hash_of_split(core, options) for name, options in SPLITS.items()})


def test_splits_of_a_made_up_table(golden: Any) -> None:
    table = made_up_table()
    golden({name: hash_of_split(table, options) for name, options in (SPLITS | OF_COVARIATES).items()})


def hash_of_labels(table: Strains) -> str:
    rounded = np.round(np.asarray(table.phenotypes["fitness"], np.float64), 6) + 0.0
    return short_hash(",".join(table.names), np.asarray(table.targets, np.int64), table.offsets, rounded)


def test_labels_of_core(core: Strains, golden: Any) -> None:
    media = {"glucose": {}, "acetate": {"EX_glc__D_e": 0.0, "EX_ac_e": 30.0}}
    weakened = screen("textbook", pairs="100", triples="none", activities=[0, 0.1, 0.5], media=media)
    golden({"deletions": hash_of_labels(core), "activities and media": hash_of_labels(weakened)})


def test_labels_of_a_whole_genome(golden: Any) -> None:
    golden({"iJO1366": hash_of_labels(screen("iJO1366", singles=False, pairs="30", triples="10"))})


def hash_of_cell(cell: CellGraph) -> str:
    """Return the hash of names, edges and weights in the order of their ends, and of media."""
    parts: list[Any] = [f"{kind}:{','.join(names.names)}" for kind, names in sorted(cell.vocabularies.items())]
    media = {name: {node: round(left, 6) for node, left in of.items()} for name, of in cell.media.items()}
    parts.append(json.dumps(media, sort_keys=True))
    for relation in sorted(cell.relations):
        edges = cell.edges(relation)
        weight = np.ones(len(edges)) if edges.weight is None else np.asarray(edges.weight, np.float64)
        src, dst = np.asarray(edges.src, np.int64), np.asarray(edges.dst, np.int64)
        order = np.lexsort((weight, dst, src))
        parts += [".".join(relation), src[order], dst[order], weight[order]]
    return short_hash(*parts)


def cells_without_files() -> dict[str, CellConfig]:
    """Return the different cells of experiments that need no file but a model that cobra ships."""
    found: dict[str, CellConfig] = {}
    for path in [CONF / "quickstart.yaml", *sorted(CONF.glob("1[0-9][0-9]-*/*.yaml"))]:
        cell = config_of(path).cell
        needs = bool(cell.networks) or cell.aliases or cell.more_genes or cell.similarity
        if cell.model in SHIPPED and not needs:
            found[", ".join([cell.model, *cell.derived, *cell.media])] = cell
    return found


def test_cell_graphs(golden: Any) -> None:
    golden({name: hash_of_cell(build_cell(config)) for name, config in cells_without_files().items()})


def test_blocked_reactions_of_core(golden: Any) -> None:
    """Which reactions of a strain carry no flux once one of them is lost."""
    cell = build_cell(CellConfig(model="textbook"))
    blocked = SteadyState.of(cell).blocked(torch.eye(cell.num_nodes[REACTION], dtype=torch.bool))
    golden({"core": short_hash(blocked.numpy())})


STRAINS = [[], [1], [0, 4], [2, 3, 5], [5, 3, 2], [7], [6, 1], [4]]
NETWORKS = {"one": [(0, 1), (1, 2), (3, 3), (6, 7)], "two": [(5, 4), (2, 7)], "string_fusion": [(2, 0), (1, 5)]}


def trained(config: ModelConfig, cell: ResidentCell, *, auxiliary: str | None = None) -> dict[str, list[float]]:
    """Return the losses of ten steps from seeded weights in double precision, and the predictions after them."""
    config.validate()
    torch.manual_seed(0)
    model = make_model(config, cell, 1).double()
    torch.manual_seed(1)
    randomise(model, 0.1)
    batch, labels = GenotypeBatch.from_lists(STRAINS), torch.linspace(-1, 1, len(STRAINS)).double()[:, None]
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-2), []
    for _ in range(10):
        optimizer.zero_grad()
        prediction = model(batch)
        loss = (prediction.phenotypes - labels).square().mean()
        if auxiliary is not None:
            loss = loss + prediction.auxiliary[auxiliary]()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    model.eval()
    with torch.no_grad():
        predicted = model(batch).phenotypes
    return {"losses": losses, "predictions": predicted.squeeze(1).tolist()}


@pytest.fixture(scope="module")
def core_cell() -> CellGraph:
    """Return the cell graph of E. coli core."""
    return build_cell(CellConfig(model="textbook", derived=["shares_complex", "isoenzyme"]))


SMALL = {"hidden": 8, "layers": 2, "local_heads": 2}
MODELS: dict[str, ModelConfig] = {
    "hetero_cell": HeteroCellConfig(**SMALL, pool=["gene", "reaction"], strategy="difference"),
    "hetero_cell by masks": HeteroCellConfig(
        **SMALL, cross_relation="pairwise_interaction", pool=["gene", "reaction"], strategy="node_mask"
    ),
    "set_operator": SetOperatorConfig(**SMALL, operator="both", local_kind="both"),
}


@pytest.mark.parametrize("name", MODELS)
def test_steps_and_predictions(name: str, core_cell: CellGraph, golden: Any) -> None:
    golden(trained(MODELS[name], ResidentCell.of(core_cell)), 1e-9)


def test_steps_and_predictions_of_dango(golden: Any) -> None:
    config = DangoConfig(hidden=8, heads=2, zero_weights={"one": 0.1, "two": 0.7})
    golden(trained(config, network_cell(NETWORKS, 8), auxiliary="reconstruction"), 1e-9)


def test_numbers_of_parameters() -> None:
    """Those of the original experiments."""
    small = HeteroCellConfig(metabolism=False, local_head=False, combination="none")
    large = HeteroCellConfig(
        metabolism=False, cross_relation="pairwise_interaction", cross_relation_norm="layer", gin_layers=4
    )
    assert count_parameters(make_model(small, nine_network_cell(), 1)) == 669_917
    assert count_parameters(make_model(large, nine_network_cell(), 1)) == 1_781_187
    assert count_parameters(make_model(DangoConfig(), six_channels(6607), 1)) == 3_138_270
