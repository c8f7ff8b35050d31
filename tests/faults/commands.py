"""The commands that are killed: what each begins with, and what has to be equal in the end."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

GENES = [f"g{number:02}" for number in range(16)]

EXPERIMENT = """\
experiment: {{name: small}}
cell: {{networks: {{contacts: {{path: {files}/contacts.tsv, columns: [from, to]}}}}}}
data:
  source:
    name: csv
    csv: {{path: {files}/strains.csv, genes: [gene_1, gene_2], phenotypes: {{fitness: fitness}}}}
  phenotypes: [fitness]
  store: {root}/store
  batch_size: 32
split: {{kind: random, seed: 1}}
model: {{hidden: 4, layers: 1, local_heads: 2, strategy: node_mask, kernel: csr, dropout: 0.2}}
optimizer: {{name: AdamW, lr: 0.01}}
scheduler: {{name: none}}
paths: {{runs: {root}}}
trainer: {{epochs: 2, checkpoint: best_loss, threads: 1, accelerator: cpu}}
"""


def write_files(files: Path, root: Path) -> Path:
    """Write an experiment of 120 strains of 16 genes, with its tables; everything that it makes lies below ``root``."""
    files.mkdir()
    draw = random.Random(7)
    pairs = list(itertools.combinations(GENES, 2))
    (files / "contacts.tsv").write_text("\n".join(["from\tto", *map("\t".join, draw.sample(pairs, 40))]) + "\n")
    rows = [f"{a},{b},{draw.gauss(1, 0.2):.4f}" for a, b in pairs]
    (files / "strains.csv").write_text("\n".join(["gene_1,gene_2,fitness", *rows]) + "\n")
    (files / "genotypes.csv").write_text("\n".join(["genes", *map(";".join, pairs[:50])]) + "\n")
    (files / "genes.txt").write_text("\n".join(GENES[:9]) + "\n")
    experiment = files / "small.yaml"
    experiment.write_text(EXPERIMENT.format(files=files, root=root))
    return experiment


@dataclass(frozen=True)
class Command:
    """A command that is killed."""

    name: str  #: of its tests
    arguments: str  #: of ``dglcell``; ``{files}``, ``{root}`` and ``{run}`` stand for folders
    after: str | None = None  #: the command whose outcome it begins with; nothing where None
    complete: str | None = None  #: what it says, with status 2, where it was killed after all was done
    #: at how many moments `make test` kills it; where 0, only `make test-slow` does, which kills it at all
    sample: int = 2

    def words(self, files: Path, root: Path) -> list[str]:
        """Return the arguments."""
        return self.arguments.format(files=files, root=root, run=root / "small" / "seed-0").split()


TRAIN = "train {files}/small.yaml plot=false baselines=false"
EXISTS = "exists already; nothing was written"
TABLE = "predict {run} {files}/genotypes.csv"
DESIGN = "predict {run} --genes {files}/genes.txt"

COMMANDS = {
    command.name: command
    for command in (
        Command("build", "data build {files}/small.yaml", complete="store' exists already"),
        Command("rebuild", "data build {files}/small.yaml --overwrite", "build", sample=1),
        Command("train", TRAIN, sample=3),
        Command("continue", f"{TRAIN} trainer.epochs=3", "train"),
        Command("report", "report {run}", "train", sample=0),
        Command("predict_table", f"{TABLE} -o {{root}}/out.csv", "train", EXISTS),
        Command("predict_table_to_parquet", f"{TABLE} -o {{root}}/out.parquet", "train", EXISTS, sample=0),
        Command("predict_design", f"{DESIGN} --all-triples --batch-size 30 -o {{root}}/out.parquet", "train", EXISTS),
        Command("predict_design_to_folder", f"{DESIGN} --all-pairs --batch-size 6 -o {{root}}/out", "train"),
        Command("explain", "explain {run} {files}/genotypes.csv -o {root}/explained.csv", "train", EXISTS, sample=1),
    )
}
