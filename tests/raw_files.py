"""A raw folder with the catalogue's files, in their publishers' formats but for a few genes.

Every file has what its reader has to cope with: names that the genome lacks, rows of other kinds, quotes in remarks,
pairs in both orders, genes without a standard name, aliases of two genes.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cobra
import numpy as np

from dglcell.graph.catalogue import GENE_SETS, MODELS, NETWORKS
from dglcell.graph.cell import CellConfig

GENES = (
    "Q0045", "YAL001C", "YAL002W", "YAL003W", "YAR002C-A", "YBL001C", "YBR001C", "YCL001W", "YDL227C", "YER001W",
    "YGL001C", "YPR001W",
)  # fmt: skip
STRING_CHANNELS = ("neighborhood", "fusion", "cooccurence", "coexpression", "experimental", "database")
FOREIGN = "YZZ999W"
"""A name that STRING and SGD know and the genome does not."""


def write_raw_folder(folder: Path, genes: Sequence[str] = GENES) -> Path:
    """Write every file of the catalogue, but for models of other organisms."""
    write_gene_sets(folder, genes)
    for version in ("9.1", "11.0", "11.5", "12.0"):
        _write(folder / f"networks/4932.protein.links.detailed.v{version}.txt.gz", string_links(genes))
    both = pairs(genes)
    of_string = ([f"4932.{a}", f"4932.{b}", "999"] for a, b in both)
    tables = {
        "string12_0_physical": _table(["protein1", "protein2", "combined_score"], of_string, " "),
        "string11_5_high_confidence": _table(
            ["orf_a", "orf_b", *STRING_CHANNELS], ([*pair, *"123456"] for pair in both)
        ),
        "sgd_physical": sgd_interactions(genes),
        "sgd_regulatory": [  # one regulator is a protein complex
            *(f"{name_of(a, genes)}\t{a}\t{name_of(b, genes)}\t{b}\tchromatin\tTF\ttranscription" for a, b in both),
            f"SBF complex\tCPX-1016\t\t{genes[0]}\tmicroarray evidence\tcomplex\ttranscription",
        ],
        "tflink": tflink(genes),
        "yeastract": _table(["tf", "target"], both),
        "cyc2008_complexes": cyc2008(genes),
        "go_slim_sgd": (
            f"{gene}\t{name_of(gene, genes)}\tS{i:09}\tC\tterm {i // 3}\tGO:{i // 3:07}\tORF"
            for i, gene in enumerate(genes)
        ),
        "kuzmin2018_interactions": _table(["gene_a", "gene_b"], both),
        "ecoli_k12_neighbours": _table(["gene_a", "gene_b", "places"], ([*pair, "1"] for pair in both)),
        "ecoli_k12_families": _table(["gene", "family"], ([gene, str(i // 3)] for i, gene in enumerate(genes))),
        "tong2004_interactions": _table(["query", "array", "interact"], ([*p, i] for p in both for i in "01")),
    }
    plain = ("biogrid_physical_3_4_156", "pan2006_interactions", "sgd2007_negative_interactions", "sgd2007_rescues")
    for name, lines in (tables | {name: _table(["orf_a", "orf_b"], both) for name in plain}).items():
        _write(folder / NETWORKS[name].file.path, lines)
    for name in ("yeast-GEM_9.0.2", "iMM904"):
        write_model(folder / MODELS[name].path, genes)
    return folder


def tiny_overrides(folder: Path, cell: CellConfig) -> list[str]:
    """Return arguments with which a configuration reads the folder's files in spite of the catalogue's hashes."""
    overrides = [f"paths.raw={folder}"]
    if cell.model in MODELS:
        overrides.append(f"cell.model={folder / MODELS[cell.model].path}")
    for key, name in (("genes", cell.genes), ("aliases", cell.aliases)):
        if name in GENE_SETS:
            overrides.append(f"cell.{key}={folder / GENE_SETS[name].file.path}")
    for name, table in cell.tables().items():
        if table.table.source:
            overrides.append(f"cell.networks.{name}.path={folder / table.file.path}")
        if name in cell.networks and cell.networks[name].not_within:
            (folder / "screen.csv").write_text("gene_a,gene_b,score\nYAL001C,YBR002C,1\n")
            overrides.append(f"cell.networks.{name}.not_within={folder / 'screen.csv'}")
    for name, source in ({} if cell.similarity is None else cell.similarity.sources).items():
        if source.sets is not None:
            path = folder / NETWORKS[source.sets.source].file.path
            overrides.append(f"cell.similarity.sources.{name}.sets.path={path}")
    return overrides


def pairs(genes: Sequence[str]) -> list[tuple[str, str]]:
    return [(gene, genes[(i + step) % len(genes)]) for i, gene in enumerate(genes) for step in (1, 2)]


def standard_name(gene: str, genes: Sequence[str]) -> str:
    """Return the invented standard name of a gene; nothing for those at even positions."""
    position = list(genes).index(gene)
    return f"ABC{position}" if position % 2 else ""


def name_of(gene: str, genes: Sequence[str]) -> str:
    return standard_name(gene, genes) or gene


def write_gene_sets(folder: Path, genes: Sequence[str]) -> None:
    """``SGD_features.tab`` and the genome's GFF."""
    rows = []
    gff = [
        "##gff-version 3",
        "#!genome-version R64-4-1",
        "chrI\tSGD\tchromosome\t1\t230218\t.\t.\t.\tID=chrI;Name=chrI",
    ]
    for i, gene in enumerate(genes):
        name = standard_name(gene, genes)
        # `TWIN` is an alias of all; the first gene bears the second one's standard name as an alias.
        aliases = [f"A{i}", "TWIN", *(["ABC1"] if i == 0 else [])]
        place = f"chromosome 1\t\t1\t{i * 100 + 1}\t{i * 100 + 90}\tW\t\t2011-02-03\t1996-07-31|2011-02-03"
        rows.append(f'S{i:09}\tORF\tVerified\t{gene}\t{name}\t{"|".join(aliases)}\t{place}\tInvented; "of" no use')
        rows.append(f"S{i:09}\tCDS\t\t\t\t\t{gene}\t\t1\t{i * 100 + 1}\t{i * 100 + 90}\tW\t\t2011-02-03\t1996-07-31\t")
        listed = ",".join([name, *aliases] if name else aliases)
        about = f"ID={gene};Name={gene};" + (f"gene={name};" if name else "") + f"Alias={listed};Note=Of%20no%20use"
        gff.append(f"chrI\tSGD\tgene\t{i * 100 + 1}\t{i * 100 + 90}\t.\t+\t.\t{about};dbxref=SGD:S{i:09}")
        gff.append(f"chrI\tSGD\tCDS\t{i * 100 + 1}\t{i * 100 + 90}\t.\t+\t0\tParent={gene}_mRNA;Name={gene}_CDS")
    rows.append("S000999001\ttRNA_gene\t\ttA(AGC)D\t\t\tchromosome 4\t\t4\t1\t73\tW\t\t2011-02-03\t1996-07-31\tA tRNA")
    gff.append("chrI\tSGD\tpseudogene\t9000\t9090\t.\t+\t.\tID=YAR061W;Name=YAR061W;Alias=ABC3")
    gff += ["###", "##FASTA", ">chrI", "CCACACCACACCCACACACCCACACACCACACCACACACCACACCACACC"]
    _write(folder / GENE_SETS["sgd_features"].file.path, rows)
    _write(folder / f"{GENE_SETS['sgd_r64_4_1'].file.path}", gff)


def string_links(genes: Sequence[str]) -> Iterator[str]:
    """Yield all channels of STRING, a score above 0 in at least one; each pair in both orders."""
    yield f"protein1 protein2 {' '.join(STRING_CHANNELS)} textmining combined_score"
    for i, (a, b) in enumerate([*pairs(genes), (genes[0], FOREIGN)]):
        scores = [100 + i if (i + channel) % 3 else 0 for channel in range(len(STRING_CHANNELS))]
        for one, other in ((a, b), (b, a)):
            yield f"4932.{one} 4932.{other} {' '.join(map(str, scores))} 999 {max(scores)}"


def sgd_interactions(genes: Sequence[str]) -> Iterator[str]:
    """Physical rows, and genetic ones with other pairs."""
    for i, (a, b) in enumerate([*pairs(genes), (FOREIGN, genes[0])]):
        names = [a, "" if a == FOREIGN else standard_name(a, genes), b, standard_name(b, genes)]
        note = '"an unfinished quotation' if i == 2 else ""
        end = [note, "", f"SGD_REF:S{i:09}|PMID:{i}", "Nobody N, et al. (2001) Of no use. J Inv 1:1-2"]
        yield "\t".join([*names, "Two-hybrid", "physical interactions", "BioGRID", "high-throughput", *end])
    for a, b in zip(genes, genes[len(genes) // 2 :], strict=False):
        names = [a, standard_name(a, genes), b, standard_name(b, genes)]
        end = ["", "inviable", "SGD_REF:S000000001|PMID:1", "Nobody N, et al. (2002) Of no use. J Inv 2:1-2"]
        yield "\t".join([*names, "Synthetic Lethality", "genetic interactions", "BioGRID", "manually curated", *end])


def tflink(genes: Sequence[str]) -> Iterator[str]:
    """Gene names: standard ones where there are any; one name of two genes, one of none."""
    yield (
        "UniprotID.TF\tUniprotID.Target\tNCBI.GeneID.TF\tNCBI.GeneID.Target\tName.TF\tName.Target\tDetection.method\t"
        "PubmedID\tOrganism\tSource.database\tSmall-scale.evidence\tTF.TFLink.ortho\tTF.nonTFLink.ortho\t"
        "Target.TFLink.ortho\tTarget.nonTFLink.ortho"
    )
    factor = name_of(genes[1], genes)
    for target in [*(name_of(gene, genes) for gene in genes), "TWIN", "NOBODY"]:
        end = ['"ChIP', "1;2", "Saccharomyces cerevisiae", "YEASTRACT", "No", "-", "-", "-", "-"]
        yield "\t".join(["P1", "P2", "1", "2", factor, target, *end])


def cyc2008(genes: Sequence[str]) -> Iterator[str]:
    """Complexes of three; only the first row of a complex is complete, as in the file."""
    yield "ORF\tName\tComplex\tPubMed_id\tMethod\tGO_id\tGO_term\tJaccard_Index"
    for i, gene in enumerate(genes):
        first = '\t10727015\t"Affinity Capture-Western,Affinity Capture-MS"\tGO:0030008\tTRAPP complex\t1'
        yield f"{gene}\t{name_of(gene, genes)}\tcomplex {i // 3}" + ("" if i % 3 else first)


def write_model(path: Path, genes: Sequence[str]) -> None:
    """A chain of reactions, each with an isoenzyme or a complex of two genes, the last one into biomass."""
    model = cobra.Model("tiny")
    chain = [cobra.Metabolite(f"s_{i:04}", name=f"substance {i}", compartment="c") for i in range(len(genes) + 1)]
    for i, gene in enumerate(genes):
        reaction = cobra.Reaction(f"r_{i:04}", lower_bound=-1000 if i % 2 else 0, upper_bound=1000)
        model.add_reactions([reaction])
        reaction.add_metabolites({chain[i]: -1, chain[i + 1]: 1})
        reaction.gene_reaction_rule = f"{gene} {'and' if i % 2 else 'or'} {genes[(i + 1) % len(genes)]}"
    for name, bounds, metabolite in (("r_in", (-10, 0), chain[0]), ("r_biomass", (0, 1000), chain[-1])):
        exchange = cobra.Reaction(name, lower_bound=bounds[0], upper_bound=bounds[1])
        model.add_reactions([exchange])
        exchange.add_metabolites({metabolite: -1})
    model.objective = "r_biomass"
    path.parent.mkdir(parents=True, exist_ok=True)
    writers = {".mat": cobra.io.save_matlab_model, ".json": cobra.io.save_json_model}
    writers[path.suffix](model, str(path))


def _table(
    header: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]], mark: str = ","
) -> Iterator[str]:
    yield mark.join(header)
    for row in rows:
        yield mark.join(row)


def _write(path: Path, lines: Iterator[str] | Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@dataclass(frozen=True)
class NamedMatrix:
    """A square matrix whose rows and columns have the same names, as R holds it."""

    scores: np.ndarray
    names: Sequence[str]


def write_rda(path: Path, content: dict[str, Any]) -> None:
    """As ``save(…, file=path)`` of R writes variables; skips where nothing can write it."""
    import rdata
    from rdata.conversion.to_r import DEFAULT_CLASS_MAP, build_r_object
    from rdata.parser import RObjectType

    def matrix(value: NamedMatrix, converter: Any) -> Any:
        names = np.array(value.names)
        shape = np.array(value.scores.shape, dtype=np.int32)
        attributes = converter.convert_to_r_attributes({"dim": shape, "dimnames": [names, names]})
        return build_r_object(RObjectType.REAL, value=value.scores.ravel("F"), attributes=attributes)

    path.parent.mkdir(parents=True, exist_ok=True)
    rdata.write_rda(path, content, constructor_dict={**DEFAULT_CLASS_MAP, NamedMatrix: matrix})
