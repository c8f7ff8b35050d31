"""Read gene–protein–reaction rules as their authors mean them, where cobra alone would lose or misread them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dglcell.errors import GraphError, listing

if TYPE_CHECKING:
    from cobra import Model
    from cobra.core.gene import GPR

NO_GENE = re.compile(
    r"(g_|gene_)?(s_?0001|spont\w*|unknown\w*|unassigned|orphan\w*|gap_?fill\w*|no_?gene|non_?enzymatic|true|none|null)"
    r"([._-]\d+)?",
    re.IGNORECASE,
)
"""Models write these where a reaction needs no gene, or where nobody knows which."""

BARRED = re.compile(
    r"(?<![\w.])(?:fig\|[\w.:-]+|(?:bbm|bbs|dbj|emb|gb|gi|gim|gnl|lcl|pdb|pir|prf|ref|sp|tpd|tpe|tpg|tr)(?:\|[\w.:-]*)+)"
)
"""Names with bars, by RAST and by NCBI's tags of databases; cobra reads any other ``|`` as "or"."""

BAR = "__DGLCELL_BAR__"

MOST_NESTED = 16
"""Different operators inside each other in a gene rule; published models have three."""

_ALWAYS = ast.Constant(True)


def is_no_gene(name: str) -> bool:
    """Return whether a name in gene rules stands for no gene, as ``s0001`` and ``SPONT`` do."""
    return NO_GENE.fullmatch(name) is not None


@contextmanager
def whole_rules() -> Iterator[None]:
    """Let cobra keep bars in names, keep on reading after a faulty rule, and visit every operand of a rule once.

    A rule that cannot be read becomes an empty one whose ``fault`` is its text.
    """
    from cobra.core.gene import GPR, GPRWalker

    visit, read = GPRWalker.visit_BoolOp, GPR.from_string

    def visit_once(self: GPRWalker, node: ast.BoolOp) -> None:
        for operand in node.values:
            self.visit(operand)

    def read_whole(cls: type[GPR], text: object) -> GPR:
        written = str(text or "").replace("()", "").strip()
        try:
            rule = read(BARRED.sub(lambda name: name[0].replace("|", BAR), written))
        except (TypeError, RecursionError, MemoryError):
            rule = GPR()
        if rule.body is not None:
            rule.body = _joined(rule.body, frozenset())
            rule.update_genes()
        elif written:
            rule.fault = written
        return rule

    GPRWalker.visit_BoolOp, GPR.from_string = visit_once, classmethod(read_whole)
    try:
        yield
    finally:
        GPRWalker.visit_BoolOp, GPR.from_string = visit, read


def mend_rules(model: Model, where: str, *, keep: bool = False) -> list[str]:
    """Join equal operators inside each other, and take names that are no genes out of a model's rules.

    A reaction that such a name alone would keep is there in every strain.

    Args:
        model: model that was read within `whole_rules`.
        where: name of the file, for messages.
        keep: whether names that are no genes stay genes.

    Returns:
        The names that are no genes.

    Raises:
        GraphError: rules cannot be read, are nested too deep, or lose names that have bars.
    """
    faults = {r.id: fault for r in model.reactions if (fault := getattr(r.gpr, "fault", None)) is not None}
    if faults:
        raise GraphError(
            f"metabolic model '{where}': {len(faults):,} gene rules cannot be parsed",
            got=listing((f"reaction {name}: {text}" for name, text in faults.items()), limit=3),
            expected="gene names joined by 'and', 'or' and parentheses",
            do="mend these rules in the model file",
        )
    found = [] if keep else sorted(gene.id for gene in model.genes if is_no_gene(gene.id))
    for reaction in model.reactions:
        _mend(reaction, frozenset(found))
    for name in found:
        model.genes.remove(name)
    deep = [reaction.id for reaction in model.reactions if _depth(reaction.gpr.body) > MOST_NESTED]
    if deep:
        raise GraphError(
            f"metabolic model '{where}': {len(deep):,} gene rules are nested too deep",
            got=f"reactions {listing(deep, limit=3)}",
            expected=f"at most {MOST_NESTED} operators inside each other",
            do="simplify these rules in the model file",
        )
    torn = [gene.id for gene in model.genes if "|" in gene.id and not gene.reactions]
    if torn:
        parts = set(re.split(r"\s*\|\s*", torn[0]))
        torn_in = [r.id for r in model.reactions if parts <= {gene.id for gene in r.genes}]
        raise GraphError(
            f"metabolic model '{where}': {len(torn):,} names of genes have a '|', which means 'or' in gene rules",
            got=listing(torn, limit=3) + (f"; the rule of reaction {torn_in[0]} falls apart" if torn_in else ""),
            do="write another sign in these names, in the list of genes and in the rules of the model file",
        )
    return found


def _mend(reaction: Any, no_genes: frozenset[str]) -> None:
    before = reaction.gpr.body
    if before is None:
        return
    after = _joined(before, no_genes)
    if after is _ALWAYS or ast.dump(after) != ast.dump(before):
        rule = type(reaction.gpr)()
        rule.body = None if after is _ALWAYS else after
        rule.update_genes()
        reaction.gpr = rule


def _joined(node: ast.expr, no_genes: frozenset[str]) -> ast.expr:
    """Return a rule without operators inside equal ones; `_ALWAYS` where it holds whatever genes are deleted."""
    if isinstance(node, ast.Name):
        return _ALWAYS if node.id in no_genes else ast.Name(node.id.replace(BAR, "|"), ast.Load())
    if not isinstance(node, ast.BoolOp):
        return node
    operands: list[ast.expr] = []
    for operand in (_joined(one, no_genes) for one in node.values):
        if isinstance(operand, ast.BoolOp) and type(operand.op) is type(node.op):
            operands += operand.values
        else:
            operands.append(operand)
    if isinstance(node.op, ast.And):
        operands = [operand for operand in operands if operand is not _ALWAYS] or [_ALWAYS]
    elif _ALWAYS in operands:
        return _ALWAYS
    return operands[0] if len(operands) == 1 else ast.BoolOp(node.op, operands)


def _depth(body: ast.AST | None) -> int:
    depth, level = 0, [] if body is None else [body]
    while level := [node for node in level if isinstance(node, ast.BoolOp)]:
        depth += 1
        level = [operand for node in level for operand in node.values]
    return depth
