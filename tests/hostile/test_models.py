"""Metabolic models: SBML, JSON, YAML and MATLAB files that are damaged, or say what no reaction can do."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.hostile.inputs import EXPERIMENT, Input, cases

DEEP = 5_000
INF = float("inf")


def model(**changes: Any) -> dict[str, Any]:
    """Return a model of one reaction as cobra writes it in JSON; ``changes`` are of the reaction."""
    reaction = {
        "id": "R1",
        "name": "",
        "metabolites": {"a_c": -1.0, "b_c": 1.0},
        "lower_bound": 0.0,
        "upper_bound": 1000.0,
        "gene_reaction_rule": "g1 and g2",
    }
    return {
        "metabolites": [{"id": name, "name": name, "compartment": "c"} for name in ("a_c", "b_c")],
        "reactions": [{**reaction, **changes}],
        "genes": [{"id": name, "name": name} for name in ("g1", "g2")],
        "id": "small",
        "compartments": {"c": "cytosol"},
        "version": "1",
    }


def nested_rule(depth: int) -> str:
    """Return a rule in which every other operator is nested in the one before."""
    return "".join(f"(g1 {'and' if n % 2 else 'or'} " for n in range(depth)) + "g2" + ")" * depth


def sbml(reaction: str = "", before: str = "", bound: str = "1000", coefficient: str = "1") -> str:
    """Return a model of one reaction in SBML; ``reaction`` is put into it."""
    return f"""<?xml version="1.0" encoding="UTF-8"?>
{before}<sbml xmlns="http://www.sbml.org/sbml/level3/version1/core" level="3" version="1"
 xmlns:fbc="http://www.sbml.org/sbml/level3/version1/fbc/version2" fbc:required="false">
<model id="small" fbc:strict="true">
<listOfCompartments><compartment id="c" constant="true"/></listOfCompartments>
<listOfSpecies>
<species id="M_a_c" compartment="c" hasOnlySubstanceUnits="false" boundaryCondition="false" constant="false"/>
</listOfSpecies>
<listOfParameters><parameter id="up" value="{bound}" constant="true"/><parameter id="low" value="0" constant="true"/>
</listOfParameters>
<listOfReactions>
<reaction id="R_R1" reversible="false" fast="false" fbc:lowerFluxBound="low" fbc:upperFluxBound="up">
<listOfReactants><speciesReference species="M_a_c" stoichiometry="{coefficient}" constant="true"/></listOfReactants>
{reaction}
</reaction></listOfReactions>
<fbc:listOfGeneProducts><fbc:geneProduct fbc:id="G_g1" fbc:label="g1"/></fbc:listOfGeneProducts>
</model></sbml>
"""


LAUGHS = (
    "<!DOCTYPE x [<!ENTITY a0 'ha'>" + "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 12)) + "]>\n"
)

JSON: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "model.json"),
    "a number": ("3", "model.json"),
    "a list": ("[]", "model.json"),
    "null": ("null", "model.json"),
    "nothing in it": ("{}", "model.json"),
    "torn": (json.dumps(model())[:-30], "model.json"),
    "not utf-8": (b"\xff\xfe{}", "model.json"),
    "deep lists": ("[" * DEEP + "]" * DEEP, "model.json"),
    "deep notes": (json.dumps(model())[:-1] + ', "notes": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}", "model.json"),
    "unclosed lists": ("[" * 100_000, "model.json"),
    "a number of ten thousand digits": (json.dumps(model()).replace("1000.0", "9" * 10_000), "model.json"),
    "reactions that are a number": (json.dumps({**model(), "reactions": 3}), "model.json"),
    "reactions without a name": (json.dumps({**model(), "reactions": [{}]}), "model.json"),
    "no reactions": (json.dumps({**model(), "reactions": []}), "reactions"),
    "no genes": (json.dumps({**model(gene_reaction_rule=""), "genes": []}), "genes"),
    "metabolites that are not listed": (json.dumps({**model(), "metabolites": []}), "model.json"),
    "metabolites that are a list": (json.dumps(model(metabolites=["a_c"])), "model.json"),
    "the same reaction twice": (json.dumps({**model(), "reactions": model()["reactions"] * 2}), "model.json"),
    "stoichiometry of nan": (json.dumps(model(metabolites={"a_c": float("nan")})), "R1"),
    "stoichiometry of inf": (json.dumps(model(metabolites={"a_c": float("inf")})), "R1"),
    "stoichiometry beyond float32": (json.dumps(model(metabolites={"a_c": 1e39})), "R1"),
    "stoichiometry that is text": (json.dumps(model(metabolites={"a_c": "one"})), "model.json"),
    "stoichiometry that is a list": (json.dumps(model(metabolites={"a_c": [1]})), "model.json"),
    "stoichiometry that is null": (json.dumps(model(metabolites={"a_c": None})), "model.json"),
    "a lower bound of nan": (json.dumps(model(lower_bound=float("nan"))), "R1"),
    "an upper bound of nan": (json.dumps(model(upper_bound=float("nan"))), "R1"),
    "a lower bound of plus infinity": (json.dumps(model(lower_bound=INF, upper_bound=INF)), "model.json"),
    "bounds that are text": (json.dumps(model(upper_bound="high")), "model.json"),
    "bounds that are null": (json.dumps(model(upper_bound=None)), "model.json"),
    "bounds the wrong way round": (json.dumps(model(lower_bound=5, upper_bound=-5)), "model.json"),
    "a rule nested deep": (json.dumps(model(gene_reaction_rule=nested_rule(DEEP))), "model.json"),
    "a rule nested forty deep": (json.dumps(model(gene_reaction_rule=nested_rule(40))), "nested too deep"),
    "a rule nested hundreds deep": (json.dumps(model(gene_reaction_rule=nested_rule(190))), "model.json"),
    "a rule of open brackets": (json.dumps(model(gene_reaction_rule="(" * DEEP)), "gene rule"),
    "a rule of nots": (json.dumps(model(gene_reaction_rule="not " * DEEP + "g1")), "model.json"),
    "a rule with a call": (json.dumps(model(gene_reaction_rule="__import__('os').system('touch x')")), "model.json"),
    "a rule that is a number": (json.dumps(model(gene_reaction_rule=5)), "model.json"),
    "a rule that is a list": (json.dumps(model(gene_reaction_rule=["g1"])), "model.json"),
    "a rule with nul": (json.dumps(model(gene_reaction_rule="g1 and \0")), "gene rule"),
    "a rule that multiplies": (
        json.dumps(
            model(
                gene_reaction_rule=" and ".join(
                    "(" + " or ".join(f"g{n}_{k}" for k in range(10)) + ")" for n in range(12)
                )
            )
        ),
        "R1",
    ),
    "a name with a control character": (json.dumps(model(id="R\n1")), "R"),
}

OTHERS: dict[str, tuple[str, str | bytes, str]] = {
    # name: (file, content, what the message names)
    "sbml that is empty": ("model.xml", b"", "model.xml"),
    "sbml that is text": ("model.xml", "hello", "model.xml"),
    "sbml that is html": ("model.xml", "<html><body/></html>", "model.xml"),
    "sbml that is torn": ("model.xml", sbml()[:400], "model.xml"),
    "sbml without a model": ("model.xml", '<sbml xmlns="http://www.sbml.org/sbml/level3/version1/core"/>', "model.xml"),
    "sbml with nul": ("model.xml", sbml().replace("small", "sm\0all"), "model.xml"),
    "sbml that is not utf-8": ("model.xml", b"\xff\xfe\x00", "model.xml"),
    "sbml that laughs": ("model.xml", sbml(before=LAUGHS).replace('id="small"', 'id="&a11;"'), "model.xml"),
    "sbml that reads a file": (
        "model.xml",
        sbml(before="<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>\n").replace(
            'id="small"', 'id="small" name="&a;"'
        ),
        "model.xml",
    ),
    "sbml with a rule nested deep": (
        "model.xml",
        sbml(
            "<fbc:geneProductAssociation>"
            + "<fbc:and><fbc:or>" * DEEP
            + '<fbc:geneProductRef fbc:geneProduct="G_g1"/>'
            + "</fbc:or></fbc:and>" * DEEP
            + "</fbc:geneProductAssociation>"
        ),
        "model.xml",
    ),
    "sbml with a bound of nan": ("model.xml", sbml(bound="NaN"), "model.xml"),
    "sbml with stoichiometry of inf": ("model.xml", sbml(coefficient="INF"), "R1"),
    "sbml with stoichiometry of nan": ("model.xml", sbml(coefficient="NaN"), "R1"),
    "yaml that is empty": ("model.yml", b"", "model.yml"),
    "yaml that is a number": ("model.yml", "3\n", "model.yml"),
    "yaml that is open": ("model.yml", "a: [\n", "model.yml"),
    "yaml nested deep": ("model.yml", "[" * 600 + "]" * 600, "model.yml"),
    "yaml that is an object": ("model.yml", "!!python/object/apply:os.system ['touch x']\n", "model.yml"),
    "matlab that is empty": ("model.mat", b"", "model.mat"),
    "matlab that is text": ("model.mat", "hello", "model.mat"),
    "matlab that is bytes": ("model.mat", bytes(range(256)) * 4, "model.mat"),
    "matlab of version 7.3": ("model.mat", b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(400), "model.mat"),
    "torn gzip": ("model.json.gz", gzip.compress(json.dumps(model()).encode())[:-5], "model.json.gz"),
    "text called gzip": ("model.json.gz", json.dumps(model()), "model.json.gz"),
    "no extension": ("model", json.dumps(model()), "model"),
    "another extension": ("model.exe", b"MZ", ".exe"),
}


def files() -> Iterator[Input]:
    """Yield model files."""
    every = {name: ("model.json", content, says) for name, (content, says) in JSON.items()} | OTHERS
    for name, (file, content, says) in every.items():
        config = f"cell: {{model: ./{file}}}\n"
        yield Input(name, ("graph", "describe", EXPERIMENT), says, {EXPERIMENT: config, file: content})


@cases(files())
def test_model_files(hostile: Input, driven: Callable[[Input], None]) -> None:
    driven(hostile)
