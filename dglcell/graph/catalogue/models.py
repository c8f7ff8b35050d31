"""Metabolic models by name, beside those that the cobra package ships."""

from __future__ import annotations

from dglcell.graph.catalogue.entry import ModelSource, Origin
from dglcell.graph.raw_file import RawFile

_YEAST_GEM = Origin(
    "consensus model of yeast metabolism, release 9.0.2: 4,131 reactions, 2,806 metabolites, 1,161 genes",
    "Zhang et al. 2024, Mol Syst Biol 20:1134 (Yeast9)",
    "CC BY 4.0",
)
_COMMIT = "https://raw.githubusercontent.com/SysBioChalmers/yeast-GEM/a2a672e367ae22eaf9a44228d6ad69eb4ce5f6b6/model"

MODELS = {
    # The MATLAB form loads in 2 s, the others in about 18 s. Hash and size are those of the file in the repository.
    "yeast-GEM_9.0.2": ModelSource(
        _YEAST_GEM,
        RawFile(
            "metabolism/yeast-GEM_9.0.2.mat",
            f"{_COMMIT}/yeast-GEM.mat",
            sha256="a4949fd2bf13ce13a357fbde56c389fa6b53492065352ac701848dc5ea714927",
            size=543_366,
        ),
    ),
    "yeast-GEM_9.0.2_yml": ModelSource(
        _YEAST_GEM,
        RawFile(
            "metabolism/yeast-GEM_9.0.2.yml",
            f"{_COMMIT}/yeast-GEM.yml",
            sha256="ecfe5f816471f2f62921c9448cdd5bf9803263aaf9aa91da02d1969077786aad",
            size=3_663_967,
        ),
    ),
    # Hash and size are those of the JSON in the named repository; bigg.ucsd.edu serves other bytes of the same model.
    "iMM904": ModelSource(
        Origin(
            "yeast metabolism, 905 genes, 1,577 reactions, 1,226 metabolites",
            "Mo, Palsson & Herrgård 2009, BMC Syst Biol 3:37",
            "none stated (repository); academic and non-commercial (BiGG)",
        ),
        RawFile(
            "metabolism/iMM904.json",
            "https://raw.githubusercontent.com/dalessandro3025-rgb/cbda-metabolic-modeling-FBA/"
            "a336299f42acb48237f74cff99a8e835b2687286/models/iMM904.json",
            sha256="ddb2bc731214c2f8beb6c378e296dd3110d26383ff86511c1b0fa0fe354d1682",
            size=1_919_347,
        ),
    ),
    "e_coli_core": ModelSource(
        Origin(
            "core metabolism of Escherichia coli, as BiGG has it; cobra ships it as `textbook`",
            "Orth, Fleming & Palsson 2010, EcoSal Plus 4",
            "academic and non-commercial (BiGG)",
        ),
        RawFile("metabolism/e_coli_core.json", "http://bigg.ucsd.edu/static/models/e_coli_core.json"),
    ),
}
