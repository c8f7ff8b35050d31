"""Every numbered experiment is short, valid, and trains: its own model, loss and split on a few invented strains."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from dglcell.config.experiment import Config
from dglcell.config.read import load_config
from dglcell.data.columns import Provenance, columns_of
from dglcell.data.store import build_store
from dglcell.data.strains import Strains
from dglcell.models.config import DangoConfig, EncoderConfig, HeteroCellConfig
from dglcell.training.run import train
from tests.config_files import CONF, config_of
from tests.raw_files import GENES, tiny_overrides, write_raw_folder

NUMBERED = sorted(path for folder in CONF.glob("[0-9][0-9][0-9]-*") for path in folder.glob("*.yaml"))
MOST_LINES = 30
ONE_STEP = [
    "trainer={devices: 1, accelerator: cpu, strategy: auto, epochs: 1, threads: 1, patience: null}",
    "trainer.accumulate_grad_batches={}",
    "plot=false",
    "baselines=false",
    "data={batch_size: 64, eval_batch_size: 64}",
    "split.subset=null",
    "split.fractions=[0.5,0.25,0.25]",
]


def identity(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_raw_folder(tmp_path_factory.mktemp("raw"))


def invented_store(config: Config, folder: Path) -> Path:
    """Return all pairs or triples of the genes, with the phenotypes that an experiment predicts."""
    size = 3 if config.data.phenotypes == ["trigenic_interaction"] else 2
    strains = np.array(list(itertools.combinations(range(len(GENES)), size)), dtype=np.uint16)
    strains = np.random.default_rng(0).permutation(strains)
    labels = np.random.default_rng(1).normal(0, 0.1, len(strains)).astype(np.float32)
    if config.data.normalise == "logistic":
        labels = (labels > 0).astype(np.float32)
    table = Strains(
        GENES,
        strains.ravel(),
        np.arange(0, strains.size + 1, size, dtype=np.int64),
        columns_of(phenotype={name: labels for name in config.data.phenotypes or ["fitness"]}),
        provenance=Provenance(source="invented"),
    )
    build_store(table, folder / "store", command="test")
    return folder / "store"


@functools.cache
def settings(path: Path) -> dict[str, Any]:
    """Return what an experiment and the files that it extends give, in a hundredth of the time of `load_config`."""
    own = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    extended = own.pop("extends", [])
    for name in [extended] if isinstance(extended, str) else reversed(extended):
        own = over(settings((path.parent / name).resolve()), own)
    return own


def over(lower: Any, upper: Any) -> Any:
    if not (isinstance(lower, dict) and isinstance(upper, dict)):
        return upper
    return lower | {key: over(lower.get(key), value) for key, value in upper.items()}


@pytest.mark.parametrize("path", NUMBERED, ids=identity)
def test_it_is_a_small_difference(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES
    assert lines[0].startswith("#"), "says what it is for"
    about = settings(path)["experiment"]
    assert about.get("name", "") in ("", identity(path))
    assert about["description"]


def of_laboratories() -> list[Any]:
    """Return experiments on screens, slow where others before have the same source and the same parts of a model."""
    seen: set[Hashable] = set()
    parameters = []
    for path in NUMBERED:
        given = settings(path)
        source, model, loss = given["data"]["source"]["name"], given.get("model", {}), given.get("loss")
        if source not in ("insilico", "csv"):
            loss = loss.get("name") if isinstance(loss, dict) else loss
            kinds = {source, (model.get("name"), model.get("cross_relation"), loss, given["split"].get("kind"))}
            marks = [pytest.mark.slow] if kinds <= seen else []
            parameters.append(pytest.param(path, id=identity(path), marks=marks))
            seen |= kinds
    return parameters


@pytest.mark.parametrize("path", of_laboratories())
def test_it_trains(path: Path, raw: Path, tmp_path: Path) -> None:
    config = config_of(path)
    overrides = [*tiny_overrides(raw, config.cell), *ONE_STEP, f"paths.runs={tmp_path / 'runs'}"]
    if isinstance(config.model, HeteroCellConfig):  # forms of layers would be timed, and one is like the next
        overrides += ["model.compile=false", f"model.layers={min(1, config.model.layers)}"]
    tiny = load_config(path, [*overrides, f"data.store={invented_store(config, tmp_path)}"])
    result = train(tiny)
    (row,) = (json.loads(line) for line in result.directory.metrics.read_text().splitlines())
    assert row["step"] >= 1
    assert np.isfinite(row["train/loss"])
    assert np.isfinite(row["validation/loss"])
    parts = {row.part for row in result.rows}
    assert parts == {"validation", "test"}


def guides(raw: Path, numbers: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Yield the table of a few guides, in the columns of the published one."""
    table = "guide,gene,b_number,series,pam_location,mutation,mutated,sequence,growth_glucose,sem_glucose\n"
    for number in range(60):
        gene, sequence, place = ("b0008", "b0114", "b9999")[number % 3], "ACGTACGTACGTACGTACGT", number // 3
        sequence = sequence[:place] + ("A" if sequence[place] != "A" else "C") + sequence[place + 1 :]
        table += f"g{number},{gene},{gene},1,7,Single,,{sequence},{numbers.uniform():.3f},0.01\n"
    yield "ecoli/mathis2020_crispri", table
    yield from relatives(["b0008", "b0114", "b9999"])


def relatives(genes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the tables of genes that are neighbours, each of the next one, and of one family."""
    near = "".join(f"{gene},{other},1\n" for gene, other in itertools.pairwise(genes))
    yield "networks/ecoli_k12_neighbours", "gene_a,gene_b,places\n" + near
    yield "genes/ecoli_k12_families", "gene,family\n" + "".join(f"{gene},x\n" for gene in genes)


def media(raw: Path, numbers: np.random.Generator) -> Iterator[tuple[str, str]]:
    exchanges = ("rib__D", "malt", "melib", "tre", "fru", "gal", "ac", "lac__D", "succ", "pyr")
    rows = [[*numbers.integers(0, 2, 10).tolist(), round(float(numbers.uniform()), 3), 0.01] for _ in range(60)]
    header = ",".join([*(f"EX_{name}_e_i" for name in exchanges), "GR_AVG", "GR_STD"])
    yield "ecoli/faure2023_media", "\n".join([header, *(",".join(map(str, row)) for row in rows), ""])


def deletions(raw: Path, numbers: np.random.Generator) -> Iterator[tuple[str, str]]:
    """Yield the tables of deletions in three media, neighbours and families, with genes of the core model."""
    genes = [f"b0{number}" for number in (720, 721, 722, 723, 724, 726, 727, 728)]
    grown = "".join(f"x,{gene}," + ",".join(f"{x:.3f}" for x in numbers.uniform(size=3)) + "\n" for gene in genes[:-1])
    yield "ecoli/baba2006_keio", "gene,b_number,lb_22h,mops_24h,mops_48h\n" + grown
    yield from relatives(genes)


def alleles(raw: Path, numbers: np.random.Generator) -> Iterator[tuple[str, str]]:
    write_raw_folder(raw)
    table = "gene,allele,class,strength,fitness,sd,strain,alleles\n"
    for gene, kind in itertools.product(GENES, ("deletion", "DAmP", "ts")):
        activity = 0 if kind == "deletion" else 0.2
        table += f"{gene},{gene}-{kind},{kind},{activity},{numbers.uniform():.3f},0.1,{gene}_{kind},several\n"
    yield "genes/smf_alleles", table


@pytest.mark.parametrize(
    ("name", "tables", "left_out"),
    [
        ("110-mathis2020-crispri/random", guides, ("data", "split")),
        ("110-mathis2020-crispri/hetero_random_wild_type", guides, ("data", "split")),
        ("112-faure2023-media/ten_fold", media, ("data", "split")),
        ("111-baba2006-keio/new_genes", deletions, ("data",)),
        ("114-smf-alleles/new_alleles", alleles, ("split.fractions",)),
    ],
)
def test_strains_with_covariates_and_activities_train(
    name: str, tables: Callable[[Path, np.random.Generator], Iterator[tuple[str, str]]], left_out: tuple[str, ...],
    tmp_path: Path,
) -> None:  # fmt: skip
    path, raw = CONF / f"{name}.yaml", tmp_path / "raw"
    for file, table in tables(raw, np.random.default_rng(0)):
        (raw / file).parent.mkdir(parents=True, exist_ok=True)
        (raw / f"{file}.csv.gz").write_bytes(gzip.compress(table.encode()))
    of_cell = [f"paths.raw={raw}", "cell.model=textbook"]
    overrides = tiny_overrides(raw, config_of(path).cell) if tables is alleles else of_cell
    overrides += [f"paths.{kind}={tmp_path / kind}" for kind in ("runs", "data")]
    config = load_config(path, [*overrides, *(key for key in ONE_STEP if not key.startswith(left_out))])
    if tables is deletions:  # on the core model, with two carbon sources in place of LB and MOPS
        config.cell.media["lb_22h"] = {"EX_glc__D_e": 0, "EX_ac_e": 10}
    for network, file in (("neighbours", "networks/ecoli_k12_neighbours"), ("family", "genes/ecoli_k12_families")):
        if network in config.cell.networks:
            config.cell.networks[network].path = str(raw / f"{file}.csv.gz")
    result = train(config)
    assert {row.part for row in result.rows} == {"validation", "test"}
    assert all(np.isfinite(row.metrics["mae"]) for row in result.rows)


@pytest.mark.parametrize("name", ["117-acton2017-dropouts/new_genes_wild_type", "118-yeast-carbon-media/new_media"])
def test_deletions_of_yeast_in_media_train(name: str, tmp_path: Path) -> None:
    """Whole groups of genes are in one part; no simulator runs, because the model of a few genes does not grow."""
    raw, numbers, path = write_raw_folder(tmp_path / "raw"), np.random.default_rng(0), CONF / f"{name}.yaml"
    config = config_of(path)
    csv, groups, table = config.data.source.csv, ["orf,group"], ["orf,replicate,medium,log2_ratio,fitness"]
    for number, gene in enumerate(GENES):
        groups.append(f"{gene},{GENES[number // 2 * 2]}")
        table += [f"{gene},{c},{m},{numbers.normal():.3f},{number}.{c}" for m in config.cell.media for c in range(2)]
    (raw / "yeast_media").mkdir(exist_ok=True)
    for file, lines in ((csv.path, table), ("yeast_media/gene_groups.csv.gz", groups)):
        (raw / file).write_bytes(gzip.compress("\n".join(lines).encode()))
    folders = [f"paths.{kind}={tmp_path / kind}" for kind in ("runs", "data")]
    steps = [key for key in ONE_STEP if "split.fr" not in key]
    tiny = load_config(path, [*tiny_overrides(raw, config.cell), *steps, *folders, "data.fba=null"])
    tiny.cell.media = {medium: {} for medium in tiny.cell.media}
    result = train(tiny)
    assert {row.part for row in result.rows} == {"validation", "test"}
    assert all(np.isfinite(row.metrics["mae"]) for row in result.rows)


def test_the_series_have_the_numbers_of_the_original() -> None:
    names = {identity(path) for path in NUMBERED}
    hetero = {f"006-kuzmin-tmi/hetero_{number}" for number in ("065", "074", "075", "076", "080", "081", "082")}
    twins = {f"006-kuzmin-tmi/{name}" for name in ("hetero_086", "hetero_087", "dango_string12_0_profile")}
    dango = {
        f"{folder}/dango_string{version}"
        for folder in ("005-kuzmin2018-tmi", "006-kuzmin-tmi")
        for version in ("9_1", "11_0", "12_0")
    }
    assert hetero | twins | dango | {"005-kuzmin2018-tmi/hetero_ic"} <= names


def test_twins_by_dgl_differ_in_nothing_that_changes_a_prediction() -> None:
    for number, strategy in (("080", "edge_mask"), ("081", "edge_subgraph")):
        plain, twin = (config_of(CONF / f"006-kuzmin-tmi/hetero_{number}{end}.yaml") for end in ("", "_dgl"))
        assert twin.model == replace(plain.model, strategy=strategy)
        assert (twin.data, twin.loss, twin.split, twin.optimizer) == (
            plain.data,
            plain.loss,
            plain.split,
            plain.optimizer,
        )


def test_the_models_are_those_of_the_original() -> None:
    """Settings that the parameter counts 669,917, 1,781,187 and 3,138,270 are tested with."""
    small, large = (config_of(CONF / f"006-kuzmin-tmi/hetero_{number}.yaml").model for number in ("080", "082"))
    assert isinstance(small, EncoderConfig)
    assert isinstance(large, EncoderConfig)
    assert (small.cross_relation, small.gin_layers, small.metabolism) == ("sum", 2, False)
    assert (large.cross_relation, large.cross_relation_norm) == ("pairwise_interaction", "layer")
    assert (large.gin_layers, large.hidden, large.layers, large.local_layers) == (4, 64, 3, 2)
    assert config_of(CONF / "006-kuzmin-tmi/dango_string12_0.yaml").model == DangoConfig()
