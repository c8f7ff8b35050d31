"""Define the typed configuration of an experiment: every key with its default. `config.read` reads it from files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import SkipValidation

from dglcell.checks import (
    AUTO,
    LONGEST_NAME,
    Count,
    CountOrAuto,
    NotEmpty,
    Number,
    Rule,
    Seed,
    at_least,
    check_values,
    must,
    one_of,
    positive,
)
from dglcell.data.config import NORMALISATIONS, SplitConfig, Unknown
from dglcell.data.sources import ComputedConfig, SourceConfig
from dglcell.data.sources.config import FbaConfig
from dglcell.errors import ConfigError
from dglcell.graph.cell import CellConfig
from dglcell.losses.config import LOSSES, LossConfig, MaskedConfig
from dglcell.models.config import MODELS, HeteroCellConfig, ModelConfig
from dglcell.optimizers import OptimizerConfig, SchedulerConfig
from dglcell.runs import CHECKPOINTS

KINDS: dict[str, Mapping[str, type]] = {"model": MODELS, "loss": LOSSES}
"""This maps each section whose keys depend on its `name` to its names, and each name to the dataclass of its keys."""


@dataclass
class ExpectedConfig:
    """Give the result that a run of the unchanged file should have on the test part, for its first phenotype."""

    metric: str = "pearson"  # a metric of results.json
    value: float = 0.0  # expected value of the metric
    tolerance: float = 0.0  # largest difference, up or down, between machines and versions


@dataclass
class ExperimentConfig:
    """Name and describe the experiment."""

    name: str = ""  # name of the run directory; the file's folder and stem if empty
    description: str = ""  # one line for listings and reports
    tags: list[str] = field(default_factory=list)  # tags of the W&B run
    expected: ExpectedConfig | None = None  # a result to compare with, if the command line changes no key


Scale = Annotated[str, one_of(*NORMALISATIONS)]


@dataclass
class DataConfig:
    """Choose the strains and their batches."""

    source: SourceConfig = field(default_factory=SourceConfig)
    fba: FbaConfig | None = None  # covariate of growth by flux balance analysis, e.g. {model: iJO1366}; null: none
    computed: dict[str, ComputedConfig] = field(default_factory=dict)  # covariate → class of your own that computes it
    store: str | None = None  # path of the store; null: a folder in `paths.data`, named by source and options
    phenotypes: NotEmpty[str] | None = None  # the phenotypes to predict; null: all
    normalise: Scale = "standard"  # scales labels: standard | none | logistic, by training statistics
    unknown_genes: Unknown = "refuse"  # strains with genes that the cell graph lacks: refuse | drop
    batch_size: Count = 128  # strains per step and device
    eval_batch_size: Count | None = None  # strains per step in evaluation; null: batch_size

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        self.source.validate()
        for name, own in self.computed.items():
            own.simulator(f"data.computed.{name}").config.validate()
        if self.fba is not None:
            self.fba.validate()

    @property
    def evaluation_batch(self) -> int:
        """Return `eval_batch_size`, or `batch_size` where it is null."""
        return self.eval_batch_size or self.batch_size


# With `bf16` differences are stored and multiplied in bfloat16; the base, sums, losses and weights stay in float32.
Precision = Annotated[str, one_of("auto", "32-true", "bf16", "64-true")]


@dataclass
class TrainerConfig:
    """Configure how training runs."""

    epochs: Count = 30  # passes over the training part
    accelerator: Annotated[str, one_of("auto", "cpu", "gpu", "cuda")] = "auto"  # auto | cpu | gpu | cuda
    devices: Count = 1  # processes on each machine; each uses one device
    num_nodes: Count = 1  # number of machines
    strategy: Annotated[str, one_of("auto", "ddp")] = "auto"  # how processes work together: auto | ddp
    precision: Precision = "auto"  # auto | 32-true | bf16 (differences only) | 64-true
    accumulate_grad_batches: dict[Number, Count] = field(default_factory=dict)  # epoch → batches per step from it on
    #: largest norm of the gradient; null: no limit
    gradient_clip_val: Annotated[float, positive(do="use null for no limit")] | None = 10.0
    deterministic: bool = True  # warn of non-deterministic kernels
    threads: CountOrAuto | None = AUTO  # CPU threads of torch; auto, null: the cores that are allotted
    timeout: Count = 1800  # seconds that processes wait for each other, also at the start, before all end
    patience: Count | None = None  # stop after this many epochs without a better validation loss; null: never
    #: reported: best_loss | best_pearson | best_average_precision | last
    checkpoint: Annotated[str, one_of(*CHECKPOINTS)] = "best_pearson"
    #: of Lightning: simple | pytorch; writes into the run directory; null: none
    profiler: Annotated[str, one_of("simple", "pytorch")] | None = None

    @property
    def lightning_precision(self) -> str:
        """Return Lightning's name for the precision of weights, bases and losses."""
        return "64-true" if self.precision == "64-true" else "32-true"

    @property
    def given_threads(self) -> int | None:
        """Return `threads` where it is a number; None for the cores that are allotted."""
        return self.threads if isinstance(self.threads, int) else None


@dataclass
class TrackingConfig:
    """Configure Weights & Biases; the JSONL record is written in any case."""

    #: disabled | offline | online | auto: offline in a job of SLURM, else online
    wandb: Annotated[str, one_of("disabled", "auto", "offline", "online")] = "disabled"
    project: str = "dglcell"  # project at W&B
    entity: str | None = None  # user or team at W&B; null: your own
    group: str | None = None  # group at W&B; null: the experiment's name

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        for key in ("project", "entity", "group") if self.wandb != "disabled" else ():
            name, refused = getattr(self, key), "# % / : ? \\"
            if name is not None and not (0 < len(name) <= 128 and not set(name) & set(refused.split())):
                expected = f"1 to 128 characters, none of {refused}"
                raise ConfigError(f"`tracking.{key}` is no name that W&B takes", got=name, expected=expected)


Folder = Annotated[str, must(bool, "is empty", "a folder", "e.g. `.` for the working folder")]


@dataclass
class PathsConfig:
    """Give the folders of files."""

    raw: str | None = None  # folder of raw files; null: the environment variable DGLCELL_RAW
    data: Folder = "data"  # folder of stores
    runs: Folder = "runs"  # folder of run directories


TIME, MEMORY = re.compile(r"auto|(\d+-)?\d+(:\d{2}){0,2}", re.ASCII), re.compile(r"auto|\d+[KMGT]?", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ANY = "any"


def check_environment(key: str, environment: Mapping[str, str]) -> None:
    """Refuse names that an environment variable cannot have; values may be secret."""
    for name in environment:
        if not VARIABLE.fullmatch(name):
            raise ConfigError(f"`{key}` names no variable", got=name, expected="letters, digits, _")


def check_words(key: str, command: str) -> None:
    """Refuse a command that a shell cannot read."""
    try:
        shlex.split(command)
    except ValueError as error:
        do = "close every quotation mark"
        raise ConfigError(f"`{key}` cannot be read as words", got=f"{command}: {error}", do=do) from error


Time = Annotated[str, must(TIME.fullmatch, "is no time", "D-HH:MM:SS, HH:MM:SS, minutes or auto")]
Memory = Annotated[str, must(MEMORY.fullmatch, "is no size", "e.g. 64G, auto, or null")]
Environment = Annotated[dict[str, str], Rule(check_environment)]
Options = Annotated[
    list[str], must(lambda of: all(one.startswith("-") for one in of), "holds no option of sbatch", "e.g. --exclusive")
]


@dataclass
class SlurmConfig:
    """Configure the resources and the environment of a job."""

    partition: str | None = None  # partition of the cluster; null: the cluster's default
    account: str | None = None  # account that pays for the job, `sbatch --account`
    qos: str | None = None  # quality of service, `sbatch --qos`
    time: Time = "auto"  # D-HH:MM:SS, HH:MM:SS or minutes; auto: 24 hours
    memory: Memory | None = "auto"  # of every node; auto: 32G; null: the cluster's default
    cpus_per_task: Count = 4  # a task is one device
    gpu: str | None = None  # one GPU per task: a type, e.g. a100, or any; null: only if the accelerator is a GPU
    modules: list[str] = field(default_factory=list)  # modules to load before anything else
    setup: list[str] = field(default_factory=list)  # shell lines to run after that, e.g. source .venv/bin/activate
    environment: Environment = field(default_factory=dict)  # exported variables; only the job script has the values
    container: str | None = None  # image in which the command runs
    #: command before the image; its words are not expanded by a shell
    container_command: Annotated[str, Rule(check_words)] = "apptainer exec --nv"
    binds: list[str] = field(default_factory=list)  # folders that the container can access
    mail: str | None = None  # e-mail address
    mail_type: str = "END,FAIL"  # events for which SLURM sends mail to `slurm.mail`
    requeue: bool = True  # if preempted or out of time: save, queue again, continue
    #: seconds before the end of its time at which the job gets the signal to save
    warning: Annotated[int, at_least(10)] = 120
    #: most tasks of a job array that run at once; null: all
    array_limit: Annotated[int, at_least(1, "is no number of jobs")] | None = None
    options: Options = field(default_factory=list)  # more options of sbatch, e.g. ["--exclusive"]
    logs: str = "slurm"  # folder of output files, in the folder where the job is submitted

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        if self.binds and not self.container:
            raise ConfigError("`slurm.binds` needs a container", do="set `slurm.container`, or leave `binds` out")


Kind = TypeVar("Kind")
OfItsKind = Annotated[Kind, SkipValidation]  # a section that is read as its own kind before


@dataclass
class Config:
    """A configuration describes one experiment."""

    experiment: ExperimentConfig = field(default_factory=ExperimentConfig)
    seed: Seed = 0  # seed of weights, batches and dropout; `split.seed` is the seed of the parts
    cell: CellConfig = field(default_factory=CellConfig)
    data: DataConfig = field(default_factory=DataConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    model: OfItsKind[ModelConfig] = field(default_factory=HeteroCellConfig)  # `model.name` chooses the kind; see KINDS
    #: `loss.name` chooses the kind; in normalised units
    loss: OfItsKind[LossConfig] = field(default_factory=MaskedConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    paths: PathsConfig = field(default_factory=PathsConfig)
    resume: str = "auto"  # auto: continue from the run directory's last checkpoint | never | path of a checkpoint
    baselines: bool = True  # also fit the baselines that apply, on the same split
    plot: bool = True  # draw pictures and write the report at the end of the run
    plot_points: Count = 10_000  # most points in one picture, chosen at random

    def validate(self) -> None:
        """Check every section, then the sections against each other."""
        check_values(self)
        for section in vars(self).values():
            if hasattr(section, "validate"):
                section.validate()
        self._validate_fba()
        self._validate_names()
        self._validate_loss()
        self._validate_validation()
        self._validate_rates()
        has_relation = self.model.metabolism or self.cell.networks or self.cell.derived
        if self.model.needs_relations() and not has_relation:
            got = "no relation with reactions, no `cell.networks`, no `cell.derived`"
            do = "give networks or derived relations, or set `model.metabolism: true` where the model has that key"
            raise ConfigError("no relation is left for the model", got=got, do=do)

    def _validate_fba(self) -> None:
        """Refuse the growth that a metabolic model computes beside labels that the same model made."""
        source, fba = self.data.source, self.data.fba
        model = fba and (fba.model or self.cell.model)
        if source.name == "insilico" and model == source.insilico.model:
            what, got = "`data.fba` would give the model its own labels", f"`data.source.insilico.model: {model}`"
            do = "remove `data.fba`, or name another model in `data.fba.model`"
            raise ConfigError(what, got=got, expected="labels of another model, or measured ones", do=do)

    def _validate_loss(self) -> None:
        provided, loss = self.model.provides(), f"`loss.name: {self.loss.name}`"
        lacking, model = sorted(self.loss.needs() - provided), f"`model.name: {self.model.name}`"
        if lacking:
            what = f"{loss} needs what the model does not give: {', '.join(lacking)}"
            gives = ", ".join(sorted(provided)) or "none"
            raise ConfigError(what, got=f"{model}, which gives {gives}", do="choose another loss or model")
        for name, remedy in self.model.requires().items():
            if name not in self.loss.needs():
                what = f"{loss} does not read the model's {name}, which nothing else would train"
                raise ConfigError(what, got=model, do=f"set {remedy}")
        if self.loss.predicts_logits() != (self.data.normalise == "logistic"):
            what = "`data.normalise: logistic` goes with losses of logits, and with no other"
            do = "set `loss.name: bce` and `data.normalise: logistic`, or neither"
            raise ConfigError(what, got=f"{loss}, `data.normalise: {self.data.normalise}`", do=do)
        if self.data.normalise == "logistic" and self.model.link != "identity":
            what, got = "`data.normalise: logistic` is a link already", f"`model.link: {self.model.link}`"
            raise ConfigError(what, got=got, do="set `model.link: identity`")

    def _validate_rates(self) -> None:
        lr, least = self.optimizer.lr, self.scheduler.min_lr
        if self.scheduler.name != "none" and least > lr:
            what, do = "`scheduler.min_lr` is above `optimizer.lr`", f"set `scheduler.min_lr: {lr / 100:g}`"
            raise ConfigError(what, got=f"{least:g} and {lr:g}", expected=f"at most {lr:g}", do=do)

    def _validate_validation(self) -> None:
        """Refuse keys that need a validation part where every strain trains."""
        needed = {
            "trainer.checkpoint=last": self.trainer.checkpoint != "last",
            "trainer.patience=null": self.trainer.patience is not None,
            "scheduler.name=none": self.scheduler.name == "plateau",
        }
        mends = [f"`{mend}`" for mend, needs_validation in needed.items() if needs_validation]
        if self.split.trains_on_all and mends:
            what = f"`split.kind: {self.split.kind}` leaves no validation part, and other keys need one"
            got = ", ".join(mend.partition("=")[0] + "`" for mend in mends)
            raise ConfigError(what, got=got, do=f"set {', '.join(mends)}; the model is that of the last epoch")

    def _validate_names(self) -> None:
        given, name = self.experiment.name, Path(self.experiment.name)
        leads_out = name.is_absolute() or ".." in name.parts or not name.parts
        hidden = not given.isprintable() or any(not part.strip() for part in name.parts)
        if leads_out or hidden or any(len(part.encode()) > LONGEST_NAME for part in name.parts):
            fault = "leads out of `paths.runs`" if leads_out else "cannot be the name of a folder"
            expected = f"letters, digits and signs, at most {LONGEST_NAME} bytes, or several with `/` between them"
            raise ConfigError(f"`experiment.name` {fault}", got=ascii(given)[1:-1], expected=expected)
        if self.tracking.wandb != "disabled" and any(len(tag) > 64 for tag in self.experiment.tags):
            what = "`experiment.tags` has a tag that W&B refuses"
            raise ConfigError(what, got=self.experiment.tags, expected="at most 64 characters each")

    @property
    def run_directory(self) -> Path:
        """Return the run directory; experiment and seed name it, so that a requeued job finds what it wrote."""
        return Path(self.paths.runs) / self.experiment.name / f"seed-{self.seed}"
