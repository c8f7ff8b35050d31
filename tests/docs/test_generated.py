"""Pages that are made from the package say what the package says."""

from __future__ import annotations

import json
import shlex
import statistics
import sys
from pathlib import Path

import pytest

from dglcell.cli.parser import make_parser
from dglcell.config.experiment import KINDS, Config
from tests.docs.pages import DOCS, ROOT

sys.path.insert(0, str(DOCS))
pytest.importorskip("sphinx", reason="needs the extra 'docs'")

from site_extension import (
    ablation,
    chart,
    commands,
    configuration,
    cost,
    differences,
    experiment_list,
    experiments,
    intervals,
    modules,
    originals,
    reliability,
    results,
    side_by_side,
)


def row(table: str, key: str) -> list[str]:
    """Return the cells of a key's row."""
    line = next(line for line in table.splitlines() if line.startswith(f"| `{key}` |"))
    return [cell.strip() for cell in line.strip("|").replace("\\|", "/").split("|")]


def test_keys_have_their_types_defaults_and_meanings() -> None:
    top = configuration.keys(Config)
    assert row(top, "seed")[:3] == ["`seed`", "`int`", "`0`"]
    assert row(top, "cell")[1:3] == ["section", ""]
    assert row(top, "null_models") == [
        "`null_models`",
        "`bool`",
        "`true`",
        "also fit the null models that apply, on the same split",
    ]
    hetero = configuration.keys(KINDS["model"]["hetero_cell"])
    assert row(hetero, "hidden") == ["`hidden`", "`int`", "`64`", "H, width of every state"]
    assert row(hetero, "name")[2] == "`hetero_cell`"


def test_every_section_is_there() -> None:
    page = configuration.pages(ROOT)["configuration.md"]
    for section in ("cell", "cell.networks.NAME", "data.source.csv", "split.subset", "trainer", "slurm"):
        assert f"## `{section}`\n" in page
    assert page.count("`model.name: ") >= len(KINDS["model"])


def test_every_key_has_a_meaning() -> None:
    for text in configuration.pages(ROOT).values():
        lines = [line.replace("\\|", "/") for line in text.splitlines() if line.startswith("| `")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        assert not [line for line in cells if line[1] != "section" and not line[3]]


def test_every_verb_is_described_with_its_arguments() -> None:
    page = commands.pages(ROOT)["commands.md"]
    for verb in ("train", "predict", "data build", "graph fetch", "job submit", "doctor"):
        assert f"## `dglcell {verb}`" in page
    assert "| `--output`, `-o` | output: .csv or .parquet" in page
    assert len(list(commands.verbs(make_parser()))) > 15


def test_every_experiment_has_a_page() -> None:
    names = {experiments.slug(ROOT, file) for file in experiments.experiment_files(ROOT)}
    assert {"quickstart", "101-collins2007-random", "006-kuzmin-tmi-hetero_081"} <= names


def test_a_page_says_whether_it_was_measured(tmp_path: Path) -> None:
    file = ROOT / "conf" / "101-collins2007" / "random.yaml"
    config = experiments.loaded(file)
    page = experiments.page(ROOT, file, config, {})
    assert page.splitlines()[2].startswith("**Measured in part:**")
    assert "| the same | random, 1 |" in page
    other = ROOT / "conf" / "103-tong2004" / "random.yaml"
    page = experiments.page(ROOT, other, experiments.loaded(other), {})
    assert page.splitlines()[2].startswith("**Not measured yet:**")


def test_committed_results_give_mean_and_spread(tmp_path: Path) -> None:
    file = ROOT / "conf" / "105-yeast-gem" / "random.yaml"
    config = experiments.loaded(file)
    for seed, pearson in ((0, 0.25), (1, 0.35)):
        rows = [{"phenotype": "fitness", "part": "test", "model": "hetero_cell", "metrics": {"pearson": pearson}}]
        path = tmp_path / results.RESULTS / config.experiment.name / f"seed-{seed}" / "results.json"
        path.parent.mkdir(parents=True)
        of_nodes = [{**rows[0], "phenotype": "flux", "metrics": {"pearson": pearson / 2, "nodes": 3}}]
        path.write_text(json.dumps({"rows": rows, "nodes": of_nodes}))
    found = results.committed(tmp_path, config)
    page = experiments.page(ROOT, file, config, found)
    assert page.splitlines()[2].startswith("**Measured** with seeds 0, 1")
    plain = page.replace("\N{NO-BREAK SPACE}", " ")
    assert "| fitness | test | hetero_cell | 0.300 ± 0.071 |" in plain
    assert "\nValues of nodes, " in plain
    assert "| flux | test | hetero_cell | 0.150 ± 0.035 |" in plain


def test_committed_runs_say_how_they_are_run_and_what_they_took() -> None:
    file = ROOT / "conf" / "102-costanzo2016" / "set_operator_random.yaml"
    config = experiments.loaded(file)
    found = results.committed(ROOT, config)
    page = experiments.page(ROOT, file, config, found)
    for seed, record in found.items():
        assert f"\ndglcell train {file.relative_to(ROOT)} " in page
        changes = " ".join(results.overrides(record))
        assert {f"seed={seed}", f"split.seed={seed}"} <= set(changes.split())
        assert f"\ndglcell train {file.relative_to(ROOT)} {changes}\n" in page
    assert "Give `seed=S split.seed=S` together" in page
    seconds = [row["seconds"] for row in found[0]["metrics"]]
    assert f"| 0 | {len(seconds)} | {sum(seconds) / len(seconds):.1f} |" in page
    drawn = experiments.drawings(found)
    defined = [row for record in found.values() for row in record["rows"] if row["metrics"].get("pearson") is not None]
    assert drawn["pearson"].count('class="dot"') == sum(row["part"] == "test" for row in defined)
    assert drawn["loss"].count('class="curve thick') == 6  # a line and a key for each seed


def test_the_list_of_experiments_has_results_time_and_data() -> None:
    folder = ROOT / "conf"
    assert {file.parent.relative_to(folder) for file in experiments.experiment_files(ROOT)} == {
        Path(name) for name in experiment_list.GROUPS
    }
    entries = []
    for name in ("101-collins2007/set_operator_random", "006-kuzmin-tmi/dango_string12_0", "quickstart"):
        config = experiments.loaded(folder / f"{name}.yaml")
        known = cost.costs(ROOT, name, results.committed(ROOT, config))
        entries.append(experiment_list.Entry(Path(f"{name}.yaml"), name.replace("/", "-"), config, known))
    page = experiment_list.index(ROOT, entries)
    assert [line for line in page.splitlines() if line.startswith("## ")] == [
        f"## {title}" for title in experiment_list.GROUPS.values()
    ]
    first, second, third = sorted(line for line in page.splitlines() if line.startswith("| ["))
    assert first.endswith("| stratified |  |  | 24.9, one epoch | 1,488 | more than 63.0 MB |")
    of_model, of_null = (_mean_and_spread(name) for name in ("set_operator", "mean of the best two"))
    pairs, quick = (f"{cost.minutes(entry.costs)} | {cost.memory(entry.costs)} |" for entry in (entries[0], entries[2]))
    assert second.endswith(f"| random | 1.000 | 0.999, reaction kernel ridge | {quick} nothing |")
    assert third.endswith(f"| random | {of_model} | {of_null}, mean of the best two | {pairs} 24.9 MB |")


def _mean_and_spread(model: str) -> str:
    """Pearson correlation on the test parts of the committed runs of one experiment: what the page has to state."""
    file = ROOT / "conf" / "101-collins2007" / "set_operator_random.yaml"
    records = results.committed(ROOT, experiments.loaded(file))
    values = [
        row["metrics"]["pearson"]
        for record in records.values()
        for row in record["rows"]
        if (row["part"], row["model"]) == ("test", model)
    ]
    assert len(values) == len(records) >= 3
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def test_what_runs_took_is_what_was_recorded() -> None:
    stated = cost.costs(ROOT, "103-tong2004/set_operator_random", {})
    assert stated[0] == cost.Cost(8, 504.9)
    record = {"metrics": [{"seconds": 30.0}, {"seconds": 60.0}], "usage": {"peak_memory_bytes": 2_000_000}}
    known = cost.costs(ROOT, "nothing stated", {3: record})
    assert known == {3: cost.Cost(2, 90.0, 2_000_000)}
    assert (cost.minutes(known), cost.memory(known)) == ("1.5", "2")
    assert "| 3 | 2 | 45.0 | 1.5 | 2 |" in cost.cost_table(known)
    assert cost.cost_table({}) == cost.NOT_MEASURED
    assert cost.minutes({}) == cost.memory({}) == ""


def test_a_page_says_where_files_come_from() -> None:
    file = ROOT / "conf" / "101-collins2007" / "set_operator_random.yaml"
    page = experiments.page(ROOT, file, experiments.loaded(file), {})
    assert f"\ndglcell data fetch --all {file.relative_to(ROOT)}\n" in page
    assert "| `interactions/collins2007_emap_whole.csv.gz` | 1.3 MB | `raw.githubusercontent.com/bioc/SLGI` |" in page
    assert "140,579 rows, sha256" in page


@pytest.fixture(scope="module")
def loaded() -> dict[Path, Config]:
    """Return all experiments."""
    return {file: experiments.loaded(file) for file in experiments.experiment_files(ROOT)}


def test_pages_say_what_differs_from_the_original(loaded: dict[Path, Config]) -> None:
    for file, config in loaded.items():
        said = differences.differences(config)
        if file.parent.name.startswith(("005-", "006-")):
            assert "| the original | here | why |" in said
            assert "| label statistics" in said or config.model.name == "dango" or config.data.normalise == "none"
        else:
            assert said == differences.NONE
    assert {*differences.OWN, *differences.NEW, *differences.STATED} <= {
        str(file.relative_to(ROOT / "conf").with_suffix("")) for file in loaded
    }


def test_commands_of_experiments_exist(loaded: dict[Path, Config]) -> None:
    parser = make_parser()
    for file, config in loaded.items():
        text = experiments.run_it(config, file.relative_to(ROOT), results.committed(ROOT, config))
        for line in text.splitlines():
            if line.startswith("dglcell "):
                _, rest = parser.parse_known_args(shlex.split(line)[1:])
                assert all("=" in word for word in rest), line


def test_the_chart_is_drawn_from_the_committed_numbers() -> None:
    made = chart.pages(ROOT)
    results = json.loads((ROOT / chart.RESULTS).read_text())
    recorded = chart.chosen(results["rows"], 8, 3)
    best = max(row["samples_per_second"] for row in recorded)
    assert f">{best:.2f}<" in made["parts/training-step.svg"]
    assert f"| {best:.2f} |" in made["parts/training-step.md"]
    ended = {"status": "out_of_memory", "seconds_per_step": None, "peak_memory_bytes": None}
    results["rows"].append({**recorded[0], **ended})
    assert "out of memory" in chart.numbers(results)
    for row in json.loads((ROOT / chart.GRID).read_text())["rows"]:
        if row["status"] == "ok" and row["method"] in ("auto", "pyg_replicated"):
            assert (
                f"| {1e3 * row['seconds_per_step']:,.0f} | {row['peak_memory_bytes'] / 1e6:,.0f} |"
                in (made["parts/training-step-grid.md"])
            )


def test_tables_of_benchmarks_have_every_committed_row() -> None:
    made = side_by_side.pages(ROOT)
    for path, part in (
        (side_by_side.TURNS, "side-by-side"),
        (side_by_side.PLAIN, "side-by-side-plain"),
        (side_by_side.OTHER, "side-by-side-avx2"),
    ):
        turns = json.loads((ROOT / path).read_text())["rows"]
        shown = made[f"parts/{part}.md"]
        assert shown.count("\n|") == len(turns) + 2
        for row in turns:
            for method, seconds in row["seconds_median"].items():
                assert f"{seconds:.2f} s" in shown
                assert f"{row['peak_bytes'][method] / 1e6:,.0f} MB" in shown
    settings = json.loads((ROOT / side_by_side.SETTINGS).read_text())["rows"]
    for row in settings:
        assert f"{row['seconds']:.2f}" in made["parts/cpu-settings.md"]
    assert made["parts/cpu-settings.md"].count("\n|") == len(settings) / 3 + 2
    growth = json.loads((ROOT / side_by_side.GROWTH).read_text())
    assert made["parts/growth.md"].startswith(f"{growth['environment']['processor']}, 2 threads. ")
    for row in growth["rows"]:
        assert f"| {row['cell']} | {row['nodes']:,} | {row['edges']:,} |" in made["parts/growth.md"]
        assert f"| {row['predicted_strains_per_second']:,.1f} |" in made["parts/growth.md"]
    for path in side_by_side.PRODUCTS.values():
        for row in json.loads((ROOT / path).read_text())["products"]:
            shown = side_by_side.milliseconds(row, "forward_seconds")
            assert f"| {shown} |" in made["parts/products.md"]
    for row in json.loads((ROOT / side_by_side.EPOCHS).read_text())["rows"]:
        assert f"| {row['hours_of_332_313_strains']:.2f} | {row['hours_are']} |" in made["parts/whole-epoch.md"]


def test_all_keys_of_the_original_are_listed() -> None:
    made = originals.pages(ROOT)
    assert row(made["parts/renamed.md"], "model.hidden_channels")[1] == "`model.hidden`"
    assert "`data_module.num_workers`" in made["parts/dropped.md"]


def test_every_folder_of_the_package_has_a_page() -> None:
    folders = {path.parent.name for path in (ROOT / "dglcell").glob("*/*.py")}
    assert folders <= set(modules.FOLDERS)


def test_tables_of_parts_left_out_are_those_of_the_committed_results() -> None:
    made = ablation.pages(ROOT)
    for name in ablation.FILES:
        committed = ablation.read(ROOT, name)
        shown = made[f"parts/ablation-{name}.md"].splitlines()
        assert shown[0] == committed["what"]
        assert len([line for line in shown if line.startswith("| ")]) == 2 + len(committed["summary"])
    assert ablation.label("x/no-string-fusion") == "without STRING's channel `fusion`"
    assert ablation.spread({"mean": -0.1234, "sd": 0.01}, sign="+") == "\N{MINUS SIGN}0.123\xa0±\xa00.010"
    assert ablation.spread({"mean": 0.5, "sd": None}) == "0.500"


def test_probabilities_of_classes_are_drawn_and_listed() -> None:
    made = reliability.pages(ROOT)
    for experiment, name in reliability.NAMES.items():
        measured = json.loads((ROOT / reliability.FILE).read_text())["experiments"][experiment]
        groups = measured["probabilities"]["groups"]
        assert sum(one["n"] for one in groups) == measured["n"]
        shown = made[f"parts/reliability-{name}.md"].splitlines()
        assert [line for line in shown if line.startswith("| ")][-1].endswith(f"| {groups[-1]['n']:,} |")
        assert "exact</text>" in made[f"parts/reliability-{name}.svg"]


def test_coverage_is_that_of_records_and_of_the_benchmark() -> None:
    pages = intervals.pages(ROOT)
    alike, others = pages["parts/coverage-alike.md"], pages["parts/coverage-others.md"]
    assert row(alike, "101-collins2007/set_operator_random")[1:4] == ["random", "3", "90.1 ± 0.1 %"]
    found = [
        json.loads(path.read_text())["rows"]
        for path in sorted(ROOT.glob("docs/results/114-smf-alleles/new_genes/*/results.json"))
    ]
    own = [next(row for row in rows if row["part"] == "test" and not row["is_null"])["metrics"] for rows in found]
    share = 100 * statistics.fmean(metrics["covered"] for metrics in own)
    assert row(others, "114-smf-alleles/new_genes")[2:4] == [
        "5",
        f"{share:.1f} ± {100 * statistics.stdev(metrics['covered'] for metrics in own):.1f} %",
    ]
