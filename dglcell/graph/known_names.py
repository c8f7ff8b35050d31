"""Check how many names of one part (a network, a table, a metabolic model) are genes of the others, and say why not."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dglcell.checks import check_choice
from dglcell.errors import GraphError, listing
from dglcell.graph.vocabulary import LOOKED_AT, Vocabulary

log = logging.getLogger("dglcell")

UNKNOWN_POLICIES = ("refuse", "drop")

PLACEHOLDERS = frozenset(("-", "--", ".", "?", "n/a", "na", "nan", "none", "null"))
"""Tables write these, in any case, where they have no name."""

FEW = 0.1
"""Two parts whose smaller one shares less than this with the other one hardly meet."""

_PART = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")


def around_genes(names: Iterable[str], genes: Vocabulary) -> tuple[str, str] | None:
    """Return the text before and behind the gene that every name holds, of the first name whose text is not empty.

    The text before genes, or the one behind, is empty where it is not the same in all names; None where a name holds
    no known gene.
    """
    found = []
    for name in itertools.islice(names, LOOKED_AT):
        ends = [0, *(part.end() for part in _PART.finditer(name))]
        spans = sorted(itertools.combinations(ends, 2), key=lambda span: span[0] - span[1])
        held = next((span for span in spans if genes.find(name[slice(*span)]) in genes), None)
        if held is None:
            return None
        found.append((name[: held[0]], name[held[1] :]))
    if not found:
        return None
    before, behind = ({*texts} for texts in zip(*found, strict=True))
    return (before.pop() if len(before) == 1 else ""), (behind.pop() if len(behind) == 1 else "")


def way_out(names: Sequence[str], genes: Vocabulary, prefix_key: str = "") -> str:
    """Return what to do about names that are no genes, where they show what is wrong; empty where they do not.

    Args:
        names: the unknown names.
        genes: the known genes.
        prefix_key: key that takes the text before names away, if there is one.
    """
    if sign := genes.separator_in(names):
        return f"both genes of '{names[0]}' are known; genes are separated by `;`, so write it in place of '{sign}'"
    texts = around_genes(names, genes)
    if texts is None:
        return ""
    if texts[0] and not texts[1] and prefix_key:
        return f"every name begins with '{texts[0]}': set `{prefix_key}: \"{texts[0]}\"`"
    if any(texts):
        said = [f"{how} with '{text}'" for how, text in zip(("begins", "ends"), texts, strict=True) if text]
        return f"every name is a known gene's, and {' and '.join(said)}: write the names without it"
    return f"every name holds a known gene's with other text, as '{names[0]}' does: write the names without it"


def warn_of_strangers(where: str, names: Sequence[str], genes: Vocabulary, prefix_key: str = "") -> None:
    """Warn where hardly any name of one part is a gene of the other parts, so that it connects nothing of theirs.

    Args:
        where: the part.
        names: its names.
        genes: genes of the other parts.
        prefix_key: as in `way_out`.
    """
    strange = [name for name in names if name not in genes]
    met = len(names) - len(strange)
    if met >= FEW * min(len(names), len(genes)):
        return
    log.warning(
        "%s: %s of its %s names are genes of the model or of other networks (%s; those are called %s): %s",
        where,
        f"{met:,}" if met else "none",
        f"{len(names):,}",
        listing(strange, limit=3),
        genes.examples(3),
        way_out(strange, genes, prefix_key) or "give other names of genes in `cell.aliases`, or leave the network out",
    )


@dataclass(frozen=True)
class NameReport:
    """Report how many names of one file the vocabulary has.

    Attributes:
        total: distinct names seen.
        unknown: distinct names that the vocabulary lacks.
        ambiguous: distinct aliases of several genes.
        rows_dropped: rows left out because of them.
    """

    total: int
    unknown: tuple[str, ...] = ()
    ambiguous: tuple[str, ...] = ()
    rows_dropped: int = 0


def enforce_name_policy(report: NameReport, policy: str, genes: Vocabulary, *, where: str, key: str) -> None:
    """Refuse unmapped names unless the user chose to drop their rows.

    Args:
        report: what was found.
        policy: ``refuse`` or ``drop``.
        genes: the vocabulary.
        where: the file or table, for the message.
        key: the configuration key that sets ``policy``, for the message.

    Raises:
        ConfigError: ``policy`` is neither.
        GraphError: names are unknown or ambiguous and the policy is ``refuse``.
    """
    check_choice(key, policy, UNKNOWN_POLICIES)
    if policy == "drop" or not (report.unknown or report.ambiguous):
        return
    found = []
    if report.unknown:
        found.append(f"{len(report.unknown):,} unknown ({listing(report.unknown)})")
    if report.ambiguous:
        found.append(f"{len(report.ambiguous):,} ambiguous ({listing(report.ambiguous)})")
    raise GraphError(
        f"{where}: names that the gene vocabulary does not have",
        got="; ".join(found),
        expected=f"all {report.total:,} names known",
        do=way_out(report.unknown, genes)
        or f"mend the names, give an alias table, or set `{key}: drop` to leave these rows out",
    )
