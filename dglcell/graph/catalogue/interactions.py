"""Physical interactions from BioGRID, and networks from single studies.

BioGRID's TAB 3.0 files have a header line that begins with ``#BioGRID Interaction ID``; the columns used here are
described at wiki.thebiogrid.org (BioGRID TAB 3.0) and quoted by several readers in public repositories. Releases come
as one archive of all organisms; address and member are those that other projects use for this release. BioGRID states
no hashes: they are recorded at the first download. For another release, give its file as `path` beside the `source`.
"""

from __future__ import annotations

from dglcell.graph.catalogue.entry import NetworkSource, Origin
from dglcell.graph.network_config import GROUPS, NetworkConfig
from dglcell.graph.raw_file import RawFile

_BIOGRID = "Oughtred et al. 2021, Protein Sci 30:187 (BioGRID)"
_RELEASE = "5.0.261"
_S288C = "559292"

NETWORKS = {
    "biogrid_physical": NetworkSource(
        Origin(f"BioGRID {_RELEASE}, physical interactions between two yeast proteins", _BIOGRID, "MIT (BioGRID)"),
        RawFile(
            f"networks/BIOGRID-ORGANISM-Saccharomyces_cerevisiae_S288c-{_RELEASE}.tab3.txt",
            "https://downloads.thebiogrid.org/Download/BioGRID/Release-Archive/"
            f"BIOGRID-{_RELEASE}/BIOGRID-ORGANISM-{_RELEASE}.tab3.zip",
            member=f"BIOGRID-ORGANISM-Saccharomyces_cerevisiae_S288c-{_RELEASE}.tab3.txt",
        ),
        NetworkConfig(
            columns=["Systematic Name Interactor A", "Systematic Name Interactor B"],
            separator="\t",
            header=True,
            quotes=False,
            where={
                "Experimental System Type": "physical",
                "Organism ID Interactor A": _S288C,
                "Organism ID Interactor B": _S288C,
            },
        ),
    ),
    "biogrid_physical_3_4_156": NetworkSource(
        Origin(
            "BioGRID 3.4.156, physical interactions, as pairs; from KISRDevelopment/cell_viability_paper, "
            "website/data/ppc_yeast.gml",
            _BIOGRID,
            "none stated (repository); MIT (BioGRID)",
        ),
        RawFile(
            "networks/biogrid_physical_kisr_edges.csv.gz",
            sha256="f93ccc0ef35e1df057b4587627f652b29e01604e08d26fb02be918fa05dc672e",
            size=226_424,
        ),
        NetworkConfig(columns=["orf_a", "orf_b"], separator=",", header=True),
    ),
    "hu2007_coexpression": NetworkSource(
        Origin(
            "pairs of genes whose expression correlates over deletions of transcription factors",
            "Hu, Killion & Iyer 2007, Nat Genet 39:683",
            "MIT (bowang-lab/BIONIC)",
        ),
        RawFile(
            "networks/hu2007_coexpression.txt",
            "https://raw.githubusercontent.com/bowang-lab/BIONIC/0f4307f380eea11477950145cb2cd97d563f90b1/"
            "bionic/inputs/Hu-2007.txt",
            sha256="759c56374978221b308afcc53a6db2569a56213472c666c2343a58d2e48ce359",
            size=521_253,
        ),
        NetworkConfig(columns=["0", "1"], separator=" ", header=False),
    ),
    "cyc2008_complexes": NetworkSource(
        Origin(
            "CYC2008: pairs of proteins of one manually curated complex",
            "Pu et al. 2009, Nucleic Acids Res 37:825",
            "GPL-3 (benjamin-elusers/yeastomics)",
        ),
        RawFile(
            "networks/cyc2008_complexes.tsv",
            "https://raw.githubusercontent.com/benjamin-elusers/yeastomics/a1af301ea1de4a4d61c44e0e321e7ee099f273cb/"
            "released-dataset/original_data/CYC2008_complex.tab",
            sha256="e8a48cd9e3fdb8abf7b47df996b037ac250b3bf8fab16f1b187b8697f7332f9a",
            size=108_323,
        ),
        NetworkConfig(columns=["ORF", "Complex"], separator="\t", header=True, layout=GROUPS),
    ),
}
