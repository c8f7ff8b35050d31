"""What an experiment can say: typed configuration, every key with its default. `config_io` reads it from files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dglcell.checks import LONGEST_NAME, check_choice, check_seed, check_values, check_workers
from dglcell.data.config import (
    NORMALISATIONS,
    SplitConfig,
)
from dglcell.data.sources import SourceConfig
from dglcell.errors import ConfigError
from dglcell.graph.config import CellConfig
from dglcell.graph.vocabulary import UNKNOWN_POLICIES
from dglcell.losses.config import LOSS_CONFIGS, LossConfig, MaskedConfig
from dglcell.models.config import MODEL_CONFIGS, EncoderConfig, HeteroCellConfig, ModelConfig
from dglcell.nn.config import AUTO_LINK
from dglcell.optimizers import CAPTURABLE, OptimizerConfig, SchedulerConfig
from dglcell.runs.directory import CHECKPOINTS

KINDS: dict[str, Mapping[str, type]] = {
    "model": MODEL_CONFIGS,
    "loss": LOSS_CONFIGS,
}
"""Sections whose keys depend on their `name`: section → name → what its keys are."""

WANDB_MODES = ("disabled", "offline", "online")
LONGEST_WANDB_NAME, LONGEST_TAG = 128, 64
WANDB_REFUSES = frozenset("/\\#?%:")
"""Characters that no name of a project has."""

AUTO = "auto"


@dataclass
class ExpectedConfig:
    """What a run of the file as it stands should have on the test part, for its first phenotype."""

    metric: str = "pearson"  # a metric of results.json
    value: float = 0.0  # expected value of the metric
    tolerance: float = 0.0  # largest difference, up or down, between machines and versions


@dataclass
class ExperimentConfig:
    """What the run is called."""

    name: str = ""  # name of the run directory; the file's folder and stem if empty
    description: str = ""  # one line for listings and reports
    tags: list[str] = field(default_factory=list)  # tags of the W&B run
    expected: ExpectedConfig | None = None  # a result to compare with, if the command line changes no key


@dataclass
class DataConfig:
    """Strains and their batches."""

    source: SourceConfig = field(default_factory=SourceConfig)
    store: str | None = None  # path of the store; null: a folder in `paths.data`, named by source and options
    phenotypes: list[str] | None = None  # the phenotypes to predict; null: all
    normalise: str = "standard"  # scales labels: standard | minmax | robust | none | logistic, with training statistics
    unknown_genes: str = "refuse"  # strains with genes that the cell graph lacks: refuse | drop
    batch_size: int | str = 128  # strains per step and device; auto: measured when the run starts, then kept
    eval_batch_size: int | None = None  # strains per step in evaluation; null: batch_size

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        check_choice("data.unknown_genes", self.unknown_genes, UNKNOWN_POLICIES)
        check_choice("data.normalise", self.normalise, NORMALISATIONS)
        if isinstance(self.batch_size, str) and self.batch_size != AUTO:
            raise ConfigError("`data.batch_size` is no number", got=self.batch_size, expected="1 or more, or auto")
        for key in ("batch_size", "eval_batch_size"):
            size = getattr(self, key)
            if isinstance(size, int) and size < 1:
                raise ConfigError(f"`data.{key}` is too small", got=size, expected="1 or more")
        self.source.validate()

    @property
    def training_batch(self) -> int:
        """`batch_size`, once it is a number."""
        assert isinstance(self.batch_size, int)
        return self.batch_size

    @property
    def evaluation_batch(self) -> int:
        """`eval_batch_size`, or what it follows."""
        return self.eval_batch_size or self.training_batch


ACCELERATORS = ("auto", "cpu", "gpu", "cuda")
STRATEGIES = ("auto", "ddp")
"""Of processes, as Lightning names them."""

PRECISIONS = ("auto", "32-true", "bf16", "64-true")
"""Values of ``trainer.precision``. With ``bf16`` differences are stored and multiplied in bfloat16; the base, sums,
losses and weights stay in float32."""


OLD_PRECISIONS = {"bf16-mixed": "bf16", "32": "32-true", "64": "64-true"}
"""Names that files of other programs use, and what stands for them here."""


def check_precision(name: str) -> None:
    """Refuse a precision that there is not.

    Raises:
        ConfigError: naming those there are.
    """
    if name not in OLD_PRECISIONS:
        check_choice("trainer.precision", name, PRECISIONS, "set `trainer.precision: auto`")


@dataclass
class TrainerConfig:
    """How training runs."""

    epochs: int = 30  # passes over the training part
    accelerator: str = "auto"  # auto | cpu | gpu | cuda
    devices: int = 1  # processes on each machine; each uses one device
    num_nodes: int = 1  # number of machines
    strategy: str = "auto"  # how processes work together, as in Lightning: auto | ddp
    precision: str = "auto"  # auto | 32-true | bf16 (differences only) | 64-true
    accumulate_grad_batches: dict[int, int] = field(default_factory=dict)  # from epoch → batches per optimiser step
    gradient_clip_val: float | None = 10.0  # largest norm of the gradient; null: no limit
    deterministic: bool = True  # refuse non-deterministic kernels
    cuda_graph: bool = False  # launch each training step as one CUDA graph; not yet run on a GPU
    threads: int | str | None = AUTO  # CPU threads of torch; auto: measured while training, null: the same
    timeout: int = 1800  # seconds that processes wait for each other, also at the start, before all end
    patience: int | None = None  # stop after this many epochs without a better validation loss; null: never
    checkpoint: str = "best_pearson"  # reported checkpoint: best_loss | best_pearson | best_average_precision | last
    train_ranking: bool = True  # also rank the training part, which keeps its predictions of an epoch in memory
    progress: bool = True  # show a progress bar on a terminal

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        if isinstance(self.threads, str) and self.threads != AUTO:
            raise ConfigError("`trainer.threads` is no number", got=self.threads, expected="1 or more, or auto")
        for key in ("epochs", "devices", "num_nodes", "threads", "timeout", "patience"):
            number = getattr(self, key)
            if isinstance(number, int) and number < 1:
                raise ConfigError(f"`trainer.{key}` is too small", got=number, expected="1 or more")
        check_workers(self.given_threads, "trainer.threads")
        check_choice("trainer.checkpoint", self.checkpoint, CHECKPOINTS)
        check_choice("trainer.accelerator", self.accelerator, ACCELERATORS)
        check_choice("trainer.strategy", self.strategy, STRATEGIES)
        check_precision(self.precision)
        if self.gradient_clip_val is not None and self.gradient_clip_val <= 0:
            raise ConfigError(
                "`trainer.gradient_clip_val` must be positive",
                got=self.gradient_clip_val,
                do="use null for no clipping",
            )
        if any(epoch < 0 or batches < 1 for epoch, batches in self.accumulate_grad_batches.items()):
            raise ConfigError(
                "`trainer.accumulate_grad_batches` is no schedule",
                got=dict(self.accumulate_grad_batches),
                expected="{epoch: batches per step}, e.g. {0: 3}",
            )

    @property
    def given_threads(self) -> int | None:
        """`threads` where it is a number; None where the number is to be measured."""
        return self.threads if isinstance(self.threads, int) else None


@dataclass
class TrackingConfig:
    """Weights & Biases; the JSONL record is written in any case."""

    wandb: str = "disabled"  # disabled | offline | online
    project: str = "dglcell"  # project at W&B
    entity: str | None = None  # user or team at W&B; null: your own
    group: str | None = None  # group at W&B; null: the experiment's name

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        check_choice("tracking.wandb", self.wandb, WANDB_MODES)
        if self.wandb == "disabled":
            return
        for key in ("project", "entity", "group"):
            name = getattr(self, key)
            if name is not None and not (0 < len(name) <= LONGEST_WANDB_NAME and not set(name) & WANDB_REFUSES):
                raise ConfigError(
                    f"`tracking.{key}` is no name that W&B takes",
                    got=name,
                    expected=f"1 to {LONGEST_WANDB_NAME} characters, none of {' '.join(sorted(WANDB_REFUSES))}",
                )


@dataclass
class PathsConfig:
    """Where files are."""

    raw: str | None = None  # folder of raw files; null: the environment variable DGLCELL_RAW
    data: str = "data"  # folder of stores
    runs: str = "runs"  # folder of run directories

    def validate(self) -> None:
        """Raises ConfigError, naming the key."""
        for key in ("data", "runs"):
            if not getattr(self, key):
                raise ConfigError(f"`paths.{key}` is empty", expected="a folder", do="e.g. `.` for the working folder")


TIME = re.compile(r"(\d+-)?\d+(:\d{2}){0,2}", re.ASCII)


MEMORY = re.compile(r"\d+[KMGT]?", re.ASCII)


ANY = "any"


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class SlurmConfig:
    """Resources and surroundings of a job."""

    partition: str | None = None  # partition of the cluster; null: the cluster's default
    account: str | None = None  # account that pays for the job, `sbatch --account`
    qos: str | None = None  # quality of service, `sbatch --qos`
    time: str = "auto"  # D-HH:MM:SS, HH:MM:SS or minutes; auto: more than a finished or recorded run took
    memory: str | None = "auto"  # of every node; auto: more than such a run took; null: the default
    cpus_per_task: int = 4  # a task is one device
    gpu: str | None = None  # one GPU per task: a type, e.g. a100, or any; null: only if `trainer.accelerator` is gpu
    modules: list[str] = field(default_factory=list)  # modules to load before anything else
    setup: list[str] = field(default_factory=list)  # shell lines to run after that, e.g. source .venv/bin/activate
    environment: dict[str, str] = field(default_factory=dict)  # exported variables; only the job script has the values
    container: str | None = None  # image in which the command runs
    container_command: str = "apptainer exec --nv"  # command before the image; its words are not expanded by a shell
    binds: list[str] = field(default_factory=list)  # folders that the container can access
    mail: str | None = None  # e-mail address
    mail_type: str = "END,FAIL"  # events for which SLURM sends mail to `slurm.mail`
    requeue: bool = True  # if preempted or out of time: save, queue again, continue
    warning: int = 120  # seconds before the end of its time at which the job gets the signal to save
    array_limit: int | None = None  # most tasks of a job array that run at once; null: all
    options: list[str] = field(default_factory=list)  # more options of sbatch, e.g. ["--exclusive"]
    logs: str = "slurm"  # folder of output files, in the folder where the job is submitted

    def validate(self) -> None:
        """Check values.

        Raises:
            ConfigError: naming the key.
        """
        if self.array_limit is not None and self.array_limit < 1:
            raise ConfigError("`slurm.array_limit` is no number of jobs", got=self.array_limit, expected="1 or more")
        if self.time != AUTO and not TIME.fullmatch(self.time):
            expected = f"D-HH:MM:SS, HH:MM:SS, minutes or {AUTO}"
            raise ConfigError("`slurm.time` is no time", got=self.time, expected=expected)
        if self.memory not in (None, AUTO) and not MEMORY.fullmatch(str(self.memory)):
            raise ConfigError("`slurm.memory` is no size", got=self.memory, expected=f"e.g. 64G, {AUTO}, or null")
        for key, minimum in (("cpus_per_task", 1), ("warning", 10)):
            if getattr(self, key) < minimum:
                raise ConfigError(f"`slurm.{key}` is too small", got=getattr(self, key), expected=f"{minimum} or more")
        for name in self.environment:
            if not VARIABLE.fullmatch(name):
                raise ConfigError("`slurm.environment` names no variable", got=name, expected="letters, digits, _")
        for option in self.options:
            if not option.startswith("-"):
                raise ConfigError("`slurm.options` holds no option of sbatch", got=option, expected="e.g. --exclusive")
        if self.binds and not self.container:
            raise ConfigError("`slurm.binds` needs a container", do="set `slurm.container`, or leave `binds` out")
        try:
            shlex.split(self.container_command)
        except ValueError as error:
            raise ConfigError(
                "`slurm.container_command` cannot be read as words", got=f"{self.container_command}: {error}"
            ) from error


@dataclass
class Config:
    """One experiment."""

    experiment: ExperimentConfig = field(default_factory=ExperimentConfig)
    seed: int = 0  # seed of weights, batches and dropout; `split.seed` is the seed of the parts
    cell: CellConfig = field(default_factory=CellConfig)
    data: DataConfig = field(default_factory=DataConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    model: ModelConfig = field(default_factory=HeteroCellConfig)  # `model.name` chooses the kind; see KINDS
    loss: LossConfig = field(default_factory=MaskedConfig)  # `loss.name` chooses the kind; in normalised units
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    paths: PathsConfig = field(default_factory=PathsConfig)
    resume: str = "auto"  # auto: continue from the run directory's last checkpoint | never | path of a checkpoint
    null_models: bool = True  # also fit the null models that apply, on the same split
    plot: bool = True  # draw pictures and write the report at the end of the run
    plot_every: int = 0  # also draw the validation part each time this many epochs are done; 0: never
    plot_points: int = 10_000  # most points in one picture, chosen at random

    def validate(self) -> None:
        """Check every section, then the sections against each other.

        Raises:
            ConfigError: naming the key.
            GraphError: a network's name cannot name a relation.
        """
        check_values(self)
        for section in (
            self.cell,
            self.data,
            self.split,
            self.model,
            self.loss,
            self.optimizer,
            self.scheduler,
            self.trainer,
            self.tracking,
            self.slurm,
            self.paths,
        ):
            section.validate()
        self._validate_names()
        self._validate_loss()
        self._validate_plots()
        if self.trainer.cuda_graph:
            self._validate_graph()
        self._validate_validation()
        if self.data.batch_size == AUTO and self.trainer.devices * self.trainer.num_nodes > 1:
            raise ConfigError(
                "`data.batch_size: auto` works with a single device only",
                got=f"`trainer.devices: {self.trainer.devices}`, `trainer.num_nodes: {self.trainer.num_nodes}`",
                do="give a number; a run on one such device finds a good one",
            )
        has_relation = self.model.uses_metabolism() or self.cell.networks or self.cell.derived
        if self.model.needs_relations() and not has_relation:
            raise ConfigError(
                "no relation is left for the model",
                got="no relation with reactions, no `cell.networks`, no `cell.derived`",
                do="give networks or derived relations, or set `model.metabolism: true` where the model has that key",
            )

    def _validate_loss(self) -> None:
        provided = self.model.provides()
        lacking = sorted(self.loss.needs() - provided)
        if lacking:
            raise ConfigError(
                f"`loss.name: {self.loss.name}` needs what the model does not give: {', '.join(lacking)}",
                got=f"`model.name: {self.model.name}`, which gives {', '.join(sorted(provided)) or 'none'}",
                do="choose another loss or model",
            )
        for name, remedy in self.model.requires().items():
            if name not in self.loss.needs():
                raise ConfigError(
                    f"`loss.name: {self.loss.name}` does not read the model's {name}, which nothing else would train",
                    got=f"`model.name: {self.model.name}`",
                    do=f"set {remedy}",
                )
        if self.loss.predicts_logits() != (self.data.normalise == "logistic"):
            raise ConfigError(
                "`data.normalise: logistic` goes with losses of logits, and with no other",
                got=f"`loss.name: {self.loss.name}`, `data.normalise: {self.data.normalise}`",
                do="set `loss.name: bce` and `data.normalise: logistic`, or neither",
            )
        link = self.model.link if isinstance(self.model, EncoderConfig) else "identity"
        if self.data.normalise == "logistic" and link not in ("identity", AUTO_LINK):
            raise ConfigError(
                "`data.normalise: logistic` is a link already",
                got=f"`model.link: {link}`",
                do="set `model.link: identity`",
            )

    def _validate_plots(self) -> None:
        for key, least in (("plot_every", 0), ("plot_points", 1)):
            if getattr(self, key) < least:
                raise ConfigError(f"`{key}` is too small", got=getattr(self, key), expected=f"{least} or more")

    def _validate_graph(self) -> None:
        """A CUDA graph has fixed shapes, never waits, and is one process's."""
        trainer, model = self.trainer, self.model
        conv, recompute, strategy = (getattr(model, key, "") for key in ("conv", "recompute", "strategy"))
        processes = trainer.devices * trainer.num_nodes
        interval = "epoch" if self.scheduler.name == "none" else self.scheduler.interval
        for key, got, known in (
            ("trainer.accelerator", trainer.accelerator, ("gpu", "cuda", "auto")),
            ("trainer.devices", processes, (1,)),
            ("trainer.accumulate_grad_batches", dict(trainer.accumulate_grad_batches), ({},)),
            ("scheduler.interval", interval, ("epoch",)),
            ("optimizer.name", self.optimizer.name, CAPTURABLE),
            ("model.name", model.name, ("hetero_cell",)),
            ("model.strategy", strategy, ("node_mask", "auto")),
            ("model.conv", conv, ("gin", "sage")),
            ("model.recompute", recompute, ("false",)),
            ("cell.lose_blocked", self.cell.lose_blocked, (False,)),
        ):
            if got not in known:
                raise ConfigError(
                    f"`trainer.cuda_graph: true` does not go with this `{key}`",
                    got=got,
                    expected=" or ".join(map(str, known)),
                    do="change it, or set `trainer.cuda_graph: false`",
                )

    def _validate_validation(self) -> None:
        """Refuse what the validation part decides where every strain trains."""
        needed = {
            "trainer.checkpoint=last": self.trainer.checkpoint != "last",
            "trainer.patience=null": self.trainer.patience is not None,
            "scheduler.name=none": self.scheduler.name == "plateau",
            "plot_every=0": self.plot_every > 0,
        }
        mends = [f"`{mend}`" for mend, needs_validation in needed.items() if needs_validation]
        if self.split.trains_on_all and mends:
            raise ConfigError(
                f"`split.kind: {self.split.kind}` leaves no validation part, and other keys need one",
                got=", ".join(mend.partition("=")[0] + "`" for mend in mends),
                do=f"set {', '.join(mends)}; the model is that of the last epoch",
            )

    def _validate_names(self) -> None:
        check_seed(self.seed, "seed")
        name = Path(self.experiment.name)
        if name.is_absolute() or ".." in name.parts or not name.parts:
            raise ConfigError(
                "`experiment.name` leads out of `paths.runs`",
                got=self.experiment.name,
                expected="a name, or names separated by `/`",
            )
        if not self.experiment.name.isprintable() or any(not part.strip() for part in name.parts):
            raise ConfigError(
                "`experiment.name` has characters that nobody sees",
                got=ascii(self.experiment.name),
                expected="letters, digits and signs",
            )
        if any(len(part.encode()) > LONGEST_NAME for part in name.parts):
            raise ConfigError(
                "`experiment.name` is too long for a folder",
                got=self.experiment.name,
                expected=f"at most {LONGEST_NAME} bytes between two `/`",
            )
        if self.tracking.wandb != "disabled" and any(len(tag) > LONGEST_TAG for tag in self.experiment.tags):
            raise ConfigError(
                "`experiment.tags` has a tag that W&B refuses",
                got=list(self.experiment.tags),
                expected=f"at most {LONGEST_TAG} characters each",
            )

    def with_batch_size(self, batch_size: int) -> Config:
        """The same with a number for `data.batch_size`."""
        return replace(self, data=replace(self.data, batch_size=batch_size))

    @property
    def run_directory(self) -> Path:
        """Keyed by experiment and seed, so that a requeued job finds what it wrote."""
        return Path(self.paths.runs) / self.experiment.name / f"seed-{self.seed}"
