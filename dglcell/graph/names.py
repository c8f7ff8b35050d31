"""Find other names of genes in the catalogue, tables and metabolic models, and say what is wrong with unknown ones."""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dglcell.errors import GraphError, listing
from dglcell.graph.catalogue import GENE_SETS, MODELS
from dglcell.graph.catalogue import provenance as provenance_of
from dglcell.graph.model_files import FORMATS, SHIPPED, locate_model, read_model
from dglcell.graph.tables import read_aliases, read_gff, read_sgd_features
from dglcell.graph.vocabulary import LOOKED_AT, AliasTable, Vocabulary
from dglcell.published.file import PublishedFile

if TYPE_CHECKING:
    from cobra import Model

log = logging.getLogger("dglcell")


def read_names(
    name: str, otherwise: Callable[[Path], Vocabulary | AliasTable], raw: str | None = None
) -> tuple[Any, dict[str, Any], Path]:
    """Read genes with their other names: a gene set, a file of a genome, or another file, as ``otherwise`` reads it.

    Returns:
        The genes, or their other names alone; where they come from, as plain containers; and the file.
    """
    if name in GENE_SETS:
        found = GENE_SETS[name].file.find(raw)
        return GENE_SETS[name].read(found.path), provenance_of(name, found), found.path
    found = PublishedFile(name).find(raw)
    of_genomes = {".gff": read_gff, ".gff3": read_gff, ".tab": read_sgd_features}
    reader = of_genomes.get(Path(found.path.name.removesuffix(".gz")).suffix, otherwise)
    return reader(found.path), {"path": name, **found.provenance()}, found.path


def named_aliases(name: str | None, raw: str | None = None) -> tuple[AliasTable, Path | None]:
    """Return other names of genes of a metabolic model, what `read_names` reads, or nothing (None), and their file."""
    if name is None:
        return AliasTable(), None
    if name in SHIPPED or name in MODELS or Path(name.removesuffix(".gz")).suffix in FORMATS:
        return model_aliases(read_model(name, raw)), locate_model(name, raw)
    found, _, path = read_names(name, read_aliases, raw)
    if isinstance(found, AliasTable):
        return found, path
    return found.others.joined(AliasTable({gene: (gene,) for gene in found})), path  # some have no other names


ACCESSIONS = ("uniprot", "ncbigene", "ncbiprotein", "refseq_locus_tag", "refseq_synonym", "ecogene", "sgd")
"""Annotations of a metabolic model that are names of genes elsewhere."""


def model_aliases(model: Model) -> AliasTable:
    """Return the names and accessions that a metabolic model has for its genes, unless they repeat the identifiers."""
    names: dict[str, set[str]] = {}
    for gene in model.genes:
        if gene.name and gene.name.strip() and gene.name not in (gene.id, f"G_{gene.id}"):
            names.setdefault(gene.name.strip(), set()).add(gene.id)
        for kind in ACCESSIONS:
            found = gene.annotation.get(kind, [])
            for accession in [found] if isinstance(found, str) else found:
                names.setdefault(str(accession), set()).add(gene.id)
    shown = {gene.id: gene.name.strip() for gene in model.genes if gene.name and gene.name.strip() in names}
    own = {gene.id: (gene.id,) for gene in model.genes}
    return AliasTable({name: tuple(sorted(ids)) for name, ids in names.items()} | own, shown)


def names_of_model(model: str | None) -> str | None:
    """Return the gene set of the catalogue that names the genes of a model, if there is one."""
    return next((name for name, source in GENE_SETS.items() if model in source.models), None)


def names_of_genes(genes: Iterable[str]) -> str | None:
    """Return the gene set of the catalogue that names most of some genes, by the form of their systematic names."""
    listed = list(genes)
    for name, source in GENE_SETS.items():
        if source.names and 2 * sum(map(bool, map(re.compile(source.names).fullmatch, listed))) > len(listed):
            return name
    return None


def add_names(genes: Vocabulary, given: Iterable[AliasTable], raw: str | None) -> tuple[Vocabulary, dict[str, Any]]:
    """Add other names to genes, the most reliable ones given first, and return the provenance of the catalogue's part.

    The file of the catalogue is used where it is in the raw folder; a cell graph can be built without it.
    """
    others, provenance = functools.reduce(AliasTable.joined, given, AliasTable()), {}
    name = names_of_genes(genes)
    if name is not None and (source := GENE_SETS[name]).file.is_here(raw):
        found = source.file.find(raw)
        provenance = provenance_of(name, found)
        others = source.read(found.path).others.joined(others)
    return Vocabulary(genes.names, others.of_genes(genes)), provenance


FEW = 0.1
"""Two parts whose smaller one shares less than this with the other one hardly meet."""


def around_genes(names: Iterable[str], genes: Vocabulary) -> tuple[str, str] | None:
    """Return the text before and behind the gene that every name holds; None where a name holds no known gene.

    The text before genes, or the one behind, is empty where it is not the same in all names.
    """
    found = []
    for name in itertools.islice(names, LOOKED_AT):
        ends = [0, *(part.end() for part in re.finditer(r"[A-Za-z0-9]+|[^A-Za-z0-9]", name))]
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

    ``prefix_key`` is the key that takes the text before names away, if there is one.
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
    """Warn where hardly any name of one part is a gene of the other parts, so that it connects nothing of theirs."""
    strange = [name for name in names if name not in genes]
    met = len(names) - len(strange)
    if met >= FEW * min(len(names), len(genes)):
        return
    do = way_out(strange, genes, prefix_key) or "give other names of genes in `cell.aliases`, or leave the network out"
    how = f"{met:,}" if met else "none"
    what = f"{how} of its {len(names):,} names are genes of the model or of other networks"
    log.warning("%s: %s (%s; those are called %s): %s", where, what, listing(strange, 3), genes.examples(3), do)


def refuse_names(
    unknown: Sequence[str], total: int, genes: Vocabulary, *, where: str, key: str, ambiguous: Sequence[str] = ()
) -> None:
    """Refuse names in ``where`` that the vocabulary does not have, as the user did not choose to drop their rows."""
    kinds = {"unknown": unknown, "ambiguous": ambiguous}
    if any(kinds.values()):
        got = "; ".join(f"{len(names):,} {kind} ({listing(names)})" for kind, names in kinds.items() if names)
        do = f"mend the names, give an alias table, or set `{key}: drop` to leave these rows out"
        what, do = f"{where}: names that the gene vocabulary does not have", way_out(unknown, genes) or do
        raise GraphError(what, got=got, expected=f"all {total:,} names known", do=do)
