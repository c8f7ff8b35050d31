"""Small models and tables for the graph tests."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import cobra
import pytest

from dglcell.graph.metabolism import Metabolism

Write = Callable[[str, str], str]


@pytest.fixture
def toy() -> cobra.Model:
    """Nested rules, both directions, a reaction that only runs backward, a blocked one, and currency (ATP)."""
    model = cobra.Model("toy")
    a, b, c, atp = (cobra.Metabolite(f"{name}_c", name=name, compartment="c") for name in ("a", "b", "c", "atp"))
    specification = [
        ("R1", {a: -1, atp: -2, b: 1}, (0, 10), "(g1 and g2) or g3"),
        ("R2", {b: -1, atp: 1, c: 3}, (-10, 10), "(g4 or g5) and g6"),
        ("EX", {c: -1}, (-5, 0), ""),
        ("OFF", {c: -1, a: 1}, (0, 0), "g7"),
    ]
    for name, metabolites, bounds, rule in specification:
        reaction = cobra.Reaction(name, lower_bound=bounds[0], upper_bound=bounds[1])
        model.add_reactions([reaction])
        reaction.add_metabolites(metabolites)
        reaction.gene_reaction_rule = rule
    return model


@pytest.fixture(scope="session")
def core() -> cobra.Model:
    """Return E. coli core; whoever changes it does so within ``with core:``."""
    return cobra.io.load_model("textbook")


@pytest.fixture(scope="session")
def textbook() -> Metabolism:
    return Metabolism.read("textbook")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a text file (gzipped if its name says so) and give its path."""

    def write_text(name: str, text: str) -> str:
        path = tmp_path / name
        content = text.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return str(path)

    return write_text
