"""Convert the files of public repositories to the tables and models that the package reads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd

MARKER = "YDL227C"
"""This is HO, where control strains of trigenic screens carry a marker instead of a second query deletion."""

NUCLEAR = r"Y[A-P][LR]\d{3}[CW](?:-[A-Z])?"
"""Systematic names of genes of the yeast nucleus have this form."""


def convert(name: str, originals: Sequence[Path], arguments: Mapping[str, Any]) -> bytes:
    """Return the content of a file, which a conversion of `CONVERSIONS` or ``copy`` makes of downloaded files."""
    if name == "copy":
        return originals[0].read_bytes()
    made = CONVERSIONS[name](originals, **arguments)
    return made if isinstance(made, bytes) else made.to_csv(index=False, lineterminator="\n").encode()


def r_table(originals: Sequence[Path], variable: str, integers: Sequence[str] = ()) -> pd.DataFrame:
    """Convert a data frame of R; the columns ``integers``, which R keeps as floats, become whole numbers."""
    return _read_r(originals[0])[variable].astype(dict.fromkeys(integers, int))


def r_pairs(originals: Sequence[Path], variable: str, columns: Sequence[str], decimals: int) -> pd.DataFrame:
    """List the pairs above the diagonal of a symmetric R matrix that have a score, sorted as text."""
    matrix = _read_r(originals[0])[variable].to_pandas()
    scores, names = matrix.to_numpy(), np.array(matrix.index)
    rows, others = np.triu_indices(len(names), 1)
    known = ~np.isnan(scores[rows, others])
    rows, others = rows[known], others[known]
    values = (names[rows], names[others], np.round(scores[rows, others], decimals))
    pairs = pd.DataFrame(dict(zip(columns, values, strict=True)))
    return pairs.astype({columns[2]: str}).sort_values(list(columns))


def r_named_pairs(originals: Sequence[Path], variables: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """List the pairs of yeast genes that ``columns`` of data frames of R name, each once and its genes in order.

    Rows that name no two genes of the nucleus are left out.
    """
    pairs = []
    for path, variable in zip(originals, variables, strict=True):
        named = _read_r(path)[variable][list(columns)].astype(str).agg(" ".join, axis=1)
        pairs += [tuple(sorted(set(re.findall(NUCLEAR, names)))) for names in named]
    return pd.DataFrame([pair for pair in dict.fromkeys(pairs) if len(pair) == 2], columns=["orf_a", "orf_b"])


def text_rows(originals: Sequence[Path], columns: Mapping[str, int], label: str, labels: Sequence[str]) -> pd.DataFrame:
    """Read columns of tables without header, separated by blanks; the column ``label`` names the table of each row."""
    frames = []
    for path, name in zip(originals, labels, strict=True):
        cells = pd.read_csv(path, sep=r"\s+", header=None, dtype=str)
        frames.append(pd.DataFrame({column: cells[at] for column, at in columns.items()} | {label: name}))
    return pd.concat(frames)


def trigenic_scores(originals: Sequence[Path]) -> pd.DataFrame:
    """List scored crosses of the trigenic protocol.

    Trigenic ones come first, sorted, then their digenic controls in their own order.
    """
    frame = pd.read_csv(originals[0], sep="\t")
    frame.columns = pd.Index(["query", "array", "score", "p", "fitness", "fitness_sd"])
    frame = frame.dropna()
    frame[["q1", "q2"]] = frame["query"].str.extract(r"^([^+]+)\+([^_]+)_")
    frame["array_orf"] = frame["array"].str.partition("_")[0]
    frame["kind"] = np.where(frame[["q1", "q2"]].isin([MARKER]).any(axis=1), "digenic", "trigenic")
    trigenic, digenic = (frame[frame["kind"] == kind] for kind in ("trigenic", "digenic"))
    trigenic = trigenic.astype({"score": str}).sort_values(["q1", "q2", "array_orf", "score"], kind="stable")
    columns = ["q1", "q2", "array_orf", "kind", "score", "p", "fitness", "fitness_sd", "query", "array"]
    return pd.concat([trigenic, digenic])[columns]


def negative_pairs(originals: Sequence[Path]) -> pd.DataFrame:
    """List pairs of genes with a significant negative interaction in the digenic rows of a trigenic screen.

    The first of ``originals`` has rows of three alleles and how often they were found to interact and not to; one of
    the three is that of a control (`MARKER`). The second names the genes of alleles. Alleles of genes that it knows by
    another name alone are left out.
    """
    names = pd.read_csv(originals[1], sep="\t", dtype=str)
    genes = dict(zip(names["Common"].str.upper(), names["Orf"], strict=True)) | {gene: gene for gene in names["Orf"]}
    table = pd.read_csv(originals[0], sep=" ", skiprows=1, header=None, usecols=[0, 2], names=["alleles", "", "found"])
    alleles = table.loc[table["found"] == 1, "alleles"].str.split("_", expand=True)
    bases = alleles.apply(lambda column: column.str.partition("Δ")[0].str.upper())  # a deletion ends in a delta
    found = bases.apply(lambda column: column.map(genes).fillna(column.str.partition("-")[0].map(genes)))
    rows = found[found.notna().all(axis=1) & ((found == MARKER).sum(axis=1) == 1)].to_numpy()
    pairs = sorted({tuple(sorted(gene for gene in row if gene != MARKER)) for row in rows})
    return pd.DataFrame(pairs, columns=["gene_a", "gene_b"])


def matrix_edges(originals: Sequence[Path], columns: Sequence[str]) -> pd.DataFrame:
    """List the cells of a matrix that are not 0, row by row: the name above the column, then the one beside the row."""
    matrix = pd.read_csv(originals[0], sep="\t", index_col=0)
    rows, above = np.nonzero(matrix.to_numpy())
    return pd.DataFrame(dict(zip(columns, (matrix.columns[above], matrix.index[rows]), strict=True)))


def gml_edges(originals: Sequence[Path], columns: Sequence[str]) -> pd.DataFrame:
    """List the edges of a graph in GML. The first word of a node's label is its systematic name."""
    text = originals[0].read_text(encoding="utf-8")
    names = {number: label.upper() for number, label in re.findall(r'id (\d+)\s+label "([^\s"]+)', text)}
    edges = re.findall(r"source (\d+)\s+target (\d+)", text)
    return pd.DataFrame([(names[a], names[b]) for a, b in edges], columns=list(columns))


def numbered_channels(originals: Sequence[Path], channels: Sequence[str]) -> pd.DataFrame:
    """Join a table of pairs for each channel, of genes numbered from 1, into one table with a column for each.

    The first of ``originals`` names the genes, in a dictionary of names to numbers from 0. Scores become whole
    thousandths; every pair stands in both orders, and is kept in that of its numbers.
    """
    listed = originals[0].read_text(encoding="utf-8")
    names = {int(n): name for name, n in re.findall(r"'4932\.([^']+)': (\d+)", listed)}
    tables = [pd.read_csv(path, sep="\t", header=None) for path in originals[1:]]
    pairs = tables[0][[0, 1]]
    once = pairs[0] < pairs[1]
    # Scores are written in hundreds: 9.0 is 900 of STRING's 999.
    scores = {name: (table[2] * 100).round().astype(int) for name, table in zip(channels, tables, strict=True)}
    genes = {f"orf_{end}": (pairs[i] - 1).map(names) for i, end in enumerate("ab")}
    return pd.DataFrame({**genes, **scores})[once]


def without_index(originals: Sequence[Path]) -> pd.DataFrame:
    """Leave out the first column of a table, which numbers its rows."""
    return pd.read_csv(originals[0], dtype=str, index_col=0)


def titrated_guides(originals: Sequence[Path]) -> pd.DataFrame:
    """Join guides of CRISPRi with their growth in glucose and in glycerol, and with the locus of their genes."""
    guides, glucose, glycerol = (pd.read_csv(path, dtype=str, index_col=0) for path in originals[:3])
    genes = pd.read_csv(originals[3], dtype=str).drop_duplicates("Gene").set_index("Gene")
    about = {
        "guide": guides.index,
        "gene": guides["Gene"],
        "b_number": guides["Gene"].map(genes["Synonym"]),
        "series": guides["SG #"],
        "pam_location": guides["PAM loc."],
        "mutation": guides["Mut. type"],
        "mutated": guides["Mut. loc."],
        "sequence": guides["H.R. seq"],
    }
    for medium, rates in (("glucose", glucose), ("glycerol", glycerol)):
        measured = rates.reindex(guides.index)
        for name, column in (("growth", "norm.GR"), ("sem", "norm.GR_sem"), ("replicates", "reps")):
            about[f"{name}_{medium}"] = measured[column]
    return pd.DataFrame(about).sort_values("guide")


def single_mutants(originals: Sequence[Path]) -> pd.DataFrame:
    """List measured single mutants with gene, allele and class of allele.

    The first of ``originals`` has strain, fitness and standard deviation, and no header; the second names the allele of
    each strain. ``alleles`` says whether one or several alleles of the gene are measured.
    """
    table = pd.read_csv(originals[0], sep="\t", header=None, names=["strain", "fitness", "sd"], dtype=str)
    table = table[table["fitness"].str.lower() != "nan"].dropna(subset=["fitness"])
    names = pd.read_csv(originals[1], sep="\t", dtype=str).drop_duplicates("Strain").set_index("Strain")["Allele"]
    gene, _, allele = (table["strain"].str.partition("_")[i] for i in range(3))
    # Arrays and queries of deletions, of alleles with decreased abundance of mRNA, and of temperature-sensitive ones.
    classes = {"dma": "deletion", "sn": "deletion", "damp": "DAmP", "tsa": "ts", "tsq": "ts"}
    kind = allele.str.extract("([a-z]+)")[0].map(classes)
    about = {
        "gene": gene,
        "allele": table["strain"].map(names).fillna(table["strain"]),
        "class": kind,
        "strength": np.where(kind == "deletion", 0, 0.2),  # where learning begins: it is not measured
        "fitness": table["fitness"],
        "sd": table["sd"],
        "strain": table["strain"],
    }
    frame = pd.DataFrame(about).sort_values("strain", kind="stable")
    several = frame.groupby("gene")["allele"].transform("nunique") > 1
    return frame.assign(alleles=np.where(several, "several", "one"))


def keio_densities(originals: Sequence[Path]) -> pd.DataFrame:
    """List optical densities of the Keio deletions that have all three, with the locus of their genes."""
    table = pd.read_csv(originals[0], dtype=str, skipinitialspace=True)
    genes = pd.read_csv(originals[1], dtype=str).drop_duplicates("Gene").set_index("Gene")
    about = {"gene": table["Gene"].str.strip()}
    about["b_number"] = about["gene"].map(genes["Synonym"])
    for name, column in (("lb_22h", "LB_22hr"), ("mops_24h", "MOPS_24hr"), ("mops_48h", "MOPS_48hr")):
        cells = table[column].str.strip()
        about[name] = cells.where(pd.to_numeric(cells, errors="coerce").notna())
    return pd.DataFrame(about).dropna().sort_values(["b_number", "gene"])


def name_families(originals: Sequence[Path]) -> pd.DataFrame:
    """List the genes of a protein table of NCBI with the letters that their names begin with."""
    genes = pd.read_csv(originals[0], dtype=str).sort_values("Synonym")
    # Three letters say what bacterial genes do: thrA, thrB and thrC make threonine.
    return pd.DataFrame({"gene": genes["Synonym"], "family": genes["Gene"].str[:3]})


def genome_neighbours(originals: Sequence[Path], places: int) -> pd.DataFrame:
    """List pairs of genes of a protein table of NCBI that stand close together on one strand, as those of an operon do.

    They are at most ``places`` apart, among the genes of both strands.
    """
    genes = pd.read_csv(originals[0], dtype=str)
    genes = genes.iloc[genes["Location"].str.partition(".")[0].astype(int).argsort(kind="stable")]
    frames = []
    for apart in range(1, places + 1):
        after = genes.shift(-apart)
        rows = genes["Strand"] == after["Strand"]
        ends = {"gene_a": genes["Synonym"][rows], "gene_b": after["Synonym"][rows]}
        frames.append(pd.DataFrame({**ends, "places": apart}))
    return pd.concat(frames)


def exchanged_rules(originals: Sequence[Path], share: float, seed: int) -> bytes:
    """Degrade a metabolic model in JSON: this share of its gene rules, drawn by seed, go to another reaction each."""
    model = json.loads(originals[0].read_bytes())
    ruled = [reaction for reaction in model["reactions"] if reaction["gene_reaction_rule"]]
    drawn = np.random.default_rng(seed).choice(len(ruled), round(share * len(ruled)), replace=False)
    rules = [ruled[i]["gene_reaction_rule"] for i in drawn]
    for i, rule in zip(drawn, rules[1:] + rules[:1], strict=True):
        ruled[i]["gene_reaction_rule"] = rule
    return json.dumps(model).encode()


def _read_r(path: Path) -> dict[str, Any]:
    import rdata

    content: dict[str, Any] = rdata.read_rda(path, default_encoding="utf8")
    return content


CONVERSIONS: dict[str, Callable[..., pd.DataFrame | bytes]] = {
    name: function
    for name, function in list(globals().items())
    if isinstance(function, FunctionType) and name[0] != "_" and name != convert.__name__
}
"""A recipe can name these conversions, besides ``copy``: name → function from files to a table, or to bytes."""
