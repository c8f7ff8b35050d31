"""Predictions of models that see covariates, and what simulators compute: growth, and an own column."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dglcell import api
from dglcell.baselines.simple import AsComputed
from dglcell.config.read import load_config
from dglcell.data.columns import COVARIATE, Column
from dglcell.data.store import Store
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError, DataError, GraphError
from dglcell.prediction.columns import GenotypeColumns, asked_of, completion_of, seen_by
from dglcell.prediction.design import Design
from dglcell.prediction.measured import identities
from dglcell.prediction.predict import predict_design
from dglcell.runs import RunDirectory
from dglcell.training.checkpoint import Chosen, Trained, load_trained
from dglcell.training.prepare import build, computed_of, store_path
from dglcell.training.run import train
from tests.examples import examples
from tests.tiny import seeing_covariates

GENES = ("b0008", "b0114", "b0115", "b0720", "b1241", "b2464", "b0351", "b2779", "b1779", "b3919", "")
OWN = """\
from dataclasses import dataclass

import numpy as np
from dglcell.data.sources import Simulator, SourceOptions


class Cost(Simulator):
    @dataclass
    class Config(SourceOptions):
        scale: float = 1.0

    def compute(self, strains, work):
        return np.asarray(self.config.scale * strains.num_deletions, np.float32)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiment on doses in two media, and a simulator of one's own."""
    folder = tmp_path_factory.mktemp("computed")
    rows = [
        f"{gene},{0.25 if gene else ''},{medium},{30 + n},{n % 3 / 2}"
        for n, gene in enumerate(GENES)
        for medium in ("glucose", "acetate")
    ]
    (folder / "growth.csv").write_text("\n".join(["orf,left,agar,celsius,growth", *rows]) + "\n")
    (folder / "own_cost.py").write_text(OWN)
    columns = {"genes": ["orf"], "activities": ["left"], "phenotypes": {"growth": "growth"}}
    covariates = {"medium": "agar", "temperature": "celsius"}
    csv = {"path": str(folder / "growth.csv"), **columns, "covariates": covariates}
    config = {
        "experiment": {"name": "computed"},
        "cell": {"model": "textbook", "media": {"glucose": {}, "acetate": {"EX_glc__D_e": 0.0, "EX_ac_e": 30.0}}},
        "data": {
            "source": {"name": "csv", "csv": csv},
            "fba": {"processes": 1},
            "computed": {"cost": {"kind": "own_cost:Cost", "options": {"scale": 2.0}}},
            "batch_size": 4,
        },
        "model": {"hidden": 8, "layers": 1, "local_heads": 2, "linear_covariates": True, "strategy": "difference"},
        "optimizer": {"lr": 0.01},
        "split": {"fractions": [0.5, 0.25, 0.25]},
        "trainer": {"epochs": 2, "threads": 1, "accelerator": "cpu"},
        "paths": {"runs": str(folder), "data": str(folder / "data")},
        "plot": False,
        "baselines": False,
    }
    (folder / "computed.yaml").write_text(yaml.safe_dump(config))
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Iterator[RunDirectory]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield train(load_config(folder / "computed.yaml")).directory


PLAIN = ["data.fba=null", "data.computed={}"]
RUNS = {
    "computed": [],
    "in media": PLAIN,
    "seen": [*PLAIN, "cell.media={}"],
    # What is left of genes is learned from the medium.
    "learnt": [*PLAIN, "cell.media={}", "model.activity_from=[medium]", "data.source.csv.activities=[]"],
}


@pytest.fixture(scope="module", params=RUNS)
def any_run(request: pytest.FixtureRequest, folder: Path, run: RunDirectory) -> RunDirectory:
    name = request.param
    overrides = [*RUNS[name], f"experiment.name={name.replace(' ', '-')}"]
    return run if name == "computed" else train(load_config(folder / "computed.yaml", overrides)).directory


def test_a_medium_makes_a_difference(any_run: RunDirectory) -> None:
    rows = [("b0720", 0.5, "glucose", 30), ("b0720", 0.5, "acetate", 30), ("b0720", 0.5, "acetate", 35)]
    rows += [("", None, "glucose", 30), ("", None, "acetate", 30)]
    frame = pd.DataFrame(rows, columns=["orf", "left", "agar", "celsius"])
    is_learnt = bool(load_trained(any_run).config.model.activity_from)
    if is_learnt:
        frame = frame.rename(columns={"orf": "gene_1", "left": "activity_1"})
    found = api.load(any_run.path).predict(frame).predicted_growth
    # Where a medium only says what is left of genes, it says nothing of the wild type.
    assert len({round(value, 6) for value in found}) == (4 if is_learnt else 5)


def test_a_design_is_predicted_as_a_table_would_be(any_run: RunDirectory, tmp_path: Path) -> None:
    trained = load_trained(any_run)
    how = GenotypeColumns.of(trained)
    background = how.wild_type(trained.cell.genes, {"medium": "acetate", "temperature": 33})
    design = Design.of(range(8), 2, background=background, complete=how.complete)
    for worth, name in ((2, "shared.parquet"), (99, "apart.parquet")):
        predict_design([trained], design, tmp_path / name, batch_size=5, worth_sharing=worth, report=lambda _: None)
    shared, apart = pq.read_table(tmp_path / "shared.parquet"), pq.read_table(tmp_path / "apart.parquet")
    assert shared.column_names[2:4] == ["covariate_medium", "covariate_temperature"]
    again = api.load(any_run.path).predict(shared.drop_columns(["predicted_growth", "predicted_by"]).to_pandas())
    for table in (shared, apart):
        np.testing.assert_allclose(table["predicted_growth"].to_numpy(), again.predicted_growth, atol=1e-5)


def test_new_strains_get_the_columns(run: RunDirectory) -> None:
    trained = load_trained(run)
    store = Store(store_path(trained.config)).read()
    assert store.computed == ("cost", "fba_growth")
    assert list(asked_of(trained)) == ["medium", "temperature"]
    predictor = api.load(run.path)
    found = predictor._read(store).strains
    for name in store.computed:
        np.testing.assert_array_equal(found.columns[Column(COVARIATE, name)], store.columns[Column(COVARIATE, name)])
    assert len(np.unique(predictor.predict(store).predicted_growth.round(6))) > len(GENES)


WARM = {"medium": "glucose", "temperature": 37}


def test_subsets_are_explained_by_their_own_growth(run: RunDirectory) -> None:
    predictor = api.load(run.path)
    found = predictor.explain([["b0720", "b2779"]], covariates=WARM)
    alone = predictor.predict([["b0720"]], covariates=WARM).predicted_growth[0]
    assert found[found.subset == "b0720"].predicted.item() == pytest.approx(alone, abs=1e-5)
    split = predictor.attribute([["b0720", "b2779"]], covariates=WARM)
    terms = split[split.kind == "term"].set_index("name").change
    assert terms.sum() == pytest.approx(found.change.iloc[-1], abs=1e-5)
    assert abs(terms["computed covariates"]) > 1e-3
    # The network alone is split, also where a baseline predicts.
    chosen = {"growth": Chosen("FBA", AsComputed("fba_growth"), 1.0)}
    by_baseline = api.Predictor(tuple(replace(member, chosen=chosen) for member in predictor.members))
    pd.testing.assert_frame_equal(by_baseline.attribute([["b0720", "b2779"]], covariates=WARM), split)


def test_what_a_run_needs_is_said(run: RunDirectory, folder: Path) -> None:
    trained = load_trained(run)
    trained.config.data.fba.model = "gone.xml"  # type: ignore[union-attr]
    complete = completion_of(trained)
    assert complete is not None
    with pytest.raises(GraphError, match="`fba_growth` is computed by a metabolic model that cannot be read here"):
        complete(Store(store_path(load_trained(run).config)).read())


def test_a_store_without_the_columns_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    store = f"data.store={folder / 'plain'}"
    build(load_config(folder / "computed.yaml", [store, "data.fba=null", "data.computed={}"]), "")
    with pytest.raises(DataError, match="has no column 'fba_growth'"):
        train(load_config(folder / "computed.yaml", [store, "experiment.name=other"]))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.computed.cost.kind=own_cost:Price", "module 'own_cost' has no 'Price'"),
        ("data.computed.cost.kind=cost", r"`data\.computed\.cost\.kind` is unknown"),
        ("data.computed.cost.options.factor=2", r"unknown key `data\.computed\.cost\.options\.factor`"),
        ("data.source.name=insilico", "`data.fba` would give the model its own labels"),
        ("data.fba.tolerance=2", r"`data\.fba\.tolerance` is too large"),
    ],
)
def test_wrong_keys_are_refused_before_anything_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, override: str, message: str
) -> None:
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ConfigError, match=message):
        load_config(folder / "computed.yaml", [override])


def test_growth_by_another_model_than_that_of_the_labels_is_a_column(folder: Path) -> None:
    other = load_config(folder / "computed.yaml", ["data.source.name=insilico", "data.fba.model=iJO1366"])
    assert computed_of(other).simulators["fba_growth"].config.model == "iJO1366"


STRAINS = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abc"), max_size=3, unique=True),
        st.lists(st.sampled_from([0.0, 0.3, 1.0, 1.5]), min_size=3, max_size=3),
        st.sampled_from(["glucose", "glycerol", "xylose"]),
        st.sampled_from([30.0, 37.0, -0.0, 0.0]),
    ),
    min_size=1,
    max_size=8,
)


def table(rows: list[tuple[list[str], list[float], str, float]], weakened: bool) -> Strains:
    genes, activities, media, warmth = zip(*rows, strict=True)
    pairs = [dict(zip(names, left, strict=False)) for names, left in zip(genes, activities, strict=True)]
    changed = pairs if weakened else genes
    return Strains.from_names(changed, covariates={"medium": media, "temperature": warmth, "batch": range(len(rows))})


def plainly(strains: Strains, trained: Trained) -> list[Hashable]:
    """Return what makes each strain another one: its genes, their activities and the covariates that a model sees."""
    left = [of if isinstance(of, dict) else dict.fromkeys(of, 0.0) for of in strains.changes]
    changes = [frozenset(item for item in of.items() if item[1] != 1) for of in left]
    return list(zip(changes, *(strains.shown(name).tolist() for name in seen_by(trained)), strict=True))


@given(first=STRAINS, second=STRAINS, weakened=st.booleans())
@examples(25)
def test_keys_are_equal_where_genes_activities_and_seen_covariates_are(
    trained: Trained, first: list, second: list, weakened: bool
) -> None:
    trained = seeing_covariates(trained)
    tables = table(first, True), table(second, weakened)
    keys = np.concatenate([identities(one, trained) for one in tables])
    plain = [identity for one in tables for identity in plainly(one, trained)]
    assert (keys[:, None] == keys).tolist() == [[a == b for a in plain] for b in plain]
