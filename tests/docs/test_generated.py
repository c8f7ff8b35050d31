"""Pages that are made from the package say what the package says."""

from __future__ import annotations

import functools
import re
import shlex
import sys
from pathlib import Path

import pytest

import dglcell
from dglcell.cli import make_parser
from dglcell.config.experiment import KINDS, Config
from tests.docs.pages import DOCS, ROOT

sys.path.insert(0, str(DOCS))
pytest.importorskip("sphinx", reason="needs the extra 'docs'")

from site_extension import commands, configuration, differences, experiment_list, experiments, modules, results, sources


def row(table: str, key: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| `{key}` |"))
    return [cell.strip() for cell in line.strip("|").replace("\\|", "/").split("|")]


def test_every_section_is_there_and_every_key_has_its_type_default_and_meaning() -> None:
    made = configuration.pages(ROOT)
    assert row(configuration.keys(Config), "cell")[1:3] == ["section", ""]
    found = row(configuration.keys(KINDS["model"]["hetero_cell"]), "hidden")
    assert found == ["`hidden`", "`int`", "`64`", "H, width of every state"]
    for section in ("cell", "cell.networks.NAME", "data.source.csv", "split.subset", "trainer", "slurm"):
        assert f"## `{section}`\n" in made["configuration.md"]
    assert made["configuration.md"].count("`model.name: ") >= len(KINDS["model"])
    for text in made.values():
        lines = [line.replace("\\|", "/") for line in text.splitlines() if line.startswith("| `")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        assert not [line for line in cells if line[1] != "section" and not line[3]]


def test_every_verb_is_described_with_its_arguments() -> None:
    page = commands.pages(ROOT)["commands.md"]
    for verb in ("train", "predict", "data build", "graph describe", "job submit", "doctor"):
        assert f"## `dglcell {verb}`" in page
    assert "| `--output`, `-o` | output: .csv or .parquet" in page
    assert len(list(commands.verbs(make_parser()))) > 15


COMMITTED, MADE = results.committed(ROOT), functools.cache(experiments.pages)


def page(name: str, record: results.Record | None = None) -> str:
    file = ROOT / "conf" / f"{name}.yaml"
    return experiments.page(ROOT, file, experiments.loaded(file), record or COMMITTED.get(name, results.Record()))


def test_a_page_says_whether_it_was_measured() -> None:
    assert page("103-tong2004/random").splitlines()[2].startswith("**Not measured yet:**")
    name = "102-costanzo2016/set_operator_random"
    measured = page(name)
    assert measured.splitlines()[2].startswith("**Measured** with seeds 0, 1, 2")
    for run in COMMITTED[name].runs:
        assert f"\n{run['command'].partition(' trainer.')[0]}" in measured
        seconds = float(run["training_seconds"])
        assert f"| {run['seed']} | {run['epochs']} | {seconds / int(run['epochs']):.1f} |" in measured
    assert "Give `seed=S split.seed=S` together" in measured


def score(seed: int, model: str, pearson: float, where: str = "", **more: float) -> results.Score:
    return results.Score(seed, where, model, model != "mine", {"pearson": pearson, **more})


def test_the_strongest_baseline_is_compared_draw_by_draw() -> None:
    own, strong = {0: 0.5, 1: 0.6, 2: 0.7}, {0: 0.4, 1: 0.5, 2: 0.61}
    scores = [score(0, "weak", 0.9), score(0, "without messages", 0.99)]
    scores += [score(seed, name, of[seed]) for name, of in (("strong", strong), ("mine", own)) for seed in of]
    found = results.Comparison.of(results.Record([], scores))
    assert found is not None
    # One that has not all draws is no peer, and the model's own ablation is none either.
    assert (found.model, found.baseline, found.without) == ("mine", "strong", {0: 0.99})
    assert results.as_text(results.interval(found.own, found.theirs) or (0, 0, 0)) == "+0.097 (0.082 to 0.111)"
    assert results.interval({0: 1.0, 1: 1.0}, {0: 0.0, 1: 0.5}) is None
    # A draw with one medium has its r in place of that within a medium.
    draws = [score(1, "mine", 0.5), *(score(0, "mine", 0.4, where, pearson_within=0.3) for where in ("", "glucose"))]
    assert results.Record([], draws).by_model() == {"mine": {0: 0.3, 1: 0.5}}
    shown = page("quickstart", results.Record([], scores)).replace("\N{NO-BREAK SPACE}", " ")
    assert "| all | mine | 0.600 ± 0.100 |" in shown


def test_all_results_stand_in_one_table_and_computed_ones_say_so() -> None:
    table = MADE(ROOT)["parts/results.md"]
    assert {name for name in COMMITTED if f"[`{name}`]" not in table} == set()
    assert "| FBA itself |" in table
    rows = [row for row in table.splitlines() if row.startswith(("| [", "| **"))]
    for row in rows:
        file = ROOT / "conf" / f"{row.split('`')[1]}.yaml" if "`" in row else None
        is_computed = file is None or experiments.loaded(file).data.source.name == "insilico"
        assert f"| {'computed' if is_computed else 'measured'} |" in row
    # A score is bold only where its interval is above zero.
    bold = [cells for row in rows if (cells := row.split(" | "))[3].startswith(("**0", "**1"))]
    assert bold
    assert not [cells for cells in bold if "(\N{MINUS SIGN}" in cells[5]]


def test_the_readme_has_numbers_of_that_table() -> None:
    made, readme = MADE(ROOT), (ROOT / "README.md").read_text()
    measured = made["parts/results.md"].replace("\N{NO-BREAK SPACE}", " ").splitlines()
    rows = re.findall(
        r"^\| .* \| (0\.\d+ ± 0\.\d+) \| (0\.\d+ ± 0\.\d+), .* \| (.*?) \| (.*?) \|$", readme, flags=re.MULTILINE
    )
    assert len(rows) > 4
    for own, theirs, difference, both in rows:
        assert [row for row in measured if own in row and f"| {theirs} | {difference} | {both} |" in row], own
    own, without, difference, inside = re.findall(
        r"(0\.\d+) with .* (0\.\d+) without \(difference (.*?), (.*?)\)", readme
    )[0]
    row = next(row for row in made["parts/graphs.md"].splitlines() if "118-yeast-carbon-media/new_genes" in row)
    assert [part for part in (f"| {own}", f"| {without}", f"| +{difference} ({inside}) |") if part not in row] == []


def test_the_list_of_experiments_has_results_time_and_data() -> None:
    folder = ROOT / "conf"
    assert {file.parent.relative_to(folder) for file in experiments.experiment_files(ROOT)} == {
        Path(name) for name in experiment_list.GROUPS
    }
    name = "101-collins2007/set_operator_random"
    config = experiments.loaded(folder / f"{name}.yaml")
    shown = experiment_list.index([experiment_list.Entry(Path(f"{name}.yaml"), "x", config, COMMITTED[name])])
    assert re.search(r" \| random \| 0\.\d+ ± 0\.\d+ \| .* \| 24\.9 MB \|\n", shown.replace("\N{NO-BREAK SPACE}", " "))


def test_a_page_says_where_files_come_from() -> None:
    text = page("101-collins2007/set_operator_random")
    assert "\ndglcell data fetch --all conf/101-collins2007/set_operator_random.yaml\n" in text
    assert "| `interactions/collins2007_emap_whole.csv.gz` | 1.3 MB | `raw.githubusercontent.com/bioc/SLGI` |" in text
    assert "140,579 rows, sha256" in text


def test_pages_name_known_commands_and_what_differs_from_the_original() -> None:
    parser, loaded = make_parser(), {file: experiments.loaded(file) for file in experiments.experiment_files(ROOT)}
    for file, config in loaded.items():
        said = differences.differences(config)
        if file.parent.name.startswith(("005-", "006-")):
            assert "| the original | here | why |" in said
            assert "| label statistics" in said or config.model.name == "dango" or config.data.normalise == "none"
        else:
            assert said == differences.NONE
        record = COMMITTED.get(config.experiment.name, results.Record())
        for line in experiments.run_it(config, file.relative_to(ROOT), record).splitlines():
            if line.startswith("dglcell "):
                _, rest = parser.parse_known_args(shlex.split(line)[1:])
                assert all("=" in word for word in rest), line
    names = {str(file.relative_to(ROOT / "conf").with_suffix("")) for file in loaded}
    assert {name for kind in ("own", "new", "stated") for name in differences.KNOWN[kind]} <= names
    for name, sentences in results.notes(ROOT).items():
        assert name in names | {one.partition("/")[0] for one in names}
        assert all(re.search(r"\(\d{4}-\d\d-\d\d\)$", sentence) for sentence in sentences)


def test_all_keys_of_the_original_are_listed() -> None:
    made = sources.pages(ROOT)
    assert row(made["parts/renamed.md"], "model.hidden_channels")[1] == "`model.hidden`"
    assert "`data_module.num_workers`" in made["parts/dropped.md"]


def test_the_reference_has_public_names_once_and_no_others() -> None:
    text = "".join(modules.pages(ROOT).values())
    assert all(f"## dglcell.{name}\n" in text for name in (*dglcell.__all__, "nn.GINConv", "models.terms.term.Term"))
    described = re.findall(r"auto(?:class|function):: (\S+)", text)
    assert len(described) == len(set(described)) < 120
