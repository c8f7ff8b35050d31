"""Gene–protein–reaction rules: from a Boolean rule to the enzyme complexes that satisfy it.

A rule is an AND/OR expression over genes. Its disjunctive normal form is a list of AND-terms; each is
one enzyme complex, and the reaction works as long as one complex has all its genes. cobra parses the
rule, so nested rules such as ``(A or B) and C`` come out right, which splitting the text cannot do.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from dglcell.errors import GraphError

if TYPE_CHECKING:
    from cobra.core.gene import GPR

Complex = frozenset[str]
"""The genes of one enzyme complex: all of them are needed."""

MAX_COMPLEXES = 10_000
"""Largest number of complexes one rule may expand to; curated models stay below a few hundred."""


def enzyme_complexes(
    rule: GPR, *, absorb: bool = False, limit: int = MAX_COMPLEXES, where: str = "rule"
) -> list[Complex]:
    """The enzyme complexes of a rule, without duplicates, in a fixed order.

    By default a complex that contains another one is kept: curators write ``A or (A and B)`` when the
    enzyme works with and without its regulatory subunit B, and dropping the larger form would cut B off
    from the reaction. ``absorb=True`` drops it (``A or (A and B)`` → ``A``). Both have the rule's truth
    value for every set of deleted genes. yeast-GEM 9.0.2 has 7,122 reaction nodes (4,881 with genes)
    with all complexes and 7,097 (4,856) with absorption: the rules of 16 reactions hold larger forms.

    Args:
        rule: rule parsed by cobra.
        absorb: drop every complex that contains another one.
        limit: largest number of complexes allowed.
        where: reaction name, for the message.

    Returns:
        Complexes ordered by their sorted genes; empty if the rule is empty.

    Raises:
        GraphError: the expansion exceeds ``limit``, or the rule uses something other than AND, OR and genes.
    """
    if not rule.body:
        return []
    terms = _expand(rule.body, limit, where)
    if absorb:
        terms = {term for term in terms if not any(other < term for other in terms)}
    return sorted(terms, key=sorted)


def _expand(node: object, limit: int, where: str) -> set[Complex]:
    if isinstance(node, ast.Name):
        return {frozenset((node.id,))}
    if not isinstance(node, ast.BoolOp):
        raise GraphError(
            f"{where}: the gene rule holds something other than AND, OR and gene names",
            got=type(node).__name__,
            do="mend the rule in the model file",
        )
    parts = [_expand(value, limit, where) for value in node.values]
    if isinstance(node.op, ast.Or):
        terms = set().union(*parts)
        _check_size(len(terms), limit, where)
        return terms
    terms = parts[0]
    for part in parts[1:]:
        _check_size(len(terms) * len(part), limit, where)
        terms = {left | right for left in terms for right in part}
    return terms


def _check_size(size: int, limit: int, where: str) -> None:
    if size > limit:
        raise GraphError(
            f"{where}: the gene rule expands to too many enzyme complexes",
            got=f"{size:,} or fewer",
            expected=f"at most {limit:,}",
            do="simplify the rule in the model file; AND over long OR-lists multiplies their lengths",
        )
