"""Files and folders that cannot be: names too long, loops of links, the wrong kind, and variables that say nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile.inputs import EXPERIMENT, MINIMAL, Input, cases

LONG = "x" * 300
LOOP = "loop"
FILE = "file.txt"
TABLE = """\
cell: {model: textbook}
data: {source: {name: csv, csv: {path: strains.csv, genes: [g], phenotypes: {f: f}}}}
"""

VERBS: dict[str, tuple[str, ...]] = {
    "evaluate": ("evaluate", "@"),
    "predict": ("predict", "@", FILE, "-o", "out.csv"),
    "report": ("report", "@"),
    "compare runs": ("report", "@", "@"),
    "stats": ("data", "stats", "@"),
    "verify": ("data", "stats", "--verify", "@"),
    "describe": ("graph", "describe", "@"),
    "validate": ("config", "validate", "@"),
    "show": ("config", "show", "@"),
    "train": ("train", "@"),
    "build": ("data", "build", "@"),
    "render": ("job", "render", "@"),
}

PLACES = {
    "nothing there": ("nowhere", "nowhere"),
    "a long name": (LONG, "xxx"),
    "a long path": ("y/" * 2_100, "y/y"),
    "a loop of links": (LOOP, LOOP),
    "below a loop": (f"{LOOP}/a", LOOP),
    "below a file": (f"{FILE}/a", FILE),
    "a file of the wrong kind": (FILE, FILE),
    "a device": ("/dev/null", "/dev/null"),
}

COMMANDS: list[tuple[tuple[str, ...], str]] = [
    ((), "required"),
    (("fly",), "fly"),
    (("train",), "FILE"),
    (("train", EXPERIMENT, "--fly"), "--fly"),
    (("train", EXPERIMENT, "extra"), "extra"),
    (("job", "render", EXPERIMENT, "--seeds", "a"), "--seeds"),
    (("job", "render", EXPERIMENT, "--seeds", "3-1"), "--seeds"),
    (("job", "render", EXPERIMENT, "--seeds", "0,0"), "--seeds"),
    (("job", "render", EXPERIMENT, "--seeds", "0-99999999999999"), "--seeds"),
    (("job", "render", EXPERIMENT, "--seeds", "²"), "--seeds"),
    (("job", "render", EXPERIMENT, "--seeds", "9" * 5_000), "--seeds"),
    (("job", "render", EXPERIMENT, "--sweep", "seed"), "--sweep"),
    (("job", "render", EXPERIMENT, "--sweep", "optimizer.lr=1,1"), "--sweep"),
    (("job", "render", EXPERIMENT, "--sweep", "optimizer.lr=.nan,1"), "optimizer.lr"),
    (
        (
            "job",
            "render",
            EXPERIMENT,
            "--sweep",
            "model.hidden=" + ",".join(map(str, range(1, 200))),
            "--seeds",
            "0-9999",
        ),
        "job array",
    ),
    (("job", "render", EXPERIMENT, "--split-seeds"), "--seeds"),
    (("job", "render", EXPERIMENT, "-o", FILE + "/a.sh"), FILE),
    (("job", "render", EXPERIMENT, "-o", LONG), "xxx"),
    (("job", "render", EXPERIMENT, "--raw", "a\nb"), "paths.raw"),
    (("job", "render", "a\nb.yaml"), "control character"),
    (("config", "validate", "a\nb.yaml"), "experiment.name"),
    (("data", "fetch", "nothing"), "nothing"),
    (("data", "fetch", "kuzmin2018", "--raw", FILE), FILE),
    (("train", EXPERIMENT, "paths.runs=" + FILE), FILE),
    (("train", EXPERIMENT, "paths.runs=" + LOOP), LOOP),
    (("train", EXPERIMENT, "paths.runs=/proc"), "/proc"),
    (("train", EXPERIMENT, "resume=nowhere.ckpt"), "nowhere.ckpt"),
    (("train", EXPERIMENT, "resume=" + LONG), "xxx"),
    (("train", EXPERIMENT, "data.store=" + LOOP), LOOP),
    (("train", EXPERIMENT, "data.store=" + LONG), "xxx"),
    (("train", EXPERIMENT, "split={kind: file, path: nowhere.json}"), "nowhere.json"),
]

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": "one"}

VARIABLES: list[tuple[dict[str, str], tuple[str, ...], str]] = [
    ({"DGLCELL_RAW": "nowhere"}, ("data", "build", "table.yaml"), "nowhere"),
    ({"DGLCELL_RAW": FILE}, ("data", "build", "table.yaml"), FILE),
    ({"DGLCELL_RAW": LONG}, ("data", "build", "table.yaml"), "xxx"),
    ({"DGLCELL_RAW": LOOP}, ("data", "build", "table.yaml"), LOOP),
    ({"DGLCELL_RAW": FILE}, ("data", "fetch", "kuzmin2018"), FILE),
    ({"HERE": "a\nb"}, ("config", "validate", EXPERIMENT, "experiment.name=${oc.env:HERE}"), "experiment.name"),
    ({"HERE": "\x1b[31m"}, ("config", "validate", EXPERIMENT, "paths.runs=${oc.env:HERE}"), "paths.runs"),
    ({"HERE": "many"}, ("config", "validate", EXPERIMENT, "seed=${oc.env:HERE}"), "seed"),
    ({"HERE": ""}, ("config", "validate", EXPERIMENT, "paths.data=${oc.env:HERE}"), "paths.data"),
    ({"HERE": "[" * 5_000}, ("config", "validate", EXPERIMENT, "seed=${oc.decode:${oc.env:HERE}}"), EXPERIMENT),
    ({**SLURM, "SLURM_NTASKS": "many"}, ("train", EXPERIMENT), "SLURM_NTASKS"),
    ({**SLURM, "SLURM_NTASKS": "-1"}, ("train", EXPERIMENT), "SLURM_NTASKS"),
    ({**SLURM, "SLURM_NNODES": "1.5"}, ("train", EXPERIMENT), "SLURM_NNODES"),
    ({**SLURM, "SLURM_NNODES": "²"}, ("train", EXPERIMENT), "SLURM_NNODES"),
    ({**SLURM, "SLURM_NNODES": "9" * 5_000}, ("train", EXPERIMENT), "SLURM_NNODES"),
    ({**SLURM, "SLURM_GPUS_ON_NODE": "all"}, ("train", EXPERIMENT), "SLURM_GPUS_ON_NODE"),
    ({"PATH": "nowhere"}, ("job", "submit", EXPERIMENT), "sbatch"),
]


def places() -> Iterator[Input]:
    """Yield verbs with places."""
    for verb, words in VERBS.items():
        for kind, (place, says) in PLACES.items():
            arguments = tuple(place if word == "@" else word for word in words)
            yield Input(f"{verb}: {kind}", arguments, says)


def commands() -> Iterator[Input]:
    """Yield command lines."""
    for number, (arguments, says) in enumerate(COMMANDS):
        yield Input(f"{number}-{' '.join(arguments)[:50]!a}", arguments, says)
    for number, (environment, arguments, says) in enumerate(VARIABLES):
        yield Input(f"variable {number}-{list(environment)[-1]}", arguments, says, environment=environment)


@cases(places())
def test_places(hostile: Input, tmp_path: Path, driven: Callable[[Input], None]) -> None:
    furnish(tmp_path)
    driven(hostile)


@cases(commands())
def test_commands(hostile: Input, tmp_path: Path, driven: Callable[[Input], None]) -> None:
    furnish(tmp_path)
    driven(hostile)


def furnish(folder: Path) -> None:
    """A valid experiment, one whose table is missing, a file, a name with a line end, and a loop of links."""
    for name, text in ((EXPERIMENT, MINIMAL), ("table.yaml", TABLE), (FILE, "text\n"), ("a\nb.yaml", MINIMAL)):
        (folder / name).write_text(text)
    os.symlink(LOOP, folder / LOOP)
