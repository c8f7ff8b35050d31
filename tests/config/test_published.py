"""What an experiment reads can be fetched: every experiment of conf/, and one from a server on this machine."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dglcell.cli import main
from dglcell.config.experiment import KINDS, Config
from dglcell.config.published import named, needs, published
from dglcell.config.read import load_config, original_keys
from dglcell.data.sources import SourceConfig, load_source
from dglcell.data.sources.config import LaboratoryConfig
from dglcell.data.sources.laboratory import LABORATORIES
from dglcell.errors import ConfigError, DataError
from dglcell.files.atomic import find_raw, raw_folder
from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS
from dglcell.published.conversions import CONVERSIONS, convert
from dglcell.published.file import FILES, ORIGINALS, PublishedFile, download_size
from tests.config_files import CONF, CONFIGURATIONS, config_of, refusal, write
from tests.http_server import serve_folder

WITHOUT_FILES = (CONF, CONF / "bases", CONF / "106-ecoli-core", CONF / "107-ijo1366", CONF / "113-fba-activities-media")
"""Folders of what every experiment starts from, and of those that compute everything from models that cobra ships."""
FILE = re.compile(r'"([^"]*\.(?:csv|tsv|txt|tab|tab3|gff|mat|xml|sbml|json|yml|yaml|rda|xlsx|zip|tgz)(?:\.gz)?)"')


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: str(path.relative_to(CONF)))
def test_everything_that_an_experiment_reads_can_be_fetched(path: Path) -> None:
    # A part that experiments extend may have no cell of its own.
    part = path.name == "base.yaml" or path.parent.name in ("bases", "strains")
    config = load_config(path, ["cell={model: textbook, derived: [shares_complex]}"]) if part else config_of(path)
    wanted = needs(config)
    assert all(file.downloads for file in wanted if not file.path.startswith("yeast_media/"))  # put there by hand
    assert all(address.startswith("http") for file in wanted for address in file.addresses)
    assert bool(wanted) == (
        path.parent not in WITHOUT_FILES or bool(re.search("imm904|dropo|carbon|yeast|alleles|crispri", path.stem))
    )
    of_its_own = asdict(config)
    for section in ("experiment", "paths", "slurm", "tracking"):
        of_its_own.pop(section)
    named_by_path = {*FILE.findall(json.dumps(of_its_own))}
    assert named_by_path <= {file.path for file in wanted}


def test_published_files_are_found_by_path_and_by_screen() -> None:
    assert [file.path for file in named("kuzmin2020")] == ["interactions/aaz5667-tables_s1_to_s13.zip"]
    (model,) = named("metabolism/yeast-GEM_9.0.2.mat")
    assert model.addresses == [*MODELS["yeast-GEM_9.0.2"].urls]
    (table,) = named("interactions/kuzmin2018_Data_S1.tsv")
    assert [address.rpartition("/")[2] for address in table.addresses] == ["Data_S1.csv", "aao1729_data_s1.zip"]
    assert set(FILES) == set(published())
    for name in ("insilico", "csv", "union", "kuzmin2019", "networks/mine.csv"):
        with pytest.raises(ConfigError, match=rf"no data source is called '{name}' that has raw files\n.*kuzmin2018"):
            named(name)


def test_files_of_the_catalogue_those_named_by_path_and_those_of_unions_are_needed(tmp_path: Path) -> None:
    text = (
        "cell: {model: metabolism/iMM904.json, genes: sgd_features, aliases: sgd_features, networks: {"
        "physical: {source: sgd_physical}, again: {source: sgd_physical}, mine: {source: tflink, path: mine.tsv}, "
        "table: {path: n.csv, columns: [a, b]}}, "
        "similarity: {sources: {slim: {sets: {source: go_slim_sgd}}}}}\n"
        "data: {source: {name: union, union: {parts: [{name: tong2004_tested_pairs}, {name: collins2007}]}}}\n"
    )
    assert [file.path for file in needs(load_config(write(tmp_path, "experiment.yaml", text)))] == [
        GENE_SETS["sgd_features"].file.path,
        NETWORKS["sgd_physical"].file.path,
        NETWORKS["go_slim_sgd"].file.path,
        "interactions/tong2004_tested_pairs.csv.gz",
        "interactions/collins2007_emap_whole.csv.gz",
        "metabolism/iMM904.json",
    ]


def test_a_table_whose_genes_are_left_out_is_needed_as_a_whole(tmp_path: Path) -> None:
    path = "interactions/collins2007_emap_whole.csv.gz"
    networks = f"{{tong: {{source: tong2004_interactions, not_within: {path}}}}}"
    text = f"cell: {{model: textbook, networks: {networks}}}\ndata: {{source: {{name: collins2007}}}}\n"
    *_, screen = needs(load_config(write(tmp_path, "experiment.yaml", text)))
    assert screen == FILES[path].whole == named(path)[0] != FILES[path]


MODEL = b"{}" * 200
MATRIX = b"SystematicName\tYBR112C\nYAL001C\t1\n"
EDGES = b"tf,target\nYBR112C,YAL001C\n"
PAIRS = b"2 YLR035C YML060W 0.5\n"
SCREEN = b"gene_a,gene_b,epsilon,go_term\nYLR035C,YML060W,0.5,GO:0006281\n"
NETWORK_PATH, SCREEN_PATH = "networks/yeastract_edges.csv.gz", "interactions/costanzo2016_two_go_terms.csv.gz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return what the server has."""
    (tmp_path / "published").mkdir()
    for name, content in (("model.mat", MODEL), ("matrix.tsv", MATRIX), ("pairs", PAIRS)):
        (tmp_path / "published" / name).write_bytes(content)
    return tmp_path / "published"


@pytest.fixture
def experiment(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Provide the experiment's file; neither a raw folder nor anything else is set."""
    monkeypatch.delenv("DGLCELL_RAW", raising=False)
    monkeypatch.setenv("DGLCELL_CACHE", str(tmp_path / "cache"))
    for address in serve_folder(monkeypatch, folder):

        def offered(name: str, path: str) -> PublishedFile:
            content = (folder / name).read_bytes()
            return PublishedFile(path, (f"{address}/{name}",), hashlib.sha256(content).hexdigest(), len(content))  # noqa: B023

        def made(path: str, name: str, content: bytes, **arguments: Any) -> PublishedFile:
            recipe = FILES[path].made
            assert recipe is not None
            arguments = {**recipe.arguments, **arguments}
            recipe = replace(recipe, originals=(offered(name, f"{ORIGINALS}/{name}"),), arguments=arguments)
            return replace(FILES[path], content=hashlib.sha256(content).hexdigest(), made=recipe)

        network, screen = NETWORKS["yeastract"], LABORATORIES["costanzo2016_two_go_terms"]
        file = made(NETWORK_PATH, "matrix.tsv", EDGES)
        monkeypatch.setitem(NETWORKS, "yeastract", replace(network, file=file))
        file = made(SCREEN_PATH, "pairs", SCREEN, labels=["GO:0006281"])
        tables = {"all": replace(screen.tables["all"], file=file, rows=1)}
        monkeypatch.setitem(LABORATORIES, "costanzo2016_two_go_terms", replace(screen, tables=tables))
        monkeypatch.setitem(MODELS, "yeast-GEM_9.0.2", offered("model.mat", MODELS["yeast-GEM_9.0.2"].path))
        monkeypatch.setitem(GENE_SETS, "sgd_names", replace(GENE_SETS["sgd_names"], models=()))
        text = "{model: yeast-GEM_9.0.2, networks: {regulatory: {source: yeastract}}}"
        (tmp_path / "e.yaml").write_text(f"cell: {text}\ndata: {{source: {{name: costanzo2016_two_go_terms}}}}\n")
        yield str(tmp_path / "e.yaml")


def test_one_command_fetches_all_and_it_is_found_without_setting_anything(
    experiment: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = SourceConfig(name="costanzo2016_two_go_terms", laboratory=LaboratoryConfig())
    with pytest.raises(DataError, match=rf"'{SCREEN_PATH}' not found(.|\n)*`dglcell data fetch {SCREEN_PATH}`"):
        load_source(source)
    assert main(["data", "fetch", "--all", experiment]) == 0
    printed = capsys.readouterr().out
    raw = tmp_path / "cache/raw"
    assert raw_folder() == raw
    for name in ("metabolism/yeast-GEM_9.0.2.mat", NETWORK_PATH, SCREEN_PATH):
        assert str(raw / name) in printed
        assert find_raw(name) == raw / name
    assert gzip.decompress((raw / NETWORK_PATH).read_bytes()) == EDGES
    (folder / "model.mat").unlink()
    (folder / "pairs").unlink()
    assert main(["data", "fetch", "--all", experiment]) == 0, "what is there is not downloaded again"
    assert "was here" in capsys.readouterr().out


def test_one_that_fails_is_named_and_does_not_keep_others(
    experiment: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "matrix.tsv").unlink()
    (folder / "model.mat").write_bytes(MODEL + b"\n")
    raw = tmp_path / "raw"
    with open(experiment, "a", encoding="utf-8") as file:
        file.write(f"\npaths: {{raw: {raw}}}\n")
    assert main(["data", "fetch", "--all", experiment]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith(str(raw / SCREEN_PATH))
    assert "2 of 3 files could not be fetched" in printed.err
    assert f"metabolism/yeast-GEM_9.0.2.mat, {NETWORK_PATH}" in printed.err
    assert "404" in printed.err
    assert "Traceback" not in printed.err
    left = {str(path.relative_to(raw)) for path in raw.rglob("*") if path.is_file()}
    assert left == {SCREEN_PATH, f"{ORIGINALS}/pairs"}


def test_addresses_are_printed_for_a_machine_online(experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "--all", experiment, "--addresses"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "metabolism/yeast-GEM_9.0.2.mat"
    assert [line.rpartition("/")[2] for line in lines[1::2]] == ["model.mat", "matrix.tsv", "pairs"]
    gff = "genes/saccharomyces_cerevisiae_R64-4-1_20230830.gff"
    assert main(["data", "fetch", gff, "--addresses"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{gff}  (in it: {gff.removeprefix('genes/')}.gz)"


def test_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("DGLCELL_RAW", str(tmp_path))
    path = tmp_path / NETWORKS["tflink"].file.path
    path.parent.mkdir()
    path.write_bytes(MODEL)
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in (*NETWORKS, *GENE_SETS, *MODELS):
        assert f"  {name}" in lines
    assert f"    {NETWORKS['tflink'].file.path}: here" in lines
    assert "    501,510 rows: `dglcell data fetch kuzmin2018`, 63.0 MB" in lines
    assert f"    {NETWORKS['string9_1'].file.path}: not here" in lines
    assert max(map(len, lines)) <= 100


RENAMED, DROPPED = original_keys()


@pytest.mark.parametrize("key", RENAMED)
def test_the_new_name_is_a_key(key: str) -> None:
    section, _, rest = RENAMED[key].partition(".")
    kinds = KINDS.get(section, {})
    holders = [kind() for kind in kinds.values()] if kinds else [getattr(Config(), section)]
    assert not rest or any(hasattr(holder, rest) for holder in holders), RENAMED[key]
    assert key not in DROPPED


def test_all_keys_of_a_section_are_explained_at_once(tmp_path: Path) -> None:
    text = "cell: {model: textbook}\nwandb: {project: mine, tags: [a]}\n"
    message = refusal(write(tmp_path, "old.yaml", text))
    assert (len(RENAMED), len(DROPPED)) == (68, 48)
    assert "unknown key `wandb`" in message
    assert "`wandb.project` of the original system is `tracking.project` here" in message
    assert "`wandb.tags` of the original system is `experiment.tags` here" in message
    assert "original system" not in refusal(write(tmp_path, "old.yaml", "nonsense: {a: 1}\n"))
    text = "cell: {model: textbook}\nmodel: {gpr_conv_config: {encoder_type: gin}}\n"
    assert "it had no effect in the original" in refusal(write(tmp_path, "old.yaml", text))


MADE = {path: file for path, file in FILES.items() if file.made is not None}
NOBODY_STATES_A_HASH = (
    *("interactions/aao1729_data_s1.zip", "interactions/aaz5667-tables_s1_to_s13.zip"),
    *("interactions/costanzo2016_pairwise.zip", "networks/interaction_data.tab", "networks/regulation.tab"),
    *("genes/SGD_features.tab", "networks/TFLink_Saccharomyces_cerevisiae_interactions_All_simpleFormat_v1.0.tsv"),
    *(f"networks/4932.protein.links.detailed.v{version}.txt.gz" for version in ("9.1", "11.0", "11.5", "12.0")),
)
"""These files have no hash."""


@pytest.mark.parametrize("path", FILES)
def test_an_entry_is_complete_and_a_recipe_is_of_fixed_files(path: str) -> None:
    file = FILES[path]
    assert not Path(path).is_absolute()
    assert all((file.path == path, file.description, file.citation, file.licence))
    known = [one for one in (file.sha256, file.archive_sha256, file.content) if one]
    assert all(re.fullmatch("[0-9a-f]{64}", one) for one in known)
    assert bool(file.sha256 or file.content) == (path not in NOBODY_STATES_A_HASH)
    by_hand = path == "networks/4932.protein.links.detailed.v9.1.txt.gz"  # its server has no https
    assert all(url.startswith("http://" if by_hand else "https://") and " " not in url for url in file.addresses)
    if file.made is not None:
        assert path.endswith(".gz")
        assert file.content
        assert file.made.convert in {*CONVERSIONS, "copy"}
        for original in file.made.originals:
            assert re.fullmatch(r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/.+", *original.urls)
            assert re.fullmatch("[0-9a-f]{64}", original.sha256 or "")
        assert download_size(file.made.originals) == sum(original.size or 0 for original in file.made.originals) > 0


def test_originals_do_not_share_names_and_screens_and_networks_can_be_downloaded() -> None:
    originals = {original for file in MADE.values() for original in file.downloads}
    assert len({file.path for file in originals}) == len(originals)
    tables = [file for screen in LABORATORIES.values() for file in screen.files]
    assert all(file.downloads for file in (*tables, *(network.file for network in NETWORKS.values())))


# The tables of the raw folder.


NOT_AS_MADE = (
    *("interactions/collins2007_emap_whole.csv.gz", "interactions/kuzmin2020_pilot_whole.csv.gz"),
    *("ecoli/mathis2020_crispri.csv.gz", "ecoli/faure2023_media.csv.gz", "ecoli/baba2006_keio.csv.gz"),
    *("genes/ecoli_k12_families.csv.gz", "networks/ecoli_k12_neighbours.csv.gz"),
    "interactions/kuzmin2018_negative_pairs.csv.gz",
)
"""The raw folder has a part of these tables, some of their rows, or nothing of them."""

ORIGINALS_ONLY = {
    "genes/smf_alleles.csv.gz": ("smf_t30_150803.tsv.gz", "strain_orf_common_allele_160425.tsv.gz"),
    "metabolism/iMM904_exchanged_rules.json.gz": ("iMM904.json.gz",),
}
"""The raw folder has only what these tables are made from."""


@pytest.mark.raw
@pytest.mark.parametrize("path", MADE)
def test_the_raw_folder_has_what_the_recipe_makes(path: str, raw: Path) -> None:
    if path not in (*NOT_AS_MADE, *ORIGINALS_ONLY):
        MADE[path].check(raw / path)


@pytest.mark.raw
@pytest.mark.parametrize("path", ORIGINALS_ONLY)
def test_the_table_is_made_from_the_raw_folder(path: str, raw: Path, tmp_path: Path) -> None:
    originals = []
    for name in ORIGINALS_ONLY[path]:
        originals.append(tmp_path / name.removesuffix(".gz"))
        originals[-1].write_bytes(gzip.decompress((raw / path).with_name(name).read_bytes()))
    recipe = MADE[path].made
    assert recipe is not None
    made = convert(recipe.convert, originals, recipe.arguments)
    assert hashlib.sha256(made).hexdigest() == MADE[path].content
