"""Published laboratory screens: one declaration per file, all read by the CSV source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from dglcell.data.sources.csv_config import MISSING_POLICIES, REPLICATE_POLICIES, CsvConfig
from dglcell.data.sources.csv_file import Rows, read_rows
from dglcell.data.sources.csv_table import table_of_rows
from dglcell.data.table import Provenance, StrainTable
from dglcell.errors import ConfigError, DataError
from dglcell.files import find_raw, sha256_file

# The HO locus carries the second marker of single-mutant control queries. Its deletion is neutral, so that such a
# strain stands for the mutant of its other genes (Kuzmin et al. 2018).
HO_LOCUS = "YDL227C"


@dataclass
class LaboratoryConfig:
    """Choices that apply to every laboratory screen.

    Attributes:
        where: column of the file → value; other rows are left out, e.g. ``{kind: trigenic}``.
        missing: rows without a phenotype: ``refuse`` or ``drop``.
        replicates: rows of the same genes: ``mean`` or ``refuse``.
        keep_marker_locus: count HO, the marker locus of single-mutant controls, as a deleted gene.
    """

    where: dict[str, str] = field(default_factory=dict)
    missing: str = "refuse"
    replicates: str = "mean"
    keep_marker_locus: bool = False

    def validate(self) -> None:
        """Check the policies.

        Raises:
            ConfigError: a policy is unknown.
        """
        for key, policy, policies in (
            ("missing", self.missing, MISSING_POLICIES),
            ("replicates", self.replicates, REPLICATE_POLICIES),
        ):
            if policy not in policies:
                raise ConfigError(
                    f"`data.source.laboratory.{key}` has an unknown value", got=policy, expected=" or ".join(policies)
                )


@dataclass(frozen=True)
class Laboratory:
    """A published screen.

    Attributes:
        description: one or two sentences, with what the numbers mean.
        citation: the publication.
        licence: as the public repository states it.
        url: repository, path and commit.
        sha256: of the file.
        rows: in the file, without its header.
        csv: file and columns.
        prepare: adds columns that ``csv`` names, computed from those of the file, or removes copies of rows.
        count: column whose values are counted in the provenance.
    """

    description: str
    citation: str
    licence: str
    url: str
    sha256: str
    rows: int
    csv: CsvConfig
    prepare: Callable[[Rows], Rows] | None = None
    count: str | None = None


def load_laboratory(name: str, config: LaboratoryConfig, raw: str | None = None) -> StrainTable:
    """Read a published screen.

    Args:
        name: a key of :data:`LABORATORIES`.
        config: choices.
        raw: folder that holds ``interactions/``.

    Raises:
        ConfigError: a choice is unknown.
        DataError: the file is missing, is not the published one, or has no rows of this kind.
    """
    config.validate()
    screen = LABORATORIES[name]
    path = find_raw(screen.csv.path, raw)
    check_sha256(path, screen.sha256)
    rows = read_rows(path)
    counts = {}
    if screen.count:
        counts = {
            f"rows_{screen.count}_{value}": int(n)
            for value, n in rows.frame[screen.count].value_counts().sort_index().items()
        }
    if screen.prepare:
        prepared = screen.prepare(rows)
        counts["rows_listed_before"] = len(rows) - len(prepared)
        rows = prepared
    csv = replace(
        screen.csv,
        where=dict(config.where),
        missing=config.missing,
        replicates=config.replicates,
        ignore_genes=[] if config.keep_marker_locus else screen.csv.ignore_genes,
    )
    provenance = Provenance(
        source=name,
        description=screen.description,
        citation=screen.citation,
        licence=screen.licence,
        urls=(screen.url,),
        files={path.name: screen.sha256},
        counts=counts,
        parameters=asdict(config),
    )
    return table_of_rows(rows, csv, provenance)


def check_sha256(path: Path, expected: str) -> None:
    """Refuse a file that is not the published one.

    Raises:
        DataError: its hash differs.
    """
    got = sha256_file(path)
    if got != expected:
        raise DataError(
            f"'{path}' is not the file this source was written for",
            got=f"sha256 {got}",
            expected=f"sha256 {expected}",
            do="copy the file again; to read a file of your own, use `data.source.name: csv`",
        )


def _score_by_kind(rows: Rows) -> Rows:
    """``score`` and ``p`` are those of epsilon in digenic rows and of tau in trigenic rows."""
    frame = rows.frame.copy()
    for kind in ("digenic", "trigenic"):
        chosen = frame["kind"] == kind
        frame[f"{kind}_score"] = frame["score"].where(chosen, "")
        frame[f"{kind}_p"] = frame["p"].where(chosen, "")
    return replace(rows, frame=frame)


def _share_negative(rows: Rows) -> Rows:
    """The share of a genotype's significant interactions that are negative: 1, 0, or between for mixed ones."""
    negative, other = (rows.frame[column].astype(int) for column in ("n_negative", "n_not_negative"))
    return replace(rows, frame=rows.frame.assign(share_negative=(negative / (negative + other)).astype(str)))


def _either_direction(rows: Rows) -> Rows:
    """``interact`` counts the directions, query × array, in which the pair interacted: 0, 1 or 2."""
    rows = _without_copies(rows, "query", "array", "interact")
    return replace(rows, frame=rows.frame.assign(any_direction=rows.frame["interact"].replace("2", "1")))


def _without_copies(rows: Rows, gene_a: str, gene_b: str, value: str) -> Rows:
    """Leave out rows that repeat a pair, in either order, with the same value: one measurement listed twice."""
    ordered = np.sort(rows.frame[[gene_a, gene_b]].to_numpy(dtype=str), axis=1)
    copies = rows.frame.assign(first=ordered[:, 0], second=ordered[:, 1]).duplicated(["first", "second", value])
    return rows.keep(~copies.to_numpy())


LABORATORIES: dict[str, Laboratory] = {
    "collins2007": Laboratory(
        description="E-MAP of chromosome biology: S-scores of gene pairs (negative: aggravating, positive: "
        "alleviating); part of the published map. 1,779 pairs were scored more than once.",
        citation="Collins et al. 2007, Nature 446:806",
        licence="Artistic-2.0 (Bioconductor SLGI)",
        url="https://github.com/bioc/SLGI data/gi2007.rda 5cb5fcc3152b62223f9f405c42996c412d4634ef",
        sha256="0a916087ac0dc5fa08ff1c84bbb8ae59b25609c8c2ea7340df532a3d5d4f9439",
        rows=140_579,
        csv=CsvConfig(
            path="interactions/collins2007_emap.csv.gz", genes=["gene_a", "gene_b"], phenotypes={"s_score": "s_score"}
        ),
    ),
    "costanzo2016_two_go_terms": Laboratory(
        description="Digenic interactions (epsilon) among the genes of two GO terms, DNA repair (GO:0006281) and "
        "chromatin (GO:0000790). The file lists pairs within both terms twice, here they count once.",
        citation="Costanzo et al. 2016, Science 353:aaf1420; selection of Ma et al. 2018, Nat Methods 15:290",
        licence="MIT (idekerlab/DCell); values from Costanzo 2016",
        url="https://github.com/idekerlab/DCell training/TrainData 110c8a7cdb0182589b4ce310a7302cc9c605d25b",
        sha256="59286e3a4dddc99dbc1d038cc3d5cb6c399a5470ef3af22627160a4a00f23c01",
        rows=13_875,
        csv=CsvConfig(
            path="interactions/costanzo2016_two_go_terms.csv.gz",
            genes=["gene_a", "gene_b"],
            phenotypes={"digenic_interaction": "epsilon"},
        ),
        prepare=lambda rows: _without_copies(rows, "gene_a", "gene_b", "epsilon"),
        count="go_term",
    ),
    "kuzmin2020_pilot": Laboratory(
        description="Trigenic screen of 4 paralog query pairs with digenic controls: tau, epsilon and fitness of "
        "the combined mutant. Controls carry a marker at HO instead of the second query gene.",
        citation="Kuzmin et al. 2020, Science 368:eaaz5667; scores as in its protocol, Kuzmin et al. 2021, "
        "Nat Protoc 16:1219",
        licence="none stated (csbio/SGA_Public); a published table without written redistribution rights",
        url="https://github.com/csbio/SGA_Public test/trigenic_scoring_test/scored_triple_test_small_trigenic.txt "
        "05134938ce18b118ebc58ef575ab403e634aae2b",
        sha256="30e3d8b655efa7a9d73ceda547a8e67c9fa1cb8c3a90aa54a137d6fe0e9db4bd",
        rows=9_511,
        csv=CsvConfig(
            path="interactions/kuzmin2020_pilot.csv.gz",
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
        prepare=_score_by_kind,
        count="kind",
    ),
    "kuzmin2018_dataS2_orf": Laboratory(
        description="Significant interactions of the trigenic screen, without scores: negative_interaction is 1 where "
        "negative, 0 where digenic and not negative, between for alleles that disagree. Every trigenic row is 1: "
        "no trigenic negatives are listed, so that these rows alone cannot train a model.",
        citation="Kuzmin et al. 2018, Science 360:eaao1729, Data S2",
        licence="none stated (AleixMT/TrigenicInteractionPredictor)",
        url="https://github.com/AleixMT/TrigenicInteractionPredictor src/links.txt "
        "404f21b39a548d7634b861575692effda0260d3d",
        sha256="1f2ee86e5d476b2ba39b6b53de1b2af802f3213f66a71a6f44a72530b6dce320",
        rows=17_285,
        csv=CsvConfig(
            path="interactions/kuzmin2018_dataS2_orf.csv.gz",
            genes=["orf_a", "orf_b", "orf_c"],
            phenotypes={"negative_interaction": "share_negative"},
            ignore_genes=[HO_LOCUS],
        ),
        prepare=_share_negative,
        count="kind",
    ),
    "tong2004_tested_pairs": Laboratory(
        description="Tested pairs of 132 synthetic genetic array screens: synthetic_lethality is 1 where the double "
        "mutant was synthetic sick or lethal in either direction of the cross, 0 where it was tested and was not.",
        citation="Tong et al. 2004, Science 303:808",
        licence="Artistic-2.0 (Bioconductor SLGI)",
        url="https://github.com/bioc/SLGI data/AtongPair.rda 5cb5fcc3152b62223f9f405c42996c412d4634ef",
        sha256="b77203e158e46b10b775a98088e2aebfce1b9253b4f1b3c556a54f6e17aded41",
        rows=607_749,
        csv=CsvConfig(
            path="interactions/tong2004_tested_pairs.csv.gz",
            genes=["query", "array"],
            phenotypes={"synthetic_lethality": "any_direction"},
        ),
        prepare=_either_direction,
        count="recip",
    ),
}
