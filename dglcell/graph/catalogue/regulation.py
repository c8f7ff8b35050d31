"""Transcription factors and their targets: TFLink, YEASTRACT, and a comparison of methods by the Brent laboratory.

TFLink's table begins ``UniprotID.TF UniprotID.Target NCBI.GeneID.TF NCBI.GeneID.Target Name.TF Name.Target
Detection.method PubmedID Organism Source.database Small-scale.evidence …`` (two readers of it in public repositories
quote the header); the address is the original project's. Names are gene names, so that the cell needs `aliases`. The
original dropped targets without a standard name and gave an ambiguous name to all its genes; here the former stay and
the latter are dropped and counted.

YEASTRACT offers tables made to order (yeastract.com, regulation matrix): two columns separated by semicolons, or a
matrix of transcription factors × genes, with names such as ``Gcn4p``, which the aliases of SGD know as well.
"""

from __future__ import annotations

from dglcell.graph.catalogue.entry import NetworkSource, Origin
from dglcell.graph.network_config import MATRIX, NetworkConfig
from dglcell.graph.raw_file import RawFile

_YEASTRACT = "Monteiro et al. 2020, Nucleic Acids Res 48:D642 (YEASTRACT+)"
_ACADEMIC = "free for academic use (YEASTRACT)"

NETWORKS = {
    "tflink": NetworkSource(
        Origin(
            "TFLink 1.0, all evidence: transcription factor → target; its yeast layer is mostly YEASTRACT 2020",
            "Liska et al. 2022, Database 2022:baac083",
            "none found; see tflink.net",
        ),
        RawFile(
            "networks/TFLink_Saccharomyces_cerevisiae_interactions_All_simpleFormat_v1.0.tsv",
            "https://cdn.netbiol.org/tflink/download_files/"
            "TFLink_Saccharomyces_cerevisiae_interactions_All_simpleFormat_v1.0.tsv",
        ),
        NetworkConfig(columns=["Name.TF", "Name.Target"], separator="\t", header=True, quotes=False, directed=True),
        standard_names=True,
    ),
    "yeastract": NetworkSource(
        Origin(
            "YEASTRACT 2019-07-13, binding and expression evidence, as pairs of systematic names; from "
            "flatironinstitute/inferelator, data/yeast/YEASTRACT_20190713_BOTH.tsv",
            _YEASTRACT,
            f"BSD-2-Clause (repository); {_ACADEMIC}",
        ),
        RawFile(
            "networks/yeastract_edges.csv.gz",
            sha256="c87716439e79932619b6218fd8c63444d44d8ad08061d528e1dc57f2fb4f56e5",
            size=38_899,
        ),
        NetworkConfig(columns=["tf", "target"], separator=",", header=True, directed=True),
    ),
    "yeastract_pairs": NetworkSource(
        Origin(
            "a two-column table (TF;target) from yeastract.com, put into the raw folder by hand", _YEASTRACT, _ACADEMIC
        ),
        RawFile("networks/RegulationTwoColumnTable.tsv"),
        NetworkConfig(columns=["0", "1"], separator=";", header=False, directed=True),
        standard_names=True,
    ),
    "yeastract_matrix": NetworkSource(
        Origin(
            "a regulation matrix (TFs in rows, genes in columns) from yeastract.com, put into the raw folder by hand",
            _YEASTRACT,
            _ACADEMIC,
        ),
        RawFile("networks/RegulationMatrix.csv"),
        NetworkConfig(columns=["row", "column"], separator=";", layout=MATRIX, directed=True),
        standard_names=True,
    ),
    "brentlab_tf_targets": NetworkSource(
        Origin(
            "transcription factor → target by calling cards, ChIP-exo or ChIP-chip",
            "Kang et al. 2020, Genome Res 30:459",
            "MIT",
        ),
        RawFile(
            "networks/brentlab_tf_target_cc_exo_chip.txt",
            "https://raw.githubusercontent.com/BrentLab/NET-evaluation/1524789b3fffd98622a928a67dc960da54cb4925/"
            "metadata/yeast/reg_target_cc_exo_chip_exclusive.txt",
            sha256="8b3c767829ee3643b447cdf983e64518c55436ea6d05ac086aa466e88ab143a6",
            size=515_164,
        ),
        NetworkConfig(columns=["REGULATOR", "TARGET"], separator="\t", header=True, directed=True),
    ),
}
