"""The Saccharomyces Genome Database: genes, physical interactions, regulation.

Formats are those of SGD's own programs that write the files (yeastgenome/SGDBackend-Nex2,
scripts/dumping/tab_files_for_download_site and scripts/dumping/curation/dump_gff.py); addresses those of its upload
script (scripts/dumping/s3/upload_files_for_download_site.py). The tables are rewritten weekly, so that their hashes
are recorded at the first download; keep the file to keep the network. The genome release never changes: its hash and
size are those that the original project recorded when it downloaded the archive a second time and found all files the
same (Mjvolk3/torchcell, note on its first deposit of genomes, 2026).

The original project collected interactions and regulation gene by gene from SGD's web service, at dates of its own
(physical: 137,604 pairs; regulatory: 39,546), so that the numbers of today's tables differ.
"""

from __future__ import annotations

from dglcell.graph.catalogue.entry import GeneSetSource, NetworkSource, Origin
from dglcell.graph.network_config import NetworkConfig
from dglcell.graph.raw_file import RawFile
from dglcell.graph.vocabulary import read_gff, read_sgd_features

LICENCE = "CC BY 4.0 (SGD)"
CITATION = "Engel et al. 2022, Genetics 220:iyab224 (SGD)"

_ARCHIVE = "http://sgd-archive.yeastgenome.org"
_RELEASE = "R64-4-1_20230830"

NETWORKS = {
    # Columns: 0 bait, 1 its standard name, 2 hit, 3 its standard name, 4 experiment, 5 genetic or physical, 6 source,
    # 7 curated or high-throughput, 8 notes, 9 phenotype, 10 reference, 11 citation. No header; quotes are text.
    "sgd_physical": NetworkSource(
        Origin("physical interactions in interaction_data.tab, as SGD has them from BioGRID", CITATION, LICENCE),
        RawFile("networks/interaction_data.tab", f"{_ARCHIVE}/curation/literature/interaction_data.tab.gz"),
        NetworkConfig(
            columns=["0", "2"], separator="\t", header=False, quotes=False, where={"5": "physical interactions"}
        ),
    ),
    # Columns: 0 regulator, 1 its systematic name, 2 target, 3 its systematic name, 4 assay, 5 regulator type,
    # 6 regulation type, 7 direction, 8 happens during, 9 strain, 10 reference. Some regulators are protein complexes.
    "sgd_regulatory": NetworkSource(
        Origin("regulation.tab: regulator → target, transcription and protein activity alike", CITATION, LICENCE),
        RawFile("networks/regulation.tab", f"{_ARCHIVE}/curation/literature/regulation.tab"),
        NetworkConfig(columns=["1", "3"], separator="\t", header=False, quotes=False, directed=True),
    ),
}

GENE_SETS = {
    "sgd_r64_4_1": GeneSetSource(
        Origin(
            "genes of the S288C reference genome R64-4-1 (2023-08-30), mitochondrial ones included: 6,607 as the "
            "original project counts them",
            CITATION,
            LICENCE,
        ),
        RawFile(
            f"genes/saccharomyces_cerevisiae_{_RELEASE}.gff",
            f"{_ARCHIVE}/sequence/S288C_reference/genome_releases/S288C_reference_genome_{_RELEASE}.tgz",
            sha256="64f61e3153083a8ef6d853721c9e83e4469cdc120883ec281e51a0df4ba390fa",
            size=20_086_638,
            member=f"saccharomyces_cerevisiae_{_RELEASE}.gff.gz",
            archive_sha256="987e7e324dee8e97368a27a34aa351537a4fa9342a43eaec82f2993486c48de1",
        ),
        read_gff,
    ),
    "sgd_features": GeneSetSource(
        Origin(
            "open reading frames of SGD_features.tab as of today: verified, uncharacterized, dubious", CITATION, LICENCE
        ),
        RawFile("genes/SGD_features.tab", f"{_ARCHIVE}/curation/chromosomal_feature/SGD_features.tab"),
        read_sgd_features,
    ),
}
