"""Draw the network that carries most of a predicted change as SVG, in columns of node types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dglcell.graph.schema import GENE, NODE_TYPES
from dglcell.plots.style import BLUE, VERMILION
from dglcell.report.page import number

WIDTH, ROW, TOP, MARGIN = 440, 25, 46, 26
"""Sizes in units of the drawing, which a phone shows at about four fifths."""

NAME, LETTER, RING = 14, 6.8, 11
"""A name begins so far behind its node, a letter is about so wide, and a ring has this radius."""

LONGEST = 13
"""Longer names are cut."""

NUMBERED = re.compile(r"[A-Za-z]*_?\d{3,}\w*")
"""Such identifiers, as r_0300 is, say nothing to a reader."""

NO_SHARE = "no share of its own"
"""This is said of genes that a strain lacks where the model reads no gene."""

SWEEPS = 8
"""The order within columns is improved so many times."""


@dataclass(frozen=True)
class Node:
    """Describe a node of a network.

    Attributes:
        key: identifies it: node type and node.
        share: its largest share in any layer, in the unit of the phenotype; 0 of a gene that the model does not read.
        missing: whether the strain lacks it, or has less of it.
    """

    key: str
    node_type: str
    label: str
    share: float
    missing: bool


@dataclass(frozen=True)
class Network:
    """Hold the nodes that carry most of a change, with the edges among them.

    Attributes:
        nodes: largest shares first.
        edges: (key of the source, key of the target, relation); relations in both directions are given once.
        carried: which part of the absolute shares these nodes carry, in the layer where it is least.
    """

    nodes: list[Node]
    edges: list[tuple[str, str, str]]
    carried: float


STYLE = f"""
.explanation {{ color: #1d2126; --soft: #59626c; --edge: #9aa3ab; --lowers: {VERMILION}; --raises: {BLUE}; }}
@media (prefers-color-scheme: dark) {{
  .explanation {{ color: #e7eaed; --soft: #a3acb5; --edge: #6b747c; --lowers: #ff8a4a; --raises: #6cb8ea; }}
}}
.explanation text {{ font: 11px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: currentColor; }}
.explanation .soft {{ fill: var(--soft); }}
.explanation .head {{ font-weight: 600; }}
.explanation path.edge {{ fill: none; stroke: var(--edge); stroke-width: 1; }}
.explanation .lowers {{ fill: var(--lowers); }}
.explanation .raises {{ fill: var(--raises); }}
.explanation .missing {{ fill: none; stroke: currentColor; stroke-width: 1.2; stroke-dasharray: 2.5 2; }}
"""


def network_of_elements(elements: Mapping[str, Any], carried: float) -> Network:
    """Return the network that Cytoscape's ``elements`` describe, as explanations are written with."""
    nodes = [node["data"] for node in elements["nodes"]]
    edges = [edge["data"] for edge in elements["edges"]]
    return Network(
        [Node(n["id"], n["node_type"], n["label"], float(n["share"]), n["missing"]) for n in nodes],
        [(edge["source"], edge["target"], edge["relation"]) for edge in edges],
        carried,
    )


def draw(network: Network, title: str) -> str:
    """Return the drawing of a network as an SVG element, which follows the colours of a dark page.

    A triangle points down where a node lowers the phenotype and up where it raises it; its area is its share. A dashed
    ring marks what the strain lacks.

    Args:
        title: what it shows, for people who hear it.
    """
    columns = _columns(network)
    places = _places(columns, network.edges)
    height = TOP + ROW * max((len(nodes) for _, nodes in columns), default=1)
    largest = max((abs(node.share) for node in network.nodes), default=0.0) or 1.0
    lines = [
        f'<svg class="explanation" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title, quote=True)}" style="max-width: {WIDTH * 1.6:.0f}px; width: 100%; height: auto">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    step = WIDTH / max(1, len(columns))
    for i, (heading, _) in enumerate(columns):
        lines.append(f'<text class="soft head" x="{i * step + 8:.0f}" y="16">{escape(heading)}</text>')
    ends = {
        node.key: places[node.key][0] + NAME + LETTER * len(f"{_name(node)} {_share(node)}") for node in network.nodes
    }
    lines += [_edge(places[u], places[v], ends[min((u, v), key=lambda key: places[key])]) for u, v, _ in network.edges]
    for node in network.nodes:
        lines += _mark(node, *places[node.key], largest)
    return "\n".join([*lines, "</svg>"])


def _columns(network: Network) -> list[tuple[str, list[Node]]]:
    """Return columns with headings: one for each node type; of a single type, what is missing and the rest."""
    types = [t for t in NODE_TYPES if any(node.node_type == t for node in network.nodes)]
    if len(types) > 1:
        return [(f"{t}s", [node for node in network.nodes if node.node_type == t]) for t in types]
    parts = [
        ("missing", [node for node in network.nodes if node.missing]),
        ("reached", [node for node in network.nodes if not node.missing]),
    ]
    return [part for part in parts if part[1]]


def _places(
    columns: Sequence[tuple[str, list[Node]]], edges: Sequence[tuple[str, str, str]]
) -> dict[str, tuple[float, float]]:
    """Return the place of each node, sorted by the mean height of its neighbours, so that few edges cross."""
    step = WIDTH / max(1, len(columns))
    neighbours: dict[str, list[str]] = {}
    for source, target, _ in edges:
        neighbours.setdefault(source, []).append(target)
        neighbours.setdefault(target, []).append(source)
    orders = [[node.key for node in nodes] for _, nodes in columns]
    tallest = max((len(order) for order in orders), default=1)

    def heights() -> dict[str, float]:
        return {key: (i + 0.5) * tallest / len(order) for order in orders for i, key in enumerate(order)}

    for _ in range(SWEEPS):
        for order in orders:
            height = heights()
            means = {
                key: sum(height[other] for other in neighbours.get(key, [key])) / len(neighbours.get(key, [key]))
                for key in order
            }
            order.sort(key=means.__getitem__)
    height = heights()
    return {
        key: (MARGIN + i * step, TOP - ROW / 2 + height[key] * ROW) for i, order in enumerate(orders) for key in order
    }


def _edge(source: tuple[float, float], target: tuple[float, float], end: float) -> str:
    """Draw an edge: a curve from the end of a name to the next column, or an arc to the left of one column."""
    (x, y), (u, v) = sorted((source, target))
    if x == u:
        begin, side = x - RING, x - min(MARGIN - 4, RING + abs(v - y) / 8)
        return (
            f'<path class="edge" d="M{begin:.0f} {y:.1f} C{side:.0f} {y:.1f} {side:.0f} {v:.1f} {begin:.0f} {v:.1f}"/>'
        )
    begin, finish = end + 3, u - 12
    middle = (begin + finish) / 2
    return (
        f'<path class="edge" d="M{begin:.0f} {y:.1f} C{middle:.0f} {y:.1f} {middle:.0f} {v:.1f} {finish:.0f} {v:.1f}"/>'
    )


def _name(node: Node) -> str:
    """Return what fits beside a node: its label, or else the identifier, if that is more than a number."""
    name, identifier = node.label, node.key.partition(" ")[2]
    if len(name) > LONGEST and node.node_type != GENE and NUMBERED.fullmatch(identifier):
        return f"{name[: LONGEST - 1].rstrip()}…"
    if len(name) > LONGEST and node.node_type != GENE:
        name = identifier
    return name if len(name) <= LONGEST else f"{name[:8]}…{name[-(LONGEST - 9) :]}"


def _share(node: Node) -> str:
    if not node.share:
        return ""
    return f"+{number(node.share, 2)}" if node.share > 0 else number(node.share, 2)


def _mark(node: Node, x: float, y: float, largest: float) -> list[str]:
    """Draw a node with its name and its share."""
    size = 3 + 6 * (abs(node.share) / largest) ** 0.5
    tip = size if node.share < 0 else -size
    kind = "lowers" if node.share < 0 else "raises"
    lines = [f"<g><title>{escape(f'{node.node_type} {node.label}: {_share(node) or NO_SHARE}')}</title>"]
    if node.share:
        lines.append(
            f'<path class="{kind}" d="M{x - size:.1f} {y - tip * 0.7:.1f} h{2 * size:.1f} L{x:.1f} {y + tip:.1f} z"/>'
        )
    if node.missing:
        lines.append(f'<circle class="missing" cx="{x:.1f}" cy="{y:.1f}" r="{RING}"/>')
    share = f'<tspan class="soft">{_share(node)}</tspan>'
    lines.append(f'<text x="{x + NAME:.0f}" y="{y + 4:.1f}">{escape(_name(node))} {share}</text></g>')
    return lines
