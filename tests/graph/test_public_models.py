"""Models and networks as public files write them: each row is a form, and what it has to give."""

from __future__ import annotations

import gzip
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cobra
import pytest

from dglcell.errors import DglcellError, GraphError
from dglcell.graph.catalogue import NetworkConfig
from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.metabolism import Metabolism, derived_edges, media_uptakes
from dglcell.graph.model_files import SHIPPED, is_no_gene, locate_model, read_model
from dglcell.graph.vocabulary import Vocabulary, way_out
from dglcell.prediction.design import every_gene
from tests.tiny import process_environment


def document(rule: str | None = "g3", genes: str = "", **keys: Any) -> dict[str, Any]:
    """Return a model as JSON has it: its reaction AB has a rule and other keys of its own."""
    bounds = {"lower_bound": 0.0, "upper_bound": 1000.0, "gene_reaction_rule": ""}
    reactions = [
        {"id": "EX_a", "metabolites": {"a_e": -1}, **bounds, "lower_bound": -10.0},
        {"id": "At", "metabolites": {"a_e": -1, "a_c": 1}, **bounds, "gene_reaction_rule": "g1"},
        {"id": "AB", "metabolites": {"a_c": -1, "b_c": 1}, **bounds, "gene_reaction_rule": rule, **keys},
        {"id": "GROW", "metabolites": {"b_c": -1}, **bounds, "objective_coefficient": 1.0},
    ]
    metabolites = [{"id": name, "name": name, "compartment": name[-1]} for name in ("a_e", "a_c", "b_c")]
    listed = [{"id": name, "name": name} for name in genes.split()]
    model = {"id": "made", "metabolites": metabolites, "reactions": reactions, "genes": listed}
    return {**model, "compartments": {"e": "", "c": ""}}


Saved = Callable[..., str]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    def save(*arguments: Any, **keys: Any) -> str:
        (tmp_path / "made.json").write_text(json.dumps(document(*arguments, **keys)), encoding="utf-8")
        return str(tmp_path / "made.json")

    return save


def rule_of(path: str) -> tuple[str, list[str]]:
    model = read_model(path)
    return model.reactions.AB.gene_reaction_rule, sorted(gene.id for gene in model.genes)


@pytest.mark.parametrize(
    ("rule", "read", "genes"),
    [
        ("(g3 & g4) | g5", "(g3 and g4) or g5", "g1 g3 g4 g5"),
        ("g3|g4", "g3 or g4", "g1 g3 g4"),
        ("fig|83333.1.peg.1 or fig|83333.1.peg.2", "fig|83333.1.peg.1 or fig|83333.1.peg.2",
         "fig|83333.1.peg.1 fig|83333.1.peg.2 g1"),
        ("gi|16128336|ref|NP_414885.1| and g3", "gi|16128336|ref|NP_414885.1| and g3",
         "g1 g3 gi|16128336|ref|NP_414885.1|"),
        ("((g3 or g4) or (g5 or g6)) and g7", "(g3 or g4 or g5 or g6) and g7", "g1 g3 g4 g5 g6 g7"),
        ("()", "", "g1"),
        ("SPONT", "", "g1"),
        ("g3 and s0001", "g3", "g1 g3"),
        ("g3 or (g4 and spontaneous)", "g3 or g4", "g1 g3 g4"),
        ("(g3 or UNKNOWN) and (g4 or g5)", "g4 or g5", "g1 g3 g4 g5"),
        ("g3 and (g4 or (TRUE and GAPFILL))", "g3", "g1 g3 g4"),
    ],
)  # fmt: skip
def test_rules_mean_what_their_authors_mean(saved: Saved, rule: str, read: str, genes: str) -> None:
    assert rule_of(saved(rule)) == (read, genes.split())


@pytest.mark.parametrize("operator", ["and", "or"])
def test_rules_of_two_operands_at_a_time_are_flat(saved: Saved, operator: str) -> None:
    nested = "g3"
    for number in range(4, 60):
        nested = f"({nested} {operator} g{number})"
    assert rule_of(saved(nested)) == rule_of(saved(f" {operator} ".join(f"g{n}" for n in range(3, 60))))


NO_GENES = """s0001 S0001 G_s0001 s_0001 SPONT spontaneous Spontaneous SPONTANEOUS.1 UNKNOWN Unknown Unknown_1 orphan
ORPHAN GAPFILL gap_filled TRUE none unassigned NOGENE"""
GENUINE = "b0001 s0002 STM0001 YAL001C spoT SPO11 nan NA orf19.1 TRUE1A gapA 1234.1"


def test_names_that_are_no_genes_leave_with_a_warning(saved: Saved, caplog: pytest.LogCaptureFixture) -> None:
    assert [name for name in NO_GENES.split() if not is_no_gene(name)] == []
    assert [name for name in GENUINE.split() if is_no_gene(name)] == []
    assert rule_of(saved("g3 or orphan", "g1 g3 orphan SPONT"))[1] == ["g1", "g3"]
    assert "made.json: no genes, so that their reactions are always there: SPONT, orphan" in caplog.text
    with caplog.at_level(logging.INFO):
        assert every_gene(Vocabulary.of(["b0001", "s0001", "thrA"])) == [0, 2]
    assert "no genes: s0001" in caplog.text


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"rule": "g3, g4"}, ["1 gene rules cannot be parsed", "reaction AB: g3, g4", "joined by 'and', 'or'"]),
        ({"rule": "AND(g3, g4)"}, ["reaction AB: AND(g3, g4)"]),
        ({"rule": "g3 g4"}, ["reaction AB: g3 g4"]),
        ({"rule": "[g3] or g4"}, ["reaction AB: [g3] or g4"]),
        ({"rule": "(g3 or g4"}, ["reaction AB: (g3 or g4"]),
        (
            {"lower_bound": 10.0, "upper_bound": 0.0},
            ["reaction 'AB' cannot be read", "(10.0 <= 0.0)", "mend the reaction"],
        ),
        ({"lower_bound": None}, ["reaction 'AB' cannot be read", "NoneType"]),
        ({"metabolites": {"nowhere_c": 1}}, ["reaction 'AB' cannot be read", "nowhere_c"]),
        ({"rule": "kb|g.1 or g3", "genes": "g1 kb|g.1"}, ["genes have a '|'", "kb|g.1"]),
    ],
)
def test_a_fault_in_one_reaction_names_it(saved: Saved, keys: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(DglcellError) as caught:
        Metabolism.read(saved(**keys))
    assert [word for word in words if word not in str(caught.value)] == []
    assert "object at 0x" not in str(caught.value)


@pytest.fixture
def sbml(saved: Saved, tmp_path: Path) -> str:
    cobra.io.write_sbml_model(cobra.io.load_json_model(saved()), str(tmp_path / "plain.xml"))
    return (tmp_path / "plain.xml").read_text()


@pytest.mark.parametrize(
    ("encoding", "declared"), [("latin-1", "ISO-8859-1"), ("utf-16", "UTF-16"), ("utf-8-sig", "UTF-8")]
)
def test_xml_says_its_own_encoding(sbml: str, tmp_path: Path, encoding: str, declared: str) -> None:
    text = sbml.replace('encoding="UTF-8"', f'encoding="{declared}"').replace('name="b_c"', 'name="bé"')
    assert declared in text
    assert "é" in text
    (tmp_path / "made.xml").write_bytes(text.encode(encoding))
    assert read_model(str(tmp_path / "made.xml")).metabolites.b_c.name == "bé"


@pytest.mark.parametrize("write", [cobra.io.save_json_model, cobra.io.save_yaml_model])
def test_a_byte_order_mark_before_json_and_yaml(saved: Saved, tmp_path: Path, write: Callable[..., None]) -> None:
    name = {"save_json_model": "marked.json", "save_yaml_model": "marked.yml"}[write.__name__]
    write(cobra.io.load_json_model(saved()), str(tmp_path / name))
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (tmp_path / name).read_bytes())
    assert len(read_model(str(tmp_path / name)).reactions) == 4


def test_sbml_without_bounds(sbml: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = sbml.replace('fbc:strict="true"', 'fbc:strict="false"')
    for bound in ("lower", "upper"):
        for value in ("cobra_0_bound", "cobra_default_ub", "R_EX_a_lower_bound"):
            text = text.replace(f' fbc:{bound}FluxBound="{value}"', "")
    (tmp_path / "made.xml").write_text(text)
    model = read_model(str(tmp_path / "made.xml"))
    assert {r.id: r.bounds for r in model.reactions} == {"EX_a": (-1000, 1000)} | dict.fromkeys(
        ("At", "AB", "GROW"), (0, 1000)
    )
    assert "made.xml: 4 reactions without bounds (EX_a, At, AB … and 1 more)" in caplog.text
    assert "assumed: -1000 to 1000 for 1, 0 to 1000 for 3" in caplog.text


def test_json_without_bounds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = document()
    del content["reactions"][2]["upper_bound"]
    (tmp_path / "made.json").write_text(json.dumps(content))
    read_model(str(tmp_path / "made.json"))
    assert "made.json: 1 reaction without bounds (AB); assumed: 0 to 1000 for 1" in caplog.text


@pytest.mark.parametrize(("uptake", "fits"), [(2.0, False), (9.5, False), (10.0, True), (12.0, True)])
def test_a_medium_allows_the_uptake_that_a_model_forces(saved: Saved, uptake: float, fits: bool) -> None:
    model = read_model(saved())
    model.reactions.EX_a.bounds = (-10, -10)
    if fits:
        assert media_uptakes(model, {"low": {"EX_a": uptake}}, "cell.media") == {"low": {"EX_a": uptake}}
        return
    with pytest.raises(DglcellError) as caught:
        media_uptakes(model, {"rich": {"EX_a": 20}, "low": {"EX_a": uptake}}, "cell.media")
    for word in ("`cell.media.low.EX_a`", f"got:      {uptake:g}", "at least 10", "upper bound of EX_a"):
        assert word in str(caught.value)


def test_a_medium_weakens_every_node_of_an_exchange(saved: Saved) -> None:
    path = Path(saved())
    path.write_text(path.read_text().replace('"gene_reaction_rule": ""', '"gene_reaction_rule": "g5 or g6"', 1))
    media = Metabolism.read(str(path), media={"rich": {"EX_a": 10}, "poor": {"EX_a": 1}}).media
    assert media == {"rich": {"EX_a#1-": 1.0, "EX_a#2-": 1.0}, "poor": {"EX_a#1-": 0.1, "EX_a#2-": 0.1}}


@pytest.mark.parametrize(
    ("rule", "names"), [("g3", []), ("g3 and g4", ["shares_complex"]), ("g3 or g4", ["isoenzyme"])]
)
def test_which_derived_relations_a_model_has(saved: Saved, rule: str, names: list[str]) -> None:
    metabolism = Metabolism.read(saved(rule))
    assert [name for name in ("shares_complex", "isoenzyme") if derived_edges(name, metabolism).size] == names


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_are_in_the_installed_cobra(name: str) -> None:
    assert locate_model(name).is_file()


def test_a_home_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    """cobra makes a folder there as it is imported."""
    (tmp_path / "in the way").touch()
    code = (
        "import logging, os\nlogging.basicConfig()\n"
        "from dglcell.graph.model_files import read_model\n"
        "print(len(read_model('textbook').genes), 'XDG_CACHE_HOME' in os.environ)"
    )
    environment = process_environment(HOME=str(tmp_path / "in the way"))
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "137 False\n", done.stderr
    assert "cobra's folder for its cache cannot be made, and is not needed: [Errno 20] Not a directory" in done.stderr


WRITERS = {
    "xml": cobra.io.write_sbml_model,
    "sbml": cobra.io.write_sbml_model,
    "json": cobra.io.save_json_model,
    "yml": cobra.io.save_yaml_model,
    "yaml": cobra.io.save_yaml_model,
    "mat": cobra.io.save_matlab_model,
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("extension", WRITERS)
def test_every_format_gives_the_same_metabolism(toy: cobra.Model, tmp_path: Path, extension: str, zipped: bool) -> None:
    path = tmp_path / f"toy.v2.{extension}"
    WRITERS[extension](toy, str(path))
    if zipped:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path = path.with_name(path.name + ".gz")
    expected, read = Metabolism.from_model(toy), Metabolism.read(str(path))
    assert read.genes == expected.genes
    assert read.reactions == expected.reactions
    assert read.metabolites == expected.metabolites
    assert read.catalyses.tolist() == expected.catalyses.tolist()
    edges = [sorted(zip(*m.converts.tolist(), m.stoichiometry.tolist(), strict=True)) for m in (read, expected)]
    assert edges[0] == edges[1]


def test_cobra_stays_quiet_and_keeps_its_log_level(capfd: pytest.CaptureFixture[str]) -> None:
    level = logging.getLogger("cobra").level
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_model("mini")
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("cobra").level == level


def test_unknown_name_lists_the_shipped_models() -> None:
    message = r"no metabolic model is called 'iJR904'\n.*yeast-GEM_9.0.2.*textbook, iJO1366, salmonella, mini"
    with pytest.raises(GraphError, match=message):
        read_model("iJR904")


@pytest.mark.parametrize("extension", WRITERS)
def test_truncated_files(toy: cobra.Model, tmp_path: Path, extension: str) -> None:
    path = tmp_path / f"toy.{extension}"
    WRITERS[extension](toy, str(path))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(GraphError, match=rf"'toy.{extension}' cannot be parsed as[\s\S]*check that the file is whole"):
        read_model(str(path))
    packed = tmp_path / f"half.{extension}.gz"
    packed.write_bytes(gzip.compress(content)[: len(content) // 9])
    with pytest.raises(GraphError, match="' is not a whole gzip file"):
        read_model(str(packed))


@pytest.mark.parametrize(("levels", "is_read"), [(40, True), (400, False)])
def test_a_rule_that_is_nested_deep_is_read_or_refused_at_once(saved: Saved, levels: int, is_read: bool) -> None:
    # cobra alone would visit more operands than there are seconds in a year.
    rule = "g1"
    for level in range(levels):
        rule = f"(g2 {'and' if level % 2 else 'or'} {rule})"
    if is_read:
        assert rule_of(saved(rule))[1] == ["g1", "g2"]
    else:
        with pytest.raises(GraphError, match="1 gene rules cannot be parsed"):
            read_model(saved(rule))


GENES = Vocabulary.of(["b0001", "b0002", "b0003", "YDL133C", "YDL133C-A", "ADE5,7", "1017", "1018", "17", "18"])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["b0001,b0002", "b0002,b0003"], "in place of ','"),
        (["b0001 b0002"], "in place of ' '"),
        (["B0001/b0003"], "in place of '/'"),
        (["511145.b0001", "511145.b0002"], "every name begins with '511145.': set `net.strip_prefix: \"511145.\"`"),
        (["G_B0001"], "begins with 'G_'"),
        (["b0001_del", "B0003_del"], "every name ends with '_del': write the names without it"),
        (["hsa:1017", "hsa:1018"], "begins with 'hsa:'"),
        (["b00011", "xb0002"], ""),
        (["eco:b0001", "other"], ""),
        ([], ""),
    ],
)
def test_ways_out_for_names_that_never_meet(names: list[str], said: str) -> None:
    found = way_out(names, GENES, "net.strip_prefix")
    assert said in found
    assert bool(said) == bool(found)
    assert "'G_': write the names without it" in way_out(["G_B0001"], GENES)


@pytest.mark.parametrize(
    ("pairs", "genes", "said"),
    [
        ("g1 g3", 2, ""),
        ("G1 G3", 2, ""),
        ("g1 g3\n- g1\nN/A g3", 2, "network 'net': 2 rows left out, because a gene has no name in them"),
        ("9.g1 9.g3", 4, "none of its 2 names are genes of the model or of other networks (9.g1, 9.g3; "),
        ("9.g1 9.g3", 4, 'set `cell.networks.net.strip_prefix: "9."`'),
        ("x1 x2\nx3 x4", 6, "give other names of genes in `cell.aliases`"),
    ],
)
def test_networks_meet_the_genes_of_the_model(
    saved: Saved, tmp_path: Path, caplog: pytest.LogCaptureFixture, pairs: str, genes: int, said: str
) -> None:
    (tmp_path / "net.txt").write_text("a b\n" + pairs + "\n")
    network = NetworkConfig(path=str(tmp_path / "net.txt"), columns=["a", "b"])
    with caplog.at_level(logging.WARNING):
        cell = build_cell(CellConfig(model=saved(), networks={"net": network}))
    assert len(cell.genes) == genes
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)
