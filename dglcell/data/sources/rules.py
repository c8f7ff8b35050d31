"""Which reactions a gene set blocks: the gene–protein–reaction rules of a model, evaluated for many strains at once.

The parsed rules are evaluated as they stand, one array operation per AND or OR, so that nothing has to be expanded
into enzyme complexes; the truth values are the same.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

import cobra
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class KnockoutRules:
    """The distinct GPRs of a model.

    Reactions that share a rule are blocked together, so a strain's metabolism is determined by one bit per rule.

    Attributes:
        genes: sorted gene names; a gene set is rows of indices into them.
        rules: parsed rules, R of them.
        reactions: for each rule the indices of its reactions in the model.
    """

    genes: tuple[str, ...]
    rules: tuple[ast.expr, ...]
    reactions: tuple[NDArray[np.int64], ...]

    @classmethod
    def of(cls, model: cobra.Model) -> KnockoutRules:
        """The rules of a model, in the order of its reactions."""
        bodies: dict[str, ast.expr] = {}
        members: dict[str, list[int]] = {}
        for index, reaction in enumerate(model.reactions):
            body = reaction.gpr.body
            if body is None:
                continue
            text = ast.dump(body)
            bodies[text] = body
            members.setdefault(text, []).append(index)
        return cls(
            genes=tuple(sorted(gene.id for gene in model.genes)),
            rules=tuple(bodies.values()),
            reactions=tuple(np.array(indices, dtype=np.int64) for indices in members.values()),
        )

    @property
    def width(self) -> int:
        """Bytes of a packed row: one bit per rule."""
        return (len(self.rules) + 7) // 8

    def blocked(self, sets: NDArray[np.int32]) -> NDArray[np.uint8]:
        """Rules that are false once a strain's genes are deleted.

        Args:
            sets: [S, k] gene indices; k may be 0.

        Returns:
            [S, W] one bit per rule, packed along the second axis.
        """
        deleted_NS = np.zeros((len(self.genes), len(sets)), dtype=bool)
        for column in sets.T:
            deleted_NS[column, np.arange(len(sets))] = True
        rows = {name: deleted_NS[i] for i, name in enumerate(self.genes)}
        blocked_RS = np.zeros((len(self.rules), len(sets)), dtype=bool)
        for r, rule in enumerate(self.rules):
            blocked_RS[r] = _fails(rule, rows)
        return np.ascontiguousarray(np.packbits(blocked_RS, axis=0).T)

    def pack(self, active: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Rules with at least one active reaction: [number of reactions] bool → [W] packed bits."""
        return np.packbits(np.array([active[reactions].any() for reactions in self.reactions], dtype=bool))

    def reactions_of(self, packed: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Indices of the reactions whose rules are set in one packed row [W]."""
        chosen = np.flatnonzero(np.unpackbits(packed, count=len(self.rules)))
        return np.concatenate([self.reactions[r] for r in chosen]) if len(chosen) else np.zeros(0, dtype=np.int64)


def _fails(rule: ast.expr, deleted: dict[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """[S] whether the rule is false: a complex fails with any of its parts, alternatives fail together."""
    if isinstance(rule, ast.Name):
        return deleted[rule.id]
    if not isinstance(rule, ast.BoolOp):
        raise TypeError(f"unexpected node in a parsed GPR: {ast.dump(rule)}")
    combine = np.logical_or if isinstance(rule.op, ast.And) else np.logical_and
    return combine.reduce([_fails(part, deleted) for part in rule.values])
