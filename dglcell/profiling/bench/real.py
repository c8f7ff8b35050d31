"""A cell graph of yeast from public files: nine gene–gene networks, and the metabolic model where asked for."""

from __future__ import annotations

from dglcell.graph.cell import CellConfig, build_cell
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.network_config import NetworkConfig

MODEL = "yeast-GEM_9.0.2"

# The nine largest of sixteen, of which YEASTRACT's stands for regulation instead of the smaller of STRING's actions.
# STRING's channels come from its high-confidence pairs alone (combined score of 900 or more), so that these are
# smaller networks than the published ones with the same names.
NETWORKS = {
    "string": NetworkConfig(source="string11_5_high_confidence", channels=["coexpression", "experimental", "database"]),
    "string_physical": NetworkConfig(source="string12_0_physical"),
    "action": NetworkConfig(source="string11_0_actions"),
    "physical": NetworkConfig(source="biogrid_physical_3_4_156"),
    "regulatory": NetworkConfig(source="yeastract"),
}
LEFT_OUT = ("action_activation", "action_expression", "action_inhibition", "action_ptmod")


def real_cell(raw: str | None, *, symmetrise: bool = False, metabolism: bool = False) -> CellGraph:
    """The nine networks over the union of their genes, each with a self-loop per gene.

    STRING v11.5 (coexpression, experimental, database), STRING v12.0 physical, STRING v11.0 actions (binding,
    catalysis, reaction), BioGRID physical and YEASTRACT regulation: about 0.65 million stored edges, a quarter of the
    published cell graph, whose files are not all to be had.

    Args:
        raw: the raw folder; see `find_raw`.
        symmetrise: store undirected pairs in both directions; else once.
        metabolism: add yeast-GEM's reactions and metabolites.

    Raises:
        DataError: a file is not there.
    """
    config = CellConfig(
        model=MODEL if metabolism else None,
        metabolism=metabolism,
        networks=NETWORKS,
        symmetrise=symmetrise,
        self_loops=True,
    )
    whole = build_cell(config, raw)
    kept = [relation for relation in whole.relations if relation[1] not in LEFT_OUT]
    return CellGraph.assemble(whole.vocabularies, {r: whole.edges(r) for r in kept}, whole.provenance)
