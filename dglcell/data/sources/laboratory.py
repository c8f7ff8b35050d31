"""Published laboratory screens: from their raw files to strains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.config import ANY, CsvConfig, LaboratoryConfig
from dglcell.data.sources.replicates import keep, merge_replicates
from dglcell.data.sources.screen_sga import HO_LOCUS, SgaScreen
from dglcell.data.sources.screen_tables import (
    CsvScreen,
    FoundTable,
    MatrixScreen,
    RawTable,
    either_direction,
    find_tables,
    score_by_kind,
    share_negative,
    without_copies,
)
from dglcell.data.strains import P_VALUE, Provenance, Strains
from dglcell.errors import ConfigError, DataError
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.vocabulary import read_gene_list
from dglcell.published.download import RemoteFile
from dglcell.published.recipes import RECIPES, download_size

# The published laboratory screens that can be read: one declaration each.


class Reader(Protocol):
    """How the files of a screen become measurements."""

    @property
    def options(self) -> tuple[str, ...]:
        """Keys of the laboratory section that apply, besides those that always do."""

    def read(
        self, tables: Sequence[FoundTable], config: LaboratoryConfig, provenance: Provenance, raw: str | None
    ) -> Strains:
        """The rows that the configuration asks for; ``provenance`` completed with counts."""


@dataclass(frozen=True)
class Laboratory:
    """A published screen.

    Attributes:
        description: one or two sentences, with what the numbers mean.
        citation: the publication.
        licence: as the publisher or the public repository states it.
        origin: where the files are, or were made from.
        tables: name → table, in order; ``data.source.laboratory.tables`` chooses among them.
        reader: how they are read.
        organism: whose strains were measured.
    """

    description: str
    citation: str
    licence: str
    origin: tuple[str, ...]
    tables: dict[str, RawTable]
    reader: Reader
    organism: str = "yeast"

    @property
    def rows(self) -> int | None:
        """Rows of all tables; None where that is not known of one."""
        rows = [table.rows for table in self.tables.values()]
        return None if None in rows else sum(number or 0 for number in rows)

    @property
    def download(self) -> int | None:
        """Bytes of the files that can be fetched, 0 where a size is not known; None where nothing can be."""
        if not all(table.downloads for table in self.tables.values()):
            return None
        return download_size(file for table in self.tables.values() for file in table.downloads)


def _table(name: str, sha256: str, rows: int, whole: str = "") -> dict[str, RawTable]:
    """A table in a form of its own: made by a recipe, or a part, put there by hand, of the table ``whole``."""
    path = f"interactions/{name}"
    copies = [RemoteFile("", path, sha256, content=RECIPES[path].sha256 if path in RECIPES else None)]
    copies += [RECIPES[f"interactions/{whole}"].table] if whole else []
    return {"all": RawTable(tuple(copies), rows=rows)}


NOT_STATED = "none stated; supplementary data of the publication"
SLGI = "https://raw.githubusercontent.com/bioc/SLGI/fad1019bbb0925c49099e6f3554896c006350df5/data/gi2005.rda"

# The archive of supplementary tables; the publisher refuses programs, so that a copy is named too.
KUZMIN2020_ARCHIVE = "interactions/aaz5667-tables_s1_to_s13.zip"
KUZMIN2020_PUBLISHER = (
    "https://www.science.org/doi/suppl/10.1126/science.aaz5667/suppl_file/aaz5667-tables_s1_to_s13.zip"
)
KUZMIN2020_COPY = "https://uofi.box.com/shared/static/464ogx5kpafav7i3zv7gesb9lcn0dm94.zip"

KUZMIN2018_COPY = (
    "https://media.githubusercontent.com/media/AleixMT/TrigenicInteractionPredictor/"
    "ced97e1dbab62dd09bbacb6fb92f7fa38aa875ec/data/ORIGINAL_DATASET/Data_S1.csv"
)
KUZMIN2018_PUBLISHER = "https://www.science.org/doi/suppl/10.1126/science.aao1729/suppl_file/aao1729_data_s1.tsv"
KUZMIN2018_ARCHIVE = "https://raw.githubusercontent.com/Mjvolk3/torchcell/main/data/host/kuzmin2018/aao1729_data_s1.zip"

COSTANZO2016_ARCHIVE = (
    "https://thecellmap.org/costanzo2016/data_files/"
    "Raw%20genetic%20interaction%20datasets:%20Pair-wise%20interaction%20format.zip"
)


def _kuzmin2020_table(number: str, rows: int) -> RawTable:
    sheet = f"aaz5667-Table-{number}.xlsx"
    addresses = (KUZMIN2020_COPY, KUZMIN2020_PUBLISHER)
    unpacked = (RemoteFile("", f"interactions/{name}") for name in (sheet, sheet.replace(".xlsx", ".tsv")))
    return RawTable((*(RemoteFile(url, KUZMIN2020_ARCHIVE) for url in addresses), *unpacked), member=sheet, rows=rows)


def _costanzo2016_table(name: str) -> RawTable:
    archive = RemoteFile(COSTANZO2016_ARCHIVE, "interactions/costanzo2016_pairwise.zip")
    unpacked = (RemoteFile("", f"interactions/{file}") for file in (f"SGA_{name}.txt", f"SGA_{name}.txt.gz"))
    return RawTable((archive, *unpacked), member=f"SGA_{name}.txt")


LABORATORIES: dict[str, Laboratory] = {
    "kuzmin2018": Laboratory(
        description="Trigenic screen, Data S1: tau of 91,111 trigenic and epsilon of 410,399 digenic rows, with "
        "p-values, and the fitness of the combined mutant. The file states no medium or temperature.",
        citation="Kuzmin et al. 2018, Science 360:eaao1729, Data S1",
        licence=NOT_STATED,
        origin=("https://doi.org/10.1126/science.aao1729", KUZMIN2018_PUBLISHER, KUZMIN2018_COPY),
        tables={
            "S1": RawTable(
                (
                    RemoteFile(
                        KUZMIN2018_COPY,
                        "interactions/kuzmin2018_Data_S1.tsv",
                        "101303af21619f23e14efb2047f8e924094e3b6f4139d074eb5fbc2a2036c717",
                        62_966_254,
                    ),
                    RemoteFile(KUZMIN2018_ARCHIVE, "interactions/aao1729_data_s1.zip"),
                    RemoteFile("", "interactions/aao1729_data_s1.tsv"),
                ),
                member="aao1729_data_s1.tsv",
                rows=501_510,
            )
        },
        reader=SgaScreen(states_kind=True),
    ),
    "kuzmin2020": Laboratory(
        description="Trigenic screen of paralog pairs: Table S1 (diagnostic array: 256,861 trigenic and 537,911 "
        "digenic rows) and Table S3 (pilot screens: 44,937 and 94,886). 11,443 trigenic crosses are in both, measured "
        "anew. The files state no medium or temperature.",
        citation="Kuzmin et al. 2020, Science 368:eaaz5667, Tables S1 and S3",
        licence=NOT_STATED,
        origin=("https://doi.org/10.1126/science.aaz5667", KUZMIN2020_PUBLISHER, KUZMIN2020_COPY),
        tables={"S1": _kuzmin2020_table("S1", 794_772), "S3": _kuzmin2020_table("S3", 139_823)},
        reader=SgaScreen(states_kind=True),
    ),
    "costanzo2016": Laboratory(
        description="The global digenic network, Data File S1: epsilon of about 20.7 million crosses with p-value, and "
        "the fitness of the double mutant, at 26 or 30 °C, in four tables: nonessential with nonessential (NxN), "
        "essential with nonessential (ExN_NxE), essential with essential genes (ExE), and DAmP queries.",
        citation="Costanzo et al. 2016, Science 353:aaf1420, Data File S1",
        licence=NOT_STATED,
        origin=("https://doi.org/10.1126/science.aaf1420", COSTANZO2016_ARCHIVE),
        tables={name: _costanzo2016_table(name) for name in ("NxN", "ExN_NxE", "ExE", "DAmP")},
        reader=SgaScreen(states_array=True),
    ),
    "schuldiner2005": Laboratory(
        description="E-MAP of the early secretory pathway: S-scores between 424 genes (negative: aggravating, "
        "positive: alleviating).",
        citation="Schuldiner et al. 2005, Cell 123:507; scores of Collins et al. 2006, Genome Biol 7:R63",
        licence="Artistic-2.0 (Bioconductor SLGI)",
        origin=(SLGI,),
        tables={
            "all": RawTable(
                (RemoteFile(SLGI, "interactions/gi2005.rda"), RemoteFile("", "interactions/gi2005.tsv")),
            )
        },
        reader=MatrixScreen("s_score", "gi2005"),
    ),
    "collins2007": Laboratory(
        description="E-MAP of chromosome biology: S-scores of gene pairs (negative: aggravating, positive: "
        "alleviating). The table of 140,579 rows is a part of the published map, and what is downloaded is the whole "
        "of 186,500. 1,779 pairs of the part were scored more than once.",
        citation="Collins et al. 2007, Nature 446:806",
        licence="Artistic-2.0 (Bioconductor SLGI)",
        origin=("https://github.com/bioc/SLGI data/gi2007.rda 5cb5fcc3152b62223f9f405c42996c412d4634ef",),
        tables=_table(
            "collins2007_emap.csv.gz",
            "0a916087ac0dc5fa08ff1c84bbb8ae59b25609c8c2ea7340df532a3d5d4f9439",
            140_579,
            whole="collins2007_emap_whole.csv.gz",
        ),
        reader=CsvScreen(CsvConfig(genes=["gene_a", "gene_b"], phenotypes={"s_score": "s_score"})),
    ),
    "costanzo2016_two_go_terms": Laboratory(
        description="Digenic interactions (epsilon) among the genes of two GO terms, DNA repair (GO:0006281) and "
        "chromatin (GO:0000790). The file lists pairs within both terms twice, here they count once.",
        citation="Costanzo et al. 2016, Science 353:aaf1420; selection of Ma et al. 2018, Nat Methods 15:290",
        licence="MIT (idekerlab/DCell); values from Costanzo 2016",
        origin=("https://github.com/idekerlab/DCell training/TrainData 110c8a7cdb0182589b4ce310a7302cc9c605d25b",),
        tables=_table(
            "costanzo2016_two_go_terms.csv.gz",
            "59286e3a4dddc99dbc1d038cc3d5cb6c399a5470ef3af22627160a4a00f23c01",
            13_875,
        ),
        reader=CsvScreen(
            CsvConfig(genes=["gene_a", "gene_b"], phenotypes={"digenic_interaction": "epsilon"}),
            prepare=lambda rows: without_copies(rows, "gene_a", "gene_b", "epsilon"),
            count="go_term",
        ),
    ),
    "kuzmin2020_pilot": Laboratory(
        description="Trigenic screen of 4 paralog query pairs with digenic controls: tau, epsilon and fitness of "
        "the combined mutant. Controls carry a marker at HO instead of the second query gene. The table of 9,511 rows "
        "is a part of the published one, and what is downloaded is the whole of 10,432.",
        citation="Kuzmin et al. 2020, Science 368:eaaz5667; scores as in its protocol, Kuzmin et al. 2021, "
        "Nat Protoc 16:1219",
        licence="none stated (csbio/SGA_Public); a published table without written redistribution rights",
        origin=(
            "https://github.com/csbio/SGA_Public test/trigenic_scoring_test/scored_triple_test_small_trigenic.txt "
            "05134938ce18b118ebc58ef575ab403e634aae2b",
        ),
        tables=_table(
            "kuzmin2020_pilot.csv.gz",
            "30e3d8b655efa7a9d73ceda547a8e67c9fa1cb8c3a90aa54a137d6fe0e9db4bd",
            9_511,
            whole="kuzmin2020_pilot_whole.csv.gz",
        ),
        reader=CsvScreen(
            CsvConfig(
                genes=["q1", "q2", "array_orf"],
                phenotypes={
                    "trigenic_interaction": "trigenic_score",
                    "digenic_interaction": "digenic_score",
                    "fitness": "fitness",
                },
                p_values={"trigenic_interaction": "trigenic_p", "digenic_interaction": "digenic_p"},
                sds={"fitness": "fitness_sd"},
                ignore_genes=[HO_LOCUS],
            ),
            prepare=score_by_kind,
            count="kind",
        ),
    ),
    "kuzmin2018_dataS2_orf": Laboratory(
        description="Significant interactions of the trigenic screen, without scores: negative_interaction is 1 where "
        "negative, 0 where digenic and not negative, between for alleles that disagree. Every trigenic row is 1: "
        "no trigenic negatives are listed, so that these rows alone cannot train a model.",
        citation="Kuzmin et al. 2018, Science 360:eaao1729, Data S2",
        licence="none stated (AleixMT/TrigenicInteractionPredictor)",
        origin=(
            "https://github.com/AleixMT/TrigenicInteractionPredictor src/links.txt "
            "404f21b39a548d7634b861575692effda0260d3d",
        ),
        tables=_table(
            "kuzmin2018_dataS2_orf.csv.gz", "1f2ee86e5d476b2ba39b6b53de1b2af802f3213f66a71a6f44a72530b6dce320", 17_285
        ),
        reader=CsvScreen(
            CsvConfig(
                genes=["orf_a", "orf_b", "orf_c"],
                phenotypes={"negative_interaction": "share_negative"},
                ignore_genes=[HO_LOCUS],
            ),
            prepare=share_negative,
            count="kind",
        ),
    ),
    "tong2004_tested_pairs": Laboratory(
        description="Tested pairs of 132 synthetic genetic array screens: synthetic_lethality is 1 where the double "
        "mutant was synthetic sick or lethal in either direction of the cross, 0 where it was tested and was not.",
        citation="Tong et al. 2004, Science 303:808",
        licence="Artistic-2.0 (Bioconductor SLGI)",
        origin=("https://github.com/bioc/SLGI data/AtongPair.rda 5cb5fcc3152b62223f9f405c42996c412d4634ef",),
        tables=_table(
            "tong2004_tested_pairs.csv.gz", "b77203e158e46b10b775a98088e2aebfce1b9253b4f1b3c556a54f6e17aded41", 607_749
        ),
        reader=CsvScreen(
            CsvConfig(genes=["query", "array"], phenotypes={"synthetic_lethality": "any_direction"}),
            prepare=either_direction,
            count="recip",
        ),
    ),
}


def load_laboratory(name: str, config: LaboratoryConfig, raw: str | None = None) -> Strains:
    """Read a published screen.

    Args:
        name: a key of :data:`LABORATORIES`.
        config: which rows count, and how they become strains.
        raw: folder that holds ``interactions/``.

    Raises:
        ConfigError: a choice is unknown, or means nothing for this screen.
        DataError: a file is missing, is not the published one, or has no such rows.
        GraphError: the list of genes or the alias table is unusable.
    """
    return merge_replicates(measure_laboratory(name, config, raw), config.conflicts, config.replicates)


def measure_laboratory(name: str, config: LaboratoryConfig, raw: str | None = None) -> Strains:
    """Read the rows of a published screen; arguments and errors of ``load_laboratory``."""
    check_choices(name, config)
    screen = LABORATORIES[name]
    found = find_tables(chosen_tables(name, config.tables), raw)
    provenance = Provenance(
        source=name,
        description=screen.description,
        citation=screen.citation,
        licence=screen.licence,
        urls=screen.origin,
        files={table.path.name: table.sha256 for table in found},
        parameters={**asdict(config), "raw_files": {table.path.name: table.trust for table in found}},
    )
    rows = screen.reader.read(found, config, provenance, raw)
    if config.p_below is not None:
        rows = _below(rows, config.p_below)
    if config.genes is not None:
        rows = _of_genes(rows, config.genes, config.genes_required, raw)
    if not len(rows):
        raise DataError(
            f"'{name}': no row is left",
            got=", ".join(f"{what.replace('_', ' ')} {count:,}" for what, count in rows.provenance.counts.items()),
            do="loosen `data.source.laboratory`",
        )
    return rows


def check_choices(name: str, config: LaboratoryConfig, key: str = "data.source.laboratory") -> None:
    """Check the choices against the screen they are for.

    Raises:
        ConfigError: a choice is unknown, or means nothing for this screen.
    """
    config.validate(key)
    config.check_applies(name, LABORATORIES[name].reader.options, key)
    chosen_tables(name, config.tables, key)


def chosen_tables(name: str, chosen: Sequence[str], key: str = "data.source.laboratory") -> list[RawTable]:
    """Tables of a screen by name; all where none is named.

    Raises:
        ConfigError: the screen has no such table.
    """
    tables = LABORATORIES[name].tables
    unknown = [table for table in chosen if table not in tables]
    if unknown:
        raise ConfigError(
            f"`{key}.tables`: '{name}' has no such table", got=", ".join(unknown), expected="among " + ", ".join(tables)
        )
    return [table for label, table in tables.items() if label in (chosen or tables)]


def _below(rows: Strains, p: float) -> Strains:
    """Rows with a p-value below ``p``."""
    p_values = rows.of_kind(P_VALUE)
    if not p_values:
        raise ConfigError(
            "`data.source.laboratory.p_below` does not apply",
            got=f"'{rows.provenance.source}', which has no p-values",
            do="remove the key",
        )
    significant: NDArray[np.bool_] = np.any([values < p for values in p_values.values()], axis=0)
    return keep(rows, significant, rows_not_significant=int((~significant).sum()))


def _of_genes(rows: Strains, genes: str, required: str, raw: str | None) -> Strains:
    """Rows of which all or any genes are listed."""
    path = find_raw(genes, raw)
    listed = read_gene_list(path)
    known = np.array([name in listed for name in rows.names], dtype=bool)
    inside = np.diff(np.concatenate([[0], np.cumsum(known[rows.targets])])[rows.offsets])
    chosen = inside > 0 if required == ANY else inside == rows.num_deletions
    provenance = replace(rows.provenance, files={**rows.provenance.files, path.name: sha256_file(path)})
    return keep(rows.with_(provenance=provenance), chosen, rows_of_genes_not_listed=int((~chosen).sum()))
