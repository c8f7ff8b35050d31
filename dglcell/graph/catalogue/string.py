"""STRING networks of Saccharomyces cerevisiae (taxon 4932): six evidence channels, physical links, actions.

``protein.links.detailed`` files are separated by blanks and begin ``protein1 protein2 neighborhood fusion cooccurence
coexpression experimental database textmining combined_score``, with scores from 0 to 999 and names such as
``4932.YAL001C``; each pair stands in both orders. Header and addresses of 9.1, 11.0 and 12.0 are those that the
original project (Mjvolk3/torchcell, torchcell/graph/graph.py and its notes) printed and used; the address of 11.5 is
built like that of 11.0, as other projects fetch it. (The older channel is spelt ``cooccurence`` in every version. Files
called ``protein.links.full`` have ``experiments`` for ``experimental`` and further columns ending in ``_transferred``.)
STRING states no hashes: they are recorded at the first download.
"""

from __future__ import annotations

from dataclasses import replace

from dglcell.graph.catalogue.entry import NetworkSource, Origin
from dglcell.graph.network_config import NetworkConfig
from dglcell.graph.raw_file import RawFile

CHANNELS = ("neighborhood", "fusion", "cooccurence", "coexpression", "experimental", "database")
"""Evidence without text mining, in the order of the file: those that DANGO and experiment 006 use."""

LICENCE = "CC BY 4.0 (STRING)"

_FOLDERS = {
    "9.1": "http://string91.embl.de/newstring_download",
    "11.0": "https://stringdb-static.org/download",
    "11.5": "https://stringdb-static.org/download",
    "12.0": "https://stringdb-downloads.org/download",
}
_CITATIONS = {
    "9.1": "Franceschini et al. 2013, Nucleic Acids Res 41:D808",
    "11.0": "Szklarczyk et al. 2019, Nucleic Acids Res 47:D607",
    "11.5": "Szklarczyk et al. 2021, Nucleic Acids Res 49:D605",
    "12.0": "Szklarczyk et al. 2023, Nucleic Acids Res 51:D638",
}
_LINKS = NetworkConfig(columns=["protein1", "protein2"], separator=" ", header=True, strip_prefix="4932.")


def _channels(version: str) -> NetworkSource:
    kind = f"protein.links.detailed.v{version}"
    name = f"4932.{kind}.txt.gz"
    return NetworkSource(
        Origin(
            f"STRING {version}: pairs of proteins with a score above 0, one relation per evidence channel",
            _CITATIONS[version],
            LICENCE,
        ),
        RawFile(f"networks/{name}", f"{_FOLDERS[version]}/{kind}/{name}"),
        replace(_LINKS, channels=list(CHANNELS)),
    )


NETWORKS = {
    **{f"string{version.replace('.', '_')}": _channels(version) for version in _FOLDERS},
    "string12_0_physical": NetworkSource(
        Origin("STRING 12.0, physical subnetwork: proteins of one complex", _CITATIONS["12.0"], LICENCE),
        RawFile(
            "networks/string_v12_0_physical_links_full.txt.gz",
            "https://raw.githubusercontent.com/benjamin-elusers/yeastomics/a1af301ea1de4a4d61c44e0e321e7ee099f273cb/"
            "released-dataset/original_data/4932.protein.physical.links.full.v12.0.txt.gz",
            sha256="0db5126a1fe8eb3e56cb574e946e0f66cc43d68c3fca62af7b9683c291230592",
            size=2_568_514,
        ),
        _LINKS,
    ),
    "string11_0_actions": NetworkSource(
        Origin(
            "STRING 11.0 actions: one relation for each of seven modes (activation, binding, …), taken as undirected",
            _CITATIONS["11.0"],
            LICENCE,
        ),
        RawFile(
            "networks/string_v11_0_actions.txt.gz",
            "https://raw.githubusercontent.com/jameszha/pyOnto2Vec/8098fbbddadc37299a1ae8938bf5ef303095a320/"
            "data/yeast/datasets/4932.protein.actions.v11.0.txt.gz",
            sha256="5706744abb7af6082562d00282837dbd95ac9ef26c64eb313a96543e78a394f4",
            size=3_146_834,
        ),
        NetworkConfig(
            columns=["item_id_a", "item_id_b"],
            separator="\t",
            header=True,
            relation_column="mode",
            strip_prefix="4932.",
        ),
    ),
    "string11_5_high_confidence": NetworkSource(
        Origin(
            "STRING 11.5, pairs with a combined score of 900 or more, six channels; re-keyed from the numbered genes "
            "of Surabhivj/BraneMF, data/Org4932_*_27May2022.txt",
            _CITATIONS["11.5"],
            LICENCE,
        ),
        RawFile(
            "networks/string_v11_5_highconf_six_channels.csv.gz",
            sha256="c2ba6786dd78859be6f7bf6dd0f2b92a647a715e009b78d743e8815bb5c56de0",
            size=483_801,
        ),
        NetworkConfig(columns=["orf_a", "orf_b"], separator=",", header=True, channels=list(CHANNELS)),
    ),
    "string9_1_dango": NetworkSource(
        Origin(
            "STRING 9.1 as DANGO was published with it, four of its six channels (not coexpression, experimental); "
            "re-keyed from the numbered genes of ma-compbio/DANGO, data/yeast_network/yeast_string_*_adjacency.txt",
            "Zhang et al. 2020, bioRxiv 2020.11.26.400739",
            "MIT (repository); CC BY 4.0 (STRING)",
        ),
        RawFile(
            "networks/dango_string_v9_1_edges.csv.gz",
            sha256="1214347ee20782e275a2955abbab4d7622521046079f583b4fefd2196d2f6370",
            size=833_143,
        ),
        NetworkConfig(columns=["orf_a", "orf_b"], separator=",", header=True, relation_column="channel"),
    ),
}
