"""Write explanations to files: tables, a network that Cytoscape reads, and values of reactions for a map of Escher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.errors import ConfigError
from dglcell.explanations.network import network_of
from dglcell.explanations.tables import ENDS, OTHERS, Explanations
from dglcell.explanations.text import strain_name
from dglcell.files.atomic import atomic_file, no_formula
from dglcell.graph.metabolism import model_reaction
from dglcell.graph.schema import REACTION
from dglcell.report.network import Network

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".html", ".csv", ".parquet", ".json")
"""A page with drawings, one long table as text or Parquet, and networks for Cytoscape."""

TEXTS = ("genes", "phenotype", "table", "part", "relation", "node_type", "node", "name")
"""These columns of the long table hold text."""

STRAINS = ("predicted", "wild_type", "expected", "change", "rest")
"""These columns of the table of strains are rows of the long table."""

FORMAT = "dglcell explanations"


def write(found: Explanations, path: Path) -> None:
    """Write explanations in the format that the suffix says; the file appears whole or not at all."""
    if path.suffix == ".html":
        from dglcell.explanations.page import write_explanations

        return write_explanations(found, path)
    with atomic_file(path) as partial:
        if path.suffix == ".json":
            partial.write_text(json.dumps(as_json(found), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        elif path.suffix == ".parquet":
            long_table(found).to_parquet(partial, index=False)
        else:
            table = long_table(found)
            for name in table.columns.intersection([*TEXTS, *ENDS]):
                table[name] = table[name].map(no_formula)
            table.to_csv(partial, index=False, lineterminator="\n")


def long_table(found: Explanations) -> pd.DataFrame:
    """Return all tables below each other: ``table`` names the one that a row is from, and other cells stay empty.

    Columns are strain, genes, phenotype, table, layer, part, relation, node_type, node, name, share, wild_type, flux.
    Rows of ``strains`` have the predictions as parts: predicted, wild_type, change and rest, and expected in an
    interaction. Those of ``balance`` alone have the last two, and those of ``subsets`` have predictions as shares.
    Where edges are explained, there are also the columns of their ends: type, identifier and name of source and target.
    """
    import pandas as pd

    values = [name for name in STRAINS if name in found.strains]
    of_strains = found.strains.melt(["strain", "genes", "phenotype"], values, "part", "share")
    genes = found.strains.drop_duplicates("strain").set_index("strain")["genes"]
    pieces = [of_strains.assign(table="strains")]
    for name in ("parts", "layers", "removed", "nodes", "edges"):
        if name in found.tables:
            table = found.tables[name]
            pieces.append(table.assign(table=name, genes=table["strain"].map(genes)))
    balance = found.balance.rename(columns={"reaction": "node"}).assign(table="balance", node_type=REACTION)
    pieces.append(balance.assign(genes=balance["strain"].map(genes)))
    if found.subsets is not None:
        pieces.append(found.subsets.rename(columns={"predicted": "share"}).assign(table="subsets", part="predicted"))
    whole = pd.concat([piece for piece in pieces if len(piece)], ignore_index=True)
    texts = [*TEXTS, *(ENDS if found.edges is not None else ())]
    whole = whole.reindex(columns=["strain", *texts[:3], "layer", *texts[3:], "share", "wild_type", "flux"])
    whole["layer"] = whole["layer"].astype("Int64")
    for name in texts:
        whole[name] = whole[name].fillna("")
    return whole.sort_values(["strain", "phenotype"], kind="stable", ignore_index=True)


def as_json(found: Explanations) -> dict[str, Any]:
    """Return explanations as plain containers, with a network of Cytoscape for each strain and phenotype."""
    strains = []
    for row in found.strains.to_dict("records"):
        network = network_of(found, row["strain"], row["phenotype"])
        parts = found.of("parts", row["strain"], row["phenotype"])
        shares = dict(zip(parts["part"], parts["share"], strict=True))
        title = strain_name(row["genes"], found)
        described = {**row, "title": title, "parts": shares, "carried": network.carried}
        if found.subsets is not None:
            subsets = found.subsets[found.subsets["strain"] == row["strain"]]
            subsets = subsets[subsets["phenotype"] == row["phenotype"]]
            described["subsets"] = subsets[["genes", "predicted"]].to_dict("records")
        if found.edges is not None:
            edges = found.of("edges", row["strain"], row["phenotype"])
            described["edges"] = edges.drop(columns=["strain", "phenotype"]).to_dict("records")
        strains.append({**described, "elements": cytoscape(network)})
    return {"format": FORMAT, "strains": strains}


def cytoscape(network: Network) -> dict[str, Any]:
    """Return a network as ``elements`` of Cytoscape's JSON."""
    nodes = [
        {
            "data": {
                "id": node.key,
                "label": node.label,
                "node_type": node.node_type,
                "share": node.share,
                "missing": node.missing,
            }
        }
        for node in network.nodes
    ]
    edges = [
        {"data": {"id": f"e{number}", "source": source, "target": target, "relation": relation}}
        for number, (source, target, relation) in enumerate(network.edges)
    ]
    return {"nodes": nodes, "edges": edges}


def reaction_shares(found: Explanations, strain: int, phenotype: str) -> dict[str, float]:
    """Return reaction of the metabolic model → its share, which a map of Escher reads as reaction data.

    A reaction has the sum of the shares of its nodes, in the last layer in which reactions have any, and of its share
    of the flux balance.
    """
    nodes = found.of("nodes", strain, phenotype)
    nodes = nodes[nodes["node_type"] == REACTION]
    last = nodes[nodes["layer"] == nodes["layer"].max()]
    balance = found.of("balance", strain, phenotype)
    balance = balance[(balance["reaction"] != OTHERS) & (balance["share"] != 0)]
    shares: dict[str, float] = {}
    for names, values in ((last["node"].map(model_reaction), last["share"]), (balance["reaction"], balance["share"])):
        for name, share in zip(names, values, strict=True):
            shares[str(name)] = shares.get(str(name), 0.0) + float(share)
    return shares


def write_escher(found: Explanations, path: Path) -> None:
    """Write the shares of reactions of one strain and phenotype, as reaction data for a map of Escher.

    Raises:
        ConfigError: there are several strains or phenotypes, or no reaction has a share.
    """
    if len(found.strains) != 1:
        raise ConfigError(
            "a map of Escher shows one strain",
            got=f"{len(found.strains)} strains and phenotypes",
            expected="one strain, and --phenotype where the model predicts several",
        )
    row = found.strains.iloc[0]
    shares = reaction_shares(found, int(row["strain"]), str(row["phenotype"]))
    if not shares:
        raise ConfigError(
            "no reaction has a share in this change",
            got=f"strain {row['genes'] or 'without genes'}",
            expected="a model that reads reactions, and a strain that differs from the wild type",
            do="leave --escher out",
        )
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(shares, indent=1) + "\n", encoding="utf-8")
